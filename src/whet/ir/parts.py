"""What trains in place of a stored parameter: some of its numbers, or what they are made of.

A part is a leaf. Only that leaf is in RAM, has optimizer state and is updated, saved and sent.
Arrays are as stored, not in PyTorch's axis order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .graph import Array

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
