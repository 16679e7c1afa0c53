"""What trains in place of a stored parameter: some of its numbers, or what they are made of.

A part is a leaf of its own, named `<parameter>.part`. Only that leaf is in RAM, has optimizer state
and is updated, saved and sent. Arrays are as stored, not in PyTorch's axis order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .graph import Array

Places = tuple[int | None, tuple[int, ...]]  # an axis and indices along it; None: of all elements


@dataclass(frozen=True)
class Part(ABC):
    """A leaf, and the `parameter` that it stands for."""

    parameter: str

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
