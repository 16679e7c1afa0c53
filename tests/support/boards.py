"""A small int8 network for a microcontroller, data for it, and mistakes to plant in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import whet
from integer_models import Residual
from whet.emit.program import Program

SHAPE = (1, 3, 16, 16)


def compiled(target: str, **options: Any) -> Program:
    torch.manual_seed(0)
    model = Residual().eval()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    shown = [torch.randn(8, *SHAPE[1:])]
    return whet.compile(
        model,
        (torch.zeros(SHAPE),),
        optimizer=sgd,
        dtype="int8",
        calibrate=shown,
        target=target,
        **options,
    )


def batches(count: int, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield random.normal(size=SHAPE).astype(np.float32), random.integers(0, 5, 1)


def planted(program: Program, statement: str) -> Program:
    """The program with a mistake in its training step."""
    bad = replace(program, measured={})
    files = dict(program.files)
    head = b"    const net_status_t status = net_train_step"
    assert files["main.c"].count(head) == 1
    files["main.c"] = files["main.c"].replace(head, f"    {statement}\n".encode() + head)
    bad.__dict__["files"] = files
    return bad
