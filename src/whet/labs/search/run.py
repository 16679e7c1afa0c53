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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BudgetError, WhetError, either, option, warn
from ...runtime import cache_folder
from ...scheme import Scheme
from ...workbench import Workbench, parse_bytes
from ..common.data import Samples, check_enough, gather, split
from ..common.validate import Outcome
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Contributions
from .costs import Costs, Plans
from .pooling import Pooled, Score, failed
from .proxies import PROXIES, by_gradients
from .report import Finalist, Row, SearchReport, bar, evidence
from .solve import Solve, Solver, check_solver, evolution, exact
from .trial import Training, Trial, TrialSettings, forget_features
from .trials import Progress, Trials, analyse

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
        return measured(trials_of(search, Workbench.of(model, inputs, **options), data, progress),
                        search)  # fmt: skip


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
    budgets = [parse_bytes(r) for r in several]
    search = checked(search)
    bench = Workbench.of(model, inputs, ram=max(budgets, default=None), **options)
    return run(search, bench, data, budgets)


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
    least = check_least(plans, max(budgets))  # before hours of training
    bench.compile(HEAD.scheme(bench.parameters))  # its arrays must fit into flash
    fitting = sorted({b for b in budgets if b >= least})
    seconds: dict[str, float] = {}
    with working(search) as progress:
        with timed(seconds, "analysis"):
            trials = trials_of(search, bench, data, progress)
            gains = measured(trials, search)
        with timed(seconds, "planning"):
            costs = Costs.of(plans, trials.workers, progress)
        with timed(seconds, "search"):
            pooled = pooled_gains(gains)
            found = finalists(fitting, gains, costs, plans, search, trials)
        with timed(seconds, "finalists"):
            outcomes = train(found, search, trials)
        chosen = {b: choose(b, found[b], outcomes, plans) for b in fitting}
        learned_nothing = doubt([gains.base, *outcomes.values()], trials.splits)
        rows = [row(b, chosen[b], found[b], outcomes, pooled, plans) for b in fitting]
    if learned_nothing:
        warn(learned_nothing)
    missed = tuple(sorted({b for b in budgets if b < least}))
    return SearchReport(tuple(rows), gains, seconds, missed, least)


# The steps --------------------------------------------------------------------------------------


def trials_of(search: Search, bench: Workbench, data: Any, progress: Progress) -> Trials:
    """On all splits, or on one if there are no finalists."""
    if search.batch is not None:
        bench = bench.rebatched(search.batch)
    settings, folder = search.trial, search.folder
    samples = accepted(bench, data)
    if search.validation is None:
        share = settings.held_out
        turns = min(search.splits, int(1 / share)) if search.finalists and 0 < share < 1 else 1
        pairs = [split(samples, share, bench.batch, settings.seed, turn) for turn in range(turns)]
    else:
        pairs = [(samples, accepted(bench, search.validation))]
        check_enough(len(samples), len(pairs[0][1]), bench.batch)
    splits = [Trial(bench, train, validation, settings) for train, validation in pairs]
    return Trials.of(splits, folder, Workers(search.workers, search.ray), progress)


def accepted(bench: Workbench, data: Any) -> Samples:
    """The user's data as the model takes them."""
    samples = gather(data)
    *inputs, labels = samples.arrays
    return replace(samples, arrays=(*bench.check_samples(inputs, labels), labels))


def measured(trials: Trials, search: Search) -> Contributions:
    if search.by == FINE_TUNING:
        return analyse(trials)
    return by_gradients(trials.splits[0])[search.by]


def pooled_gains(gains: Contributions) -> Contributions:
    return Pooled.of(gains).gains if gains.outcomes else gains


def finalists(
    budgets: Sequence[int],
    gains: Contributions,
    costs: Costs,
    plans: Plans,
    search: Search,
    trials: Trials,
) -> dict[int, dict[str, Candidate]]:
    """For each budget, the best sums of several kinds of gains, by name.

    Pooled gains; gains pooled by accuracy or by loss alone; and draws from the posterior, which
    differ where the trials leave it open which layers gain more. A proxy's gains are one kind.
    """
    kinds = {"pooled gains": pooled_gains(gains)}
    if gains.outcomes and search.finalists:
        kinds |= {f"by {word}": Pooled.of(gains, share).gains
                  for word, share in (("accuracy", 0.0), ("loss", 1.0))}  # fmt: skip
        random, pooled = np.random.default_rng(search.trial.seed), Pooled.of(gains)
        for i in range(1, search.finalists - len(kinds) - 1):
            kinds[f"draw {i}"] = pooled.sample(random)
    jobs = [(name, budget, kind) for budget in budgets for name, kind in kinds.items()]
    task, solved = Solve(costs, plans, search.solver), dict[tuple[str, int], Candidate]()
    for (name, budget, _), candidate in trials.workers.results(task, jobs):
        solved[name, budget] = candidate
        trials.progress("solving for budgets", len(solved), len(jobs))
    found = {}
    for b in budgets:
        own = {name: solved[name, b] for name in kinds}
        if search.finalists:
            biases = costs.best_biases(kinds["pooled gains"].biases, b)
            best = own.pop("pooled gains")
            own = {"pooled gains": best, "head alone": HEAD, "biases alone": biases, **own}
        distinct: dict[str, tuple[str, Candidate]] = {}
        for name, candidate in own.items():
            distinct.setdefault(str(trials.space.trained(candidate)), (name, candidate))
        found[b] = dict(list(distinct.values())[: search.finalists or 1])
    return found


def train(
    found: Mapping[int, Mapping[str, Candidate]], search: Search, trials: Trials
) -> dict[Candidate, Outcome]:
    """The mean outcome over all splits of each finalist, and of the head for comparison."""
    if not search.finalists:
        return {}
    every = dict.fromkeys([HEAD, *(c for own in found.values() for c in own.values())])
    epochs = 2 * trials.splits[0].settings.epochs
    outcomes = trials.outcomes(every, "finalists", epochs, len(trials.splits))
    return {c: Outcome.mean(own) for c, own in outcomes.items()}


def choose(
    budget: int,
    own: Mapping[str, Candidate],
    outcomes: Mapping[Candidate, Outcome],
    plans: Plans,
) -> Candidate:
    """The finalist of the best mean score that fits, those of smaller budgets included."""
    if not outcomes:
        return next(iter(own.values()))
    score, head = Score.of(outcomes), outcomes[HEAD]
    fitting = [c for c, o in outcomes.items() if plans.ram(c) <= budget and not failed(o, head)]
    return max(fitting, key=lambda c: score(outcomes[c]), default=HEAD)


# Around them ------------------------------------------------------------------------------------


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


def check_least(plans: Plans, budget: int) -> int:
    """The bytes of the head alone, which must fit."""
    if (need := plans.ram(HEAD)) > budget:
        raise BudgetError(
            f"{budget:,} bytes of RAM are too few to train anything of this model",
            why=f"its head alone takes {need:,}",
            try_=f"a budget of {need} or more, a smaller input or batch, or "
            f"{option('dtype', 'int8')}",
        )
    return need


def row(
    budget: int,
    chosen: Candidate,
    own: Mapping[str, Candidate],
    outcomes: Mapping[Candidate, Outcome],
    gains: Contributions,
    plans: Plans,
) -> Row:
    finalists = {name: Finalist(c, plans.ram(c), outcomes[c])
                 for name, c in own.items() if c in outcomes}  # fmt: skip
    kibs, rest = divmod(budget, 1024)
    ram, outcome = plans.ram(chosen), outcomes.get(chosen)
    origin = evidence(budget, ram, chosen, gains, outcome)
    name = f"auto-{budget}" if rest else f"auto-{kibs}K"
    scheme = chosen.scheme(plans.bench.parameters, name, origin)
    return Row(budget, chosen, ram, gains.score(chosen), outcome, finalists, scheme)


def doubt(outcomes: Sequence[Outcome | None], splits: Sequence[Trial]) -> str:
    """A warning if no candidate has learned anything; else empty."""
    trained = [o for o in outcomes if o is not None]
    learned = [o for o in trained if not o.diverged]
    if not trained:
        return ""
    classes = splits[0].bench.classes
    accuracies = [o.accuracy for o in learned if not math.isnan(o.accuracy)]
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
