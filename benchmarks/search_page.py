"""The page and the pictures of the search study; the command is search.py."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks import search_study as study
from benchmarks.common.page import processor, table
from benchmarks.search_picture import accuracy_svg
from benchmarks.search_study import (
    BUDGETS,
    EPOCHS,
    FULL,
    SEARCHED,
    SHARES,
    Case,
    Cell,
    Extent,
    Folder,
    cells_of,
    schemes_of,
)
from whet.labs.search.belief import Belief
from whet.labs.search.charts import biases_svg, weights_svg
from whet.labs.search.options import Search
from whet.scheme import Scheme
from whet.scheme.contribution import Contributions

PUBLISHED, LAST, BIASES = "published", "last blocks", "biases"


@dataclass(frozen=True)
class Asked:
    """Which cases, from where, to where."""

    cases: Sequence[Case]
    folder: Folder
    extent: Extent
    workers: int
    out: Path  # the page


def accuracies(
    cells: Mapping[tuple[str, str], Sequence[Cell]], results: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], list[float]]:
    found = {
        place: [results[c.key]["accuracy"] for c in some if c.key in results]
        for place, some in cells.items()
    }
    return {place: numbers for place, numbers in found.items() if numbers}


def searched_of(case: Case, folder: Folder) -> Any:
    """The schemes of a case that has been searched."""
    return schemes_of(case, folder) if folder.read(case, SEARCHED) else None


def mean(numbers: Sequence[float]) -> str:
    text = f"{statistics.mean(numbers):.1f}"
    return f"{text} ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else text


def best_full(scores: Mapping[tuple[str, str], list[float]]) -> list[float]:
    every = [numbers for (word, name), numbers in scores.items() if name.startswith(FULL)]
    return max(every, key=statistics.mean, default=[])


def random_scores(scores: Mapping[tuple[str, str], list[float]], word: str) -> list[float]:
    """Of each scheme, the mean of its seeds."""
    return [statistics.mean(numbers) for (w, name), numbers in scores.items()
            if w == word and name.startswith("random")]  # fmt: skip


def accuracy_rows(
    case: Case, body: Mapping[str, Any], scores: Mapping[tuple[str, str], list[float]]
) -> list[list[str]]:
    rows = []
    for word, row in body["budgets"].items():
        extra = (row["ram"][SEARCHED] - body["ram"]["head"]) / 1024
        random = random_scores(scores, word)
        rows.append([
            f"{case}, {word}", f"{row['budget']:,}", f"{extra:.0f}",
            *(mean(scores[word, n]) + note(row, n) if (word, n) in scores else "-"
              for n in (SEARCHED, PUBLISHED, LAST, BIASES)),
            f"{mean(random)} ({len(random)})" if random else "-",
            f"{max(random):.1f}" if random else "-",
        ])  # fmt: skip
    return rows


def leads(
    scores: Mapping[Case, Mapping[tuple[str, str], list[float]]],
) -> dict[str, list[float]]:
    """By how much the searched scheme of each row is ahead of the others in it."""
    found: dict[str, list[float]] = {}
    for own in scores.values():
        for word in (word for word in BUDGETS if (word, SEARCHED) in own):
            searched = statistics.mean(own[word, SEARCHED])
            random = random_scores(own, word)
            others = {name: [statistics.mean(own[word, name])]
                      for name in (PUBLISHED, LAST, BIASES) if (word, name) in own}  # fmt: skip
            if random:
                others |= {
                    "random, their mean": [statistics.mean(random)],
                    "random, each": random,
                    "random, the best": [max(random)],
                }
            for name, numbers in others.items():
                found.setdefault(name, []).extend(searched - number for number in numbers)
    return found


def lead_row(name: str, points: Sequence[float]) -> list[str]:
    ahead = sum(p > 0 for p in points)
    middle = statistics.mean(points)
    return [name, *(f"{p:+.1f}" for p in (min(points), middle, max(points))),
            f"{ahead} of {len(points)}"]  # fmt: skip


def note(row: Mapping[str, Any], name: str) -> str:
    """Where not a single block fits, the last blocks are none."""
    alone = name == LAST and Scheme.from_toml(row["schemes"][LAST]).name == "last"
    return ", head alone" if alone else ""


def page(asked: Asked) -> str:
    folder, extent = asked.folder, asked.extent
    results = study.read(folder.cells)
    rates = {case: folder.read(case, "rates") for case in asked.cases}
    bodies = {case: body for case in asked.cases if (body := searched_of(case, folder))}
    scores = {case: accuracies(cells_of(case, folder, extent), results) for case in bodies}
    rows = [row for case, body in bodies.items() for row in accuracy_rows(case, body, scores[case])]
    parts = [
        "# Searched schemes, measured\n\nMade by `python -m benchmarks.search`: int8 programs that "
        f"whet wrote, trained on {processor()};\na part of what `search/` keeps is from an "
        "Intel Xeon.\n",
        "## Accuracy at the same RAM\n\nPercent of the test pictures, mean of "
        f"{extent.seeds} seeds ± standard deviation; a dash was not run. The "
        "budget is the RAM of the published scheme\nof that name as whet "
        "lays it out (Cortex-M7, one picture at a time, 8 bits of carry); "
        "extra is what the searched scheme needs above\ntraining the head alone, in KiB. Last "
        "blocks and biases are as many as fit. Random schemes are of 95 to 100 % of the budget,\n"
        "as many seeds each: the mean and the deviation of these schemes (of how many), and the "
        "best of them. "
        "Every cell begins with a head that was taught alone, then come "
        f"{' and '.join(map(str, EPOCHS.values()))} epochs in batches of {study.BATCH}, at the "
        "rate of the table below,\nthe same for all, on windows as in the int8 study (qas.md). "
        "Candidates of the search were tried in one "
        f"lesson on about {study.TRAINED_ON:,}\nwindows of three quarters of the training "
        f"pictures, whole ones in {Search().finals}, in {Search().rounds} rounds of "
        f"{Search().draws}, on {Search().splits} splits, so that each picture judges once:\n"
        "what `whet.Search` does if it is told nothing but the length of a lesson.\n\n"
        "The search saw no test picture, but its makers did: this is the third kind of it that was "
        "held against these pictures. The first added up gains as they were\nmeasured; the second "
        "believed that layers alike gain alike, and chose among few candidates by accuracy and "
        "loss together. Of that one it was found on held-out\npictures of Pets-37 that what it "
        "chose had the lower loss, and the lower accuracy too, beside the published schemes in "
        "four rows of six (on two splits). Rounds, and accuracy apart from loss, were tried for "
        "that reason:\nagainst random schemes they helped a little, against the published ones on "
        "Pets-37 they did not, so the reason is not established. "
        "They were settled before any scheme of theirs was trained on all pictures, but for one "
        "thing: that one failure "
        "ruined the name of its parts was seen in the\nfirst search for MobileNetV2 on "
        "Flowers-102 (81.3, 81.4, 81.7 %), which was then done again. It also has what a review "
        "mended meanwhile (how noise is estimated, how\ndraws follow a bend); the searches of "
        "the other three cases are from before that.\n",
        f"![accuracies]({asked.out.stem}.svg)\n",
        table(
            ["network, pictures, budget", "bytes", "extra", SEARCHED, PUBLISHED, LAST, BIASES,
             "random", "best random"], rows,
        ),
        "Where two schemes disagree about a tenth of the test pictures, which are 6,149 and 3,669, "
        "chance puts 0.4 and 0.5 points between them (one standard\ndeviation), whatever the "
        "seeds: they are judged by the same pictures.\n",
        "How far the searched schemes are ahead, in points, over these rows: the least, the mean "
        "and the most, and how often they are.\n",
        table(
            ["against", "least", "mean", "most", "ahead"],
            [lead_row(*lead) for lead in leads(scores).items()],
        ),
        "## Against training everything\n\nOf two rates for the full update, "
        f"{SHARES[0]:g} and {SHARES[1]:g} of that of the others, at which it diverges, the best on "
        "the test pictures counts.\nExtra memory is RAM above training the head alone.\n",
        table(
            ["network, pictures", "full update", *(f"rate x {share:g}" for share in SHARES),
             "extra KiB", "searched, 100 KB", "extra KiB", "full / searched"],
            [full_row(case, body, scores[case]) for case, body in bodies.items()],
        ),
        "## Rates\n\nRandom schemes (others than those above) at each rate: percent of a quarter "
        "of the training pictures that was held out,\nand loss. The smallest one "
        f"that is within {study.CHANCE:g} points of the best is that of the case, for the search "
        "and for every cell:\nat the highest, schemes of many parts diverge.\n",
        table(
            ["network, pictures", *(f"{rate:g}" for rate in study.RATES)],
            [rate_row(case, body) for case, body in rates.items() if body],
        ),
        "## Exact against evolution\n\nSum of contributions, bytes as planned, and seconds with "
        "the plans in between (costs of the parts excluded).\n",
        table(
            ["network, pictures, budget", "exact", "bytes", "s", "evolution", "bytes", "s"],
            [[f"{case}, {word}", *solver_words(row)] for case, body in bodies.items()
             for word, row in body["budgets"].items()],
        ),
        "## What is believed against what comes out\n\nSpearman's rank correlation, over the "
        "random schemes of a budget, of their accuracy on the test pictures with the sum of gains "
        "as\nthey were measured, with that of gains as they are believed before any whole "
        "candidate was tried, and, of one seed, with that of another;\nthe mean of the three "
        "budgets.\n",
        table(
            ["network, pictures", "measured gains", "believed gains", "another seed"],
            [belief_row(case, body, scores[case], folder) for case, body in bodies.items()],
        ),
        "## Proxies against fine-tuning\n\nSpearman's rank correlation with the gains in accuracy "
        "and in loss that fine-tuning finds, of biases and of weights;\nseconds of the proxy "
        "(one-batch: with so many processes), and of all fine-tuning on one core.\n",
        table(
            ["network, pictures, proxy", "biases, accuracy", "weights, accuracy", "biases, loss",
             "weights, loss", "s", "processes", "fine-tuning, s"],
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
    by_rate = [scores.get(("", f"{FULL} {share:g}"), []) for share in SHARES]
    best, searched = best_full(scores), scores.get((word, SEARCHED), [])
    return [
        str(case), mean(best) if best else "-", *(mean(s) if s else "-" for s in by_rate),
        f"{full:,.0f}", mean(searched) if searched else "-", f"{own:,.0f}",
        f"{full / own:.1f}" if own else "-",
    ]  # fmt: skip


def rate_row(case: Case, body: Mapping[str, Any]) -> list[str]:
    def words(rate: float) -> str:
        if str(rate) not in body["tried"]:
            return "-"
        accuracy, loss = body["tried"][str(rate)]
        text = f"{accuracy:.1f}, {loss:.3f}"
        return f"**{text}**" if rate == study.best_rate(body["tried"]) else text

    return [str(case), *map(words, study.RATES)]


def solver_words(row: Mapping[str, Any]) -> list[str]:
    return [
        word
        for name in ("exact", "evolution")
        for word in (
            f"{row[name]['score']:.2f}", f"{row[name]['ram']:,}", f"{row[name]['seconds']:.1f}",
        )
    ]  # fmt: skip


def belief_row(
    case: Case,
    body: Mapping[str, Any],
    scores: Mapping[tuple[str, str], list[float]],
    folder: Folder,
) -> list[str]:
    gains = Contributions.from_json(folder.path(case, "gains").read_text())
    believed = Belief.of(gains).expected
    found = []
    for word, row in body["budgets"].items():
        names = [n for w, n in scores if w == word and n.startswith("random")]
        whole = [n for n in names if len(scores[word, n]) == len(scores[word, names[0]])]
        if len(whole) < 3:
            return [str(case), "-", "-", "-"]
        seeds = np.array([scores[word, n] for n in whole])
        schemes = [study.candidate_of(row["schemes"][n], gains.layers) for n in whole]
        told = [[g.score(c) for c in schemes] for g in (gains, believed)]
        ranks = [spearmanr(numbers, seeds.mean(1)).statistic for numbers in told]
        pairs = list(itertools.combinations(seeds.T, 2))
        again = [spearmanr(*pair).statistic for pair in pairs]
        found.append([*ranks, statistics.mean(again) if again else float("nan")])
    return [str(case), *(f"{c:.2f}" for c in np.mean(found, 0))]


def proxy_rows(case: Case, folder: Folder) -> list[list[str]]:
    body = folder.read(case, "proxies")
    if body is None:
        return []
    return [
        [f"{case}, {name}", *(f"{c:.2f}" for c in (*found["accuracy"], *found["loss"])),
         f"{found['seconds']:.0f}", str(body["workers"] if name == "one-batch" else 1),
         f"{body['fine-tuning']:.0f}"]
        for name, found in body["proxies"].items()
    ]  # fmt: skip


def write_page(asked: Asked) -> None:
    folder = asked.folder
    text = page(asked)
    print(text)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text)
    results = study.read(folder.cells)
    groups: dict[str, dict[str, list[float]]] = {}
    for case in asked.cases:
        if searched_of(case, folder) is None:
            continue
        scores = accuracies(cells_of(case, asked.folder, asked.extent), results)
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
