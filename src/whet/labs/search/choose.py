"""`whet.contributions` and `whet.search`: from a PyTorch model and data to evidence and schemes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...api import Source
from ...budget import check_flash
from ...errors import BudgetError, WhetError, option, warn
from ...frontend.model import Model
from ...frontend.torch.export import Loss
from ...ir import Role
from ...passes import check_switches
from ...pipeline import Options, assemble
from ...quantize import Int8, int8_of
from ...scheme import parameters_of
from ...scheme.contribution import Candidate, Contributions
from ...settings import parse_bytes, target_of
from ...tune.kept import this_machine
from .analysis import Progress, Trials, analyse
from .belief import Belief
from .doubt import doubt
from .finals import finals
from .lesson import Bench, shared_features
from .options import FINE_TUNING, Search
from .planner import Costs, Planner
from .progress import bar
from .proxies import guess
from .report import Row, SearchReport
from .samples import check_enough, fit_to, gather, split
from .solve import check_solver
from .store import Store
from .within import Found, Planned, check_least, exchanged, scheme_for, within

if TYPE_CHECKING:
    import torch

Budget = int | str


@dataclass(frozen=True)
class Setting:
    """A model as candidates train it, and as the program will be compiled."""

    benches: tuple[Bench, ...]  # one for each split of the data
    planner: Planner
    search: Search

    @classmethod
    def of(
        cls, source: Source, imported: Model, data: Any, options: Options, search: Search
    ) -> Setting:
        model = imported if search.batch is None else rebatched(source, search.batch).imported()
        leaf = model.training.graph.leaves_of(Role.INPUT)[0]
        samples = fit_to(model, gather(data, search.limit))
        if search.judge is None:
            lesson = search.lesson
            parts = [
                split(samples, lesson.held_out, leaf.shape[0], lesson.seed, turn)
                for turn in range(turns(search))
            ]
        else:
            judge = fit_to(model, gather(search.judge, search.limit))
            check_enough(len(samples), len(judge), leaf.shape[0])
            parts = [(samples, judge)]
        benches = tuple(Bench(model, train, judge, search.lesson) for train, judge in parts)
        return cls(benches, Planner(imported, replace(options, grow=False)), search)

    def trials(self, tell: Progress, turn: int = 0) -> Trials:
        bench, search = self.benches[turn], self.search
        return Trials.begin(bench, Store(search.folder, bench), search.engine, tell)


def turns(search: Search) -> int:
    """How many splits there are: in none of them a sample judges for the second time."""
    share = search.lesson.held_out
    once_each = int(1 / share) if 0 < share < 1 else 1
    return min(search.splits, once_each) if search.finals else 1


def rebatched(source: Source, batch: int) -> Source:
    """The same for another number of samples at once."""

    def tiled(x: torch.Tensor) -> torch.Tensor:
        return x.repeat(-(-batch // len(x)), *[1] * (x.ndim - 1))[:batch]

    return Source(
        source.model, source.loss, source.optimizer, tuple(tiled(x) for x in source.inputs),
        None if source.labels is None else tiled(source.labels), source.clip_norm, source.int8,
        source.calibrate,
    )  # fmt: skip


def contributions(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    data: Any,
    *,
    search: Search | None = None,
    loss: Loss | str | None = None,
    optimizer: torch.optim.Optimizer | str | None = None,
    labels: torch.Tensor | None = None,
    clip_norm: float | None = None,
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
) -> Contributions:
    """What training each part of `model` gains on `data`, over training its head alone.

    `data` are inputs and labels, or a loader of batches of them. Candidates train as `compile`
    would have them train: with this loss, this optimizer and its rate, in this batch size.
    """
    source = Source(
        model, loss, optimizer, inputs, labels, clip_norm, int8_of(dtype), once(calibrate)
    )
    search = replace(search or Search(), finals=0)
    setting = Setting.of(source, source.imported(), data, Options(), search)
    try:
        with bar(search.progress) as tell:
            return measured(setting.trials(tell), search)
    finally:
        shared_features.cache_clear()


def measured(trials: Trials, search: Search) -> Contributions:
    return analyse(trials) if search.by == FINE_TUNING else guess(trials, search.by)


def once(calibrate: Iterable[Any] | None) -> list[Any] | None:
    """Batches that can be read more than once."""
    return None if calibrate is None else list(calibrate)


def search(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    data: Any,
    *,
    ram: Budget | Sequence[Budget],
    search: Search | None = None,
    loss: Loss | str | None = None,
    optimizer: torch.optim.Optimizer | str | None = None,
    labels: torch.Tensor | None = None,
    clip_norm: float | None = None,
    target: str = "host",
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
) -> SearchReport:
    """The best scheme for each budget of RAM, with the evidence for it.

    Budgets are bytes, or words as "256K"; the programs are those of `compile` with the same
    arguments.
    """
    several: Any = ram if isinstance(ram, (list, tuple)) else [ram]
    budgets = [parse_bytes(r) for r in several]
    place = target_of(target, False, max(budgets, default=None), None)
    options = Options(target=place, without=check_switches(()), machine=this_machine())
    source = Source(
        model, loss, optimizer, inputs, labels, clip_norm, int8_of(dtype), once(calibrate)
    )
    return search_for(
        source, source.imported(), data, budgets, options, Search() if search is None else search
    )


def search_for(
    source: Source,
    imported: Model,
    data: Any,
    budgets: Sequence[int],
    options: Options,
    search: Search,
) -> SearchReport:
    if not budgets:
        raise BudgetError("there is no budget to search within", try_=option("ram", "256K"))
    if not isinstance(search, Search):
        raise WhetError(f"search={search!r} is no whet.Search", try_="whet.Search(workers=2)")
    if search.method == "exact":
        check_solver()
    setting = Setting.of(source, imported, data, options, search)
    planned = Planned(setting.planner)
    check_least(planned, max(budgets))  # before hours of analysis
    least = planned.ram(Candidate())
    if options.target.flash is not None:
        head = Candidate().scheme(parameters_of(imported.training.graph))
        check_flash(assemble(imported, head, options))
    seconds: dict[str, float] = {}
    try:
        with bar(search.progress) as tell:
            began = time.perf_counter()
            trials = setting.trials(tell)
            gains = measured(trials, search)
            belief = Belief.of(gains) if gains.outcomes else None
            believed = gains if belief is None else belief.expected
            seconds["analysis"] = time.perf_counter() - began
            began = time.perf_counter()
            costs = Costs.measure(
                setting.planner, search.engine, lambda i, n: tell("planning parts", i, n)
            )
            seconds["planning"] = time.perf_counter() - began
            began = time.perf_counter()
            found: list[Found] = []
            for budget in sorted({b for b in budgets if b >= least}):
                found.append(best_within(budget, believed, costs, planned, search, found[-1:]))
            seconds["search"] = time.perf_counter() - began
            if search.finals:
                began = time.perf_counter()
                others = [setting.trials(tell, turn) for turn in range(1, len(setting.benches))]
                found = finals(found, belief, costs, planned, [trials, *others], search)
                seconds["finals"] = time.perf_counter() - began
            outcomes = [o for o in (gains.base, *(f.outcome for f in found)) if o is not None]
            doubts = doubt(outcomes, setting.benches)
    finally:
        shared_features.cache_clear()
    if doubts:
        warn(doubts)
    rows = [row_of(f, gains, setting) for f in found]
    missed = tuple(sorted({b for b in budgets if b < least}))
    return SearchReport(tuple(rows), gains, seconds, missed, least)


def best_within(
    budget: int,
    gains: Contributions,
    costs: Costs,
    planned: Planned,
    search: Search,
    smaller: Sequence[Found] = (),
) -> Found:
    """No worse than what a smaller budget gave."""
    found = within(budget, gains, costs, planned, search.solver)
    if search.method == "exact":
        found = exchanged(found, costs, planned)
    best = max((*smaller, found), key=lambda f: f.score)
    return replace(found, candidate=best.candidate, ram=best.ram, score=best.score)


def row_of(found: Found, gains: Contributions, setting: Setting) -> Row:
    kibs, rest = divmod(found.budget, 1024)
    name = f"auto-{found.budget}" if rest else f"auto-{kibs}K"
    scheme = scheme_for(found, gains, setting.planner, name)
    return Row(found, scheme, step_milliseconds(setting, found.candidate))


def step_milliseconds(setting: Setting, candidate: Candidate) -> float:
    """The median of some steps of the program here, on one thread."""
    model = setting.planner.model
    program = assemble(model, candidate.scheme(parameters_of(model.training.graph)), Options())
    trainer = program.load(threads=1)
    batch = model.training.graph.leaves_of(Role.INPUT)[0].shape[0]
    samples = setting.benches[0].train
    x, y = next(samples.batches(np.arange(batch) % len(samples), batch))
    times = []
    for _ in range(15):
        began = time.perf_counter()
        trainer.step(x, y, lr=0.0)
        times.append(1000 * (time.perf_counter() - began))
    return float(np.median(times))
