"""What several operator families share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Array, Attributes, DType, Node, Type, Value

MAX_RANK = 8  # of any value a broadcasting or transposing kernel sees


class Axis(Attributes):
    """Of ops that work along one axis."""

    axis: int = 0


def d(value: Value) -> str:
    """The name of a value's cotangent."""
    return f"d.{value.name}"


def straight(torch: Any, real: Any, exact: Array, inside: Array | None = None) -> Any:
    """The tensor `exact`, with the derivative of `real` where nothing saturated."""
    if inside is not None:
        real = torch.where(torch.from_numpy(inside), real, real.detach())
    return real + (torch.from_numpy(exact.astype(np.float64)) - real).detach()


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ShapeError(what)


def require_f32(*types: Type) -> None:
    for t in types:
        require(t.dtype is DType.F32, f"needs f32 operands, got {t}")


def require_dtype(x: Type, *accepted: DType) -> None:
    *most, last = (dtype.label for dtype in accepted)
    words = f"{', '.join(most)} or {last}" if most else last
    require(x.dtype in accepted, f"needs {words}, got {x}")


def require_bits(bits: Type, x: Type) -> None:
    require(bits == packed(x.elements, 1), f"{bits} does not hold one bit for each of {x}")


def require_same(*types: Type) -> None:
    for t in types[1:]:
        require(t.shape == types[0].shape, f"shapes differ: {types[0]} and {t}")


def require_axis(a: Axis, x: Type) -> None:
    require(0 <= a.axis < x.rank, f"axis {a.axis} out of range for {x}")


def infer_along(a: Axis, x: Type) -> Type:
    """`infer` of an op along one axis, whose result has the f32 type of its operand."""
    require_f32(x)
    require_axis(a, x)
    return x


def infer_float(a: Attributes, x: Type) -> Type:
    """`infer` of an op whose result has the f32 type of its one operand."""
    require_f32(x)
    return x


def infer_as_is(a: Attributes, x: Type) -> Type:
    """`infer` of an op whose result has the type of its one operand, whatever that is."""
    return x


def infer_pair(a: Attributes, x: Type, y: Type) -> Type:
    """`infer` of an op of two f32 values of one shape, which is that of its result."""
    require_f32(x, y)
    require_same(x, y)
    return x


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Sizes before, at and after `axis`: any array is [outer, n, inner] to a one-axis kernel."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def padded(numbers: Iterable[int], fill: int = 0) -> tuple[int, ...]:
    """`numbers` filled up to MAX_RANK for a fixed-size C array."""
    listed = list(numbers)
    if len(listed) > MAX_RANK:
        raise ShapeError(f"{len(listed)} dimensions, but kernels take at most {MAX_RANK}")
    return tuple(listed + [fill] * (MAX_RANK - len(listed)))


def strides(shape: tuple[int, ...]) -> list[int]:
    """Row-major strides in elements; 0 along axes of size 1, so that they broadcast."""
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return [0 if n == 1 else s for n, s in zip(shape, steps, strict=True)]


def collapse(
    dims: tuple[int, ...], *steps: list[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring axes that every operand walks alike; drop axes of size 1."""
    axes: list[tuple[int, list[int]]] = []
    for i, n in enumerate(dims):
        if n == 1:
            continue
        here = [s[i] for s in steps]
        if axes and all(a == n * h for a, h in zip(axes[-1][1], here, strict=True)):
            axes[-1] = (axes[-1][0] * n, here)
        else:
            axes.append((n, here))
    axes = axes or [(1, [0] * len(steps))]
    return tuple(n for n, _ in axes), [tuple(a[1][k] for a in axes) for k in range(len(steps))]


# Small numbers for the backward pass, `bits` each, one behind the other with the low end first.


def packed(elements: int, bits: int) -> Type:
    return Type(DType.U8, (-(-elements * bits // 8),))


def pack(numbers: Array, bits: int) -> Array:
    """Bits behind the last number are 0."""
    spread = numbers.reshape(-1, 1).astype(np.int32) >> np.arange(bits) & 1
    return np.packbits(spread.astype(np.uint8), bitorder="little")


def unpack(array: Array, bits: int, shape: tuple[int, ...]) -> Array:
    spread = np.unpackbits(array, count=math.prod(shape) * bits, bitorder="little")
    return (spread.reshape(-1, bits) @ (1 << np.arange(bits))).reshape(shape)


# `row_axis` of an op that computes each element alone, and of one that computes rows of channels.


def same_axis(node: Node, operand: int, axis: int) -> int | None:
    """The operands broadcast."""
    return axis + node.out.type.rank - node.ins[operand].type.rank


def row_of_channels(node: Node, operand: int, axis: int) -> int | None:
    """Channels are the last axis of operand 0; other operands have no rows."""
    return axis if operand == 0 and axis != node.ins[0].type.rank - 1 else None


def other_axis(node: Node, operand: int, axis: int) -> int | None:
    """It works along an axis of its own."""
    return axis if axis != node.attrs.axis else None


def over_first(node: Node) -> tuple[tuple[int, int], ...]:
    """`inplace` of an op whose result may take the place of its first operand."""
    return ((0, 0),)
