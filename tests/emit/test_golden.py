"""The smallest programs, as a reader sees them: float, int8, and int8 on a microcontroller.

They show a change in generated code as a difference to read. Whole programs of real size are held
by tests/test_replay.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import whet
from golden import spelled, steady
from tiny import mlp, vectors

Accepted = Callable[[str, str], None]


def plain(model: nn.Module) -> nn.Module:
    """With parameters that are exact in any rounding: multiples of 1/8."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((torch.arange(p.numel()) % 7 - 3).reshape(p.shape) / 8)
    return model.eval()


def ramp(*shape: int) -> Tensor:
    """Multiples of 1/2 from -1 to 1."""
    return (torch.arange(torch.Size(shape).numel()) % 5 - 2).reshape(shape) / 2


def float_program() -> whet.Program:
    torch.manual_seed(0)
    return whet.compile(mlp(), next(vectors())[:1])


def int8_program() -> whet.Program:
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
    model = plain(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)))
    x = ramp(1, 2, 4, 4)
    return whet.compile(model, (x,), dtype="int8", calibrate=[x], portable=True)


def cortex_program() -> whet.Program:
    """Biases and the last layer train; fractions of a step are carried on in 8 bits."""
    model = plain(
        nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU6(), nn.Conv2d(4, 8, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
        )
    )  # fmt: skip
    x = ramp(1, 4, 4, 4)
    return whet.compile(
        model, (x,), dtype=whet.Int8(rounding="carry8"), calibrate=[x], target="cortex-m7",
        update="bias+last",
    )  # fmt: skip


PROGRAMS = {
    "float": (float_program, ("model.h", "model.c")),
    "int8": (int8_program, ("model.h", "model.c", "weights.c")),
    "cortex-m7": (cortex_program, ("model.h", "model.c", "Makefile", "board/link.ld", "main.c")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_smallest_programs_are_as_they_were_accepted(name: str, accepted: Accepted) -> None:
    make, paths = PROGRAMS[name]
    program = make()
    files = {"train_step.ir": f"{program.entries['train_step']}\n".encode()} | program.files
    shown = ["train_step.ir", *paths]
    text = bytes.decode if name == "float" else steady  # scales of int8 come from sums
    accepted(f"{name}.txt", spelled({path: text(files[path]) for path in shown}, shown))
