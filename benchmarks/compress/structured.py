"""What removing channels saves on a microcontroller: RAM, flash, and instructions of a step.

    python -m benchmarks.compress.structured          writes structured.jsonl and structured.md
    python -m benchmarks.compress.structured page     structured.md again from what is kept

On an emulated Cortex-M7. Channels are chosen by the norm of their filters; weights and data are
random, as figures of memory and instructions do not depend on them. Takes some minutes of one core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.lines import kept as kept
from benchmarks.common.lines import study
from benchmarks.common.page import table
from whet import compress
from whet.models import ds_cnn, lenet, mobilenet_v2
from whet.targets.cortex_m import Board

HERE = Path(__file__).parent
REMOVED = (0.0, 0.5, 0.75)  # of the channels
STEPS = 2


@dataclass(frozen=True)
class Net:
    title: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


NETS = {
    "lenet": Net("LeNet-5", lenet, (1, 28, 28)),
    "ds_cnn": Net("DS-CNN, keywords", lambda: ds_cnn(12), (1, 49, 10)),
    "mobilenet": Net("MobileNetV2-w0.35, 64 x 64", lambda: mobilenet_v2(10, width=0.35),
                     (3, 64, 64)),
}  # fmt: skip
DTYPES = ("float32", "int8")


def cell(name: str, dtype: str, removed: float) -> dict[str, Any]:
    torch.manual_seed(0)
    net, example = NETS[name].make().eval(), torch.randn(1, *NETS[name].shape)
    if removed:
        compress.shrink(net, example, channels=1 - removed)
    int8: dict[str, Any] = {"dtype": "int8", "calibrate": [example]} if dtype == "int8" else {}
    program = whet.compile(net, (example,), target="cortex-m7", ram="8M", flash="8M", **int8)
    board, random = Board(program), np.random.default_rng(0)
    for _ in range(STEPS):
        x = random.normal(size=tuple(example.shape)).astype(np.float32)
        board.step(x, random.integers(0, 10, 1))
    seen = board.close()
    assert seen is not None and seen.outside == 0
    return {
        "net": name, "dtype": dtype, "removed": removed,
        "parameters": sum(p.numel() for p in net.parameters()), "flash": board.firmware.flash,
        "ram": board.firmware.ram, "step": round(board.profile().total),
        "weights": program.memory["flash"], "macs": macs(program),
    }  # fmt: skip


def macs(program: whet.Program) -> int:
    """Multiply-accumulates of a step."""
    return sum(node.op.macs(node) for node in program.entries["train_step"].nodes)


ABOUT = """# Fewer channels on a microcontroller

Made by `python -m benchmarks.compress.structured` from `structured.jsonl`. A share of the output
channels of every layer but the last is removed by `whet.compress.shrink`, and everything that is
left trains, one sample at a time, on an emulated Cortex-M7. RAM and flash are bytes of the linked
firmware: everything in RAM with 8 KB of stack, and code as well as weights in flash. A weight has
as many numbers as inputs times outputs, so half of the channels leave about a quarter of weights
and products; activations, and depthwise layers, halve. Ratios are to the whole network.

"""
HEAD = ("", "parameters", "", "RAM", "", "flash", "", "products of a step, M", "",
        "instructions, M", "")  # fmt: skip
COLUMNS = ("parameters", "ram", "flash", "macs", "step")


def page(results: Sequence[dict[str, Any]]) -> str:
    found = {(r["net"], r["dtype"], r["removed"]): r for r in results}
    rows = []
    for name, net in NETS.items():
        for dtype in DTYPES:
            for removed in REMOVED:
                if (r := found.get((name, dtype, removed))) is None:
                    continue
                whole, line = found[name, dtype, 0.0], [f"{net.title}, {dtype}{less(removed)}"]
                for key in COLUMNS:
                    large = key in ("macs", "step")
                    line.append(f"{r[key] / 1e6:.3f}" if large else f"{r[key]:,}")
                    line.append(f"{r[key] / whole[key]:.2f}" if removed else "")
                rows.append(line)
    return ABOUT + table(HEAD, rows)


def less(removed: float) -> str:
    return f", {100 * removed:.0f} % fewer" if removed else ""


def main(given: Sequence[str] | None = None) -> None:
    cells = [(n, d, r) for n in NETS for d in DTYPES for r in REMOVED]
    names = ("net", "dtype", "removed")
    study(__doc__, HERE / "structured.jsonl", names, lambda: cells, cell, page, given)


if __name__ == "__main__":
    main()
