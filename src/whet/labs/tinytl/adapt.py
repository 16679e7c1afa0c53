"""Find the best frozen backbone in a super-network for a task, within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ...api import compile
from ...errors import BudgetError, FrontendError
from ...workbench import parse_bytes
from .elastic import Choice, Elastic
from .prepare import prepare

Judge = Callable[[nn.Module], float]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Adapted:
    """A sub-network, the accuracy of a linear probe on it, and its RAM."""

    choice: Choice
    accuracy: float
    ram: int

    def __str__(self) -> str:
        blocks = " ".join(map(str, self.choice))
        return f"{self.accuracy:.2f} %, {self.ram:,} bytes: {blocks}"


def pretrain(
    elastic: Elastic,
    batches: Iterable[tuple[Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
    *,
    others: int = 2,
    seed: int = 0,
) -> list[float]:
    """One step per batch: the largest network learns the labels, others learn from it.

    Those are the smallest and some random ones (arXiv:1903.05134). Returns the losses of the
    largest.
    """
    random = np.random.default_rng(seed)
    elastic.train()
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        elastic.choice = elastic.largest
        scores = elastic(x)
        loss = functional.cross_entropy(scores, y)
        loss.backward()
        taught = scores.detach().softmax(1)
        for choice in [elastic.smallest, *(elastic.sample(random) for _ in range(others))]:
            elastic.choice = choice
            functional.cross_entropy(elastic(x), taught).backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    elastic.choice = elastic.largest
    elastic.eval()
    return losses


def adapt(
    elastic: Elastic,
    data: tuple[Tensor, Tensor],
    *,
    ram: int | str,
    batch: int = 1,
    update: str = "tinytl-l+b",
    population: int = 12,
    generations: int = 4,
    seed: int = 0,
    tell: Progress = lambda words: None,
) -> list[Adapted]:
    """Networks that train within `ram`, the best first, found by evolution.

    The RAM is the planner's, for a step of `update` on `batch` samples with plain SGD. A network is
    evaluated by a linear probe: ridge regression on its features for three quarters of the data,
    tested on the fourth.
    """
    if not isinstance(elastic, Elastic):
        raise FrontendError(
            f"{type(elastic).__name__} is not a super-network", try_="Elastic(model)"
        )
    if not isinstance(data, tuple) or len(data) != 2 or len(data[0]) != len(data[1]):
        raise FrontendError("data= must be a pair of inputs and as many labels")
    if len(data[0]) < 4 or population < 1 or generations < 0:
        raise FrontendError(
            f"{len(data[0])} samples, population={population} and generations={generations} are "
            "too few",
            try_="4 samples or more, a population of 1 or more",
        )
    fitting = Fitting(elastic, data, parse_bytes(ram), batch, update, tell)
    random = np.random.default_rng(seed)
    fitting.check_least()
    attempts = (elastic.largest, *(elastic.sample(random) for _ in range(2 * population)))
    for choice in attempts:
        if len(fitting.known) < population:
            fitting.tried(choice)
    for _ in range(generations):
        best = fitting.best()[: max(1, population // 4)]
        for parent in best:
            for _ in range(max(1, population // len(best))):
                fitting.tried(elastic.mutated(parent.choice, random))
    return fitting.best()


class Fitting:
    """Evaluated networks: their RAM, and the accuracy of those that fit."""

    def __init__(
        self,
        elastic: Elastic,
        data: tuple[Tensor, Tensor],
        budget: int,
        batch: int,
        update: str,
        tell: Progress,
    ) -> None:
        self.elastic, self.budget, self.update, self.tell = elastic, budget, update, tell
        self.x, y = data
        self.example = self.x[:1].repeat(batch, 1, 1, 1)
        self.judge = probe(self.x, y)
        self.known: dict[Choice, Adapted] = {}

    def needed(self, choice: Choice) -> int:
        net: nn.Module = self.elastic.extract(choice)
        if "tinytl-l" in self.update or "lite" in self.update.split("+"):
            net = prepare(net, self.example)
        sgd = torch.optim.SGD(net.parameters(), lr=0.01)
        return compile(net, (self.example,), optimizer=sgd, update=self.update).memory["ram"]

    def tried(self, choice: Choice) -> bool:
        """Whether it fits; if so, it is evaluated."""
        if choice in self.known:
            return True
        if (need := self.needed(choice)) > self.budget:
            return False
        net = self.elastic.extract(choice, in_parts(self.x))
        self.known[choice] = Adapted(choice, self.judge(net), need)
        self.tell(str(self.known[choice]))
        return True

    def check_least(self) -> None:
        if not self.tried(self.elastic.smallest):
            least = self.needed(self.elastic.smallest)
            raise BudgetError(
                f"{self.budget:,} bytes of RAM are too few for any sub-network",
                why=f"the smallest takes {least:,}",
                try_=f"a budget of {least} or more, a smaller picture, or another update",
            )

    def best(self) -> list[Adapted]:
        """The most accurate first; ties by size."""
        return sorted(self.known.values(), key=lambda a: (-a.accuracy, a.ram))


def probe(x: Tensor, y: Tensor) -> Judge:
    held_out = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)) % 4 == 0
    classes = int(y.max()) + 1

    def accuracy(net: nn.Module) -> float:
        features = features_of(net, in_parts(x))
        features = functional.pad(features - features[~held_out].mean(0), (0, 1), value=1.0)
        a, b = features[~held_out], functional.one_hot(y[~held_out], classes).to(features)
        penalty = 1e-2 * a.square().sum() / a.shape[1]
        gram = a.T @ a + penalty * torch.eye(a.shape[1], dtype=a.dtype)
        weights = torch.linalg.solve(gram, a.T @ b)
        right = (features[held_out] @ weights).argmax(1) == y[held_out]
        return 100 * float(right.double().mean())

    return accuracy


def in_parts(x: Tensor) -> Sequence[Tensor]:
    """Batches of about the same size, some 64 samples."""
    return x.tensor_split(max(1, len(x) // 64))


def features_of(net: nn.Module, batches: Sequence[Tensor]) -> Tensor:
    """The input of the head, in double precision."""
    found: list[Tensor] = []
    handle = net.get_submodule("classifier").register_forward_pre_hook(
        lambda module, args: found.append(args[0].detach().double())
    )
    try:
        with torch.no_grad():
            for x in batches:
                net(x)
    finally:
        handle.remove()
    return torch.cat(found)
