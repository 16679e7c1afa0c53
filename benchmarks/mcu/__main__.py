"""The three int8 networks of the paper on a microcontroller: memory, instructions, bits.

    python -m benchmarks.mcu                       the published schemes; writes README.md
    python -m benchmarks.mcu mcunet-5fps-49kb      some of them; prints, and writes nothing
    python -m benchmarks.mcu --steps 5             fewer steps

Each program is linked into 256 KB of RAM and 1 MB of flash and trains in QEMU, watched by a plugin
that looks at every load and store. The same steps run on this machine: losses, and in the end all
weights, must have the same bits. For the schemes of about 50 KB the NumPy reference runs as well.
With $WHET_DATA, the folder of backbones and pictures, weights are the pretrained ones and the
samples are flowers; without it both are random.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import pictures
from benchmarks.common.page import table
from benchmarks.common.pictures import Array
from whet import models
from whet.targets.bare_metal.profile import PHASES, Profile
from whet.targets.cortex_m import Board
from whet.verify.integer import equal_steps

PAGE = Path(__file__).with_name("README.md")
CLASSES = 10
RATE = 0.02
MAKE = {
    "mcunet-5fps": lambda: models.mcunet_5fps(CLASSES, folded=True),
    "mbv2-w0.35": lambda: models.mobilenet_v2(CLASSES, 0.35, feature_mix=False, folded=True),
    "proxyless-w0.3": lambda: models.proxyless_nas_mobile(
        CLASSES, 0.3, feature_mix=False, folded=True
    ),
}
SCHEMES = {  # extra memory that their authors give, in KB
    "mcunet-5fps": (49, 74, 99, 124, 148),
    "mbv2-w0.35": (49, 73, 99, 123, 138),
    "proxyless-w0.3": (49, 74, 98, 120, 148),
}
PAPER = {"mcunet-5fps": 173, "mbv2-w0.35": 141, "proxyless-w0.3": 135}  # KB, arXiv:2206.15472


@dataclass(frozen=True)
class Result:
    name: str
    ram: int
    stack: int
    flash: int
    profile: Profile
    plain: float  # instructions of a step with ref/ kernels alone
    outside: int
    steps: int
    numpy: bool  # whether the reference ran as well
    apart: int  # losses and tensors that differ from this machine's
    paint: int


def network(backbone: str) -> nn.Module:
    torch.manual_seed(0)
    if "WHET_DATA" not in os.environ:
        return MAKE[backbone]().eval()
    path = pictures.data_path("imagenet-backbones", f"{backbone}_int8.npz")
    model = models.load_int8_backbone(path)
    old = model.classifier[1]
    assert isinstance(old, nn.Linear)
    model.classifier[1] = nn.Linear(old.in_features, CLASSES)
    return model.eval()


def samples(count: int) -> Iterator[tuple[Array, Array]]:
    random = np.random.default_rng(0)
    if "WHET_DATA" in os.environ:
        train = pictures.load("flowers102", "train")
        few = np.flatnonzero(train.labels < CLASSES)
        for i in random.choice(few, count):
            yield pictures.centre(train.images[i : i + 1]), train.labels[i : i + 1]
        return
    for _ in range(count):
        x = random.integers(-128, 128, (1, 3, pictures.TAKEN, pictures.TAKEN), dtype=np.int8)
        yield x, random.integers(0, CLASSES, 1)


def compiled(model: nn.Module, scheme: str, target: str, portable: bool = False) -> whet.Program:
    example = torch.zeros(1, 3, pictures.TAKEN, pictures.TAKEN)
    shown = torch.rand(example.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    given = None if hasattr(model, "whet_recipe") else [shown]
    return whet.compile(
        model,
        (example,),
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        update=scheme,
        dtype="int8",
        calibrate=given,
        target=target,
        portable=portable,
    )


def measured(backbone: str, scheme: str, target: str, steps: int, numpy: bool) -> Result:
    model = network(backbone)
    here = compiled(model, scheme, "host").load(threads=1)
    program = compiled(model, scheme, target)
    board = Board(program)
    batches = list(samples(steps))
    if numpy:
        losses = [loss for _, loss in equal_steps(board, [((x,), y) for x, y in batches])[0]]
    else:
        losses = [board.step(x, y) for x, y in batches]
    apart = sum(here.step(x, y) != loss for (x, y), loss in zip(batches, losses, strict=True))
    ours, theirs = board.arrays(), here.arrays()
    apart += sum(ours[name].tobytes() != theirs[name].tobytes() for name in theirs)
    seen = board.close()
    assert seen is not None
    return Result(
        scheme,
        board.firmware.ram,
        seen.stack,
        board.firmware.flash,
        board.profile(),
        plain_step(model, scheme, target, batches[0]),
        seen.outside,
        steps,
        numpy,
        apart,
        program.measured["stack, by its paint"],
    )


def plain_step(model: nn.Module, scheme: str, target: str, batch: tuple[Array, Array]) -> float:
    board = Board(compiled(model, scheme, target, portable=True))
    board.step(*batch)
    board.close()
    return board.profile().total


def page(found: list[Result], target: str) -> str:
    memory = [
        [r.name, f"{r.ram:,}", f"{r.stack:,}", f"{r.flash:,}", paper_ram(r.name)] for r in found
    ]
    work = [
        [
            r.name,
            *(f"{r.profile.of(phase) / 1e6:.1f}" for phase in PHASES),
            f"{r.profile.total / 1e6:.1f}",
            f"{r.plain / 1e6:.1f}",
            f"{r.plain / r.profile.total:.2f}",
        ]
        for r in found
    ]
    proof = [
        [r.name, f"{r.steps}", f"{r.outside}", "yes" if r.paint == r.stack else "no",
         f"{r.apart}", "yes" if r.numpy else "-"]
        for r in found
    ]  # fmt: skip
    weights = "pretrained" if "WHET_DATA" in os.environ else "random"
    return "\n".join(
        [
            f"# Training in 256 KB\n\nMade by `python -m benchmarks.mcu`: int8 networks at 128 x "
            f"128, batch 1, {CLASSES} classes, {weights} weights,\nbuilt for {target} with "
            "arm-none-eabi-gcc -O2 and run in QEMU.\n",
            "## Memory\n\nBytes of the linked program: `.data`, `.bss` and the stack's section, "
            "which is all the RAM there is. The stack used\nis the plugin's figure. The paper's "
            "total is for its scheme of about 50 KB (arXiv:2206.15472).\n",
            table(["scheme", "RAM", "stack used", "flash", "paper's RAM"], memory),
            "## Instructions of a training step\n\nIn millions, mean of all steps. Plain is the "
            "same program with the portable kernels alone. A weight that is updated\nwhile its "
            "gradient is made counts as backward.\n",
            table(["scheme", *PHASES, "step", "plain", "plain / step"], work),
            "## Proof\n\nLoads and stores outside of the memory, whether the painted stack agrees "
            "with the plugin, and how many of the losses\nand of the trained tensors differ from "
            "those of the program built for this machine, in any bit. Where it says so,\nevery "
            "step was compared with the NumPy reference too, which stops at the first such bit.\n",
            table(["scheme", "steps", "outside", "paint agrees", "differ", "NumPy too"], proof),
        ]
    )


def paper_ram(scheme: str) -> str:
    backbone, _, size = scheme.rpartition("-")
    return f"{PAPER[backbone]} KB" if size == "49kb" else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("schemes", nargs="*")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--target", default="cortex-m7", choices=("cortex-m7", "cortex-m4"))
    asked = parser.parse_args()
    every = [(net, f"{net}-{kb}kb") for net, sizes in SCHEMES.items() for kb in sizes]
    if unknown := set(asked.schemes) - {scheme for _, scheme in every}:
        parser.error(f"there is no {', '.join(unknown)}")
    found = []
    for net, scheme in every:
        if asked.schemes and scheme not in asked.schemes:
            continue
        began = time.perf_counter()
        found.append(measured(net, scheme, asked.target, asked.steps, scheme.endswith("-49kb")))
        print(f"{scheme} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
    text = page(found, asked.target)
    print(text)
    if not asked.schemes:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
