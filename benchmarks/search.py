"""Is a searched scheme better than one handed down? Accuracy at the same RAM, on real pictures.

    python benchmarks/search.py                      everything; writes benchmarks/search.md, .svg
    python benchmarks/search.py analyse search       contributions and schemes only
    python benchmarks/search.py train --only mcunet-5fps,flowers102
    python benchmarks/search.py page                 what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see pictures.py). For each network and
picture set: contributions of all biases and weights, by fine-tuning and by every proxy; the best
scheme for the RAM of each published one, by integer programming and by evolution; and the accuracy
of those, of the published schemes, of the last blocks, of biases, of random schemes of the same RAM
and of training everything. What was found is kept in `--results`: a run that was stopped goes on.
About six core-hours in all; `--random 3 --seeds 1` is a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import qas_study
import search_study as study
from page import processor, table
from pictures import CLASSES
from search_picture import accuracy_svg
from search_study import BUDGETS, NETS, RANDOM, Case, Cell

from whet.scheme import Scheme, parameters_of, preset
from whet.scheme.contribution import Contributions
from whet.selection.analysis import Trials, analyse
from whet.selection.charts import biases_svg, weights_svg
from whet.selection.choose import finals
from whet.selection.engine import Engine
from whet.selection.evolve import Evolution
from whet.selection.lesson import Lesson
from whet.selection.options import Search
from whet.selection.planner import Costs
from whet.selection.proxies import agreement, by_gradients, one_batch
from whet.selection.solve import exact
from whet.selection.store import Store
from whet.selection.within import Planned, scheme_for, within

HERE = Path(__file__).resolve().parent
PARTS = ("analyse", "search", "train", "proxies", "page")
EPOCHS = {"flowers102": 4, "pets37": 3}  # some 10,000 pictures in both
FAST, SLOW = 0.015, 0.00375  # rates: of a short lesson; of finals, and of what is compared
RATES = (1.0, 0.3)  # of the latter, for training everything: the best one counts
SEARCHED, PUBLISHED, LAST, BIASES, FULL = "searched", "published", "last blocks", "biases", "full"


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


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


# --- Analyse and search ---------------------------------------------------------------------------


def trials_of(case: Case, asked: argparse.Namespace, rate: float = FAST) -> Trials:
    bench = case.bench(asked.recipes[case.data], Lesson(epochs=1, rate=rate))
    store = Store(asked.results / "outcomes", bench)
    last = [0.0]

    def tell(what: str, done: int, total: int) -> None:
        if time.monotonic() - last[0] > 30 or done == total:
            last[0] = time.monotonic()
            say(f"{case}: {what} {done}/{total}")

    return Trials.begin(bench, store, asked.engine, tell)


def do_analyse(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by fine-tuning."""
    if folder.read(case, "gains") is None:
        gains = analyse(trials_of(case, asked))
        folder.path(case, "gains").write_text(gains.to_json())


def do_proxies(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Contributions by every proxy, and how well these agree with fine-tuning."""
    if folder.read(case, "proxies") is not None or folder.read(case, "gains") is None:
        return
    trials = trials_of(case, asked)
    gains = Contributions.from_json(folder.path(case, "gains").read_text())
    guesses = {**by_gradients(trials.bench), "one-batch": one_batch(trials.bench, trials.engine)}
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


def do_search(case: Case, asked: argparse.Namespace, folder: Folder) -> None:
    """Schemes for the RAM of each published one; the others at the same RAM."""
    if folder.read(case, "schemes") is not None:
        return
    gains = Contributions.from_json(folder.path(case, "gains").read_text())
    trials, planner = trials_of(case, asked, SLOW), case.planner()
    parameters = parameters_of(planner.model.training.graph)
    planned = Planned(planner)
    costs = Costs.measure(planner, asked.engine)
    smooth = gains.smoothed()
    rows: dict[str, Any] = {}

    def ram_of(scheme: Scheme) -> int:
        return study.ram_of(planner, scheme)

    theirs = {word: study.published_scheme(case, word) for word in BUDGETS}
    budgets = [ram_of(scheme) for scheme in theirs.values()]
    sums = [within(budget, smooth, costs, planned, exact) for budget in budgets]
    winners = finals(sums, gains, costs, planned, trials, Search(finals=2))
    for word, budget, found, chosen in zip(BUDGETS, budgets, sums, winners, strict=True):
        bred = within(budget, smooth, costs, Planned(planner), Evolution())
        random = study.random_candidates(costs, planned, budget, parameters, seed=0)
        schemes = {
            SEARCHED: scheme_for(chosen, gains, planner, f"searched-{word.split()[0]}"),
            PUBLISHED: theirs[word],
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
            "exact": {"score": found.score, "ram": found.ram, "seconds": found.seconds},
            "evolution": {"score": bred.score, "ram": bred.ram, "seconds": bred.seconds},
            "rivals": {
                name: {"candidate": str(c), "accuracy": o.accuracy, "loss": o.loss}
                for name, (c, o) in chosen.rivals.items()
            },
            "candidate": str(chosen.candidate),
        }
        say(f"{case}, {word}: {chosen.candidate}, {chosen.ram:,} of {budget:,} bytes")
    full = preset("full", parameters)
    rest = {"head": ram_of(preset("last", parameters)), "full": ram_of(full)}
    folder.keep(case, "schemes", {"budgets": rows, "ram": rest, "full": full.to_toml()})


# --- Train ----------------------------------------------------------------------------------------


def cells_of(
    case: Case, asked: argparse.Namespace, folder: Folder
) -> dict[tuple[str, str], list[Cell]]:
    """By budget and way to choose; a random scheme has one seed, the others have all."""
    body = folder.read(case, "schemes")
    if body is None:
        return {}
    found: dict[tuple[str, str], list[Cell]] = {}
    for word, row in body["budgets"].items():
        for name, toml in row["schemes"].items():
            number = name.removeprefix("random ")
            seeds = range(asked.seeds)
            if number != name:
                if int(number) >= asked.random:
                    continue
                seeds = range(int(number) % asked.seeds, int(number) % asked.seeds + 1)
            found[word, name] = [Cell(case, toml, seed, asked.recipes[case.data]) for seed in seeds]
    for rate in RATES:
        recipe = replace(
            asked.recipes[case.data], sgd=round(asked.recipes[case.data].sgd * rate, 6)
        )
        found["", f"{FULL} {rate:g}"] = [
            Cell(case, body["full"], seed, recipe) for seed in range(asked.seeds)
        ]
    return found


def accuracies(
    cells: Mapping[tuple[str, str], Sequence[Cell]], results: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], list[float]]:
    found = {
        place: [results[c.key]["accuracy"] for c in some if c.key in results]
        for place, some in cells.items()
    }
    return {place: numbers for place, numbers in found.items() if numbers}


# --- The page -------------------------------------------------------------------------------------


def mean(numbers: Sequence[float]) -> str:
    text = f"{statistics.mean(numbers):.1f}"
    return f"{text} ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else text


def best_full(scores: Mapping[tuple[str, str], list[float]]) -> list[float]:
    every = [numbers for (word, name), numbers in scores.items() if name.startswith(FULL)]
    return max(every, key=statistics.mean, default=[])


def random_scores(scores: Mapping[tuple[str, str], list[float]], word: str) -> list[float]:
    return [
        number for (w, name), numbers in scores.items() if w == word and name.startswith("random")
        for number in numbers
    ]  # fmt: skip


def accuracy_rows(
    case: Case, body: Mapping[str, Any], scores: Mapping[tuple[str, str], list[float]]
) -> list[list[str]]:
    rows = []
    for word, row in body["budgets"].items():
        extra = (row["ram"][SEARCHED] - body["ram"]["head"]) / 1024
        random = random_scores(scores, word)
        rows.append([
            f"{case}, {word}", f"{row['budget']:,}", f"{extra:.0f}",
            *(mean(scores[word, n]) if (word, n) in scores else "-"
              for n in (SEARCHED, PUBLISHED, LAST, BIASES)),
            mean(random) if random else "-", f"{max(random):.1f}" if random else "-",
        ])  # fmt: skip
    return rows


def page(asked: argparse.Namespace, folder: Folder) -> str:
    r, results = next(iter(asked.recipes.values())), study.read(folder.cells)
    bodies = {case: body for case in asked.cases if (body := folder.read(case, "schemes"))}
    scores = {case: accuracies(cells_of(case, asked, folder), results) for case in bodies}
    rows = [row for case, body in bodies.items() for row in accuracy_rows(case, body, scores[case])]
    parts = [
        "# Searched schemes, measured\n\nMade by `python benchmarks/search.py`: int8 programs that "
        f"whet wrote, trained on {processor()}.\n",
        "## Accuracy at the same RAM\n\nPercent of the test pictures, mean of up to "
        f"{asked.seeds} seeds ± standard deviation; without ± there was one, and a dash was not "
        "run. The budget is the RAM of the published scheme\n"
        "of that name as whet lays it out (Cortex-M7, one picture at a time, 8 bits of carry); "
        "extra is what the searched scheme needs above\ntraining the head alone, in KiB. Last "
        "blocks and biases are as many as fit. Random schemes are "
        f"{asked.random} of 95 to 100 % of the budget,\none seed each: their mean and their best. "
        "Every cell begins with a head that was trained alone, "
        f"then come {' and '.join(map(str, EPOCHS.values()))} epochs in batches of {r.batch} at a "
        f"rate of {r.sgd:g}, the same for all."
        "\nCandidates were tried in one lesson on "
        f"{study.TRAINED_ON:,} parts of three quarters of the training pictures at a rate of "
        f"{FAST:g}, the last few in two at {SLOW:g}.\n"
        "The search itself saw no test picture, but its makers did: the recipe of the cells (a "
        "trained head, the slower rate) and the rule of the finals\nwere changed after "
        "earlier tables of test accuracies, in which MobileNetV2 on Flowers-102 was 5 points "
        "below the published schemes.\n",
        f"![accuracies]({asked.out.stem}.svg)\n",
        table(
            ["network, pictures, budget", "bytes", "extra", SEARCHED, PUBLISHED, LAST, BIASES,
             "random", "best random"], rows,
        ),
        "## Against training everything\n\nOf two rates for the full update the best counts "
        "(that of the others, and a third of it). Extra memory is RAM above\ntraining the "
        "head alone.\n",
        table(
            ["network, pictures", "full update", *(f"rate x {rate:g}" for rate in RATES),
             "extra KiB", "searched, 100 KB", "extra KiB", "full / searched"],
            [full_row(case, body, scores[case]) for case, body in bodies.items()],
        ),
        "## Exact against evolution\n\nSum of contributions, bytes as planned, and seconds with "
        "the plans in between (costs of the parts excluded).\n",
        table(
            ["network, pictures, budget", "exact", "bytes", "s", "evolution", "bytes", "s"],
            [[f"{case}, {word}", *solver_words(row)] for case, body in bodies.items()
             for word, row in body["budgets"].items()],
        ),
        "## Proxies against fine-tuning\n\nSpearman's rank correlation with the gains in accuracy "
        "and in loss that fine-tuning finds, of biases and of weights;\nseconds of the proxy "
        f"(one-batch: on {asked.workers} cores), and of all fine-tuning on one core.\n",
        table(
            ["network, pictures, proxy", "biases, accuracy", "weights, accuracy", "biases, loss",
             "weights, loss", "s", "fine-tuning, s"],
            [row for case in asked.cases for row in proxy_rows(case, folder)],
        ),
        "## Contributions\n",
        *(f"{case}: ![biases]({asked.out.stem}_biases_{case.net}_{case.data}.svg) "
          f"![weights]({asked.out.stem}_weights_{case.net}_{case.data}.svg)\n"
          for case in asked.cases if folder.read(case, "gains")),
    ]  # fmt: skip
    return "\n".join(parts)


def full_row(
    case: Case, body: Mapping[str, Any], scores: Mapping[tuple[str, str], list[float]]
) -> list[str]:
    head, word = body["ram"]["head"], BUDGETS[-1]
    full = (body["ram"]["full"] - head) / 1024
    own = (body["budgets"][word]["ram"][SEARCHED] - head) / 1024
    by_rate = [scores.get(("", f"{FULL} {rate:g}"), []) for rate in RATES]
    best, searched = best_full(scores), scores.get((word, SEARCHED), [])
    return [
        str(case), mean(best) if best else "-", *(mean(s) if s else "-" for s in by_rate),
        f"{full:,.0f}", mean(searched) if searched else "-", f"{own:,.0f}", f"{full / own:.1f}",
    ]  # fmt: skip


def solver_words(row: Mapping[str, Any]) -> list[str]:
    return [
        word
        for name in ("exact", "evolution")
        for word in (
            f"{row[name]['score']:.2f}", f"{row[name]['ram']:,}", f"{row[name]['seconds']:.1f}",
        )
    ]  # fmt: skip


def proxy_rows(case: Case, folder: Folder) -> list[list[str]]:
    body = folder.read(case, "proxies")
    if body is None:
        return []
    return [
        [f"{case}, {name}", *(f"{c:.2f}" for c in (*found["accuracy"], *found["loss"])),
         f"{found['seconds']:.0f}", f"{body['fine-tuning']:.0f}"]
        for name, found in body["proxies"].items()
    ]  # fmt: skip


def write_page(asked: argparse.Namespace, folder: Folder) -> None:
    text = page(asked, folder)
    print(text)
    asked.out.write_text(text)
    results = study.read(folder.cells)
    groups: dict[str, dict[str, list[float]]] = {}
    for case in asked.cases:
        body = folder.read(case, "schemes")
        if body is None:
            continue
        scores = accuracies(cells_of(case, asked, folder), results)
        for word in BUDGETS:
            column = {n: scores[word, n] for n in (SEARCHED, PUBLISHED, LAST, BIASES)
                      if (word, n) in scores}  # fmt: skip
            column["random"] = random_scores(scores, word)
            column[FULL] = best_full(scores)
            groups[f"{case}, {word}"] = {n: s for n, s in column.items() if s}
        gains = Contributions.from_json(folder.path(case, "gains").read_text())
        for kind, draw in (("biases", biases_svg), ("weights", weights_svg)):
            name = f"{asked.out.stem}_{kind}_{case.net}_{case.data}.svg"
            asked.out.with_name(name).write_text(draw(gains))
    if any(groups.values()):
        asked.out.with_suffix(".svg").write_text(accuracy_svg(groups))


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
    parser.add_argument("--results", type=Path, default=HERE.parent / "out" / "search")
    parser.add_argument("--out", type=Path, default=HERE / "search.md", help="the page")
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
    found.recipes = {
        data: qas_study.Recipe(epochs=epochs, thin=found.thin, sgd=SLOW)
        for data, epochs in EPOCHS.items()
    }
    found.engine = Engine(found.workers, found.ray)
    return found


def main() -> None:
    asked = arguments()
    folder = Folder(asked.results)
    for case in asked.cases:
        if "analyse" in asked.parts:
            do_analyse(case, asked, folder)
        if "search" in asked.parts:
            do_search(case, asked, folder)
    if "train" in asked.parts:
        every = {
            (place, case): some for case in asked.cases
            for place, some in cells_of(case, asked, folder).items()
        }  # fmt: skip
        ordered = sorted(every.items(), key=lambda item: "random" in item[0][0][1])
        cells = [cell for _, some in ordered for cell in some]
        cells.sort(key=lambda cell: cell.seed)  # a run that is stopped has a part of everything
        study.train_cells(cells, folder.cells, asked.engine, say)
    for case in asked.cases if "proxies" in asked.parts else ():
        do_proxies(case, asked, folder)
    if "page" in asked.parts:
        write_page(asked, folder)


if __name__ == "__main__":
    main()
