"""Forms in which frozen weights are stored, each to the last digit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from ..ir import Array, Builder, DType, Op, Relation, Value, is_meta, meta_array, origin_of
from ..ops._blocks import BLOCKS, FORMATS, decoded, held, in_blocks
from ..ops._common import pack, packed
from ..ops.lookup import Lookup, LookupScaled
from ..ops.widen import Widen, narrowed

Given = Mapping[str, Callable[[], tuple[str, Array]]]  # by parameter: a format, and its bytes

CODE = 64  # bytes that a call and its arguments take, roughly


@dataclass(frozen=True)
class Stored:
    """Arrays, each with the end of its name, and how they become the weight."""

    arrays: tuple[tuple[str, Array, DType], ...]
    kind: str = ""  # that layers can read directly, see ops/stored.py
    bits: int = 0
    widen: type[Op] | None = None  # makes the weight of them
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(array.size * dtype.size for _, array, dtype in self.arrays)

    def emit_wide(self, b: Builder, arrays: Sequence[Value], name: str) -> Value:
        assert self.widen is not None
        return b.emit(self.widen, *arrays, name=name, **self.attrs)


class Form(Protocol):
    """A form in which weights are stored."""

    dtypes: ClassVar[tuple[DType, ...]]  # of weights that it is for

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        """The weight in this form, if that has its numbers and is smaller."""


@dataclass(frozen=True)
class Bytes:
    """8 bits, and a scale for each output channel."""

    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        last = is_depthwise(leaf)
        if is_meta(weight):
            found: tuple[Array, Array] | None = planned_rows(weight, last)
        else:
            found = narrowed(weight, last)
        if found is None:
            return None
        arrays = (("narrow", found[0], DType.I8), ("scale", found[1], DType.F32))
        kind = "rows" if weight.ndim == 2 else ""
        return Stored(arrays, kind, widen=Widen, attrs={"last": last})


@dataclass(frozen=True)
class Blocks:
    """What a file has, or the first of these formats of GGUF that has the numbers, or `other`."""

    kinds: tuple[str, ...]
    other: Form | None = None
    given: Given = field(default_factory=dict)  # in a file

    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        if found := self.shipped(leaf, weight) or self.blocks(weight):
            kind, data = found
            return Stored(((kind, data, DType.U8),), kind)
        return None if self.other is None else self.other.stored(leaf, weight)

    def shipped(self, leaf: Value, weight: Array) -> tuple[str, Array] | None:
        """The format and the bytes in the file, if the weight is what they stand for."""
        given = self.given.get(parameter_of(leaf))
        if given is None or weight.ndim != 2:
            return None
        kind, data = given()
        block = FORMATS.get(kind)
        if block is None or weight.shape[1] % block.size:
            return None
        data = np.ascontiguousarray(data).reshape(-1)
        if data.dtype != np.uint8 or data.size * block.size != weight.size * block.bytes:
            return None
        same = np.array_equal(decoded(kind, data, weight.shape), weight)
        return (kind, data) if same else None

    def blocks(self, weight: Array) -> tuple[str, Array] | None:
        """The format and the bytes."""
        if in_blocks(weight):
            for kind in self.kinds:
                data = planned_blocks(kind, weight) if is_meta(weight) else held(kind, weight)
                if data is not None:
                    return kind, data
        return None


@dataclass(frozen=True)
class Codebooks:
    """A codebook, indices of so many bits, and a scale for each channel if a norm was folded in."""

    bits: int
    # Before norms were folded in; of a model without values, those that are to have codebooks.
    parameters: Mapping[str, Array] = field(default_factory=dict)

    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.I8)

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        attrs: dict[str, Any] = {"shape": weight.shape, "bits": self.bits}
        if is_meta(weight):
            return self.planned(leaf, weight, attrs)
        book, index = np.unique(weight, return_inverse=True)
        if len(book) <= 2**self.bits:
            kind, scale = leaf.type.dtype, None
        else:
            kind, scale = DType.F32, self.scale(leaf, weight)
            if scale is None:
                return None
            book, index = np.unique(self.before(leaf, weight), return_inverse=True)
            attrs["last"] = is_depthwise(leaf)
        indices = ("index", pack(index, self.bits), DType.U8)
        arrays: tuple[tuple[str, Array, DType], ...] = (("book", book, kind), indices)
        if scale is not None:
            stored = Stored((*arrays, ("scale", scale, DType.F32)), "", 0, LookupScaled, attrs)
        else:
            direct = kind is DType.F32 and weight.ndim == 2
            stored = Stored(arrays, "book" if direct else "", self.bits, Lookup, attrs)
        return None if stored.bytes + CODE > leaf.type.bytes else stored

    def planned(self, leaf: Value, weight: Array, attrs: dict[str, Any]) -> Stored | None:
        """What a weight without values takes, with a codebook that is full."""
        if parameter_of(leaf) not in self.parameters:
            return None
        size = packed(weight.size, self.bits).shape
        book = planned(weight, "book", (2**self.bits,), np.float32)
        arrays = (("book", book, DType.F32), ("index", planned(weight, "index", size), DType.U8))
        direct = "book" if weight.ndim == 2 else ""
        stored = Stored(arrays, direct, self.bits, Lookup, attrs)
        return None if stored.bytes + CODE > leaf.type.bytes else stored

    def before(self, leaf: Value, weight: Array) -> Array:
        """The parameter that the weight was made from, 0 where that is."""
        return np.where(weight == 0, 0, self.parameters[parameter_of(leaf)].reshape(weight.shape))

    def scale(self, leaf: Value, weight: Array) -> Array | None:
        """What each channel was multiplied by, if it is that and the parameter has few values."""
        given = self.parameters.get(parameter_of(leaf))
        if given is None or given.size != weight.size:
            return None
        before = self.before(leaf, weight).astype(np.float64)
        if len(np.unique(before)) > 2**self.bits or not np.all(np.isfinite(weight)):
            return None
        axes = tuple(range(weight.ndim - 1) if is_depthwise(leaf) else range(1, weight.ndim))
        square = (before * before).sum(axis=axes, keepdims=True)
        scale = (before * weight).sum(axis=axes, keepdims=True) / np.where(square > 0, square, 1)
        scale = scale.astype(np.float32)
        apart = np.abs(before * scale - weight)
        largest = np.abs(weight).max(axis=axes, keepdims=True)
        return scale.ravel() if np.all(apart <= 1e-6 * largest) else None


def planned(weight: Array, end: str, shape: tuple[int, ...], dtype: Any = np.uint8) -> Array:
    """An array of what is stored of a weight without values."""
    return meta_array(shape, dtype, f"{origin_of(weight)}.{end}")


def planned_rows(weight: Array, last: bool) -> tuple[Array, Array]:
    channels = weight.shape[-1 if last else 0]
    numbers = planned(weight, "narrow", weight.shape, np.int8)
    return numbers, planned(weight, "scale", (channels,), np.float32)


def planned_blocks(kind: str, weight: Array) -> Array:
    block = FORMATS[kind]
    return planned(weight, kind, (weight.size // block.size * block.bytes,))


def form_named(
    frozen: str | None, parameters: Mapping[str, Array], given: Given | None = None
) -> Form | None:
    """How frozen weights are stored by this word for `frozen=`, if not as they are."""
    if frozen is None:
        return None
    if frozen == "int8":
        return Bytes()
    if frozen == "gguf":
        return Blocks(("q4_0", "q4_1", "q8_0"), given=given or {})
    if frozen in BLOCKS:
        return Blocks((frozen,), Bytes())
    return Codebooks(codebook_bits(frozen), parameters)


def codebook_bits(frozen: str | None) -> int:
    """Of indices; 0 if the word is not for codebooks."""
    word, bits = str(frozen)[:-1], str(frozen)[-1:]
    return int(bits) if word == "kmeans" and bits in set("2345678") else 0


def parameter_of(leaf: Value) -> str:
    """The name of the parameter that a frozen weight is, or was made from."""
    return leaf.link.of if leaf.link and leaf.is_a(Relation.MADE_FROM) else leaf.name


def is_depthwise(leaf: Value) -> bool:
    """Whose channels are the last axis."""
    return leaf.type.rank == 3
