"""Training steps of WebAssembly modules, in Node and Chromium, against the same C natively.

    python -m benchmarks.wasm             every network; writes README.md
    python -m benchmarks.wasm lenet       some of them; prints, and writes nothing

Needs what `make system-wasm` and `make system-browser` install. Every network takes 20 steps on one
batch; the losses and the checkpoint at the end must be those of the native program, to the bit. The
native program with vectors of 128 bits is compiled from the very files of the module; the one of
the target `host` has this machine's vectors.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whet
from benchmarks.common.page import processor, table, wrapped
from benchmarks.wasm.chromium import checksum, trained
from whet import models
from whet.runtime import Trainer, stored_batch
from whet.targets.wasm.node import Node
from whet.targets.wasm.project import Memory

PAGE = Path(__file__).with_name("README.md")
STEPS = 20
NARROW = ("-O3", "-ffp-contract=off")  # 128 bits, as WebAssembly has them
NETS: dict[str, tuple[str, Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "lenet": ("LeNet-5", models.lenet, (1, 1, 28, 28), {}),
    "mbv2": (
        "MobileNetV2-0.35",
        lambda: models.mobilenet_v2(num_classes=10, width=0.35),
        (1, 3, 96, 96),
        {},
    ),
    "mcunet": (
        "MCUNet, int8",
        lambda: models.mcunet_5fps(num_classes=10),
        (1, 3, 128, 128),
        {"dtype": "int8"},
    ),
}
HEAD = (
    "one picture a step", "module, KB", "memory, KB", "Node, ms", "Chromium, ms",
    "native 128 bits, ms", "native host, ms", "Node / 128 bits", "Node / host", "same bits",
)  # fmt: skip
INTRO = """
Made by `python -m benchmarks.wasm` in one run, on {processor}. Medians of {steps} steps on one
picture, one thread. Every network trains whole, by SGD. "Same bits" says that all losses and the
checkpoint at the end are equal in Node, in Chromium and natively with vectors of 128 bits, which is
the same C; int8 programs are equal to the one of the target host, too.
"""


def compiled(name: str, target: str) -> tuple[Any, Any, Any]:
    _, build, shape, options = NETS[name]
    torch.manual_seed(0)
    model, x, y = build().eval(), torch.randn(shape), torch.tensor([3])
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    if options:
        options = options | {"calibrate": [x]}
    program = whet.compile(model, (x,), optimizer=sgd, target=target, **options)
    return program, x, y


def native(trainer: Trainer, x: Any, y: Any) -> tuple[list[float], float]:
    """Losses, and milliseconds of a step."""
    losses, times = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        losses.append(trainer.step(x, y))
        times.append(1e3 * (time.perf_counter() - start))
    return losses, statistics.median(times)


def measured(name: str) -> list[str]:
    """A row of the table."""
    program, x, y = compiled(name, "wasm")
    with Node(program) as node:
        losses, times = [], []
        for _ in range(STEPS):
            losses.append(node.step(x, y))
            times.append(node.milliseconds)
        saved, size = node.save(), node.module.stat().st_size
        browser = trained(node, stored_batch(program, x, y), STEPS)
    here = Trainer(program, NARROW)
    same, narrow = native(here, x, y)
    host = compiled(name, "host")[0].load()
    wide_losses, wide = native(host, x, y)
    equal = losses == same == browser["losses"] and saved == here.save()
    equal = equal and browser["sum"] == checksum(saved)
    if program.integer:
        equal = equal and wide_losses == losses and host.save() == saved
    ours = statistics.median(times)
    cells = [ours, statistics.median(browser["times"]), narrow, wide]
    return [
        NETS[name][0], f"{size / 1024:,.0f}", f"{Memory.of(program).initial / 1024:,.0f}",
        *(f"{cell:.2f}" for cell in cells), f"{ours / narrow:.2f}", f"{ours / wide:.2f}",
        "yes" if equal else "NO",
    ]  # fmt: skip


def main(names: list[str]) -> None:
    rows = [measured(name) for name in names or NETS]
    text = table(HEAD, rows)
    if names:
        print(text)
        return
    intro = wrapped(INTRO, processor=processor(), steps=STEPS)
    PAGE.write_text(f"# Training in WebAssembly\n\n{intro}\n{text}")
    print(PAGE.read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
