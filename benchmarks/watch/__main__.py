"""The watch of `make demo` on each of the ten people in turn: what learning the wearer brings.

    python -m benchmarks.watch                 ten people, three seeds; writes README.md
    python -m benchmarks.watch --seeds 1       a first look

Needs the package seglearn (pip install --no-deps seglearn). A person and a seed take about 20
seconds of one core. A seed is that of the first weights, of the order of batches before compiling
and of the wearer's windows afterwards.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch

from whet.demo import watch
from whet.demo.recordings import Split, load, split
from whet.demo.watch import Network, accuracy, accuracy_on, compiled, learn_in_float, learn_on

PAGE = Path(__file__).with_name("README.md")
ROUNDINGS = ("nearest", "stochastic", "carry8")
COLUMNS = ("fp32 before", "fp32 after", "int8 before", *(f"int8 after, {r}" for r in ROUNDINGS))


def in_int8(model: Network, data: Split, rounding: str, seed: int) -> tuple[float, float]:
    """Accuracy before and after."""
    trainer = compiled(model, data.others, rounding).load()
    before = accuracy_on(trainer, data.judge)
    learn_on(trainer, data.learn, seed)
    return before, accuracy_on(trainer, data.judge)


def row(data: Split, seed: int) -> list[float]:
    model = watch.pretrained(data.others, seed)
    floats = [accuracy(m, data.judge) for m in (model, learn_in_float(model, data.learn, seed))]
    found = [in_int8(model, data, rounding, seed) for rounding in ROUNDINGS]
    return [*floats, found[0][0], *(after for _, after in found)]


def cells(rows: list[list[float]]) -> str:
    """Means over rows, in percent."""
    return " | ".join(f"{100 * statistics.mean(column):.1f}" for column in zip(*rows, strict=True))


def spread(seeds: list[list[list[float]]]) -> str:
    """The mean over people, with the deviation between seeds."""
    means = [[statistics.mean(c) for c in zip(*rows, strict=True)] for rows in seeds]
    columns = list(zip(*means, strict=True))
    return " | ".join(
        f"{100 * statistics.mean(c):.1f}"
        + (f" ± {100 * statistics.stdev(c):.1f}" if len(c) > 1 else "")
        for c in columns
    )


ABOUT = """# A watch learns its wearer, measured

Made by `python -m benchmarks.watch`: percent of the wearer's held-out windows, mean of {count}
seeds. In each line that person is the wearer, and the network was pretrained on the five next ones.
{steps} steps of one window each, SGD at a rate of {rate} that falls to 0, all parameters. The first
half of each of the wearer's recordings trains, the second judges, and no window crosses the cut.

Both halves are of one session: how well it does on another day is not in the data. Rates of 0.001
to 0.03 were tried in fp32, of 0.003, 0.006 and 0.01 in int8, on these people and with a seed or
two, so the figures are a little too good. In the last line, ± is the deviation between seeds.
"""


def page(results: dict[int, list[list[float]]]) -> str:
    """`results` has a row for each seed, by person."""
    seeds = [list(rows) for rows in zip(*results.values(), strict=True)]
    lines = [
        ABOUT.format(count=len(seeds), steps=watch.STEPS, rate=watch.RATE),
        "| wearer | " + " | ".join(COLUMNS) + " |",
        "|---|" + "--:|" * len(COLUMNS),
        *(f"| {person} | {cells(rows)} |" for person, rows in results.items()),
        f"| **all** | {spread(seeds)} |",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    recordings, _ = load()
    results = {}
    for person in sorted({r.person for r in recordings}):
        data = split(recordings, person)
        results[person] = [row(data, seed) for seed in range(args.seeds)]
        print(person, cells(results[person]), flush=True)
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
