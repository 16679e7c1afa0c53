"""The numbers that constants of a TFLite file stand for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...errors import FrontendError
from ...ir import Array
from .file import Stored, TfliteGraph

COPIES, ALWAYS = 16, 1 << 20  # bytes of floats that are made of a file: times its size, and more


def check_copies(graph: TfliteGraph) -> None:
    """Each operator has weights of its own; a file may store those of many in one place."""
    read = (graph.tensors[i] for o in graph.operations for i in o.inputs if i >= 0)
    total = sum(4 * stored.data.size for stored in read if stored.data is not None)
    most = COPIES * graph.size + ALWAYS
    if total > most:
        raise FrontendError(
            f"the operators of the TFLite file would take {total:,} bytes of weights, for many "
            "share them",
            why=f"each gets its own, and a file of {graph.size:,} bytes may take {most:,}",
        )


def real(stored: Stored) -> Tensor:
    """The numbers that a constant stands for."""
    assert stored.data is not None
    if stored.kind == "FLOAT32":
        return torch.from_numpy(stored.data.copy())
    shape = [1] * stored.data.ndim
    if len(stored.scales) > 1:
        if not 0 <= stored.axis < len(shape) or stored.data.shape[stored.axis] != len(
            stored.scales
        ):
            raise ValueError(f"{len(stored.scales)} scales for a tensor of {stored.data.shape}")
        shape[stored.axis] = -1
    scales, zeros = (
        np.asarray(n, np.float64).reshape(shape) for n in (stored.scales, stored.zeros)
    )
    return torch.from_numpy(((stored.data - zeros) * scales).astype(np.float32))


def channels(stored: Stored, count: int) -> Array:
    scales = np.asarray(stored.scales, np.float64)
    return np.full(count, scales[0]) if len(scales) == 1 else scales
