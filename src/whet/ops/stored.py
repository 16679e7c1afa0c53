"""Layers that read a frozen weight[o, i] as it is stored, and compute what others do with floats.

Its form is a `kind`: "rows" (int8, and a scale for each row), "book" (indices of `bits` each, and a
codebook) or a format of GGUF, in blocks: see _blocks.py. The first two have a table beside the
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import ClassVar, TypeVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Node, Op, Type, Value
from . import _exact
from ._blocks import FORMATS, decoded
from ._common import packed, require, require_f32, unpack
from .fused import Epilogue, LinearFused
from .linear import Linear, LinearDx, rows
from .shape import Take

T = TypeVar("T")

ROWS = 9  # of whet_kernels_stored.h; 1 to 8 are bits of indices


class StoredWeight(Attributes):
    kind: str = "rows"
    bits: int = 0  # of indices
    outputs: int = 0
    inputs: int = 0

    @property
    def arrays(self) -> int:
        """How many operands the weight is."""
        return 2 if self.kind in ("rows", "book") else 1

    @property
    def form(self) -> int:
        """The number that kernels know the form by."""
        if self.kind in FORMATS:
            return FORMATS[self.kind].form
        return self.bits if self.kind == "book" else ROWS


def require_stored(a: StoredWeight, data: Type, table: Type | None) -> None:
    """That these are the arrays of such a weight."""
    shape = (a.outputs, a.inputs)
    if a.kind == "rows":
        require(data == Type(DType.I8, shape), f"{data} is not a weight {shape} of int8")
        require(table == Type(DType.F32, shape[:1]), f"{table} is not a scale for each row")
    elif a.kind == "book":
        require(1 <= a.bits <= 8, f"indices have 1 to 8 bits, got {a.bits}")
        require(data == packed(a.outputs * a.inputs, a.bits), f"{data} does not index {shape}")
        require_f32(*([] if table is None else [table]))
        fits = table is not None and table.rank == 1 and table.elements <= 2**a.bits
        require(fits, f"{table} is not a codebook for {a.bits} bits")
    else:
        require(a.kind in FORMATS, f"there is no form {a.kind!r} of a weight")
        block = FORMATS[a.kind]
        require(a.inputs % block.size == 0, f"rows of {a.inputs} are not blocks of {block.size}")
        size = a.outputs * a.inputs // block.size * block.bytes
        require(data == Type(DType.U8, (size,)), f"{data} is not a weight {shape} in {a.kind}")


def floats(a: StoredWeight, data: Array, table: Array | None = None) -> Array:
    """The weight."""
    shape = (a.outputs, a.inputs)
    if a.kind in FORMATS:
        return decoded(a.kind, data, shape)
    assert table is not None
    if a.kind == "book":
        found: Array = table[unpack(data, a.bits, shape)]
        return found
    return data.astype(table.dtype) * table[:, None]


class ReadsStored(Op):
    """What such operators share. They become the `stored` form of those that they stand in for."""

    instead: ClassVar[tuple[type[Op], ...]]
    weight: ClassVar[int] = 1  # its place among the operands, here and there
    differentiable = False
    floats_as_integers = True

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for op in cls.instead:
            op.stored = cls

    @classmethod
    def of(cls, node: Node, leaf: Value) -> type[ReadsStored] | None:
        """The form of a node's operator that reads this weight as it is stored, if there is one."""
        form = node.op.stored
        if form is None or not issubclass(form, ReadsStored) or leaf.type.rank != 2:
            return None
        alone = node.ins[form.weight] is leaf and node.ins.count(leaf) == 1
        return form if alone and form.fits(node) else None

    @staticmethod
    def fits(node: Node) -> bool:
        """Whether it does what the node does."""
        return True

    @staticmethod
    def more(node: Node) -> dict[str, object]:
        """Its attributes besides those of the weight."""
        return {}

    @classmethod
    def emit(cls, b: Builder, node: Node, arrays: Sequence[Value], kind: str, bits: int) -> None:
        """Emit it in place of the node, with the arrays of the weight."""
        outputs, inputs = node.ins[cls.weight].shape
        arrays = arrays[::-1] if kind == "book" else arrays  # `lookup` has the codebook first
        ins = (*node.ins[: cls.weight], *arrays, *node.ins[cls.weight + 1 :])
        sizes = {"kind": kind, "bits": bits, "outputs": outputs, "inputs": inputs}
        b.emit(cls, *ins, name=node.out.name, **sizes, **cls.more(node))


class LinearStored(ReadsStored):
    """y = min(max(linear(x, w, b) + add, low), high), with w as it is stored"""

    name = "linear_stored"
    instead: ClassVar[tuple[type[Op], ...]] = (Linear, LinearFused)

    class Attrs(Epilogue, StoredWeight):
        pass

    @staticmethod
    def fits(node: Node) -> bool:
        return not getattr(node.attrs, "mask", False)

    @staticmethod
    def more(node: Node) -> dict[str, object]:
        return asdict(node.attrs) if node.op is LinearFused else {"bias": len(node.ins) > 2}

    @staticmethod
    def infer(a: Attrs, x: Type, data: Type, *rest: Type) -> Type:
        require_f32(x)
        require(x.rank >= 1 and x.shape[-1] == a.inputs, f"{x} does not have {a.inputs} features")
        require(len(rest) == a.arrays - 1 + a.bias + a.add, "operands do not match the attributes")
        require_stored(a, data, rest[0] if a.arrays > 1 else None)
        y = Type(x.dtype, (*x.shape[:-1], a.outputs))
        bias, add = ends(a, rest)
        require(
            bias is None or bias.shape == (a.outputs,), "the bias must have one entry per output"
        )
        require(add is None or add == y, f"cannot add {add} to {y}")
        return y

    @staticmethod
    def ref(a: Attrs, x: Array, data: Array, *rest: Array) -> Array:
        bias, add = ends(a, rest)
        y = Linear.ref(a, x, floats(a, data, *rest[: a.arrays - 1]).astype(x.dtype), bias)
        y = y if add is None else y + add
        return np.minimum(np.maximum(y, y.dtype.type(a.low)), y.dtype.type(a.high))

    @staticmethod
    def exact(a: Attrs, x: Array, data: Array, *rest: Array) -> Array:
        w = floats(a, data, *rest[: a.arrays - 1])
        return _exact.clip(Linear.exact(a, x, w, *ends(a, rest)), a.low, a.high)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, len(node.ins) - 1),) if node.attrs.add else ()

    @staticmethod
    def call(node: Node) -> Call:
        (x, data, *rest), a = node.ins, node.attrs
        table = rest[0] if a.arrays > 1 else None
        args = (node.out, x, data, table, *ends(a, rest), a.low, a.high, rows(x.shape), a.inputs,
                a.outputs, a.form)  # fmt: skip
        return Call("whet_linear_stored_f32", args, "stored")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * int(node.attrs.inputs)


def ends(a: LinearStored.Attrs, rest: Sequence[T]) -> tuple[T | None, T | None]:
    """The bias and what is added, of the operands behind the data."""
    return rest[a.arrays - 1] if a.bias else None, rest[-1] if a.add else None


class LinearStoredDx(ReadsStored):
    """dx[r, i] = sum_o dy[r, o] * w[o, i], with w as it is stored"""

    name = "linear_stored_dx"
    instead = (LinearDx,)
    Attrs = StoredWeight

    @staticmethod
    def infer(a: StoredWeight, dy: Type, data: Type, table: Type | None = None) -> Type:
        require_f32(dy)
        require(dy.rank >= 1 and dy.shape[-1] == a.outputs, f"{dy} does not have {a.outputs}")
        require((table is not None) == (a.arrays > 1), "operands do not match the attributes")
        require_stored(a, data, table)
        return Type(dy.dtype, (*dy.shape[:-1], a.inputs))

    @staticmethod
    def ref(a: StoredWeight, dy: Array, data: Array, *table: Array) -> Array:
        return LinearDx.ref(a, dy, floats(a, data, *table).astype(dy.dtype))

    @staticmethod
    def exact(a: StoredWeight, dy: Array, data: Array, *table: Array) -> Array:
        return LinearDx.exact(a, dy, floats(a, data, *table))

    @staticmethod
    def call(node: Node) -> Call:
        (dy, data, *table), a = node.ins, node.attrs
        args = (node.out, dy, data, table[0] if table else None, rows(dy.shape), a.inputs,
                a.outputs, a.form)  # fmt: skip
        return Call("whet_linear_stored_dx_f32", args, "stored")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * int(node.attrs.outputs)


class TakeStored(ReadsStored):
    """y[..., :] = w[index[...], :], with w as it is stored"""

    name = "take_stored"
    instead = (Take,)
    weight = 0
    Attrs = StoredWeight

    @staticmethod
    def fits(node: Node) -> bool:
        return bool(node.attrs.axis == 0)

    @staticmethod
    def infer(a: StoredWeight, data: Type, *rest: Type) -> Type:
        require(len(rest) == a.arrays, "operands do not match the attributes")
        require_stored(a, data, rest[0] if a.arrays > 1 else None)
        require(rest[-1].dtype is DType.I32, f"the index must be i32, not {rest[-1]}")
        return Type(DType.F32, (*rest[-1].shape, a.inputs))

    @staticmethod
    def ref(a: StoredWeight, data: Array, *rest: Array) -> Array:
        return floats(a, data, *rest[:-1])[rest[-1]]

    @staticmethod
    def call(node: Node) -> Call:
        (data, *rest), a = node.ins, node.attrs
        table = rest[0] if a.arrays > 1 else None
        args = (node.out, data, table, rest[-1], rest[-1].type.elements, a.inputs, a.form)
        return Call("whet_take_stored_f32", args, "stored")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {len(node.ins) - 1: (node.attrs.outputs, 0)}
