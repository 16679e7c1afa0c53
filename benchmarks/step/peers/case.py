"""What every peer trains: a network as a list of layers, its tensors, a batch, and what trains.

The process that measures traces the PyTorch model and writes a case into a folder; a worker reads
it there, and needs neither PyTorch nor whet for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RATE = 1e-4  # small, so that thousands of steps on one batch stay away from a loss of 0


class Layer(NamedTuple):
    """One step of the forward pass: `tensors` are names of parameters by their role in it."""

    op: str
    name: str
    ins: list[str]
    tensors: dict[str, str]
    attrs: dict[str, Any]


@dataclass(frozen=True)
class Case:
    make: str  # an expression in whet.models
    scheme: str
    training: bool  # batch norm on statistics of the batch
    trained: list[str]
    partial: bool  # of some of these, only some channels
    layers: list[Layer]
    losses: list[float]  # of PyTorch, before and after one update
    tensors: dict[str, NDArray[Any]]  # by PyTorch's names and in its shapes
    x: NDArray[np.float32]  # NCHW
    y: NDArray[np.int64]

    def write(self, folder: Path) -> None:
        words = {k: v for k, v in vars(self).items() if k not in ("tensors", "x", "y")}
        (folder / "case.json").write_text(json.dumps(words))
        arrays: dict[str, Any] = {**self.tensors, "batch:x": self.x, "batch:y": self.y}
        np.savez(folder / "case.npz", **arrays)

    @staticmethod
    def read(folder: Path) -> Case:
        words = json.loads((folder / "case.json").read_text())
        words["layers"] = [Layer(*layer) for layer in words["layers"]]
        tensors = dict(np.load(folder / "case.npz"))
        x, y = tensors.pop("batch:x"), tensors.pop("batch:y")
        return Case(tensors=tensors, x=x, y=y, **words)

    def channels_last(self, depthwise: tuple[int, ...] = (2, 3, 1, 0)) -> dict[str, NDArray[Any]]:
        """The tensors with convolutions in HWIO, or for one channel a group as asked for."""
        found = {n: a for n, a in self.tensors.items() if not n.endswith("num_batches_tracked")}
        for layer in self.layers:
            if layer.op == "conv":
                name = layer.tensors["weight"]
                order = depthwise if layer.attrs["groups"] > 1 else (2, 3, 1, 0)
                found[name] = np.ascontiguousarray(found[name].transpose(order))
        return found


def forward(
    layers: list[Layer], x: Any, tensors: Mapping[str, Any], ops: Mapping[str, Callable[..., Any]]
) -> tuple[Any, dict[str, Any]]:
    """The output, and the new running statistics by name.

    `ops` are a framework's own words for the layers. Its `norm` returns three things: output, mean
    and variance; the statistics are None where they stay.
    """
    values = {"input": x}
    changed = {}
    for layer in layers:
        roles = {role: tensors[name] for role, name in layer.tensors.items()}
        result = ops[layer.op](*(values[i] for i in layer.ins), **roles, **layer.attrs)
        if layer.op == "norm":
            result, mean, variance = result
            if mean is not None:
                changed[layer.tensors["mean"]] = mean
                changed[layer.tensors["variance"]] = variance
        values[layer.name] = result
    return values[layers[-1].name], changed
