"""The parts of the study of searched schemes: analyse, search, train; the command is search.py.

One network and one picture set are a Case. Its contributions are measured on three quarters of the
training pictures and judged on the fourth; schemes are then trained on all of them and judged on
the test pictures, as in the int8 study.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import pictures
from benchmarks.common.pictures import CLASSES
from benchmarks.qas import study as qas_study
from whet.frontend.model import Model
from whet.labs.search.engine import Engine
from whet.labs.search.lesson import Bench, Lesson
from whet.labs.search.planner import Costs, Planner
from whet.labs.search.samples import Samples
from whet.labs.search.within import Planned
from whet.pipeline import Options, assemble
from whet.scheme import Parameter, Scheme, blocks, parameters_of, preset, published
from whet.scheme.contribution import Candidate, choices, depth
from whet.targets import target_named

NETS = ("mcunet-5fps", "mbv2-w0.35")
BUDGETS = ("50 KB", "75 KB", "100 KB")  # of extra memory, as the paper counts it
PUBLISHED = {  # the scheme for each of them: its RAM is the budget
    "mcunet-5fps": ("mcunet-5fps-49kb", "mcunet-5fps-74kb", "mcunet-5fps-99kb"),
    "mbv2-w0.35": ("mbv2-w0.35-49kb", "mbv2-w0.35-73kb", "mbv2-w0.35-99kb"),
}
ROUNDING = "carry8"
BATCH = 8
HEAD = 0.004  # the rate of a head that is trained alone
TRAINED_ON = 6000  # samples of a lesson, about: as many windows of each picture as that takes
RANDOM = 20  # schemes at each budget
EPOCHS = {"flowers102": 5, "pets37": 3}  # 10,200 and 11,040 pictures
RATES = (0.002, 0.004, 0.008, 0.016)  # of which each case takes one that suits random schemes
CHANCE = 0.3  # points: of rates that differ by no more the smallest is taken
JUDGES = 2  # of those at each budget
SHARES = (0.3, 0.1)  # of the rate, for training everything: the best one counts; at 1 it diverges
FULL = "full"
SEARCHED = "searched"


@dataclass(frozen=True)
class Case:
    net: str
    data: str

    def __str__(self) -> str:
        return f"{self.net}, {self.data}"

    def model(self, seed: int = 0) -> nn.Module:
        return qas_study.make_model(self.net, CLASSES[self.data], seed)

    def imported(self, batch: int, rate: float, seed: int = 0) -> Model:
        """The integer model, as `compile` makes it."""
        from whet.api import Source

        model = self.model(seed)
        size = pictures.TAKEN
        source = Source(
            model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=rate),
            (torch.zeros(batch, 3, size, size),), None, None, whet.Int8(rounding=ROUNDING),
        )  # fmt: skip
        return source.imported()

    def planner(self) -> Planner:
        """For a microcontroller and one picture at a time: where memory is short."""
        options = Options(target=target_named("cortex-m7"), grow=False)
        return Planner(self.imported(1, 0.01), options)

    def bench(self, thin: int, lesson: Lesson, turn: int = 0) -> Bench:
        """Windows of three quarters of the training pictures; the middle of the others."""
        every = pictures.load(self.data, "train").every(thin)
        train, judge = every.without_every(4, turn), every.every(4, turn)
        random = np.random.default_rng(0)
        views = max(1, round(TRAINED_ON / thin / len(train)))
        seen = [pictures.cut_at_random(np.asarray(train.images), random) for _ in range(views)]
        return Bench(
            self.imported(BATCH, HEAD),
            Samples((np.concatenate(seen),), np.tile(train.labels, views)),
            Samples((pictures.centre(np.asarray(judge.images)),), np.asarray(judge.labels)),
            lesson,
        )


def published_scheme(case: Case, word: str) -> Scheme:
    return Scheme.from_toml(published()[PUBLISHED[case.net][BUDGETS.index(word)]])


def ram_of(planner: Planner, scheme: Scheme) -> int:
    """As the planner lays it out."""
    return assemble(planner.model, scheme, planner.options).memory["ram"]


def largest_last(planner: Planner, budget: int) -> Scheme:
    """The most blocks before the head that train whole within the budget; else the head."""
    parameters = parameters_of(planner.model.training.graph)
    best = preset("last", parameters)
    for count in range(1, len(blocks(parameters)) + 1):
        scheme = preset(f"last-{count}", parameters)
        if ram_of(planner, scheme) > budget:
            break
        best = scheme
    return best


def largest_biases(planned: Planned, budget: int, parameters: Sequence[Parameter]) -> Candidate:
    """The most biases that train within the budget."""
    best = Candidate()
    for k in range(depth(parameters) + 1):
        if planned.ram(Candidate(k)) <= budget:
            best = Candidate(k)
    return best


def random_candidates(
    costs: Costs, planned: Planned, budget: int, parameters: Sequence[Parameter], seed: int
) -> Iterator[Candidate]:
    """Of the same memory: within the budget by the planner, and above 95 % of it."""
    random = np.random.default_rng(seed)
    offered = choices(parameters)
    while True:
        biases = int(random.integers(1, depth(parameters) + 1))
        candidate = Candidate(biases)
        layers = [i for i in offered if costs.reaches[i] <= biases]
        for layer in random.permutation(layers):
            ratio = float(random.choice(offered[int(layer)]))
            more = Candidate(biases, tuple(sorted((*candidate.weights, (int(layer), ratio)))))
            if costs.estimate(more) <= budget:
                candidate = more
        if candidate.weights and 0.95 * budget < planned.ram(candidate) <= budget:
            yield candidate


# --- Results on disk ------------------------------------------------------------------------------


class Folder:
    """Where results lie: a JSON for each case and part, a line for each cell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    @property
    def cells(self) -> Path:
        return self.root / "cells.jsonl"

    def path(self, case: Case, part: str) -> Path:
        return self.root / f"{part}-{case.net}-{case.data}.json"

    def keep(self, case: Case, part: str, body: Any) -> None:
        self.path(case, part).write_text(json.dumps(body, indent=1))

    def read(self, case: Case, part: str) -> Any:
        path = self.path(case, part)
        return json.loads(path.read_text()) if path.exists() else None


def schemes_of(case: Case, folder: Folder) -> Any:
    """All schemes of a case, by budget; the searched ones among them, if there are any yet."""
    body, searched = (folder.read(case, part) for part in ("others", "searched"))
    for word, row in body["budgets"].items() if body and searched else ():
        own = searched["budgets"][word]
        row["schemes"][SEARCHED], row["ram"][SEARCHED] = own["scheme"], own["ram"]
        row["exact"], row["evolution"] = own["exact"], own["evolution"]
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

    def run(self, cell: Cell) -> dict[str, Any]:
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


def train_cells(cells: Sequence[Cell], path: Path, engine: Engine, say: Any) -> None:
    """Those whose result is not in the file yet; each is appended when it is there."""
    known = read(path)
    missing = list({c.key: c for c in cells if c.key not in known}.values())
    say(f"{len(cells)} cells, {len(missing)} of them to train")
    for done, (cell, result) in enumerate(engine.results(Training(), missing), 1):
        qas_study.append(path, {"cell": json.loads(cell.key), **result})
        name = Scheme.from_toml(cell.scheme).name
        say(
            f"{done}/{len(missing)} {cell.case}, {name}, seed {cell.seed}: "
            f"{result['accuracy']:.1f} % ({result['seconds']:.0f} s)"
        )


def read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    return qas_study.read_results(path)
