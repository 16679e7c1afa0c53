"""Find the range of every activation by running the float graph on examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import DataError, FrontendError, either
from ..ir import Array, DType, Graph, Node, Role
from ..ir.interp import interpret, run_reference
from ..ir.quant import Quant, Recipe

SAMPLE = 4096  # numbers of each value and batch that percentile and mse look at
BATCHES = 64  # of which these numbers are kept
OUTLIERS = 1e-4  # the share of numbers that percentile leaves out, on both sides together
CUTS = np.linspace(1.0, 0.3, 36)  # of the range that mse tries


def not_calibrated(what: str, at: str = "") -> FrontendError:
    python = "calibrate=loader: batches like those it will train on"
    shell = "--calibrate FILE.npy, inputs like those it will train on; or --calibrate random"
    return FrontendError(what, at=at, try_=either(python, shell))


class Seen:
    """What was seen of one value: its extremes and some of its numbers."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.sample: list[Array] = []

    def add(self, array: Array, rng: np.random.Generator, keep: bool) -> None:
        self.low, self.high = min(self.low, array.min()), max(self.high, array.max())
        if not keep:
            return
        flat = array.ravel()
        few = flat if flat.size <= SAMPLE else flat[rng.integers(0, flat.size, SAMPLE)]
        if len(self.sample) < BATCHES:
            self.sample.append(few.astype(np.float32))
        else:  # so that later batches count as well
            self.sample[rng.integers(BATCHES)] = few.astype(np.float32)

    def quant(self, method: str) -> Quant:
        low, high = float(self.low), float(self.high)
        if method == "minmax":
            return Quant.of_range(low, high)
        numbers = np.concatenate(self.sample).astype(np.float64)
        if method == "percentile":
            ends = np.quantile(numbers, (OUTLIERS / 2, 1 - OUTLIERS / 2))
            return Quant.of_range(float(ends[0]), float(ends[1]))
        return min(
            (Quant.of_range(low * c, high * c) for c in CUTS), key=lambda q: error(q, numbers)
        )


def error(quant: Quant, numbers: Array) -> float:
    return float(np.square(quant.dequantize(quant.quantize(numbers)) - numbers).sum())


def calibrate(
    graph: Graph, batches: Iterable[Any], order: tuple[int, ...], method: str
) -> tuple[Recipe, Array]:
    """A recipe for every float value of `graph`, which has one input and no label, and a batch.

    `batches` gives images as PyTorch has them, alone or with labels, in batches of any size;
    `order` is that of the axes as the graph stores them.
    """
    (leaf,) = graph.leaves_of(Role.INPUT)
    for name, data in graph.data.items():
        if data.dtype.kind == "f" and not np.isfinite(data).all():
            raise DataError(f"{name} holds numbers that are not finite")
    seen: dict[str, Seen] = {}
    rng, keep = np.random.default_rng(0), method != "minmax"

    def watch(node: Node, arrays: list[Array]) -> tuple[Array, ...]:
        outs = run_reference(node, arrays)
        for value, array in zip(node.outs, outs, strict=True):
            if value.type.dtype is DType.F32:
                if not np.isfinite(array).all():
                    raise DataError(
                        f"the network overflows on a calibration batch, at {value}",
                        at=str(node.loc),
                        try_="a look at the model in float32 with these inputs",
                    )
                seen.setdefault(value.name, Seen()).add(array, rng, keep)
        return outs

    first: Array | None = None
    for image in images(batches, leaf.shape, order):
        first = image if first is None else first
        if not np.isfinite(image).all():
            raise DataError("a calibration batch holds numbers that are not finite")
        seen.setdefault(leaf.name, Seen()).add(image, rng, keep)
        interpret(graph, {leaf.name: image}, execute=watch)
    if first is None:
        raise DataError("there is nothing to calibrate with", try_="calibrate=[batch, ...]")
    return Recipe({name: s.quant(method) for name, s in seen.items()}), first


def images(
    batches: Iterable[Any], shape: tuple[int, ...], order: tuple[int, ...]
) -> Iterator[Array]:
    """Batches of the size that the graph is for; a last one that is too small is filled up."""
    waiting: Array | None = None
    if not isinstance(batches, Iterable):
        raise DataError(f"calibrate={batches!r} gives no batches", try_="calibrate=[batch, ...]")
    for batch in batches:
        x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        x = x.detach().cpu().float().numpy() if hasattr(x, "detach") else x
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fiu":
            raise DataError(
                f"a calibration batch is a {type(x).__name__}",
                try_="tensors or arrays of inputs, alone or as the first of a tuple",
            )
        x = x.astype(np.float32)
        wanted = tuple(shape[order.index(axis)] for axis in range(len(shape)))
        if x.ndim != len(wanted) or x.shape[1:] != wanted[1:]:
            raise DataError(
                f"a calibration batch has shape {x.shape}, the model takes {wanted}",
                try_="batches of any size, of examples shaped like `inputs`",
            )
        stored = x.transpose(order)
        waiting = stored if waiting is None else np.concatenate([waiting, stored])
        while len(waiting) >= shape[0]:
            yield np.ascontiguousarray(waiting[: shape[0]])
            waiting = waiting[shape[0] :]
    if waiting is not None and len(waiting):
        yield np.ascontiguousarray(np.resize(waiting, shape))
