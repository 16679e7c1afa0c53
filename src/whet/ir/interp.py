"""Run a Graph in NumPy with each operator's reference: the oracle for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import DataError
from .graph import Array, DType, Graph, Node, Op, Value

Execute = Callable[[Node, list[Array]], tuple[Array, ...]]

# Operators, with their gradients, whose kernels differ from NumPy in their bits and have no `exact`
# yet: those that call the C library, and sums whose order is not reproduced.
OPEN = frozenset(
    "batch_norm batch_norm_clipped batch_norm_train bce cos cumsum elu group_norm pow sin softplus "
    "upsample_bilinear".split()
)


def is_open(op: type[Op]) -> bool:
    return op.name.removesuffix("_dx").removesuffix("_dw") in OPEN


def run_reference(node: Node, arrays: list[Array]) -> tuple[Array, ...]:
    outs = node.op.ref(node.attrs, *arrays)
    return outs if isinstance(outs, tuple) else (outs,)


def run_exact(node: Node, arrays: list[Array]) -> tuple[Array, ...]:
    """Bit-identical to the portable kernels, as far as operators define that; see `Op.exact`."""
    outs = (node.op.exact or node.op.ref)(node.attrs, *arrays)
    return outs if isinstance(outs, tuple) else (outs,)


def interpret(
    graph: Graph,
    feed: Mapping[str, Array],
    *,
    real: type[np.floating] = np.float32,
    execute: Execute = run_reference,
) -> tuple[list[Array], dict[str, Array]]:
    """The outputs, and the next value of every updated leaf.

    `feed` overrides or supplies leaves by name. `real` is the precision used in place of f32, so
    that the same graph can be evaluated in double. `execute` runs one node.
    """

    def cast(value: Value, array: Array) -> Array:
        dtype = real if value.type.dtype is DType.F32 else value.type.dtype.numpy
        return np.asarray(array, dtype=dtype, order="C")

    env: dict[Value, Array] = {}
    for leaf in graph.leaves:
        if leaf.name not in feed and leaf.name not in graph.data:
            raise DataError(f"no value for {leaf} : {leaf.type}", try_="pass it in `feed`")
        array = np.asarray(feed.get(leaf.name, graph.data.get(leaf.name)))
        if array.shape != leaf.shape:
            raise DataError(f"{leaf} has shape {array.shape}, the graph says {leaf.type}")
        env[leaf] = cast(leaf, array)
    for node in graph.nodes:
        outs = execute(node, [env[v] for v in node.ins])
        for value, array in zip(node.outs, outs, strict=True):
            env[value] = cast(value, array)
            if env[value].shape != value.shape:
                raise DataError(f"{value}: reference gave {env[value].shape}, not {value.type}")
    return [env[v] for v in graph.outputs], {leaf.name: env[nxt] for leaf, nxt in graph.state}
