"""Files of integers: what QuantizeLinear and DequantizeLinear say about a network of floats.

Constants become floats, so that they train. A pair of the two around a value becomes one node that
rounds to the grid of int8, from which an int8 program has the value's scale. The scales of weights
are kept, so that the program has the integers of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...errors import WhetError
from ...ir import Array
from ...ir.quant import LOW
from .graph import Node, OnnxGraph
from .rows import ROWS, Call, tensor
from .walk import failed

OWN, GRID = "whet", "RoundToGrid"  # the domain and the name of the node that replaces a pair
PAIR = ("QuantizeLinear", "DequantizeLinear")
SHIFTS = {np.dtype(np.int8): 0, np.dtype(np.uint8): LOW}  # of zero points, to those of int8


def is_grid(node: Node) -> bool:
    return (node.domain, node.op) == (OWN, GRID)


def with_float_weights(graph: OnnxGraph) -> tuple[OnnxGraph, dict[str, Array]]:
    """Constants that the file stores as integers become floats; and their scales, for int8 ones."""
    constants, left, scales = dict(graph.constants), [], {}
    for node in graph.nodes:
        values = [constants.get(name) if name else None for name in node.inputs]
        stored = all(v is not None or not n for v, n in zip(values, node.inputs, strict=True))
        if node.op not in PAIR or node.domain or not stored:
            left.append(node)
            continue
        row = ROWS["", node.op]
        (name,) = node.outputs
        try:
            constants[name] = row.compute(Call(node, None), *map(tensor, values)).numpy()
        except WhetError:
            raise
        except Exception as error:
            raise failed(node, error) from error
        integers, scale, *zero = (tensor(v).numpy() for v in values if v is not None)
        if integers.dtype == np.int8 and scale.ndim < 2 and not any(np.any(z) for z in zero):
            scales[name] = scale
    return replace(graph, nodes=tuple(left), constants=constants), scales


def with_grids(graph: OnnxGraph) -> OnnxGraph:
    """One node in place of each pair that rounds a value to the grid of int8 or uint8."""
    made = {node.outputs[0]: node for node in graph.nodes if node.op == PAIR[0] and not node.domain}
    return replace(graph, nodes=tuple(grid(n, made, graph.constants) or n for n in graph.nodes))


def grid(node: Node, made: Mapping[str, Node], constants: Mapping[str, Array]) -> Node | None:
    """The second node of a pair as the whole of it, if both have the same scale and zero point."""
    if node.op != PAIR[1] or node.domain or node.inputs[0] not in made:
        return None
    before = made[node.inputs[0]]
    found = grid_of(before, constants)
    if found is None or found != grid_of(node, constants):
        return None
    scale, zero = found
    return replace(
        node, op=GRID, domain=OWN, inputs=before.inputs[:1],
        attributes={"scale": scale, "zero": zero},
    )  # fmt: skip


def grid_of(node: Node, constants: Mapping[str, Array]) -> tuple[float, int] | None:
    """The scale and the zero point of int8, if there is one of each and both are known."""
    scale = constants.get(node.inputs[1])
    named = node.inputs[2] if len(node.inputs) > 2 else ""
    zero = constants.get(named) if named else np.uint8(0)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    if zero.dtype not in SHIFTS or not 0 < float(scale.reshape(())) < np.inf:
        return None
    return float(scale.reshape(())), int(zero.reshape(())) + SHIFTS[zero.dtype]


def weight_scales(graph: OnnxGraph, stored: Mapping[str, Array]) -> dict[str, Array]:
    """A scale for each output channel of weights, where the file has one for each or for all."""
    found = {}
    for node in graph.nodes:
        name = node.inputs[1] if len(node.inputs) > 1 else ""
        axis = output_axis(node)
        if name in stored and axis is not None:
            count, scale = graph.constants[name].shape[axis], stored[name].reshape(-1)
            if scale.size in (1, count):
                found[name] = np.broadcast_to(scale, (count,)).astype(np.float64)
    return found


def output_axis(node: Node) -> int | None:
    """The axis of output channels of an operator's second operand."""
    if node.op == "Gemm":
        return 0 if node.attributes.get("transB") else 1
    return {"Conv": 0, "MatMul": -1}.get(node.op)
