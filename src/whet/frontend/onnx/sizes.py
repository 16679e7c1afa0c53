"""How large the results of a node are, asked before they are computed.

A few bytes of a file can ask for any size. Operands have their shapes when a node's turn comes, and
those that decide sizes are known, so that onnx's shape inference of the one node gives the shapes
of its results. What a row makes on the way to them, and the few results that onnx leaves open,
have formulas here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from ...errors import FrontendError
from .graph import Node
from .rows import TYPES, Value, ints

MOST = 1 << 28  # elements of a value
DECIDES = 1 << 10  # elements of an operand that may decide sizes
NUMBERS = {kind: number for number, kind in TYPES.items()}


def check_size(node: Node, values: Sequence[Value], double: bool) -> None:
    """Refuse a node with a result, or a value on the way to it, that would fill the memory."""
    shapes = inferred(node, values, double)
    sizes: list[float] = [math.prod(shape) for shape in shapes if shape is not None]
    if node.op in BETWEEN:
        sizes.append(BETWEEN[node.op](node, values, shapes[0] if shapes else None))
    if node.op in OPEN:
        sizes.append(OPEN[node.op](node, values))
    elif (None in shapes or not shapes) and node.op not in PARTS:
        raise FrontendError(f"the size of a result of {node.op} is not known", at=node.place)
    refuse_above(MOST, max(sizes, default=0), node, "makes a value")


def check_total(node: Node, total: float) -> None:
    refuse_above(MOST, total, node, "and the nodes before it make known values")


def refuse_above(most: int, size: float, node: Node, what: str) -> None:
    if size > most:
        raise FrontendError(
            f"{node.op} of ONNX {what} of {float(min(size, 1 << 1000)):.3g} elements",
            at=node.place,
            why=f"whet computes at most {most:,}",
        )


# --- what onnx infers


def inferred(node: Node, values: Sequence[Value], double: bool) -> list[list[int] | None]:
    """The shape of each result, None where onnx does not know it."""
    schema = schema_of(node.op, node.version, node.domain)
    if schema is None:
        return []
    types, data = {}, {}
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    for i, value in enumerate(values):
        if value is None:
            continue
        kind, proto.input[i] = type_of(value, double), f"operand {i}"
        if kind is None:
            return []
        types[proto.input[i]] = kind
        if not isinstance(value, (torch.Tensor, list)) and np.size(value) <= DECIDES:
            data[proto.input[i]] = numpy_helper.from_array(np.asarray(value), proto.input[i])
    opsets = [helper.make_opsetid(node.domain, node.version)]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, None, opsets)
    except Exception as error:
        if node.op in PARTS:  # onnx cannot, whatever the operands are
            return []
        raise FrontendError(
            f"{node.op} of ONNX cannot have these operands", at=node.place, why=str(error)[:300]
        ) from error
    return [shape_of(found.get(name)) for name in node.outputs if name]


@functools.cache
def schema_of(op: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def type_of(value: Value, double: bool) -> onnx.TypeProto | None:
    """The type as in the file, also while the floats of the module are doubles."""
    if isinstance(value, list):
        kinds = [type_of(v, double) for v in value]
        return helper.make_sequence_type_proto(kinds[0]) if kinds and kinds[0] else None
    if isinstance(value, torch.Tensor):
        narrow = double and value.dtype == torch.float64
        number = onnx.TensorProto.FLOAT if narrow else NUMBERS.get(value.dtype)
    else:
        try:
            number = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
        except (KeyError, ValueError):
            number = None
    return helper.make_tensor_type_proto(number, shape(value)) if number else None


def shape_of(kind: onnx.TypeProto | None) -> list[int] | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    return [n.dim_value for n in sizes] if all(n.HasField("dim_value") for n in sizes) else None


# --- formulas


def shape(value: Any) -> list[int]:
    return [int(n) for n in value.shape] if hasattr(value, "shape") else []


def count(value: Value) -> float:
    """The elements of a value."""
    return sum(map(count, value)) if isinstance(value, list) else math.prod(shape(value))


def numbers(node: Node, name: str, rank: int, default: int) -> list[int]:
    """An attribute with a number for each axis."""
    return list(node.attributes.get(name) or [default] * rank)


def windowed(node: Node, values: Sequence[Value], after: Any) -> float:
    """The picture with its padding."""
    x = shape(values[0])
    kernel = node.attributes.get("kernel_shape") or shape(values[1])[2:]
    rank = len(kernel)
    pads, strides = numbers(node, "pads", 2 * rank, 0), numbers(node, "strides", rank, 1)
    steps = numbers(node, "dilations", rank, 1)
    auto, up = node.attributes.get("auto_pad", ""), node.attributes.get("ceil_mode", 0)
    size = math.prod(x[:2])
    for i, n in enumerate(x[2:]):
        wide = (kernel[i] - 1) * steps[i] + strides[i]
        loose = wide if auto.startswith("SAME") else strides[i] if up else 0
        size *= max(n + pads[i] + pads[i + rank], 0) + loose
    return size


def unwindowed(node: Node, values: Sequence[Value], after: Any) -> float:
    """The whole result of a transposed convolution, of which the sides are cut off."""
    x, w = shape(values[0]), shape(values[1])
    rank = len(w) - 2
    kernel = node.attributes.get("kernel_shape") or w[2:]
    size = max(x[0], 1) * w[1] * node.attributes.get("group", 1)
    for n, k, s, d, e in zip(
        x[2:],
        kernel,
        numbers(node, "strides", rank, 1),
        numbers(node, "dilations", rank, 1),
        numbers(node, "output_padding", rank, 0),
        strict=True,
    ):
        size *= max((n - 1) * s + (k - 1) * d + 1 + e, 0)
    return size


def resized(node: Node, values: Sequence[Value], after: list[int] | None) -> float:
    """One axis after the other grows or shrinks, by a matrix for each."""
    x = shape(values[0])
    if after is None or len(after) != len(x):
        return math.inf
    matrices = max((max(a, b) * b for a, b in zip(after, x, strict=True) if a != b), default=0)
    return max(matrices, one_by_one(node, values, after))


def one_by_one(node: Node, values: Sequence[Value], after: list[int] | None) -> float:
    """The most there is while one axis after the other gets its size."""
    x = shape(values[0])
    if after is None or len(after) != len(x):
        return math.inf
    return math.prod(map(max, x, after))


def columns(node: Node, values: Sequence[Value], after: Any) -> float:
    """The picture of Col2Im with its padding, and the index of all columns in it."""
    if any(isinstance(v, torch.Tensor) for v in values[1:3]):
        return 0
    image, block = ints(values[1]), ints(values[2])
    rank = len(image)
    pads, strides = numbers(node, "pads", 2 * rank, 0), numbers(node, "strides", rank, 1)
    steps = numbers(node, "dilations", rank, 1)
    whole = [n + a + b for n, a, b in zip(image, pads[:rank], pads[rank:], strict=True)]
    starts = [
        max(0, (n - (k - 1) * d - 1) // s + 1)
        for n, k, d, s in zip(whole, block, steps, strides, strict=True)
    ]
    picture = math.prod(shape(values[0])[:2]) * math.prod(whole)
    return max(picture, math.prod(block) * max(1, math.prod(starts)), *block, *starts)


def unpooled(node: Node, values: Sequence[Value]) -> float:
    x, kernel = shape(values[0]), node.attributes["kernel_shape"]
    rank = len(kernel)
    pads, strides = numbers(node, "pads", 2 * rank, 0), numbers(node, "strides", rank, 1)
    size = math.prod(x[:2])
    for i, n in enumerate(x[2:]):
        size *= (n - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i]
    known = len(values) > 2 and not isinstance(values[2], torch.Tensor) and values[2] is not None
    return max(size, math.prod(ints(values[2])) if known else 0)


def broadcast(node: Node, values: Sequence[Value]) -> float:
    return math.prod(np.broadcast_shapes(*(tuple(shape(value)) for value in values)))


def transformed(node: Node, values: Sequence[Value], after: Any) -> float:
    """The matrix of a Fourier transform."""
    x, axis = shape(values[0]), node.attributes.get("axis", 1)
    if node.op == "STFT":
        given = values[3] if len(values) > 3 else None
        length = count(values[2]) if given is None else int(np.asarray(given))
        frames = max(0, x[1] - length) // max(1, int(np.asarray(values[1]))) + 1
        return max(length * length, x[0] * frames * length * 2)
    if len(values) > 2 and values[2] is not None and not isinstance(values[2], torch.Tensor):
        axis = int(np.asarray(values[2]))
    given = values[1] if len(values) > 1 else None
    length = x[axis] if given is None else int(np.asarray(given))
    return max(length * length, count(values[0]) / max(1, x[axis]) * length)


# What a row makes on the way to its results.
BETWEEN: dict[str, Callable[[Node, Sequence[Value], list[int] | None], float]] = {
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool", "LpPool"), windowed),
    "ConvTranspose": unwindowed,
    **dict.fromkeys(("Resize", "Upsample"), resized),
    **dict.fromkeys(("Pad", "CenterCropPad"), one_by_one),
    "Col2Im": columns,
    **dict.fromkeys(("DFT", "STFT"), transformed),
}
# Operators with results that onnx leaves open, and that are not larger than the operands.
PARTS = frozenset({
    "Compress", "GroupNormalization", "Identity", "MeanVarianceNormalization", "NonMaxSuppression",
    "NonZero", "Optional", "OptionalGetElement",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "Split", "SplitToSequence", "Unique",
})  # fmt: skip
# Other results that it leaves open.
OPEN: dict[str, Callable[[Node, Sequence[Value]], float]] = {
    "MaxUnpool": unpooled,
    "RoundToGrid": lambda node, values: count(values[0]),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), broadcast),
    "ConcatFromSequence": lambda node, values: sum(map(count, values)),
}
