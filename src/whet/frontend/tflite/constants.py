"""The numbers that constants of a TFLite file stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...errors import FrontendError
from ...ir import Array
from .file import Stored, TfliteGraph
from .rows import Given

COPIES, ALWAYS = 16, 1 << 20  # bytes of floats that are made of a file: times its size, and more


def check_copies(graph: TfliteGraph) -> None:
    """Each operator has weights of its own; a file may store those of many in one place."""
    read = (graph.tensors[i] for o in graph.operations for i in o.inputs if i >= 0)
    total = sum(4 * stored.data.size for stored in read if stored.data is not None)
    most = COPIES * graph.size + ALWAYS
    if total > most:
        raise FrontendError(
            f"the operators of the TFLite file would take {total:,} bytes of weights, as many "
            "of them share weights",
            why=f"each gets its own, and a file of {graph.size:,} bytes may take {most:,}",
        )


def real(given: Given, i: int) -> Tensor:
    """The numbers that a constant operand stands for."""
    stored = given.constant(i, "FLOAT32", "INT8")
    assert stored.data is not None
    if stored.kind == "FLOAT32":
        return torch.from_numpy(stored.data.copy())
    return scaled(given, i, stored, np.asarray(stored.scales))


def scaled(given: Given, i: int, stored: Stored, scales: Array) -> Tensor:
    assert stored.data is not None
    zeros = np.asarray(stored.zeros or 0, np.int64)
    shape = [1] * stored.data.ndim
    if scales.size != 1:
        if not 0 <= stored.axis < len(shape) or stored.data.shape[stored.axis] != scales.size:
            raise given.refused(
                f"operand {i} has {scales.size} scales", f"its shape is {stored.shape}"
            )
        shape[stored.axis] = -1
    along = [n.reshape(shape) if n.size > 1 else n.reshape(()) for n in (zeros, scales)]
    return torch.from_numpy(np.asarray((stored.data - along[0]) * along[1], np.float32))


def weight_of(given: Given, axis: int) -> tuple[Tensor, Array | None]:
    """Weights, and their scales by output channel, which are along `axis`; None if they are floats.

    Theirs are symmetric, as whet's are: TFLite's specification has no zero point for them.
    """
    stored, weight = given.constant(1, "FLOAT32", "INT8"), real(given, 1)
    if stored.kind == "FLOAT32":
        return weight, None
    check_symmetric(given, 1, stored)
    if len(stored.scales) > 1 and stored.axis != axis:
        raise given.refused(f"the scales of its weights are along axis {stored.axis}, not {axis}")
    return weight, np.broadcast_to(np.asarray(stored.scales, np.float64), (weight.shape[axis],))


def bias_of(given: Given, outputs: int, scales: Array | None) -> Tensor | None:
    """A bias, given the scales of the weights; without a scale of its own it has the products'."""
    if given.operand(2) is None:
        return None
    stored = given.constant(2, "FLOAT32", "INT32")
    assert stored.data is not None
    if stored.data.size != outputs:
        raise given.refused(f"its bias is of shape {stored.shape}, for {outputs} channels")
    stored = replace(stored, data=stored.data.reshape(-1), axis=0)
    if stored.kind == "FLOAT32":
        return torch.from_numpy(np.array(stored.data))
    check_symmetric(given, 2, stored)
    if stored.scales:
        return scaled(given, 2, stored, np.asarray(stored.scales))
    x = given.needed(0)
    if scales is None or len(x.scales) != 1:
        raise given.refused("its bias has no scale", "neither has what it is added to")
    return scaled(given, 2, stored, x.scales[0] * scales)


def check_symmetric(given: Given, i: int, stored: Stored) -> None:
    if any(stored.zeros):
        zero = next(filter(None, stored.zeros))
        raise given.refused(
            f"operand {i} has the zero point {zero}",
            "by the specification of TFLite, that of weights and biases is 0",
        )
