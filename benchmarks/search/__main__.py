"""Is a searched scheme better than a published one? Accuracy at the same RAM, on real pictures.

    python -m benchmarks.search                      everything; writes the page beside this file
    python -m benchmarks.search search train --only flowers102    schemes of one picture set
    python -m benchmarks.search page                 the page alone, from what is kept

Needs $WHET_DATA, the folder with backbones and pictures (see common/pictures.py). For each network
and picture set: contributions of all biases and weights, by training and by proxies; the best
scheme for the RAM of each published one; and the accuracy of those, of the published schemes, of
the last blocks, of biases, of random schemes of the same RAM and of training everything. Results
are kept in `--results`, the folder `data` beside this file by default: what is there is not done
again, and a run that was stopped resumes. The parts, in order: rates, others, analyse, search,
train, solvers, proxies, page. From nothing it takes about eight core-hours; search and train alone
about three.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.common.pictures import CLASSES
from benchmarks.search import study
from benchmarks.search.page import BIASES, LAST, PUBLISHED, Asked, agreement, write_page
from benchmarks.search.study import (
    BUDGETS,
    JUDGES,
    NETS,
    RANDOM,
    RATES,
    SEARCHED,
    Case,
    Extent,
    Folder,
    cells_of,
    rate_of,
)
from whet import Search
from whet.labs.common.workers import Workers
from whet.labs.search import run
from whet.labs.search.candidate import HEAD, Candidate, Contributions
from whet.labs.search.pooling import pooled_gains
from whet.labs.search.proxies import by_gradients
from whet.labs.search.solve import Costs, Plans
from whet.labs.search.trials import Trials, analyse
from whet.scheme import Scheme, preset

HERE = Path(__file__).resolve().parent


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def teller(case: Case) -> Callable[[str, int, int], None]:
    last = [0.0]

    def tell(what: str, done: int, total: int) -> None:
        if time.monotonic() - last[0] > 20 or done == total:
            last[0] = time.monotonic()
            say(f"{case}: {what} {done}/{total}")

    return tell


def trials_of(case: Case, asked: argparse.Namespace, lr: float, turns: int = 1) -> Trials:
    splits = case.trials(asked.thin, lr, turns)
    return Trials.of(splits, asked.results / "outcomes", asked.engine, teller(case))


def budgets_of(case: Case, plans: Plans) -> dict[str, int]:
    """The RAM of each published scheme."""
    return {w: plans.bench.plan(study.published_scheme(case, w)).ram for w in BUDGETS}


# --- The parts ------------------------------------------------------------------------------------


def do_rates(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Random schemes on held-out pictures at each learning rate; one is used from then on."""
    tried = (folder.read(case, "rates") or {"tried": {}})["tried"]
    if not (missing := [rate for rate in RATES if str(rate) not in tried]):
        return
    plans = case.plans()
    costs = Costs.of(plans, asked.engine)
    schemes: list[Candidate] = []
    for budget in budgets_of(case, plans).values():
        random = study.random_candidates(costs, plans, budget, seed=1)
        schemes += [next(random) for _ in range(JUDGES)]
    for rate in missing:
        found = trials_of(case, asked, rate).outcomes(schemes, f"rate {rate:g}", 1).values()
        outcomes = [o for own in found for o in own]
        tried[str(rate)] = [
            statistics.mean(o.accuracy for o in outcomes), statistics.mean(o.loss for o in outcomes)
        ]  # fmt: skip
        say(f"{case}: rate {rate:g}: {tried[str(rate)]}")
    folder.keep(case, "rates", {"tried": tried})


def do_analyse(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by training single layers and biases."""
    if folder.read(case, "gains") is None:
        gains = analyse(trials_of(case, asked, rate_of(case, folder)))
        folder.keep(case, "gains", json.loads(gains.to_json()))


def do_proxies(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by each proxy, and how well these agree with training."""
    gains = folder.gains(case)
    if folder.read(case, "proxies") is not None or gains is None:
        return
    trials = trials_of(case, asked, rate_of(case, folder))
    by_loss = Contributions.of(gains.outcomes, "loss", gains.layers)
    began = time.perf_counter()
    guesses = by_gradients(trials.splits[0])
    seconds = time.perf_counter() - began
    proxies = {
        name: {
            "seconds": seconds,
            "accuracy": agreement(guess, gains),
            "loss": agreement(guess, by_loss),
        }
        for name, guess in guesses.items()
    }
    tuning = sum(outcome.seconds for outcome in gains.outcomes.values())
    body = {"fine-tuning": tuning, "workers": asked.workers, "proxies": proxies}
    folder.keep(case, "proxies", body)


def do_others(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """What a searched scheme is compared with: schemes of the RAM of each published one."""
    if folder.read(case, "others") is not None:
        return
    plans = case.plans()
    bench, costs = plans.bench, Costs.of(plans, asked.engine)
    rows: dict[str, Any] = {}
    for word, budget in budgets_of(case, plans).items():
        random = study.random_candidates(costs, plans, budget, seed=0)
        schemes = {
            PUBLISHED: study.published_scheme(case, word),
            LAST: study.largest_last(bench, budget),
            BIASES: study.largest_biases(plans, budget).scheme(bench.parameters),
        }
        schemes |= {
            f"random {i}": next(random).scheme(bench.parameters, f"random-{word.split()[0]}-{i}")
            for i in range(asked.random)
        }
        rows[word] = {
            "budget": budget,
            "schemes": {name: scheme.to_toml() for name, scheme in schemes.items()},
            "ram": {name: bench.plan(scheme).ram for name, scheme in schemes.items()},
        }
        say(f"{case}, {word}: {len(schemes)} schemes within {budget:,} bytes")
    full = preset("full", bench.parameters)
    rest = {"head": plans.ram(HEAD), "full": bench.plan(full).ram}
    folder.keep(case, "others", {"budgets": rows, "ram": rest, "full": full.to_toml()})


def do_search(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """The best schemes for the RAM of each published one, as `whet.search` finds them."""
    gains = folder.gains(case)
    if folder.read(case, SEARCHED) is not None or gains is None:
        return
    began, search = time.perf_counter(), Search(finalists=asked.finalists, method=asked.method)
    plans = case.plans()
    budgets = budgets_of(case, plans)
    costs = Costs.of(plans, asked.engine, teller(case))
    trials = trials_of(case, asked, rate_of(case, folder), search.splits)
    choice = run.Choice(search, trials, plans, costs, gains)
    found = choice.finalists(list(budgets.values()))
    outcomes = choice.train(found)
    rows: dict[str, Any] = {}
    for word, budget in budgets.items():
        row, name = choice.row(budget, found, outcomes), f"searched-{word.split()[0]}"
        rows[word] = {
            "scheme": Scheme(row.scheme.rules, name, row.scheme.origin).to_toml(),
            "ram": row.ram,
            "candidate": str(row.candidate),
            "finalists": {
                name: {"candidate": str(f.candidate), "ram": f.ram, **f.outcome.as_dict()}
                for name, f in row.finalists.items()
            },
        }
        say(f"{case}, {word}: {row.candidate}, {row.ram:,} of {budget:,} bytes")
    seconds = round(time.perf_counter() - began, 1)
    trained = sum(o.seconds for o in outcomes.values())
    body = {"budgets": rows, "seconds": seconds, "workers": asked.workers, "trained": trained}
    folder.keep(case, SEARCHED, body)


def do_solvers(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """The exact solver against evolution, on pooled gains."""
    gains = folder.gains(case)
    if folder.read(case, "solvers") is not None or gains is None:
        return
    plans = case.plans()
    task = study.Timed(Costs.of(plans, asked.engine), plans, pooled_gains(gains))
    jobs = [(w, m, b) for w, b in budgets_of(case, plans).items() for m in run.METHODS]
    rows: dict[str, Any] = {word: {} for word in BUDGETS}
    for (word, method, _), result in asked.engine.results(task, jobs):
        rows[word][method] = result
    folder.keep(case, "solvers", rows)


def do_train(asked: argparse.Namespace, folder: Folder, extent: Extent) -> None:
    """Every scheme to the end; random ones last, and seed by seed."""
    every = {
        (place, case): some for case in asked.cases
        for place, some in cells_of(case, folder, extent).items()
    }  # fmt: skip
    for random in (False, True):
        cells = [cell for ((_, name), _), some in every.items() for cell in some
                 if name.startswith("random") is random]  # fmt: skip
        study.train_cells(sorted(cells, key=lambda c: c.seed), folder, asked.engine, say)


OF_EACH_CASE: dict[str, Callable[[Case, argparse.Namespace, Folder], None]] = {
    "rates": do_rates, "others": do_others, "analyse": do_analyse, "search": do_search,
    "solvers": do_solvers, "proxies": do_proxies,
}  # fmt: skip
PARTS = (*OF_EACH_CASE, "train", "page")


# --- The command ----------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="networks and picture sets, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--random", type=int, default=RANDOM, help="schemes at each budget")
    parser.add_argument("--method", default="exact", choices=run.METHODS)
    parser.add_argument("--finalists", type=int, default=Search().finalists, help="per budget")
    parser.add_argument("--thin", type=int, default=1, help="every n-th picture only")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ray", help="address of a Ray cluster, or local")
    parser.add_argument("--results", type=Path, default=HERE / "data")
    parser.add_argument("--out", type=Path, default=HERE / "README.md", help="the page")
    found = parser.parse_args()
    only = set(filter(None, found.only.split(",")))
    if wrong := (only - {*NETS, *CLASSES}) | (set(found.parts) - set(PARTS)):
        parser.error(f"there is no {', '.join(sorted(wrong))}")
    found.parts = found.parts or list(PARTS)
    found.cases = [
        Case(net, data)
        for data in CLASSES
        for net in NETS
        if (net in only or not only & set(NETS)) and (data in only or not only & set(CLASSES))
    ]
    found.engine = Workers(found.workers, found.ray)
    return found


def main() -> None:
    asked = arguments()
    folder = Folder(asked.results)
    extent = Extent(asked.seeds, asked.random, asked.thin)

    def of_each_case(names: Iterable[str]) -> None:
        for case in asked.cases:
            for name in (name for name in names if name in asked.parts):
                say(f"{case}: {name}")
                OF_EACH_CASE[name](case, asked, folder)

    of_each_case(["rates", "others", "analyse", "search"])
    if "train" in asked.parts:
        do_train(asked, folder, extent)
    of_each_case(["solvers", "proxies"])
    if "page" in asked.parts:
        write_page(Asked(asked.cases, folder, extent, asked.out))


if __name__ == "__main__":
    main()
