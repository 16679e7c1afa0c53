"""The page and the pictures of the search study; the command is __main__.py."""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import whet
from benchmarks.common.page import table
from benchmarks.search import study
from benchmarks.search.contributions import biases_svg, weights_svg
from benchmarks.search.picture import accuracy_svg
from benchmarks.search.study import (
    BUDGETS,
    EPOCHS,
    FULL,
    PREVIOUS,
    SEARCHED,
    SHARES,
    Case,
    Cell,
    Extent,
    Folder,
    cells_of,
    schemes_of,
)
from whet import Search
from whet.labs.search.candidate import Contributions
from whet.labs.search.pooling import pooled_gains
from whet.labs.search.run import METHODS
from whet.scheme import Scheme

PUBLISHED, LAST, BIASES = "published", "last blocks", "biases"
SOURCES = Path(whet.__file__).parent
# Of the previous search, before this one replaced it: lines of Python, and files.
LINES_BEFORE, FILES_BEFORE = 2956, 20


@dataclass(frozen=True)
class Asked:
    """Which cases, from where, to where."""

    cases: Sequence[Case]
    folder: Folder
    extent: Extent
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
            others = {
                name: [statistics.mean(own[word, name])]
                for name in (PREVIOUS, PUBLISHED, LAST, BIASES)
                if (word, name) in own
            }
            if random:
                others |= {
                    "random, their mean": [statistics.mean(random)],
                    "random, each": random,
                    "random, the best": [max(random)],
                }
            if PREVIOUS in others:
                others["previous search"] = others.pop(PREVIOUS)
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


def words(text: str) -> str:
    """A paragraph, wrapped."""
    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False,
                         break_on_hyphens=False) + "\n"  # fmt: skip


ACCURACY = """
Percent of the test pictures, mean of {seeds} seeds ± standard deviation. A budget is the RAM of the
published scheme of that name as whet plans it (Cortex-M7, one picture at a time, 8 bits of carry).
"Extra" is what the searched scheme takes above training the head alone, in KiB. Last blocks and
biases are as many as fit. Random schemes take 95 to 100 % of the budget: the mean and standard
deviation over schemes (how many), and the best of them. All start from a head that was trained
alone, and train for {epochs} epochs in batches of {batch}, at the learning rate of the table below,
on random windows as in [the int8 study](../qas/README.md).
"""
PROCEDURE = """
The search is `whet.Search` with its defaults, except that a trial is one epoch of about
{samples:,} windows of three quarters of the training pictures; up to {finalists} finalists for each
budget train for two epochs on each of {splits} splits. The search saw no test picture. Its authors
did: this is the fourth version that was compared on these pictures, so small leads mean little.
"""
CHANCE = """
Two schemes that disagree about a tenth of the test pictures (6,149 and 3,669) differ by 0.4 and 0.5
points by chance (one standard deviation), whatever the seeds, as all are judged by the same
pictures.
"""
BEFORE = """
The previous search fitted a Gaussian process to all outcomes, and tried whole candidates in four
rounds, up to 80 trainings for each budget. This one pools the gains once, solves for each budget
exactly, and trains up to {finalists} finalists on {splits} splits: at most {most} trainings for
each budget. Both used the same contributions.
"""
SOLVER = """
These searches were made before one correction of the solver: where none of its answers fitted as
planned, it gave the head alone. Solved again, without training, 5 of 71 solutions differ: three for
mcunet-5fps on flowers102, one of them the best sum of pooled gains at 50 KB, and one each for
mcunet-5fps on pets37 and mbv2-w0.35 on flowers102. mbv2-w0.35 on pets37 was not solved again. These
five were not trained, so the search that is released has a few more finalists than the tables show.
The exact solver was not compared with evolution again on these networks; a test holds that
evolution never beats it.
"""


def page(asked: Asked) -> str:
    folder, extent, defaults = asked.folder, asked.extent, Search()
    results = study.read(folder)
    rates = {case: folder.read(case, "rates") for case in asked.cases}
    bodies = {case: body for case in asked.cases if (body := searched_of(case, folder))}
    scores = {case: accuracies(cells_of(case, folder, extent), results) for case in bodies}
    rows = [row for case, body in bodies.items() for row in accuracy_rows(case, body, scores[case])]
    numbers = {
        "seeds": extent.seeds, "epochs": " and ".join(map(str, EPOCHS.values())),
        "batch": study.BATCH, "samples": study.TRAINED_ON, "finalists": defaults.finalists,
        "splits": defaults.splits, "most": defaults.finalists * defaults.splits,
    }  # fmt: skip
    parts = [
        "# Searched schemes, measured\n",
        words("Made by `python -m benchmarks.search`: int8 programs that whet wrote, trained on "
              "several machines."),
        "## Accuracy at the same RAM\n",
        words(ACCURACY.format(**numbers)), words(PROCEDURE.format(**numbers)),
        "![accuracies](accuracy.svg)\n",
        table(
            ["network, pictures, budget", "bytes", "extra", SEARCHED, PUBLISHED, LAST, BIASES,
             "random", "best random"], rows,
        ),
        words(CHANCE),
        words("How far the searched schemes are ahead, in points over these rows: the least, the "
              "mean and the most, and in how many rows they are ahead."),
        table(
            ["against", "least", "mean", "most", "ahead"],
            [lead_row(*lead) for lead in leads(scores).items()],
        ),
        "## Before and after\n",
        words(BEFORE.format(**numbers)),
        table(
            ["network, pictures, budget", "searched now", "previous search", "difference",
             PUBLISHED],
            [row for case in bodies for row in before_rows(case, scores[case])],
        ),
        table(["", "now", "before"], code_rows()),
        words(SOLVER),
        "## Against training everything\n",
        words(f"The full update diverges at the learning rate of the others. Of {SHARES[0]:g} and "
              f"{SHARES[1]:g} of that rate, the one that is better on the test pictures counts. "
              "Extra memory is RAM above training the head alone."),
        table(
            ["network, pictures", "full update", *(f"rate x {share:g}" for share in SHARES),
             "extra KiB", "searched, 100 KB", "extra KiB", "full / searched"],
            [full_row(case, body, scores[case]) for case, body in bodies.items()],
        ),
        "## Learning rates\n",
        words("Random schemes, others than those above, at each learning rate: accuracy in percent "
              "and loss on a quarter of the training pictures that was held out. The search and "
              f"all trainings use the smallest rate within {study.CHANCE:g} points of the best: at "
              "higher rates, schemes that train many layers diverge."),
        table(
            ["network, pictures", *(f"{rate:g}" for rate in study.RATES)],
            [rate_row(case, body) for case, body in rates.items() if body],
        ),
        *solver_parts(asked),
        "## Sums of gains against accuracy\n",
        words("Spearman's rank correlation over the random schemes of a budget: of their accuracy "
              "on the test pictures with the sum of gains as measured, and with that of pooled "
              "gains; and of the accuracy with one seed with that of another, which is about as "
              "high as it can be. Means of the three budgets."),
        table(
            ["network, pictures", "measured gains", "pooled gains", "another seed"],
            [rank_row(case, body, scores[case], folder) for case, body in bodies.items()],
        ),
        "## Proxies against fine-tuning\n",
        words("Spearman's rank correlation with the gains in accuracy and in loss that fine-tuning "
              "finds, of biases and of weights; seconds of the proxy, and of all fine-tuning on "
              "one core."),
        table(
            ["network, pictures, proxy", "biases, accuracy", "weights, accuracy", "biases, loss",
             "weights, loss", "s", "fine-tuning, s"],
            [row for case in asked.cases for row in proxy_rows(case, folder)],
        ),
        "## Contributions\n",
        *(f"{case}:\n![biases](biases_{case.net}_{case.data}.svg)\n"
          f"![weights](weights_{case.net}_{case.data}.svg)\n"
          for case in asked.cases if folder.read(case, "gains")),
    ]  # fmt: skip
    return "\n".join(parts)


def before_rows(case: Case, scores: Mapping[tuple[str, str], list[float]]) -> list[list[str]]:
    rows = []
    for word in BUDGETS:
        found = [scores.get((word, name), []) for name in (SEARCHED, PREVIOUS, PUBLISHED)]
        if all(found):
            now, before, _ = map(statistics.mean, found)
            texts = [mean(numbers) for numbers in found]
            rows.append([f"{case}, {word}", *texts[:2], f"{now - before:+.1f}", texts[2]])
    return rows


def code_rows() -> list[list[str]]:
    """The size of the code."""
    files = sorted((SOURCES / "labs" / "search").glob("*.py"))
    shared = sorted((SOURCES / "labs" / "common").glob("*.py"))
    lines, more = (sum(len(f.read_text().splitlines()) for f in some) for some in (files, shared))
    return [
        ["lines of Python in `labs/search`", f"{lines:,}", f"{LINES_BEFORE:,}"],
        ["files", str(len(files)), str(FILES_BEFORE)],
        ["lines that labs share, in `labs/common`", f"{more:,}", "-"],
    ]


def solver_parts(asked: Asked) -> list[str]:
    """The exact solver against evolution, where that was run."""
    found = [(case, body) for case in asked.cases if (body := asked.folder.read(case, "solvers"))]
    if not found:
        return []
    head = ["network, pictures, budget"] + [w for m in METHODS for w in (m, "bytes", "s")]
    rows = [[f"{case}, {word}", *solver_words(row)] for case, body in found
            for word, row in body.items()]  # fmt: skip
    about = words("Sum of pooled gains, bytes as planned, and seconds without planning the parts.")
    return ["## Exact against evolution\n", about, table(head, rows)]


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


def rank_row(
    case: Case,
    body: Mapping[str, Any],
    scores: Mapping[tuple[str, str], list[float]],
    folder: Folder,
) -> list[str]:
    gains = folder.gains(case)
    assert gains is not None
    pooled, found = pooled_gains(gains), []
    for word, row in body["budgets"].items():
        names = [n for w, n in scores if w == word and n.startswith("random")]
        whole = [n for n in names if len(scores[word, n]) == len(scores[word, names[0]])]
        if len(whole) < 3:
            return [str(case), "-", "-", "-"]
        seeds = np.array([scores[word, n] for n in whole])
        schemes = [study.candidate_of(row["schemes"][n], gains.layers) for n in whole]
        told = [[g.score(c) for c in schemes] for g in (gains, pooled)]
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
         f"{found['seconds']:.0f}", f"{body['fine-tuning']:.0f}"]
        for name, found in body["proxies"].items()
    ]  # fmt: skip


def write_page(asked: Asked) -> None:
    folder, root = asked.folder, asked.out.parent
    root.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page(asked))
    results = study.read(folder)
    groups: dict[str, dict[str, list[float]]] = {}
    for case in asked.cases:
        if searched_of(case, folder) is None:
            continue
        scores = accuracies(cells_of(case, folder, asked.extent), results)
        for word in BUDGETS:
            column = {n: scores[word, n] for n in (SEARCHED, PUBLISHED, LAST, BIASES)
                      if (word, n) in scores}  # fmt: skip
            column["random"] = random_scores(scores, word)
            column[FULL] = best_full(scores)
            groups[f"{case}, {word}"] = {n: s for n, s in column.items() if s}
        gains = folder.gains(case)
        assert gains is not None
        for kind, draw in (("biases", biases_svg), ("weights", weights_svg)):
            (root / f"{kind}_{case.net}_{case.data}.svg").write_text(draw(gains))
    if any(groups.values()):
        (root / "accuracy.svg").write_text(accuracy_svg(groups))


def agreement(proxy: Contributions, real: Contributions) -> tuple[float, float]:
    """Spearman's rank correlation with the gains of training: of biases, and of weights."""
    parts = sorted(proxy.weights.keys() & real.weights.keys())
    return (
        float(spearmanr(proxy.biases[1:], real.biases[1:]).statistic),
        float(
            spearmanr([proxy.weights[p] for p in parts], [real.weights[p] for p in parts]).statistic
        ),
    )
