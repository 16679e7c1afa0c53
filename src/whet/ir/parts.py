"""What trains in place of a stored parameter: some of its numbers, or what they are made of.

A part is a leaf. Only that leaf is in RAM, has optimizer state and is updated, saved and sent.
Arrays are as stored, not in PyTorch's axis order.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .graph import Array

FACTORS = ("lora_A", "lora_B")  # the ends of their names
Places = tuple[int | None, tuple[int, ...]]  # an axis and indices along it; None: of all elements


@dataclass(frozen=True)
class Part(ABC):
    """A leaf, and the `parameter` that it stands for."""

    parameter: str
    rests: ClassVar[bool] = True  # `put` needs the numbers of the parameter that do not train

    @abstractmethod
    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """Of the leaf, from the shape of the parameter."""

    @abstractmethod
    def order(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """In which the leaf stores PyTorch's axes, from that of the parameter."""

    @abstractmethod
    def take(self, whole: Array) -> Array:
        """The leaf's numbers, from those of the parameter."""

    @abstractmethod
    def put(self, part: Array, rest: Array) -> Array:
        """The parameter's numbers, from those of the leaf and from `rest`, which is changed."""

    def reduce(self, gradient: Array) -> Array:
        """The leaf's gradient, from the parameter's."""
        return self.take(gradient)

    @abstractmethod
    def fixed(self, whole: Array) -> Array:
        """What of the parameter training never changes."""

    @abstractmethod
    def places(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Places | None:
        """Where in PyTorch's parameter the leaf's numbers are; None if it is all of them."""

    def held(self, part: Array) -> Array:
        """Numbers for the leaf, changed to what it can hold."""
        return part

    def lost(self, whole: Array) -> str:
        """Which of a parameter's numbers the leaf cannot hold, in words; empty if all fit."""
        return ""

    def along(self, axis: int) -> tuple[int, ...] | None:
        """The indices that the leaf has along a stored axis; None if it has all of them."""
        return None


@dataclass(frozen=True)
class WeightSlice(Part):
    """The leaf holds these indices along an axis of the parameter."""

    axis: int
    indices: tuple[int, ...]
    channels: tuple[int, ...]  # of the layer's input, within each of its groups

    @property
    def _index(self) -> tuple[slice | list[int], ...]:
        return (slice(None),) * self.axis + (list(self.indices),)

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return (*whole[: self.axis], len(self.indices), *whole[self.axis + 1 :])

    def order(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return whole

    def take(self, whole: Array) -> Array:
        found: Array = whole[self._index]
        return found

    def put(self, part: Array, rest: Array) -> Array:
        rest[self._index] = part
        return rest

    def fixed(self, whole: Array) -> Array:
        """The parameter, with zeros where it trains."""
        found = whole.copy()
        found[self._index] = 0
        return found

    def places(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Places:
        return order[self.axis], self.indices

    def along(self, axis: int) -> tuple[int, ...] | None:
        return self.indices if axis == self.axis else None


@dataclass(frozen=True, eq=False)
class Live(Part):
    """The leaf holds the live elements, one after the other; the others are zeros for ever.

    Where that takes more memory, it holds all elements, is the parameter itself, and its gradient
    is masked.
    """

    bits: Array  # one for each element, as of `spread`
    elements: int
    whole: bool = False  # all elements are stored
    rests: ClassVar[bool] = False

    @classmethod
    def of(cls, parameter: str, live: Array) -> Live:
        return cls(parameter, np.packbits(live.ravel(), bitorder="little"), live.size)

    @property
    def count(self) -> int:
        return int(np.unpackbits(self.bits).sum())

    def flags(self, shape: tuple[int, ...]) -> Array:
        flat = np.unpackbits(self.bits, count=self.elements, bitorder="little")
        return flat.astype(bool).reshape(shape)

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return whole if self.whole else (self.count,)

    def order(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return whole if self.whole else (0,)

    def take(self, whole: Array) -> Array:
        flags = self.flags(whole.shape)
        found: Array = np.where(flags, whole, 0).astype(whole.dtype) if self.whole else whole[flags]
        return found

    def put(self, part: Array, rest: Array) -> Array:
        flags = self.flags(rest.shape)
        rest[:] = 0
        rest[flags] = part[flags] if self.whole else part
        return rest

    def fixed(self, whole: Array) -> Array:
        return self.bits

    def places(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Places | None:
        """Where the live elements are, among those of PyTorch's parameter in a row."""
        if self.whole:
            return None
        sizes = [shape[order.index(axis)] for axis in range(len(order))]
        index = np.arange(self.elements).reshape(sizes).transpose(order)
        return None, tuple(map(int, index[self.flags(shape)]))

    def held(self, part: Array) -> Array:
        return self.take(part) if self.whole else part


@dataclass(frozen=True, eq=False)
class Codebook(Part):
    """The leaf holds the values of a parameter, each of which many elements share.

    `index` says which value each element has. The gradient of a value is the sum over its elements;
    that at `zero` is 0 and stays so.
    """

    index: Array  # of each element, packed as for `lookup`
    bits: int
    entries: int
    elements: int
    zero: int = -1
    rests: ClassVar[bool] = False

    @classmethod
    def of(cls, parameter: str, whole: Array, fixed: bool = False) -> Codebook:
        """The values that there are; with `fixed`, 0 stays 0."""
        values, places = np.unique(whole, return_inverse=True)
        bits = max(1, int(len(values) - 1).bit_length())
        spread = places.reshape(-1, 1).astype(np.int32) >> np.arange(bits) & 1
        index = np.packbits(spread.astype(np.uint8), bitorder="little")
        zero = int(np.flatnonzero(values == 0)[0]) if fixed else -1
        return cls(parameter, index, bits, len(values), whole.size, zero)

    @property
    def entry(self) -> Array:
        """Of each element: which value it has."""
        spread = np.unpackbits(self.index, count=self.elements * self.bits, bitorder="little")
        found: Array = spread.reshape(-1, self.bits) @ (1 << np.arange(self.bits))
        return found

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return (self.entries,)

    def order(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return (0,)

    def take(self, whole: Array) -> Array:
        """The values; the mean of those that should be one."""
        found = self._sums(whole) / np.bincount(self.entry, minlength=self.entries)
        return self.held(found.astype(whole.dtype))

    def put(self, part: Array, rest: Array) -> Array:
        rest[:] = part[self.entry].reshape(rest.shape)
        return rest

    def reduce(self, gradient: Array) -> Array:
        return self.held(self._sums(gradient).astype(gradient.dtype))

    def fixed(self, whole: Array) -> Array:
        return self.index

    def places(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Places | None:
        return None

    def held(self, part: Array) -> Array:
        return np.where(np.arange(self.entries) == self.zero, 0, part).astype(part.dtype)

    def lost(self, whole: Array) -> str:
        same = self.put(self.take(whole), np.empty_like(whole)) == whole
        apart = int((~same).sum())
        return f"{apart:,} of {whole.size:,} elements differ from others that share their value" * (
            apart > 0
        )

    def _sums(self, whole: Array) -> Array:
        return np.bincount(self.entry, whole.reshape(-1).astype(np.float64), self.entries)


@dataclass(frozen=True)
class Factors:
    """Two leaves that train beside a frozen parameter w, as in LoRA: w + scale * B A.

    A is [rank, in] and B [out, rank], whichever way the parameter is stored.
    """

    parameter: str
    rank: int
    scale: float
    inputs: int
    outputs: int
    turned: bool = False  # the parameter is [in, out]

    @property
    def names(self) -> tuple[str, str]:
        a, b = (f"{self.parameter}.{end}" for end in FACTORS)
        return a, b

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.rank, self.inputs), (self.outputs, self.rank)

    def start(self) -> tuple[Array, Array]:
        """Uniform numbers, as PyTorch starts a linear layer with, and zeros: the sum is w.

        The numbers depend on the name alone.
        """
        (_, inputs), zeros = self.shapes
        random = np.random.default_rng(zlib.crc32(self.names[0].encode()))
        bound = 1 / math.sqrt(inputs)
        a = random.uniform(-bound, bound, self.shapes[0]).astype(np.float32)
        return a, np.zeros(zeros, np.float32)

    def merged(self, whole: Array, a: Array, b: Array) -> Array:
        """The parameter with the product added to it."""
        product = self.scale * (b.astype(np.float64) @ a)
        found: Array = (whole + (product.T if self.turned else product)).astype(whole.dtype)
        return found
