"""Is a searched scheme better than one handed down? Accuracy at the same RAM, on real pictures.

    python -m benchmarks.search                      everything; writes benchmarks/search.md, .svg
    python -m benchmarks.search rates others analyse search    contributions and schemes only
    python -m benchmarks.search train --only mcunet-5fps,flowers102
    python -m benchmarks.search page                 what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see pictures.py). For each network and
picture set: contributions of all biases and weights, by fine-tuning and by every proxy; the best
scheme for the RAM of each published one, by integer programming and by evolution; and the accuracy
of those, of the published schemes, of the last blocks, of biases, of random schemes of the same RAM
and of training everything. What was found is kept in `--results`, the folder search beside this
file unless said otherwise: a run that was stopped goes on, and what is there already is not done
again. About six core-hours in all; `--random 3 --seeds 1 --results FOLDER` is a quick look.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import search_study as study
from benchmarks.common.pictures import CLASSES
from benchmarks.search_page import BIASES, LAST, PUBLISHED, Asked, write_page
from benchmarks.search_study import (
    BUDGETS,
    JUDGES,
    NETS,
    RANDOM,
    RATES,
    Case,
    Extent,
    Folder,
    cells_of,
    rate_of,
)
from whet.labs.search.analysis import Trials, analyse
from whet.labs.search.belief import Belief
from whet.labs.search.choose import best_within
from whet.labs.search.engine import Engine
from whet.labs.search.evolve import Evolution
from whet.labs.search.finals import finals
from whet.labs.search.lesson import Lesson
from whet.labs.search.options import Search
from whet.labs.search.planner import Costs
from whet.labs.search.proxies import agreement, by_gradients, one_batch
from whet.labs.search.store import Store
from whet.labs.search.within import Found, Planned, scheme_for, within
from whet.scheme import Scheme, parameters_of, preset
from whet.scheme.contribution import Contributions

HERE = Path(__file__).resolve().parent
PARTS = ("rates", "others", "analyse", "search", "train", "proxies", "page")


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# --- Analyse and search ---------------------------------------------------------------------------


def trials_of(case: Case, asked: argparse.Namespace, rate: float, turn: int = 0) -> Trials:
    """Candidates learn at this rate; the head that they begin with had its own."""
    last = [0.0]

    def tell(what: str, done: int, total: int) -> None:
        if time.monotonic() - last[0] > 30 or done == total:
            last[0] = time.monotonic()
            say(f"{case}: {what} {done}/{total}")

    bench = case.bench(asked.thin, Lesson(epochs=1, rate=study.HEAD), turn)
    root = asked.results / "outcomes"
    begun = Trials.begin(bench, Store(root, bench), asked.engine, tell)
    bench = replace(bench, lesson=replace(bench.lesson, rate=rate))
    store = Store(root, bench)
    store.keep_head(begun.bench.head)
    return Trials.begin(bench, store, asked.engine, tell)


def do_rates(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """How random schemes do on held-out pictures at each rate; one is that of all that follows."""
    tried = (folder.read(case, "rates") or {"tried": {}})["tried"]
    if not (missing := [rate for rate in RATES if str(rate) not in tried]):
        return
    planner = case.planner()
    parameters = parameters_of(planner.model.training.graph)
    planned, costs = Planned(planner), Costs.measure(planner, asked.engine)
    schemes = []
    for word in BUDGETS:
        budget = study.ram_of(planner, study.published_scheme(case, word))
        random = study.random_candidates(costs, planned, budget, parameters, seed=1)
        schemes += [next(random) for _ in range(JUDGES)]
    for rate in missing:
        outcomes = trials_of(case, asked, rate).outcomes(schemes, f"rate {rate:g}").values()
        means = [statistics.mean(numbers) for numbers in
                 ([o.accuracy for o in outcomes], [o.loss for o in outcomes])]  # fmt: skip
        tried[str(rate)] = means
        say(f"{case}: rate {rate:g}: {means[0]:.2f} %, loss {means[1]:.4f}")
    folder.keep(case, "rates", {"tried": tried})


def do_analyse(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by fine-tuning."""
    if folder.read(case, "gains") is None:
        gains = analyse(trials_of(case, asked, rate_of(case, folder)))
        folder.path(case, "gains").write_text(gains.to_json())


def do_proxies(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by every proxy, and how well these agree with fine-tuning."""
    if folder.read(case, "proxies") is not None or folder.read(case, "gains") is None:
        return
    trials = trials_of(case, asked, rate_of(case, folder))
    gains = Contributions.from_json(folder.path(case, "gains").read_text())
    guesses = {**by_gradients(trials.bench), "one-batch": one_batch(trials)}
    by_loss = Contributions.of(gains.outcomes, "loss", gains.layers)
    proxies = {
        name: {
            "seconds": guess.seconds,
            "accuracy": agreement(guess, gains),
            "loss": agreement(guess, by_loss),
        }
        for name, guess in guesses.items()
    }
    body = {"fine-tuning": gains.seconds, "workers": asked.workers, "proxies": proxies}
    folder.keep(case, "proxies", body)


def do_others(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """What a searched scheme is compared with: schemes of the RAM of each published one."""
    if folder.read(case, "others") is not None:
        return
    planner = case.planner()
    parameters = parameters_of(planner.model.training.graph)
    planned, costs = Planned(planner), Costs.measure(planner, asked.engine)
    rows: dict[str, Any] = {}

    def ram_of(scheme: Scheme) -> int:
        return study.ram_of(planner, scheme)

    for word in BUDGETS:
        theirs = study.published_scheme(case, word)
        budget = ram_of(theirs)
        random = study.random_candidates(costs, planned, budget, parameters, seed=0)
        schemes = {
            PUBLISHED: theirs,
            LAST: study.largest_last(planner, budget),
            BIASES: study.largest_biases(planned, budget, parameters).scheme(parameters),
        }
        schemes |= {
            f"random {i}": next(random).scheme(parameters, f"random-{word.split()[0]}-{i}")
            for i in range(asked.random)
        }
        rows[word] = {
            "budget": budget,
            "schemes": {name: scheme.to_toml() for name, scheme in schemes.items()},
            "ram": {name: ram_of(scheme) for name, scheme in schemes.items()},
        }
        say(f"{case}, {word}: {len(schemes)} schemes within {budget:,} bytes")
    full = preset("full", parameters)
    rest = {"head": ram_of(preset("last", parameters)), "full": ram_of(full)}
    folder.keep(case, "others", {"budgets": rows, "ram": rest, "full": full.to_toml()})


def do_search(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """The best schemes for the RAM of each published one."""
    if folder.read(case, "searched") is not None:
        return
    gains = Contributions.from_json(folder.path(case, "gains").read_text())
    planner, search, rate = case.planner(), Search(), rate_of(case, folder)
    splits = [trials_of(case, asked, rate, turn) for turn in range(search.splits)]
    planned = Planned(planner)
    costs = Costs.measure(planner, asked.engine)
    belief = Belief.of(gains)
    believed = belief.expected
    rows: dict[str, Any] = {}
    budgets = [study.ram_of(planner, study.published_scheme(case, word)) for word in BUDGETS]
    sums: list[Found] = []
    for budget in budgets:
        sums.append(best_within(budget, believed, costs, planned, search, sums[-1:]))
    began = time.perf_counter()
    winners = finals(sums, belief, costs, planned, splits, search)
    seconds = time.perf_counter() - began
    for word, budget, found, chosen in zip(BUDGETS, budgets, sums, winners, strict=True):
        bred = within(budget, believed, costs, Planned(planner), Evolution())
        scheme = scheme_for(chosen, gains, planner, f"searched-{word.split()[0]}")
        rows[word] = {
            "scheme": scheme.to_toml(),
            "ram": study.ram_of(planner, scheme),
            "exact": {"score": found.score, "ram": found.ram, "seconds": found.seconds},
            "evolution": {"score": bred.score, "ram": bred.ram, "seconds": bred.seconds},
            "rivals": {
                name: {
                    "candidate": str(rival.candidate),
                    "accuracy": rival.outcome.accuracy,
                    "loss": rival.outcome.loss,
                }
                for name, rival in chosen.rivals.items()
            },
            "candidate": str(chosen.candidate),
        }
        say(f"{case}, {word}: {chosen.candidate}, {chosen.ram:,} of {budget:,} bytes")
    folder.keep(case, "searched", {"budgets": rows, "finals": seconds})


# --- Arguments ------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="networks and picture sets, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--random", type=int, default=RANDOM, help="schemes at each budget")
    parser.add_argument("--thin", type=int, default=1, help="every n-th picture only")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ray", help="address of a Ray cluster, or local")
    parser.add_argument("--results", type=Path, default=HERE / "search")
    parser.add_argument("--out", type=Path, default=HERE / "search.md", help="the page")
    found = parser.parse_args()
    only = set(filter(None, found.only.split(",")))
    if wrong := (only - {*NETS, *CLASSES}) | (set(found.parts) - set(PARTS)):
        parser.error(f"there is no {', '.join(sorted(wrong))}")
    found.parts = found.parts or list(PARTS)
    if found.thin > 1:
        found.results /= f"thin-{found.thin}"
    found.cases = [
        Case(net, data)
        for data in CLASSES
        for net in NETS
        if (net in only or not only & set(NETS)) and (data in only or not only & set(CLASSES))
    ]
    found.engine = Engine(found.workers, found.ray)
    return found


def do_train(asked: argparse.Namespace, folder: Folder, extent: Extent) -> None:
    """Every scheme to the end; random ones last, and seed by seed: if stopped, a part is there."""
    every = {
        (place, case): some for case in asked.cases
        for place, some in cells_of(case, folder, extent).items()
    }  # fmt: skip
    for random in (False, True):
        cells = [cell for ((_, name), _), some in every.items() for cell in some
                 if name.startswith("random") is random]  # fmt: skip
        cells.sort(key=lambda cell: cell.seed)
        study.train_cells(cells, folder.cells, asked.engine, say)


def main() -> None:
    asked = arguments()
    folder = Folder(asked.results)
    extent = Extent(asked.seeds, asked.random, asked.thin)

    def of_each_case(**parts: Any) -> None:
        for case in asked.cases:
            for name in (name for name in parts if name in asked.parts):
                parts[name](case, asked, folder)

    of_each_case(rates=do_rates, others=do_others, analyse=do_analyse, search=do_search)
    if "train" in asked.parts:
        do_train(asked, folder, extent)
    of_each_case(proxies=do_proxies)
    if "page" in asked.parts:
        write_page(Asked(asked.cases, folder, extent, asked.workers, asked.out))


if __name__ == "__main__":
    main()
