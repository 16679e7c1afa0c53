"""Distiller: a student, its teacher, and the loss between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import whet

from ....errors import FrontendError, NotFinite
from ....frontend.torch.masks import copied
from .adapters import adapter_of
from .objective import Match, Objective
from .observed import observed
from .taps import as_inputs, run, weight_of
from .terms import Term, Weights

Optimizer = str | Callable[[Any], torch.optim.Optimizer]


class Distiller(nn.Module):
    """Called with inputs and labels, it gives the loss of the student, to be minimised.

    `losses` are terms such as `Logits(temperature=4.0)`; `hard` weighs the loss on labels. `x` is
    an example input, from which the shapes of layers are known. Its parameters are those of the
    student and of adapters, which `seed` initialises. The teacher is a frozen copy in eval mode.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        losses: Sequence[Term] | Term,
        x: Any,
        *,
        hard: float = 1.0,
        hard_loss: Callable[[Any, Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        terms = expanded([losses] if isinstance(losses, Term) else list(losses), student, teacher)
        check_weights(terms, hard)
        self.student = student
        # In a list, so that it is neither trained nor saved with the student.
        self._teacher = [copied(teacher, teacher).eval().requires_grad_(False)]
        ours, theirs = self._shown(terms, as_inputs(x))
        self.adapters = nn.ModuleList()
        self.matches: list[Match] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for term in terms:
                self._match(term, ours, theirs)
        fixed = [theirs[m.term.source] for m in self.matches if m.fixed]
        self.objective = Objective(self.matches, hard, hard_loss or nn.CrossEntropyLoss(), fixed)

    @property
    def teacher(self) -> nn.Module:
        return self._teacher[0]

    @property
    def least(self) -> int:
        """Samples that a batch must have."""
        return max(match.term.least for match in self.matches)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.teacher._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _shown(
        self, terms: Sequence[Term], inputs: tuple[Tensor, ...]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Every tensor that is compared, of both, for the example."""
        samples = len(inputs[0])
        for term in terms:
            if samples < term.least:
                raise FrontendError(
                    f"{term.name} compares samples with each other; the example has {samples}",
                    try_=f"batches of {term.least} samples or more",
                )
        modes = [(m, m.training) for m in self.student.modules()]
        with torch.no_grad():
            try:
                ours = self._student_tensors(terms, inputs, self.student.eval())
            finally:
                for module, mode in modes:
                    module.training = mode
            theirs = self._teacher_tensors(terms, inputs)
        return ours, theirs

    def _student_tensors(
        self, terms: Sequence[Term], inputs: tuple[Tensor, ...], model: nn.Module
    ) -> dict[str, Tensor]:
        layers = dict.fromkeys(t.layer for t in terms if not isinstance(t, Weights))
        found = run(model, inputs, layers)[1]
        return found | {t.layer: weight_of(model, t.layer) for t in terms if isinstance(t, Weights)}

    def _teacher_tensors(
        self, terms: Sequence[Term], inputs: tuple[Tensor, ...]
    ) -> dict[str, Tensor]:
        layers = dict.fromkeys(t.source for t in terms if not isinstance(t, Weights))
        found = run(self.teacher, inputs, layers)[1] if layers else {}
        weights = [t.source for t in terms if isinstance(t, Weights)]
        found |= {name: weight_of(self.teacher, name) for name in weights}
        for name, tensor in found.items():
            if not torch.isfinite(tensor).all():
                what = f"layer {name!r}" if name else "prediction"
                raise NotFinite(
                    f"the teacher's {what} holds numbers that are not finite",
                    why="a student would learn them",
                    try_="a look at the teacher's weights and at the scale of the input",
                )
        return found

    def _match(self, term: Term, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
        adapter, size = adapter_of(term, ours[term.layer], theirs[term.source])
        number = None
        if adapter is not None:
            number = len(self.adapters)
            self.adapters.append(adapter)
        self.matches.append(Match(term, number, size))

    # Training in PyTorch ------------------------------------------------------------------------

    def forward(self, x: Any, y: Any = None) -> Tensor:
        return self.loss(x, self.labels(x, y))

    def loss(self, x: Any, target: Any) -> Tensor:
        """The loss for what `labels` gave."""
        loss: Tensor = self.objective(self.outputs(x), target)
        return loss

    def parts(self, x: Any, target: Any) -> dict[str, float]:
        """What each term adds to the loss."""
        several = target if isinstance(target, tuple) else (target,)
        with torch.no_grad():
            prediction, others = self.outputs(x)
            return {
                n: v.item() for n, v in self.objective.parts(prediction, others, several).items()
            }

    def outputs(self, x: Any) -> whet.Outputs:
        """The student's prediction, and the adapted tensor of each term that takes another."""
        terms = [m.term for m in self.matches]
        found = self._student_tensors(terms, as_inputs(x), self.student)
        others = [self._adapted(m, found[m.term.layer]) for m in self.matches if m.term.layer]
        return whet.Outputs(found[""], tuple(others))

    def _adapted(self, match: Match, x: Tensor) -> Tensor:
        if match.adapter is None:
            return x
        adapted: Tensor = self.adapters[match.adapter](x)
        return adapted

    def targets(self, x: Any) -> tuple[Tensor, ...]:
        """What the loss takes of the teacher, a row for every sample."""
        terms = [m.term for m in self.matches if not m.fixed]
        found: dict[Any, Tensor] = {}
        if terms:
            with torch.no_grad():
                theirs = self._teacher_tensors(terms, as_inputs(x))
                for match in self.matches:
                    if not match.fixed and match.key not in found:
                        found[match.key] = match.prepared(theirs[match.term.source])
        return tuple(found.values())

    def labels(self, x: Any, y: Any = None, targets: tuple[Tensor, ...] | None = None) -> Any:
        """The target of the loss, and of a step of the compiled program: labels, and the teacher's
        tensors, unless they are known. A tuple, or the only tensor."""
        several = self.targets(x) if targets is None else targets
        if self.objective.hard:
            if y is None:
                raise FrontendError("the hard loss needs labels", try_="hard=0.0 for none")
            several = (torch.as_tensor(y), *several)
        return several if len(several) != 1 else several[0]

    # Training in a compiled program -------------------------------------------------------------

    def model(self) -> nn.Module:
        """The student for `whet.compile`: a copy, with the same names, that returns `outputs`."""
        return observed(self.student, self.matches, list(self.adapters))

    def program(
        self, x: Any, y: Any = None, *, optimizer: Optimizer | None = None, **options: Any
    ) -> whet.Program:
        """A program whose step is `step(x, labels(x, y))`; predictions need the input alone.

        `optimizer` is a name, or makes an optimizer of the parameters it is given. The other
        options are those of `whet.compile`.
        """
        model, inputs = self.model(), as_inputs(x)
        made = optimizer(model.parameters()) if callable(optimizer) else optimizer
        return whet.compile(
            model, inputs, loss=self.objective, labels=self.labels(x, y), optimizer=made, **options
        )


def expanded(terms: Sequence[Term], student: nn.Module, teacher: nn.Module) -> list[Term]:
    """A term about all weights becomes one for each weight."""
    found: list[Term] = []
    for term in terms:
        if isinstance(term, Weights) and not term.layer:
            theirs = {n: p.shape for n, p in teacher.named_parameters()}
            names = [n for n, p in student.named_parameters() if theirs.get(n) == p.shape]
            if not names:
                raise FrontendError(
                    "no weight of the student has a namesake of the same shape in the teacher",
                    try_='Weights("layer.weight", "other.weight")',
                )
            found += [replace(term, layer=n, weight=term.weight / len(names)) for n in names]
        else:
            found.append(term)
    return found


def check_weights(terms: Sequence[Term], hard: float) -> None:
    if not (math.isfinite(hard) and hard >= 0):
        raise FrontendError(f"a weight of {hard} for the hard labels", try_="hard=1.0")
    if not terms:
        raise FrontendError("nothing is taken from the teacher", try_="losses=[Logits()]")
