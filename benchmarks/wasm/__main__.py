"""Training steps of WebAssembly modules, in Node and Chromium, against the same C natively.

    python -m benchmarks.wasm --tfjs FOLDER     every network; writes README.md
    python -m benchmarks.wasm lenet             some of them; prints, and writes nothing

FOLDER is the npm package @tensorflow/tfjs (in node_modules after `npm install`), which trains the
same LeNet-5 in the same browser. Needs what `make system-wasm` and `make system-browser` install.
Every network takes 20 steps on one batch; the losses and the checkpoint at the end must be those of
the native program, to the bit. The native program with vectors of 128 bits is compiled from the
very files of the module; the one of the target `host` has this machine's vectors.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.page import processor, table, wrapped
from benchmarks.wasm import tfjs
from benchmarks.wasm.chromium import checksum, trained
from whet import models
from whet.runtime import Trainer, stored_batch
from whet.targets.wasm.node import Node
from whet.targets.wasm.project import Memory

PAGE = Path(__file__).with_name("README.md")
STEPS, RATE = 20, 0.01
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
Made by `python -m benchmarks.wasm --tfjs FOLDER` in one run, on {processor}. Medians of {steps}
steps on one picture, one thread. Every network trains whole, by SGD. "Same bits" says that all
losses and the checkpoint at the end are equal in Node, in Chromium and natively with vectors of 128
bits, which is the same C; int8 programs are equal to the one of the target host, too.
"""
TFJS = """
The same LeNet-5 with the same weights on the same picture, three times {steps} steps in turns,
medians; the losses agree. Without a GPU: its back end `cpu` is JavaScript, and its back end `wasm`
has no gradient of a convolution. The download is the script and the weights, or the module, which
has its weights in it. whet is {ratio} times as fast.
"""


def compiled(name: str, target: str) -> tuple[Any, Any, Any]:
    _, build, shape, options = NETS[name]
    torch.manual_seed(0)
    model, x, y = build().eval(), torch.randn(shape), torch.tensor([3])
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
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


def beside_tfjs(package: Path) -> str:
    """LeNet-5 in both, in turns; the losses must agree."""
    program, x, y = compiled("lenet", "wasm")
    torch.manual_seed(0)
    model = models.lenet().eval()
    ours: list[float] = []
    theirs: list[float] = []
    with Node(program) as node:
        arrays, size = stored_batch(program, x, y), node.module.stat().st_size
        for _ in range(3):
            here = trained(node, arrays, STEPS)
            there = tfjs.trained(package, model, x, int(y), STEPS, RATE)
            np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-5)
            ours, theirs = ours + here["times"], theirs + there["times"]
    us, them = statistics.median(ours), statistics.median(theirs)
    script = there["bytes"] + 4 * sum(p.numel() for p in model.parameters())
    head = ["LeNet-5 in Chromium", "download, KB", "ms a step", "steps a second"]
    rows = [
        ["whet, module", f"{size / 1024:,.0f}", f"{us:.2f}", f"{1000 / us:,.0f}"],
        [f"TensorFlow.js {there['version']}, cpu", f"{script / 1024:,.0f}", f"{them:.1f}",
         f"{1000 / them:,.0f}"],
    ]  # fmt: skip
    return f"{wrapped(TFJS, steps=STEPS, ratio=f'{them / us:,.0f}')}\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=", ".join(NETS))
    parser.add_argument("--tfjs", type=Path, help="the npm package @tensorflow/tfjs")
    asked = parser.parse_args()
    text = table(HEAD, [measured(name) for name in asked.names or NETS])
    if asked.tfjs is None or asked.names:
        print(text)
        return
    intro = wrapped(INTRO, processor=processor(), steps=STEPS)
    beside = f"## Beside TensorFlow.js\n\n{beside_tfjs(asked.tfjs)}"
    PAGE.write_text(f"# Training in WebAssembly\n\n{intro}\n{text}\n{beside}")
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
