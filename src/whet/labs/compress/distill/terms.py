"""The losses to choose from: what each takes of student and teacher, and how much it counts.

A term compares one tensor of the student with one of the teacher: the output of a layer, the
prediction (the layer "") or a weight. `form` says what is kept of the teacher's, so that a device
is sent no more than the loss needs. `bridge` says which shapes must agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ....errors import FrontendError
from . import losses

FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "maps": losses.channel_maps,
    "attention": losses.attention_map,
}
KERNELS = ("linear", "polynomial", "gaussian")
DIVERGENCES = {"kl": losses.kl_divergence, "cross-entropy": losses.soft_cross_entropy}


@dataclass(frozen=True)
class Term(ABC):
    """`layer` is the student's, by name; `teacher` the teacher's, by default of the same name."""

    layer: str = ""
    teacher: str | None = None
    weight: float = 1.0

    form: ClassVar[str] = "plain"
    bridge: ClassVar[str] = "nothing"  # or "all" axes, "space" (height and width), "classes"
    least: ClassVar[int] = 1  # samples in a batch

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise FrontendError(f"a weight of {self.weight} for {self.name}", try_="weight=1.0")

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()} {self.layer}".strip()

    @property
    def source(self) -> str:
        """The teacher's layer."""
        return self.layer if self.teacher is None else self.teacher

    @abstractmethod
    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Of the student's adapted tensor, in this form, and the teacher's, in this form."""

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        return self.loss(FORMS[self.form](student), teacher)


@dataclass(frozen=True, kw_only=True)
class Logits(Term):
    """What the teacher predicts, softened by a temperature, beside the hard labels."""

    temperature: float = 4.0
    divergence: str = "kl"
    bridge: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise FrontendError(f"a temperature of {self.temperature}", try_="temperature=4.0")
        check_word("divergence", self.divergence, DIVERGENCES)

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return DIVERGENCES[self.divergence](student, teacher, self.temperature)


class Features(Term):
    """The output of a layer; a trained linear adapter, a 1x1 convolution for images, where the
    numbers of channels differ (FitNets, arXiv:1412.6550)."""

    bridge: ClassVar[str] = "all"

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.squared_error(student, teacher)


@dataclass(frozen=True)
class Selectivity(Term):
    """Where the channels of a layer are active, as a distribution: squared MMD with a kernel."""

    kernel: str = "polynomial"
    degree: int = 2
    offset: float = 0.0
    form: ClassVar[str] = "maps"
    bridge: ClassVar[str] = "space"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("kernel", self.kernel, KERNELS)
        if self.degree < 1:
            raise FrontendError(f"a polynomial kernel of degree {self.degree}", try_="degree=2")

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.mmd(student, teacher, self.kernel, self.degree, self.offset)


class Attention(Term):
    """Where a layer is active over all of its channels."""

    form: ClassVar[str] = "attention"
    bridge: ClassVar[str] = "space"

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.attention(student, teacher)


class Distances(Term):
    """How far the samples of a batch are apart in the output of a layer."""

    least: ClassVar[int] = 2

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.relational_distance(student, teacher)


class Angles(Term):
    """The angles between the samples of a batch in the output of a layer."""

    least: ClassVar[int] = 3

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.relational_angle(student, teacher)


class Weights(Term):
    """A weight, by its name; all those with the same name and shape if no name is given.

    Where the numbers of channels differ, two trained matrices map the student's to the teacher's.
    """

    bridge: ClassVar[str] = "weights"

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        return losses.squared_error(student, teacher)


def check_word(what: str, word: str, known: Collection[str]) -> None:
    if word not in known:
        raise FrontendError(f"{word!r} is not a {what}", try_=", ".join(known))
