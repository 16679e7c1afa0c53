"""The loss of a student: hard labels and every term, each with its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .losses import pooled
from .terms import FORMS, Term, Weights

Size = tuple[int, int]


@dataclass(frozen=True)
class Match:
    """A term between two tensors: where the teacher's comes from, in which form it is given."""

    term: Term
    adapter: int | None = None  # the number of the student's adapter
    size: Size | None = None  # that the teacher's is pooled to

    @property
    def key(self) -> tuple[str, str, Size | None]:
        """Terms with the same key take the same tensor of the teacher."""
        return self.term.source, self.term.form, self.size

    @property
    def fixed(self) -> bool:
        """Whether the teacher's tensor is one of its weights, the same in every step."""
        return isinstance(self.term, Weights)

    def prepared(self, teacher: Tensor) -> Tensor:
        """What is kept of the teacher's tensor."""
        return FORMS[self.term.form](teacher if self.size is None else pooled(teacher, self.size))


class Objective(nn.Module):
    """A loss for `whet.compile` and for PyTorch.

    It takes the prediction, or `whet.Outputs` with the student's adapted tensor for every term
    that needs one, and the target: the labels, unless they do not count, and what `targets` gives
    of the teacher, in a tuple if these are several tensors.
    """

    def __init__(
        self, matches: Sequence[Match], hard: float, hard_loss: Any, fixed: Sequence[Tensor]
    ) -> None:
        super().__init__()
        self.matches, self.hard, self.hard_loss = tuple(matches), hard, hard_loss
        self.keys = list(dict.fromkeys(m.key for m in matches if not m.fixed))
        for i, tensor in enumerate(fixed):
            self.register_buffer(f"fixed_{i}", tensor.detach().clone())

    def forward(self, output: Any, target: Any) -> Tensor:
        prediction, others = output if isinstance(output, tuple) else (output, ())
        several = target if isinstance(target, (tuple, list)) else (target,)
        parts = self.parts(prediction, others, several)
        total, *rest = parts.values()
        for part in rest:
            total = total + part
        return total

    def parts(
        self, prediction: Tensor, others: Sequence[Tensor], target: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """The weighted losses by name; their sum is the loss."""
        labels, theirs = (target[0], target[1:]) if self.hard else (None, target)
        given = dict(zip(self.keys, theirs, strict=True))
        found: dict[str, Tensor] = {}
        if self.hard:
            found["hard"] = self.hard * self.hard_loss(prediction, labels)
        waiting, constants = iter(others), iter(self.buffers(recurse=False))
        for match in self.matches:
            term = match.term
            ours = next(waiting) if term.layer else prediction
            teacher = next(constants) if match.fixed else given[match.key]
            name = term.name
            while name in found:
                name += "'"
            found[name] = term.weight * term(ours, teacher)
        return found
