"""How one tensor is stored: the smallest of five methods, found by trying them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .coding import Array
from .fields import TYPES, Damaged, Reader, Stream, Values, Writer

METHODS = ("raw", "codebook", "sparse", "sparse codebook", "copy")
RAW, CODEBOOK, SPARSE, SPARSE_CODEBOOK, COPY = range(5)
MOST_VALUES = 256  # of a codebook: an index is a byte at most
MOST_AXES = 16


def encoded(array: Array, twin: int | None) -> tuple[int, Writer]:
    """The method with the fewest bytes, and these. `twin` is the number of an equal tensor."""
    return min(candidates(array, twin), key=lambda found: len(found[1].data))


def candidates(array: Array, twin: int | None) -> Iterator[tuple[int, Writer]]:
    flat = without_negative_zero(array.ravel())
    patterns = flat.view(f"u{flat.itemsize}")
    live = patterns != 0
    if twin is not None:
        out = Writer()
        out.number(twin)
        yield COPY, out
    yield RAW, raw(flat)
    distinct = len(np.unique(patterns))
    if distinct <= MOST_VALUES:
        yield CODEBOOK, shared(flat, Writer())
    if live.all():
        return
    gaps = positions(np.flatnonzero(live))
    yield SPARSE, raw(flat[live], copy_of(gaps))
    if distinct <= MOST_VALUES + 1:
        yield SPARSE_CODEBOOK, shared(flat[live], copy_of(gaps))


def without_negative_zero(flat: Array) -> Array:
    """A mask makes -0.0 of negative weights: the same number as 0.0, and pruned."""
    return np.where(flat == 0, flat.dtype.type(0), flat) if flat.dtype.kind == "f" else flat


def raw(values: Array, out: Writer | None = None) -> Writer:
    out = out or Writer()
    out.values("values", values)
    return out


def shared(values: Array, out: Writer) -> Writer:
    """Distinct values in the order of their bits as unsigned numbers, then an index for each."""
    book, index = np.unique(values.view(f"u{values.itemsize}"), return_inverse=True)
    out.number(len(book))
    out.values("codebook", book.view(values.dtype))
    out.stream("indices", index)
    return out


def positions(places: Array) -> Writer:
    """Where the values are, by the numbers of zeros before each, in the best width."""
    found = []
    for width in range(1, 9):
        out = Writer()
        symbols = relative(places, width)
        out.number(len(places))
        out.number(len(symbols))
        out.byte(width)
        out.stream("positions", symbols, narrowest=1)
        found.append(out)
    return min(found, key=lambda out: len(out.data))


def relative(places: Array, width: int) -> Array:
    """Zeros before each value. The greatest symbol, the filler, is as many zeros and no value."""
    filler = 2**width - 1
    fillers, rest = np.divmod(np.diff(places, prepend=-1) - 1, filler)
    symbols = np.full(len(places) + int(fillers.sum()), filler, np.uint8)
    symbols[np.cumsum(fillers + 1) - 1] = rest
    return symbols


def absolute(symbols: Array, width: int, count: int, elements: int) -> Array:
    """The inverse of `relative`."""
    is_value = symbols < 2**width - 1
    places = (np.cumsum(symbols.astype(np.int64) + is_value) - 1)[is_value]
    if (symbols >= 2**width).any():
        raise Damaged(f"a number of zeros has more than {width} bits")
    if len(places) != count or (count and places[-1] >= elements):
        raise Damaged(f"the positions are not those of {count:,} of {elements:,} elements")
    return places


def copy_of(out: Writer) -> Writer:
    return Writer(bytearray(out.data), out.kinds.copy())


@dataclass(frozen=True)
class Record:
    """A tensor of a file, parsed but not decoded: its memory is not yet allocated."""

    name: str
    type: np.dtype[np.generic]
    shape: tuple[int, ...]
    method: int
    values: Values | None = None  # all, those that are not zero, or the codebook
    index: Stream | None = None
    places: tuple[Stream, int, int] | None = None  # symbols, their width, how many values
    twin: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.type.itemsize

    def array(self) -> Array:
        assert self.values is not None, "a copy has no values of its own"
        found = self.values.array()
        if self.index is not None:
            index = self.index.symbols()
            if len(index) and index.max() >= len(found):
                raise Damaged(f"an index is {index.max()}, the codebook has {len(found)} values")
            found = found[index]
        if self.places is not None:
            stream, width, count = self.places
            whole = np.zeros(self.elements, self.type)
            whole[absolute(stream.symbols(), width, count, self.elements)] = found
            found = whole
        return found.reshape(self.shape)


def read_record(data: Reader, name: str) -> Record:
    type_, shape = read_shape(data)
    method, elements = data.byte(), math.prod(shape)
    if method == COPY:
        return Record(name, type_, shape, method, twin=data.number())
    if method > COPY:
        raise Damaged(f"{method} is no method to store a tensor")
    count, places = elements, None
    if method in (SPARSE, SPARSE_CODEBOOK):
        places = read_places(data, elements)
        count = places[2]
    if method in (RAW, SPARSE):
        return Record(name, type_, shape, method, data.values(count, type_), None, places)
    entries = data.number()
    if entries > MOST_VALUES:
        raise Damaged(f"a codebook has {entries:,} values, at most {MOST_VALUES} are allowed")
    book = data.values(entries, type_)
    return Record(name, type_, shape, method, book, data.stream(count), places)


def read_shape(data: Reader) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    code, axes = data.byte(), data.byte()
    if code >= len(TYPES):
        raise Damaged(f"{code} is no type of a tensor")
    if axes > MOST_AXES:
        raise Damaged(f"a tensor has {axes} axes, at most {MOST_AXES} are allowed")
    return np.dtype(TYPES[code]), tuple(data.number() for _ in range(axes))


def read_places(data: Reader, elements: int) -> tuple[Stream, int, int]:
    count, symbols, width = data.number(), data.number(), data.byte()
    if not count <= symbols <= elements:
        raise Damaged(f"{count:,} values at {symbols:,} steps do not fit {elements:,} elements")
    if not 1 <= width <= 8:
        raise Damaged(f"a number of zeros has {width} bits, 1 to 8 are allowed")
    return data.stream(symbols, narrowest=1), width, count
