"""The tables of the memory study: one function for each part of the page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

import whet
from benchmarks.common.page import table
from benchmarks.common.process import high_water
from whet import models
from whet.report.compare import Comparison
from whet.report.kept import kept_buffers
from whet.scheme import published

ROOT = Path(__file__).resolve().parents[2]
MODELS: dict[str, Callable[[], nn.Module]] = {
    "mbv2-w0.35": lambda: models.mobilenet_v2(
        10, 0.35, feature_mix=False, folded=True, dropout=0.0
    ),
    "proxyless-w0.3": lambda: models.proxyless_nas_mobile(10, 0.3, feature_mix=False, folded=True),
    "mcunet-5fps": lambda: models.mcunet_5fps(10, folded=True),
}
PASSES = ("keep_bits", "stream_rows", "reorder")
# Published peaks in int8 on a microcontroller, in KB: full, sparse, sparse with reordering.
PUBLISHED = {
    "mbv2-w0.35": (2939, 335, 141),
    "proxyless-w0.3": (2745, 326, 135),
    "mcunet-5fps": (3650, 560, 173),
}


def kilobytes(n: int) -> str:
    return f"{n / 1024:,.1f}"


def plain_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


# --- Ladder ---------------------------------------------------------------------------------------


def ladder() -> str:
    parts = ["## What each optimisation is worth\n"]
    parts.append(
        "fp32, 128 x 128, batch 1, plain SGD. Arena and RAM in KiB; RAM adds trained parameters "
        "and the 192 KiB picture. `full, no passes` is the plain program: every gradient lives to "
        "the end of the step. The columns on the right leave out one pass each (without `reorder`, "
        "also `fuse_updates` and `schedule`, which move updates too).\n"
    )
    for name, make in MODELS.items():
        model = make().eval()
        own = sorted((s for s in published() if s.startswith(name)), key=size_of)
        rows = whet.compare(
            model,
            (torch.randn(1, 3, 128, 128),),
            ["full", "last", "bias+last", *own],
            optimizer=plain_sgd(model),
            without=PASSES,
        )
        full, sparse, reordered = PUBLISHED[name]
        parts.append(f"### {name}\n")
        parts.append(ladder_table(rows))
        parts.append(
            f"Published, int8: full {full} KB, sparse {sparse} KB ({full / sparse:.1f}x), "
            f"reordered {reordered} KB ({sparse / reordered:.1f}x; "
            f"{full / reordered:.1f}x in all).\n"
        )
    return "\n".join(parts)


def size_of(scheme: str) -> int:
    return int(scheme.rpartition("-")[2].removesuffix("kb"))


def ladder_table(rows: Sequence[Comparison]) -> str:
    head = ["scheme", "trained", "kept", "arena", "less", "bound", "RAM", "less"]
    head += [f"without {name}" for name in PASSES]
    first = rows[0].memory
    lines = []
    for row in rows:
        m = row.memory
        own = [f"{kilobytes(a)} ({a / m['arena']:.1f}x)" for a, _ in row.without.values()]
        lines.append(
            [
                row.scheme,
                kilobytes(m["trained"]),
                kilobytes(row.kept),
                kilobytes(m["arena"]),
                f"{first['arena'] / m['arena']:.1f}x",
                kilobytes(m["lower_bound"]),
                kilobytes(m["ram"]),
                f"{first['ram'] / m['ram']:.1f}x",
                *own,
            ]
        )
    return table(head, lines)


# --- int8 -----------------------------------------------------------------------------------------

# Measured in the program published with the paper for mcunet-5fps-49kb (10 classes), bytes.
PUBLISHED_ARENA, PUBLISHED_RAM = 189_800, 230_416


def integers() -> str:
    x = torch.randn(1, 3, 128, 128)
    rows = []
    for name, make in MODELS.items():
        model = make().eval()
        own = sorted((s for s in published() if s.startswith(name)), key=size_of)
        for scheme in ["full", "last", *own]:
            program = whet.compile(
                model, (x,), optimizer=plain_sgd(model), update=scheme, dtype="int8",
                calibrate=[x], portable=True,
            )  # fmt: skip
            m = program.memory
            found = [m["arena"], m["trained"], m["ram"], linked_ram(program), m["flash"]]
            rows.append([name, scheme.removeprefix(f"{name}-"), *(f"{n:,}" for n in found)])
    head = ["int8", "scheme", "arena", "trained", "RAM", "data + bss", "flash"]
    about = (
        "Bytes; 128 x 128, batch 1, 10 classes, fp32 head, plain SGD, portable kernels. RAM is "
        "the report's: arena, trained parameters, and\nthe picture of 49,152 bytes. Data + bss are "
        "those of the built program, which has nothing else. The program published for\n"
        f"mcunet-5fps, 49kb has an arena of {PUBLISHED_ARENA:,} bytes and {PUBLISHED_RAM:,} of RAM "
        "for the model.\n"
    )
    return f"## In int8\n\n{about}\n{table(head, rows)}"


def linked_ram(program: whet.Program) -> int:
    """data + bss of all objects together, as `size` reports them."""
    with tempfile.TemporaryDirectory() as folder:
        program.write(folder)
        done = subprocess.run(
            ["make", "-s", "-C", folder, "size", "CFLAGS=-O0"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    head, numbers = (line.split() for line in done.stdout.strip().splitlines()[-2:])
    sections = dict(zip(head, numbers, strict=True))
    return int(sections["data"]) + int(sections["bss"])


# --- Resident memory ------------------------------------------------------------------------------

EAGER = """
import sys, torch
sys.path[:0] = {path!r}
torch.set_num_threads(1)
from benchmarks.common.process import high_water
from benchmarks.memory.parts import MODELS
model = MODELS[{model!r}]().eval()
trained = set({trained!r})
for name, p in model.named_parameters():
    p.requires_grad_(name in trained)
before = high_water("self")
x, y = torch.randn(1, 3, 128, 128), torch.tensor([3])
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print(before, high_water("self"))
"""


def resident() -> str:
    rows = []
    for name, make in MODELS.items():
        model = make().eval()
        smallest = min((s for s in published() if s.startswith(name)), key=size_of)
        for scheme in ("full", smallest):
            program = whet.compile(
                model, (torch.randn(1, 3, 128, 128),), optimizer=plain_sgd(model), update=scheme
            )
            ours = peak_of_program(program)
            before, theirs = peak_of_eager(name, list(program.trained))
            rows.append(
                [
                    f"{name}, {scheme}",
                    f"{ours:,}",
                    f"{theirs:,}",
                    f"{theirs / ours:.0f}x",
                    f"{theirs - before:,}",
                    kilobytes(program.memory["ram"]),
                ]
            )
    head = ["step", "whet, process", "PyTorch, process", "factor", "PyTorch, step alone", "our RAM"]
    return (
        "## Peak resident memory of a process that trains\n\n"
        "KiB, three steps, batch 1, 128 x 128, one thread. PyTorch eager freezes what the scheme "
        "freezes. The whole process counts: the C library and the weights on our side, Python and "
        "PyTorch on the other; the last columns leave those out.\n\n" + table(head, rows)
    )


def peak_of_program(program: whet.Program) -> int:
    """Peak resident KiB of the built example after three steps.

    It reads its data from a pipe and waits there for a fourth batch while we look.
    """
    with tempfile.TemporaryDirectory() as folder:
        program.write(folder)
        subprocess.run(["make", "-s", "-C", folder], check=True)
        pipe = f"{folder}/data"
        os.mkfifo(pipe)
        command = [f"{folder}/{program.name}", pipe, "4"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            with open(pipe, "wb", buffering=0) as data:
                batch = bytes(program.memory["io"])
                data.write(3 * batch + batch[:-1])
                time.sleep(0.3)
                peak = high_water(process.pid)
                process.kill()
        return peak


def peak_of_eager(model: str, trained: list[str]) -> tuple[int, int]:
    """Peak resident KiB of PyTorch, before the first step and after three."""
    code = EAGER.format(path=[str(ROOT)], model=model, trained=trained)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    before, peak = done.stdout.split()
    return int(before), int(peak)


# --- Activations kept -----------------------------------------------------------------------------


def kept() -> str:
    rows = []
    for mode in ("eval", "train"):
        model = models.resnet50(1000).train(mode == "train")
        x = torch.randn(1, 3, 224, 224) if mode == "eval" else torch.randn(2, 3, 224, 224)
        first = 0
        for scheme in ("full", "norm+last", "bias+last", "last"):
            program = whet.compile(model, (x,), optimizer=plain_sgd(model), update=scheme)
            bytes_kept = sum(b.bytes for b in kept_buffers(program.plans["train_step"]))
            first = first or bytes_kept
            rows.append(
                [
                    f"{mode}, batch {len(x)}",
                    scheme,
                    f"{bytes_kept:,}",
                    f"{first / bytes_kept:,.1f}x",
                    kilobytes(program.memory["arena"]),
                ]
            )
    head = ["ResNet-50, 224 x 224", "scheme", "bytes kept", "less", "arena, KiB"]
    return "## Activations kept for the backward pass\n\n" + table(head, rows)
