"""The parts of the search study: cases, schemes, trials and cells. The command is __main__.py.

A case is one network and one picture set. Candidates are trained on three quarters of its training
pictures and validated on the fourth. The schemes found are then trained on all of them and judged
by the test pictures, as in the int8 study.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import pictures, results
from benchmarks.common.pictures import CLASSES
from benchmarks.qas import study as qas_study
from whet import Scheme, TrialSettings, Workbench
from whet.labs.common.data import Samples
from whet.labs.common.validate import Outcome
from whet.labs.common.workers import Workers
from whet.labs.search.candidate import Candidate, Contributions, Space
from whet.labs.search.solve import Costs, Plans, best_within, evolution, exact
from whet.labs.search.trials import Trial
from whet.scheme import blocks, preset, published

NETS = ("mcunet-5fps", "mbv2-w0.35")
BUDGETS = ("50 KB", "75 KB", "100 KB")  # of extra memory, as the paper counts it
PUBLISHED = {  # the scheme for each of them: its RAM is the budget
    "mcunet-5fps": ("mcunet-5fps-49kb", "mcunet-5fps-74kb", "mcunet-5fps-99kb"),
    "mbv2-w0.35": ("mbv2-w0.35-49kb", "mbv2-w0.35-73kb", "mbv2-w0.35-99kb"),
}
ROUNDING = "carry8"
BATCH = 8
HEAD = 0.004  # the rate of a head that is trained alone
TRAINED_ON = 6000  # samples of a trial, about: as many windows of each picture as that takes
RANDOM = 20  # schemes at each budget
EPOCHS = {"flowers102": 5, "pets37": 3}  # 10,200 and 11,040 pictures
RATES = (0.002, 0.004, 0.008, 0.016)  # of which each case takes one that suits random schemes
CHANCE = 0.3  # points: of rates that differ by no more the smallest is taken
JUDGES = 2  # of those at each budget
SHARES = (0.3, 0.1)  # of the rate, for training everything: the best one counts; at 1 it diverges
FULL = "full"
SEARCHED = "searched"
PREVIOUS = "previous"  # the search as it was before, of about twice the code


@dataclass(frozen=True)
class Case:
    net: str
    data: str

    def __str__(self) -> str:
        return f"{self.net}, {self.data}"

    def model(self, seed: int = 0) -> nn.Module:
        return qas_study.make_model(self.net, CLASSES[self.data], seed)

    def bench(self, batch: int, target: str = "host") -> Workbench:
        model, size = self.model(), pictures.TAKEN
        return Workbench.of(
            model, (torch.zeros(batch, 3, size, size),), loss=nn.CrossEntropyLoss(),
            optimizer=torch.optim.SGD(model.parameters(), lr=HEAD),
            dtype=whet.Int8(rounding=ROUNDING), target=target,
        )  # fmt: skip

    def plans(self) -> Plans:
        """For a microcontroller and one picture at a time: where memory is short."""
        return Plans(self.bench(1, "cortex-m7"))

    def trials(self, thin: int, lr: float, turns: int) -> list[Trial]:
        """Windows of three quarters of the training pictures; the centre of the others."""
        every, bench = pictures.load(self.data, "train").every(thin), self.bench(BATCH)
        settings = TrialSettings(epochs=1, lr=lr, head_lr=HEAD)
        found = []
        for turn in range(turns):
            train, others = every.without_every(4, turn), every.every(4, turn)
            random = np.random.default_rng(0)
            views = max(1, round(TRAINED_ON / thin / len(train)))
            seen = [pictures.cut_at_random(np.asarray(train.images), random) for _ in range(views)]
            windows = Samples.of([np.concatenate(seen)], np.tile(train.labels, views))
            centres = pictures.centre(np.asarray(others.images))
            validation = Samples.of([centres], np.asarray(others.labels))
            found.append(Trial(bench, windows, validation, settings))
        return found


def published_scheme(case: Case, word: str) -> Scheme:
    return Scheme.from_toml(published()[PUBLISHED[case.net][BUDGETS.index(word)]])


def largest_last(bench: Workbench, budget: int) -> Scheme:
    """The most blocks before the head that train whole within the budget; else the head."""
    best = preset("last", bench.parameters)
    for count in range(1, len(blocks(bench.parameters)) + 1):
        scheme = preset(f"last-{count}", bench.parameters)
        if bench.plan(scheme).ram > budget:
            break
        best = scheme
    return best


def largest_biases(plans: Plans, budget: int) -> Candidate:
    """The most biases that train within the budget."""
    prefixes = Space(plans.bench.parameters).prefixes
    return max((c for c in prefixes if plans.ram(c) <= budget), default=Candidate())


def random_candidates(costs: Costs, plans: Plans, budget: int, seed: int) -> Iterator[Candidate]:
    """Of the same memory: within the budget by the planner, and above 95 % of it."""
    random = np.random.default_rng(seed)
    space = Space(plans.bench.parameters)
    while True:
        biases = int(random.integers(1, space.depth + 1))
        candidate = Candidate(biases)
        layers = [i for i in space.ratios if costs.reaches[i] <= biases]
        for layer in random.permutation(layers):
            ratio = float(random.choice(space.ratios[int(layer)]))
            more = Candidate(biases, tuple(sorted((*candidate.weights, (int(layer), ratio)))))
            if costs.estimate(more) <= budget:
                candidate = more
        if candidate.weights and 0.95 * budget < plans.ram(candidate) <= budget:
            yield candidate


@dataclass(frozen=True)
class Timed:
    """Solves with either method; goes to worker processes."""

    costs: Costs
    plans: Plans
    gains: Contributions

    def __call__(self, job: tuple[str, str, int]) -> dict[str, float]:
        _, method, budget = job
        plans = Plans(self.plans.bench)
        solver = exact if method == "exact" else evolution
        began = time.perf_counter()
        found = best_within(budget, self.gains, self.costs, plans, solver)
        seconds = time.perf_counter() - began
        return {"score": self.gains.score(found), "ram": plans.ram(found), "seconds": seconds}


# --- Results on disk ------------------------------------------------------------------------------


class Folder:
    """Where results are kept: a JSON for each case and part, a line for each cell, compressed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def cells(self, data: str) -> Path:
        return self.root / f"cells-{data}.jsonl.gz"

    def path(self, case: Case, part: str) -> Path:
        return self.root / f"{part}-{case.net}-{case.data}.json.gz"

    def keep(self, case: Case, part: str, body: Any) -> None:
        text = json.dumps(body, indent=1).encode()
        self.path(case, part).write_bytes(gzip.compress(text, 9, mtime=0))

    def read(self, case: Case, part: str) -> Any:
        path = self.path(case, part)
        return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None

    def gains(self, case: Case) -> Contributions | None:
        body = self.read(case, "gains")
        return None if body is None else as_gains(body)


def as_gains(body: Any) -> Contributions:
    """From what `Contributions.to_json` wrote."""
    return Contributions(
        body["measure"],
        tuple(body["biases"]),
        {(layer, ratio): gain for layer, ratio, gain in body["weights"]},
        tuple(body["layers"]),
        {as_candidate(text): Outcome.from_dict(o) for text, o in body["outcomes"].items()},
    )


def as_candidate(text: str) -> Candidate:
    """The inverse of str, as in "biases-12 3@0.125 30@1"."""
    biases, *parts = text.split()
    pairs = (part.split("@") for part in parts)
    weights = tuple((int(layer), float(ratio)) for layer, ratio in pairs)
    return Candidate(int(biases.removeprefix("biases-")), weights)


def schemes_of(case: Case, folder: Folder) -> Any:
    """All schemes of a case, by budget: searched ones too, now and by the previous version."""
    body = folder.read(case, "others")
    for name in (SEARCHED, PREVIOUS):
        found = folder.read(case, name)
        for word, row in body["budgets"].items() if body and found else ():
            own = found["budgets"][word]
            row["schemes"][name], row["ram"][name] = own["scheme"], own["ram"]
    return body


def rate_of(case: Case, folder: Folder) -> float:
    body = folder.read(case, "rates")
    if body is None:
        raise SystemExit(f"{case} has no rate yet: python -m benchmarks.search rates")
    return best_rate(body["tried"])


def best_rate(tried: Mapping[str, Sequence[float]]) -> float:
    """Of those about as good as the best the smallest, at which the fewest schemes diverge."""
    best = max(accuracy for accuracy, _ in tried.values())
    return min(float(rate) for rate, (accuracy, _) in tried.items() if accuracy > best - CHANCE)


# --- Training what was found ----------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One scheme, trained on all training pictures with one seed."""

    case: Case
    scheme: str  # TOML
    seed: int
    recipe: qas_study.Recipe

    @property
    def key(self) -> str:
        words = {**asdict(self), "scheme": stamp(self.scheme)}
        words["recipe"] = {
            k: v for k, v in words["recipe"].items() if k not in ("adam", "held_out")
        }
        return json.dumps(words, sort_keys=True)


def candidate_of(toml: str, layers: Sequence[str]) -> Candidate:
    """What a scheme trains, by the names of all layers' weights, the head's last."""
    rules = {r.params: 1.0 if r.channels is None else r.channels
             for r in Scheme.from_toml(toml).rules}  # fmt: skip
    before = len(layers) - 1
    biased = [i for i in range(before) if layers[i].replace("weight", "bias") in rules]
    weights = tuple((i, rules[layers[i]]) for i in range(before) if layers[i] in rules)
    return Candidate(before - min(biased, default=before), weights)


def stamp(toml: str) -> str:
    """Of a scheme without the words around it, which the files of schemes have in full."""
    rules = [[r.params, r.channels] for r in Scheme.from_toml(toml).rules]
    return hashlib.sha256(json.dumps(rules).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Extent:
    """How much is trained."""

    seeds: int
    random: int  # schemes at each budget
    thin: int  # every n-th picture only


def cells_of(case: Case, folder: Folder, extent: Extent) -> dict[tuple[str, str], list[Cell]]:
    """By budget and way to choose."""
    body = schemes_of(case, folder)
    if body is None:
        return {}
    rate, epochs = rate_of(case, folder), EPOCHS[case.data]
    recipe = qas_study.Recipe(epochs=epochs, thin=extent.thin, sgd=rate)
    found: dict[tuple[str, str], list[Cell]] = {}
    for word, row in body["budgets"].items():
        for name, toml in row["schemes"].items():
            number = name.removeprefix("random ")
            if number == name or int(number) < extent.random:
                found[word, name] = [Cell(case, toml, seed, recipe) for seed in range(extent.seeds)]
    for share in SHARES:
        slower = replace(recipe, sgd=round(rate * share, 6))
        found["", f"{FULL} {share:g}"] = [
            Cell(case, body["full"], seed, slower) for seed in range(extent.seeds)
        ]
    return found


@dataclass(frozen=True)
class Training:
    """Does cells; goes to worker processes. Each begins with a head that was taught alone."""

    def __call__(self, cell: Cell) -> dict[str, Any]:
        began = time.perf_counter()
        variant, recipe = qas_study.VARIANTS[ROUNDING], cell.recipe
        as_cell = qas_study.Cell(cell.case.data, cell.case.net, "", ROUNDING, cell.seed, recipe)
        model, scheme = qas_study.start(as_cell), Scheme.from_toml(cell.scheme)
        program = qas_study.compiled(model, recipe.batch, scheme, variant, cell.seed)
        trainer = program.load(threads=1)
        train, test = recipe.split(cell.case.data)
        losses = list(qas_study.epochs(trainer, as_cell, train))
        accuracy = qas_study.accuracy_of(trainer, variant, recipe.batch, test)
        seconds = round(time.perf_counter() - began, 1)
        finished = len(losses) == recipe.epochs
        return {"accuracy": accuracy, "losses": losses, "finished": finished, "seconds": seconds}


def train_cells(
    cells: Sequence[Cell], folder: Folder, workers: Workers, say: Callable[[str], None]
) -> None:
    """Those that have no result yet; each is kept when it is done."""
    known = read(folder)
    missing = list({c.key: c for c in cells if c.key not in known}.values())
    say(f"{len(cells)} cells, {len(missing)} of them to train")
    for done, (cell, result) in enumerate(workers.results(Training(), missing), 1):
        path = folder.cells(cell.case.data)
        results.append(path, {"cell": json.loads(cell.key), **result})
        name = Scheme.from_toml(cell.scheme).name
        say(
            f"{done}/{len(missing)} {cell.case}, {name}, seed {cell.seed}: "
            f"{result['accuracy']:.1f} % ({result['seconds']:.0f} s)"
        )


def read(folder: Folder) -> dict[str, dict[str, Any]]:
    """All cells, by their keys."""
    return {
        json.dumps(found["cell"], sort_keys=True): found
        for data in CLASSES
        for found in results.read(folder.cells(data))
    }
