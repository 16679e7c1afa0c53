"""The three int8 networks of the paper on a RISC-V microcontroller: memory, instructions, bits.

    python -m benchmarks.mcu.riscv                 writes riscv.md
    python -m benchmarks.mcu.riscv --steps 5       fewer steps; prints, and writes nothing

Each program trains under its published scheme of about 50 KB on the emulated RISC-V core and on an
emulated Cortex-M7. Losses, and in the end all weights, must have the same bits. The first two steps
of the RISC-V program run once more, watched by the plugin that looks at every load and store, which
is several times as slow. Weights and samples are those of `python -m benchmarks.mcu`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import whet
from benchmarks.common.page import table
from benchmarks.common.pictures import Array
from benchmarks.mcu.__main__ import MAKE, compiled, network, samples
from whet.targets.bare_metal import Board
from whet.targets.bare_metal.profile import PHASES, Profile

PAGE = Path(__file__).with_name("riscv.md")
STEPS, WATCHED = 20, 2


@dataclass(frozen=True)
class Result:
    name: str
    ram: int
    planned: int
    other_ram: int
    flash: int
    stack: int
    paint: int
    outside: int
    profile: Profile
    other: float  # instructions of a step on the Cortex-M7, plain C
    apart: int  # losses and tensors that differ from the Cortex-M7's


def measured(backbone: str, steps: int) -> Result:
    model, scheme = network(backbone), f"{backbone}-49kb"
    batches = list(samples(steps))
    program = compiled(model, scheme, "riscv32")
    here = Board(program, watched=False)
    there = Board(compiled(model, scheme, "cortex-m7"), watched=False)
    losses = [here.step(*batch) for batch in batches]
    apart = sum(there.step(*batch) != loss for batch, loss in zip(batches, losses, strict=True))
    ours, theirs = here.arrays(), there.arrays()
    apart += sum(ours[name].tobytes() != theirs[name].tobytes() for name in theirs)
    here.close()
    there.close()
    board, again = watched(program, batches[:WATCHED])
    apart += sum(a != b for a, b in zip(again, losses, strict=False))
    plain, _ = watched(compiled(model, scheme, "cortex-m7", portable=True), batches[:WATCHED])
    seen = board.watched
    assert seen is not None
    return Result(
        scheme,
        board.firmware.ram,
        program.memory["ram"],
        there.firmware.ram,
        board.firmware.flash,
        seen.stack,
        program.measured["stack, by its paint"],
        seen.outside,
        board.profile(),
        plain.profile().total,
        apart,
    )


def watched(program: whet.Program, batches: list[tuple[Array, Array]]) -> tuple[Board, list[float]]:
    board = Board(program)
    losses = [board.step(*batch) for batch in batches]
    board.close()
    return board, losses


def page(found: list[Result], steps: int) -> str:
    memory = [
        [r.name, f"{r.ram:,}", f"{r.planned:,}", f"{r.other_ram:,}", f"{r.stack:,}", f"{r.flash:,}"]
        for r in found
    ]
    work = [
        [
            r.name,
            *(f"{r.profile.of(phase) / 1e6:.1f}" for phase in PHASES),
            f"{r.profile.total / 1e6:.1f}",
            f"{r.other / 1e6:.1f}",
        ]
        for r in found
    ]
    proof = [
        [r.name, f"{steps}", f"{r.apart}", f"{r.outside}", "yes" if r.paint == r.stack else "no"]
        for r in found
    ]
    weights = "pretrained" if "WHET_DATA" in os.environ else "random"
    return "\n".join(
        [
            "# Training in 256 KB, on RISC-V\n\nMade by `python -m benchmarks.mcu.riscv`: int8 "
            f"networks at 128 x 128, batch 1, 10 classes, {weights} weights,\nbuilt for "
            'target="riscv32" (rv32imafc) with riscv64-unknown-elf-gcc -O2 and run in QEMU.\n',
            "## Memory\n\nBytes of the linked program, beside the plan's and those of the same "
            "program for a Cortex-M7. The stack used is\nthe plugin's figure; 8 KB are reserved.\n",
            table(["scheme", "RAM", "planned", "Cortex-M7", "stack used", "flash"], memory),
            f"## Instructions of a training step\n\nIn millions, mean of {WATCHED} steps. Both "
            "programs have the portable kernels: there are none for RISC-V yet.\n",
            table(["scheme", *PHASES, "step", "Cortex-M7, plain C"], work),
            "## Proof\n\nHow many of the losses and of the trained tensors differ from those of "
            "the emulated Cortex-M7 with its own kernels,\nin any bit. Loads and stores outside "
            f"of the memory, and whether the painted stack agrees, in {WATCHED} steps.\n",
            table(["scheme", "steps", "differ", "outside", "paint agrees"], proof),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    found = []
    for net in MAKE:
        began = time.perf_counter()
        found.append(measured(net, asked.steps))
        print(f"{net} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
    text = page(found, asked.steps)
    print(text)
    if asked.steps == STEPS:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
