"""What codebooks cost and save on a microcontroller: flash, RAM, and instructions of a step.

    python -m benchmarks.compress.device          every cell; writes device.jsonl and device.md
    python -m benchmarks.compress.device page     device.md again from what is kept

On an emulated Cortex-M7. MCUNet-5fps is the pretrained int8 network, with pictures of Flowers-102,
from the folder in WHET_DATA. LeNet-5 is a float network of which each weight has 16 values; its
data are random. A cell that is in device.jsonl is not run again. Takes some minutes of one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.lines import kept as kept
from benchmarks.common.lines import study
from benchmarks.common.page import table
from benchmarks.mcu.__main__ import RATE, network, samples
from whet.models import lenet
from whet.quantize.codebook import codebook, nearest
from whet.targets.cortex_m import Board

HERE = Path(__file__).parent
STEPS = 2
FORMS = (None, "kmeans4")
SCHEMES = ("mcunet-5fps-49kb", "mcunet-5fps-99kb")
WEIGHTS = ("conv1", "conv2", "fc1", "fc2", "fc3")


def frozen(scheme: str, form: str | None, target: str) -> whet.Program:
    model = network("mcunet-5fps")
    return whet.compile(
        model, (torch.zeros(1, 3, 128, 128),), update=scheme, dtype="int8", target=target,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE), frozen=form,
    )  # fmt: skip


def shared_lenet() -> nn.Module:
    """With 16 values in each weight."""
    torch.manual_seed(0)
    model = lenet()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            w = parameter.detach().numpy()
            book = codebook(w, np.ones(w.shape), 16)
            parameter.data = torch.from_numpy(book[nearest(w, book)])
    return model


def trained(scheme: str, form: str | None, target: str) -> whet.Program:
    model = shared_lenet()
    shared = [n for n, p in model.named_parameters() if p.ndim > 1]
    update: Any = scheme
    if scheme == "centroids":
        update = whet.Scheme([whet.Rule(n, shared=True) for n in shared])
    return whet.compile(
        model, (torch.zeros(1, 1, 28, 28),), update=update, target=target, frozen=form, ram="4M",
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
    )  # fmt: skip


def digits(count: int) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    shown = (random.normal(size=(1, 1, 28, 28)).astype(np.float32) for _ in range(count))
    return [(x, random.integers(0, 10, 1)) for x in shown]


CELLS = [("MCUNet-5fps", scheme, form) for scheme in SCHEMES for form in FORMS]
CELLS += [("LeNet-5", scheme, None) for scheme in ("full", "last")]
CELLS += [("LeNet-5", "last", "kmeans4"), ("LeNet-5", "centroids", None)]


def cell(net: str, scheme: str, form: str | None) -> dict[str, Any]:
    make = frozen if net == "MCUNet-5fps" else trained
    shown = list(samples(STEPS)) if net == "MCUNet-5fps" else digits(STEPS)
    program = make(scheme, form, "cortex-m7")
    here = make(scheme, form, "host").load(threads=1)
    board = Board(program)
    losses = [board.step(x, y) for x, y in shown]
    again = [here.step(x, y) for x, y in shown]
    ours, theirs = board.arrays(), here.arrays()
    same = losses == again and all(ours[n].tobytes() == theirs[n].tobytes() for n in theirs)
    seen = board.close()
    assert seen is not None and seen.outside == 0
    apart = max(float(np.abs(ours[n] - theirs[n]).max()) for n in theirs)
    return {
        "net": net, "scheme": scheme, "frozen": form, "flash": board.firmware.flash,
        "ram": board.firmware.ram, "step": round(board.profile().total),
        "narrow": program.in_bytes, "wide": program.not_narrow,
        "trained": program.memory["trained"], "error": max(program.rounded.values(), default=0.0),
        "equal": same, "apart": apart,
    }  # fmt: skip


ABOUT = """## Codebooks on a microcontroller

Made by `python -m benchmarks.compress.device` from `device.jsonl`, on an emulated Cortex-M7. Flash
and RAM are bytes of the linked firmware, code included; instructions are those of a training step.

### Frozen weights

MCUNet-5fps in int8, 10 classes, under its published schemes. With `frozen="kmeans4"`, frozen
weights are indices of 4 bits into a codebook of 16 integers for each layer. A weight is expanded
right before each layer that reads it, in memory of the arena that is free then; a weight that
finds no room there stays in bytes. The error is the largest of all weights: the norm of what
k-means changed by that of the weight, before any training. Losses and trained weights were
{verdict} those of the same program on the host.
"""
CENTROIDS = """### Trained codebooks

LeNet-5 in floats, of which each weight has 16 values. `centroids` trains the codebook of every
weight (`whet.Rule(..., shared=True)`) and nothing else: what trains is 16 numbers for each layer.
`last, kmeans4` trains the last layer of a network whose other weights are stored by codebooks.
Numbers after {steps} steps were within {apart:.0e} of those on the host.
"""


def page(results: list[dict[str, Any]]) -> str:
    found = {(r["net"], r["scheme"], r["frozen"]): r for r in results}
    rows, others = [], []
    for net, scheme, form in CELLS:
        if (net, scheme, form) not in found:
            continue
        r, plain = found[net, scheme, form], found[net, scheme, None]
        name = scheme if form is None else f"{scheme}, {form}"
        line = [name, f"{r['flash']:,}", f"{r['ram']:,}", f"{r['step'] / 1e6:.2f}"]
        if net == "MCUNet-5fps":
            less = f"{r['flash'] / plain['flash']:.2f}"
            error = f"{100 * r['error']:.1f} %" if form else ""
            step = f"{r['step'] / plain['step']:.3f}"
            rows.append([*line, less, step, f"{r['narrow']:,}", f"{r['wide']:,}", error])
        else:
            others.append([*line, f"{r['trained']:,}"])
    head = ["scheme", "flash", "RAM", "instructions, M"]
    more = ["flash / int8", "instructions / int8", "by codebooks", "still in bytes", "error"]
    equal = all(r["equal"] for r in results if r["net"] == "MCUNet-5fps")
    apart = max((r["apart"] for r in results if r["net"] != "MCUNet-5fps"), default=0.0)
    parts = [ABOUT.format(verdict="bit-identical to" if equal else "NOT equal to")]
    parts += [table([*head, *more], rows), CENTROIDS.format(steps=STEPS, apart=apart)]
    return "\n".join([*parts, table([*head, "trained, bytes"], others)])


def main(given: Sequence[str] | None = None) -> None:
    torch.set_num_threads(1)
    names = ("net", "scheme", "frozen")
    study(__doc__, HERE / "device.jsonl", names, lambda: CELLS, cell, page, given)


if __name__ == "__main__":
    main()
