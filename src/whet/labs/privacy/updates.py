"""The very update that a program would send, as an attacker observes it.

gradients    of one batch, as `trainer.gradients` collects them: shared in every step
difference   of the trained parameters after local steps, as in federated averaging
delta        the bytes that a program compiled with `send=` writes, clipped, noised and sparse as
             they are, and read as a server reads them
given        arrays by name, after minus before: what a received message was decoded to

An attacker who sees a difference takes it for a gradient: divided by the learning rate and the
number of steps. After one step of plain SGD that is what it is, up to rounding. A batch norm that
became part of an integer parameter moved it by its factor once more than the gradient has it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ... import Program
from ...errors import DataError
from ...runtime import to_numpy, trained
from ...runtime.update import by_name, decode
from .gradients import Observation, fold_of, observe, unfolded
from .roc import Array

GRADIENTS = "gradients of one step"


def sent_by(
    program: Program,
    x: Any,
    y: Any,
    *,
    steps: int = 0,
    update: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    loss: Any = None,
    span: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
) -> tuple[Observation, str]:
    """What is seen of one batch, and in words what that is.

    A program that sends updates is asked for one, after `steps` on this batch or else after one.
    Of another it is the difference after so many steps, and without `steps` the collected
    gradients, if the program collects them. `update` is what was sent, if that is known.
    """
    check_source(program, model, loss)
    if update is None and program.delta is not None:
        return delta(program, x, y, max(steps, 1), model, loss, span, seed)
    if update is None and steps == 0 and "gradients" in program.entries:
        return observe(program, x, y, model=model, loss=loss, span=span), GRADIENTS
    count = max(steps, 1)
    if update is None:
        seen = difference(program, x, y, count)
        words = f"change of the trained parameters after {local(count)}"
    else:
        seen = {n: np.asarray(to_numpy(a), np.float32) for n, a in update.items()}
        words = "the update as given"
    gradients = {n: -a / (program.lr * count) for n, a in seen.items()}
    return seen_through(program, gradients, x, model, loss, span), words


def local(steps: int) -> str:
    return "one local step" if steps == 1 else f"{steps} local steps on one batch"


def delta(
    program: Program,
    x: Any,
    y: Any,
    steps: int,
    model: nn.Module | None,
    loss: Any,
    span: tuple[float, float],
    seed: int,
) -> tuple[Observation, str]:
    """The attacker knows which coordinates were left out, the scale of the noise, and that the
    update was clipped, though not by which factor.

    The key of the noise is made from the seed, so that an audit can be repeated.
    """
    trainer = program.load()
    trainer.begin()
    for _ in range(steps):
        trainer.step(x, y)
    blob = trainer.delta(0, np.random.default_rng(seed).bytes(32))
    update = decode(blob, program.fingerprint)
    arrays = by_name(program, update, real=True)
    gradients = {n: -a / (program.lr * steps) for n, a in arrays.items()}
    seen = seen_through(program, gradients, x, model, loss, span)
    send = program.options.send
    assert send is not None
    seen = seen.defended(
        seen.gradients,
        {n: a != 0 for n, a in arrays.items()} if update.k < update.n else None,
        noise=send.noise * (send.clip or 0.0) / (program.lr * steps),
        scaled=send.clip is not None,
    )
    return seen, f"the {len(blob):,} bytes that it sends after {local(steps)} ({said(send)})"


def said(send: Any) -> str:
    words = [f"clip={send.clip:g}"] if send.clip is not None else []
    words += [f"noise={send.noise:g}"] if send.noise else []
    words += [f"top_k={send.top_k:g}"] if send.top_k < 1 else []
    return ", ".join([*words, f"values as {send.coding}"])


def difference(program: Program, x: Any, y: Any, steps: int) -> dict[str, Array]:
    """The trained parameters after local steps on one batch, minus those before."""
    trainer = program.load()
    before = trained(trainer)
    for _ in range(steps):
        trainer.step(x, y)
    return {n: after - before[n] for n, after in trained(trainer).items()}


def seen_through(
    program: Program,
    gradients: Mapping[str, Array],
    x: Any,
    model: nn.Module | None,
    loss: Any,
    span: tuple[float, float],
) -> Observation:
    if unknown := gradients.keys() ^ program.trained.keys():
        raise DataError(
            f"the update and the program differ in {', '.join(sorted(unknown))}",
            why=f"the program trains {', '.join(program.trained)}",
        )
    source = program.source
    known = copy.deepcopy(source.model if model is None else model)
    known.load_state_dict(program.load().state_dict(), strict=False)
    known.requires_grad_(True)
    shape = tuple(int(n) for n in np.shape(x))
    with torch.no_grad():
        example = torch.zeros(shape) if to_numpy(x).dtype.kind == "f" else torch.zeros(shape).long()
        classes = int(known(example).shape[-1])
    return Observation(
        gradients={n: unfolded(program, n, g * fold_of(program, n)) for n, g in gradients.items()},
        model=known,
        loss=source.loss if loss is None else loss,
        shape=shape,
        classes=classes,
        parts={n: program.trained[n] for n in gradients},
        span=span,
    )


def check_source(program: Program, model: nn.Module | None, loss: Any) -> None:
    """An attack computes gradients of guesses, in PyTorch."""
    if program.source is None and (model is None or loss is None):
        raise DataError(
            "an attack needs the PyTorch model, which a saved program does not have",
            why="it compares the update with gradients of guesses, which PyTorch computes",
            try_="audit(program, x, y, model=..., loss=...): what it was compiled from",
        )
