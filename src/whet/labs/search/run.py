"""`whet.search` and `whet.contributions`: from a model, data and budgets to schemes.

1. Contributions: train single layers and biases, or use a proxy.
2. Pool the gains of like layers.
3. Finalists for each budget: the head alone, biases alone, and the best sums of gains.
4. Train the finalists whole, on several splits of the data; take the best mean score.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BudgetError, WhetError, either, option, warn
from ...report import kib
from ...runtime import cache_folder
from ...scheme import Scheme
from ...workbench import Workbench, parse_bytes
from ..common.data import Samples, check_enough, gather, split
from ..common.progress import Progress, bar
from ..common.validate import Outcome
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Contributions
from .pooling import Pooled, Score, failed, pooled_gains
from .proxies import PROXIES, by_gradients
from .report import Finalist, Row, SearchReport, evidence
from .solve import Costs, Plans, Solver, best_within, check_solver, evolution, exact
from .trials import Training, Trial, Trials, TrialSettings, analyse, forget_features

if TYPE_CHECKING:
    import torch

Budget = int | str
FINE_TUNING = "fine-tuning"
METHODS = ("exact", "evolution")


@dataclass(frozen=True)
class Search:
    """How a scheme is searched for.

    `by` is how gains are found: "fine-tuning" trains single layers, "fisher" and "gradient" are
    proxies that take seconds. `method` puts them together: "exact" or "evolution". Up to
    `finalists` whole candidates for each budget are trained, twice as long as in a trial, on each
    of `splits` of the data; no sample validates twice. With 0 finalists the best sum of gains is
    taken. `batch` is the batch size of trials, by default the program's. `validation` is data to
    validate by instead of a held-out share; there is one split then. Outcomes are kept in the
    folder `store` and not computed again. `workers` is the number of processes; `ray` the address
    of a Ray cluster, or "local".
    """

    by: str = FINE_TUNING
    method: str = "exact"
    trial: TrialSettings = field(default_factory=TrialSettings)
    finalists: int = 10
    splits: int = 4
    batch: int | None = None
    validation: Any = None
    workers: int = 1
    ray: str | None = None
    store: str | os.PathLike[str] | None = None
    progress: bool | None = None  # a bar; by default if there is a terminal

    def __post_init__(self) -> None:
        least = {"batch": 1, "finalists": 0, "splits": 1, "workers": 1}
        for word, low in least.items():
            number = getattr(self, word)
            if number is not None and (type(number) is not int or number < low):
                raise WhetError(f"{word}={number!r} is not an integer of at least {low}")
        for word, known in (("by", (FINE_TUNING, *PROXIES)), ("method", METHODS)):
            if getattr(self, word) not in known:
                raise WhetError(f"there is no {word}={getattr(self, word)!r}", try_=known)

    @property
    def solver(self) -> Solver:
        return exact if self.method == "exact" else partial(evolution, seed=self.trial.seed)

    @property
    def folder(self) -> Path:
        return Path(self.store) if self.store is not None else cache_folder() / "search"

    def find_scheme(self, bench: Workbench, data: Any, ram: int) -> Scheme:
        """What `compile(update=search)` calls."""
        return run(self, bench, data, [ram]).scheme


def contributions(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    data: Any,
    *,
    search: Search | None = None,
    **options: Any,
) -> Contributions:
    """What training each part of `model` gains on `data`, over training its head alone.

    `data` is a pair of inputs and labels, or a loader of batches of them. `options` are those of
    `Workbench.of`, among them the loss and the optimizer that candidates train with.
    """
    search = replace(checked(search), finalists=0)
    with working(search) as progress:
        bench = Workbench.of(model, inputs, **options)
        return measured(trials_of(search, bench, data, progress), search)


def search(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    data: Any,
    *,
    ram: Budget | Sequence[Budget],
    search: Search | None = None,
    **options: Any,
) -> SearchReport:
    """The best scheme for each budget of RAM, with the evidence for it.

    Budgets are bytes, or text such as "256K". `options` are those of `Workbench.of`: the programs
    are those that `compile` makes with the same arguments.
    """
    several: Any = ram if isinstance(ram, (list, tuple)) else [ram]
    budgets, how = [parse_bytes(r) for r in several], checked(search)
    bench = Workbench.of(model, inputs, ram=max(budgets, default=None), **options)
    return run(how, bench, data, budgets)


def checked(search: Any) -> Search:
    if search is not None and not isinstance(search, Search):
        raise WhetError(f"search={search!r} is not a whet.Search", try_="whet.Search(workers=2)")
    return search or Search()


def run(search: Search, bench: Workbench, data: Any, budgets: Sequence[int]) -> SearchReport:
    if not budgets:
        raise BudgetError("there is no budget to search within", try_=option("ram", "256K"))
    if search.method == "exact":
        check_solver()
    plans = Plans(bench)
    if (least := plans.ram(HEAD)) > max(budgets):  # said before hours of training
        raise BudgetError(
            f"{max(budgets):,} bytes of RAM are too few to train anything of this model",
            why=f"its head alone takes {least:,}",
            try_=f"a budget of {least} or more, a smaller input or batch, or "
            f"{option('dtype', 'int8')}",
        )
    bench.compile(HEAD.scheme(bench.parameters))  # its arrays must fit into flash
    fitting = sorted({b for b in budgets if b >= least})
    seconds: dict[str, float] = {}
    with working(search) as progress:
        with timed(seconds, "analysis"):
            trials = trials_of(search, bench, data, progress)
            gains = measured(trials, search)
        with timed(seconds, "planning"):
            costs = Costs.of(plans, trials.workers, progress)
        choice = Choice(search, trials, plans, costs, gains)
        with timed(seconds, "search"):
            found = choice.finalists(fitting)
        with timed(seconds, "finalists"):
            outcomes = choice.train(found)
        rows = tuple(choice.row(b, found, outcomes) for b in fitting)
        head = [outcome for c, outcome in gains.outcomes.items() if c == HEAD]
        learned_nothing = doubt([*head, *outcomes.values()], trials.splits)
    if learned_nothing:
        warn(learned_nothing)
    missed = tuple(sorted({*budgets}.difference(fitting)))
    return SearchReport(rows, gains, seconds, missed, least)


@contextmanager
def working(search: Search) -> Iterator[Progress]:
    try:
        with bar(search.progress) as progress:
            yield progress
    finally:
        forget_features()


@contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - began


# Contributions ----------------------------------------------------------------------------------


def trials_of(search: Search, bench: Workbench, data: Any, progress: Progress) -> Trials:
    """On all splits, or on one if there are no finalists."""
    if search.batch is not None:
        bench = bench.rebatched(search.batch)
    settings, samples = search.trial, accepted(bench, data)
    if search.validation is None:
        share = settings.held_out
        turns = min(search.splits, int(1 / share)) if search.finalists and 0 < share < 1 else 1
        pairs = [split(samples, share, bench.batch, settings.seed, turn) for turn in range(turns)]
    else:
        pairs = [(samples, accepted(bench, search.validation))]
        check_enough(len(samples), len(pairs[0][1]), bench.batch)
    splits = [Trial(bench, train, validation, settings) for train, validation in pairs]
    return Trials.of(splits, search.folder, Workers(search.workers, search.ray), progress)


def accepted(bench: Workbench, data: Any) -> Samples:
    """The user's data as the model takes them."""
    samples = gather(data)
    *inputs, labels = samples.arrays
    return replace(samples, arrays=(*bench.check_samples(inputs, labels), labels))


def measured(trials: Trials, search: Search) -> Contributions:
    if search.by == FINE_TUNING:
        return analyse(trials)
    return by_gradients(trials.splits[0])[search.by]


# Candidates for each budget ---------------------------------------------------------------------

Finalists = dict[str, Candidate]  # by name
Find = Callable[[int, Contributions], Candidate]
POOLED, HEAD_ALONE = "pooled gains", "head alone"


@dataclass(frozen=True)
class Choice:
    """Makes candidates from gains, trains them, and takes the best for each budget."""

    search: Search
    trials: Trials
    plans: Plans
    costs: Costs
    gains: Contributions  # as measured

    @cached_property
    def pooled(self) -> Contributions:
        return pooled_gains(self.gains)

    def finalists(self, budgets: Sequence[int]) -> dict[int, Finalists]:
        """For each budget the best sum of pooled gains, and others that train something else."""
        kinds, trials = self.kinds(), self.trials
        find = partial(best_within, costs=self.costs, plans=self.plans, solver=self.search.solver)
        jobs = [(name, budget) for budget in budgets for name in kinds]
        best: dict[tuple[str, int], Candidate] = {}
        for job, candidate in trials.workers.results(partial(solve, find, kinds), jobs):
            best[job] = candidate
            trials.progress("solving for budgets", len(best), len(jobs))
        found = {}
        for b in budgets:
            biases = self.costs.best_biases(self.pooled.biases, b)
            own = {POOLED: best[POOLED, b], HEAD_ALONE: HEAD, "biases alone": biases}
            own |= {name: best[name, b] for name in kinds}
            distinct: dict[str, tuple[str, Candidate]] = {}
            for name, candidate in own.items():
                distinct.setdefault(str(trials.space.trained(candidate)), (name, candidate))
            found[b] = dict(list(distinct.values())[: self.search.finalists or 1])
        return found

    def kinds(self) -> dict[str, Contributions]:
        """Gains to solve for: a proxy's; or pooled gains, and for finalists several variants.

        Those are pooled by accuracy or by loss alone, or drawn from the posterior: draws differ
        where the trials leave it open which layers gain more.
        """
        kinds, gains = {POOLED: self.pooled}, self.gains
        if gains.outcomes and self.search.finalists:
            kinds["by accuracy"] = Pooled.of(gains, 0.0).gains
            kinds["by loss"] = Pooled.of(gains, 1.0).gains
            posterior, random = Pooled.of(gains), np.random.default_rng(self.search.trial.seed)
            for i in range(1, self.search.finalists - len(kinds) - 1):
                kinds[f"draw {i}"] = posterior.sample(random)
        return kinds

    def train(self, found: Mapping[int, Finalists]) -> dict[Candidate, Outcome]:
        """The mean outcome over all splits of each finalist, and of the head for comparison."""
        if not self.search.finalists:
            return {}
        every = [HEAD, *(c for own in found.values() for c in own.values())]
        splits = self.trials.splits
        epochs = 2 * splits[0].settings.epochs
        outcomes = self.trials.outcomes(every, "finalists", epochs, len(splits))
        return {c: Outcome.mean(own) for c, own in outcomes.items()}

    def row(
        self, budget: int, found: Mapping[int, Finalists], outcomes: Mapping[Candidate, Outcome]
    ) -> Row:
        """The best candidate, with its evidence; finalists of other budgets count if they fit."""
        own = found[budget]
        chosen = choose(budget, outcomes, self.plans) if outcomes else own[POOLED]
        if chosen not in own.values():
            places = [f"{name} for {kib(b)}" for b, other in sorted(found.items())
                      for name, c in other.items() if c == chosen]  # fmt: skip
            own = {**own, (places or [HEAD_ALONE])[0]: chosen}
        trained = own if outcomes else {}
        finalists = {n: Finalist(c, self.plans.ram(c), outcomes[c]) for n, c in trained.items()}
        ram, outcome = self.plans.ram(chosen), outcomes.get(chosen)
        origin = evidence(budget, ram, chosen, self.pooled, outcome)
        name = f"auto-{budget}" if budget % 1024 else f"auto-{budget // 1024}K"
        scheme = chosen.scheme(self.plans.bench.parameters, name, origin)
        return Row(budget, chosen, ram, self.pooled.score(chosen), outcome, finalists, scheme)


def solve(find: Find, kinds: Mapping[str, Contributions], job: tuple[str, int]) -> Candidate:
    name, budget = job
    return find(budget, kinds[name])


def choose(budget: int, outcomes: Mapping[Candidate, Outcome], plans: Plans) -> Candidate:
    """The finalist of the best mean score that fits."""
    score, head = Score.of(outcomes), outcomes[HEAD]
    fitting = [c for c, o in outcomes.items() if plans.ram(c) <= budget and not failed(o, head)]
    return max(fitting, key=lambda c: score(outcomes[c]), default=HEAD)


# A warning --------------------------------------------------------------------------------------


def doubt(outcomes: Sequence[Outcome], splits: Sequence[Trial]) -> str:
    """A warning if no candidate has learned anything; else empty."""
    if not outcomes:
        return ""
    learned = [o for o in outcomes if not o.diverged]
    accuracies = [o.accuracy for o in learned if not math.isnan(o.accuracy)]
    classes = splits[0].bench.classes
    if classes is not None and accuracies:
        labels = np.concatenate([trial.validation.labels.ravel() for trial in splits])
        labels = labels[labels != classes.ignored]
        common = np.unique(labels, return_counts=True)[1].max(initial=0) / max(len(labels), 1)
        chance = max(float(common), 1 / classes.count)
        error = math.sqrt(chance * (1 - chance) / max(len(labels), 1))
        if max(accuracies) / 100 > chance + 3 * error:
            return ""
        what = (f"the best is right on {max(accuracies):.1f} % of {len(labels)} samples, "
                f"always answering the most common class on {100 * chance:.1f} %")  # fmt: skip
    else:
        before = Training(replace(splits[0], head={}), HEAD).outcome(0).loss
        best = min((o.loss for o in learned), default=math.inf)
        if before - best >= 0.01 * abs(before):
            return ""
        what = f"the lowest loss is {best:.4g}, and it was {before:.4g} before"
    hint = either("another learning rate, TrialSettings(epochs=...)", "another --lr, more --epochs")
    return f"no candidate has learned anything: {what}; try {hint}, or more data"
