"""What 4-bit codebooks cost a pretrained int8 network in accuracy: MCUNet-5fps on Flowers-102.

    python -m benchmarks.compress.flowers           every cell; writes flowers.jsonl and flowers.md
    python -m benchmarks.compress.flowers page      flowers.md again from what is kept

Needs the folder that WHET_DATA names, with weights and pictures. Training is that of the int8 study
(benchmarks/qas): the published scheme of 99 KB, int8 with a carry of 8 bits, 10 epochs in batches
of 8. A cell takes two minutes of one core, one with trained centroids eight, and one that is kept
is not run again.
"""

from __future__ import annotations

import copy
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.lines import kept as kept
from benchmarks.common.lines import study
from benchmarks.common.page import table
from benchmarks.common.pictures import Pictures, cut_at_random, reals
from benchmarks.qas.study import SIZE, VARIANTS, Cell, Recipe, accuracy_of, epochs, start
from whet import compress
from whet.labs.compress.distill import Features, Logits, with_teacher

HERE = Path(__file__).parent
TRAINED = "kmeans4 centroids"
FORMS = {
    None: "int8", **{f"kmeans{bits}": f"codebooks of {bits} bits" for bits in (4, 5, 6)},
    TRAINED: "codebooks of 4 bits, centroids trained",
}  # fmt: skip
REPEATED = (None, TRAINED)  # with other seeds
EPOCHS, RATE, BATCH = 10, 1e-3, 32  # of centroids
LOSSES = (Logits(temperature=4.0), Features("features"))
SEEDS = 3
SCHEME, VARIANT = "mcunet-5fps-99kb", "carry8"


def run(form: str | None, seed: int, data: str = "flowers102") -> dict[str, Any]:
    torch.set_num_threads(1)
    cell = Cell(data, "mcunet-5fps", SCHEME, VARIANT, seed, Recipe())
    model = start(cell)
    train, test = cell.recipe.split(data)
    if form == TRAINED:
        train_centroids(model, train, seed)
    program = whet.compile(
        model, (torch.zeros(cell.recipe.batch, 3, SIZE, SIZE),), update=SCHEME,
        frozen=form and form.partition(" ")[0],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), **VARIANTS[VARIANT].dtype(seed),
    )  # fmt: skip
    trainer, variant = program.load(threads=1), VARIANTS[VARIANT]
    before = accuracy_of(trainer, variant, cell.recipe.batch, test)
    losses = list(epochs(trainer, cell, train))
    after = accuracy_of(trainer, variant, cell.recipe.batch, test)
    return {
        "frozen": form, "seed": seed, "before": before, "accuracy": after, "losses": losses,
        "narrow": program.in_bytes, "wide": program.not_narrow,
    }  # fmt: skip


class Windows:
    """Batches of windows of pictures, others in every epoch."""

    def __init__(self, source: Pictures, seed: int) -> None:
        self.source, self.random = source, np.random.default_rng(seed)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = self.random.permutation(len(self.source))
        for i in range(0, len(order) - BATCH + 1, BATCH):
            rows = np.sort(order[i : i + BATCH])
            x = reals(cut_at_random(self.source.images[rows], self.random))
            yield torch.from_numpy(x), torch.from_numpy(self.source.labels[rows])


def train_centroids(model: nn.Module, train: Pictures, seed: int) -> None:
    """Share the values of every convolution; they learn from what the network gave before."""
    teacher = copy.deepcopy(model)
    compress.share(model, 4, layers="features*")
    batches = Windows(train, seed)
    compress.train_centroids(
        model, with_teacher(teacher, batches, losses=LOSSES, epochs=EPOCHS, lr=RATE, seed=seed)
    )


ABOUT = """Made by `python -m benchmarks.compress.flowers`. Percent of the 6,149 test pictures of
Flowers-102, mean of the seeds ± their deviation. Frozen weights of the pretrained int8 network,
under its published scheme of 99 KB, are stored as indices into a codebook of integers for each
layer; on the host, where these programs trained, all frozen weights are. *Before* is after the
classifier alone was taught, on the features of the int8 network; where centroids trained, it is
after that: for {epochs} epochs, in PyTorch, all codebooks, biases and the classifier learned
from the labels, and from the features and predictions of the int8 network. Then, in the compiled
program, the biases and channels of the scheme and the classifier train for 10 epochs, and make
up for what the codebooks changed."""
HEAD = (
    "frozen weights", "seeds", "before", "after training", "to int8, points", "bytes of indices",
    "in bytes",
)  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    of = {form: [r for r in results if r["frozen"] == form] for form in FORMS}
    plain = {r["seed"]: r["accuracy"] for r in of[None]}
    rows = []
    for form, own in of.items():
        if own:
            gap = statistics.mean(r["accuracy"] - plain[r["seed"]] for r in own)
            rows.append([FORMS[form], str(len(own)), spread([r["before"] for r in own]),
                         spread([r["accuracy"] for r in own]), f"{gap:+.2f}" if form else "",
                         f"{own[0]['narrow']:,}" if form else "",
                         f"{own[0]['wide']:,}"])  # fmt: skip
    about = textwrap.fill(" ".join(ABOUT.format(epochs=EPOCHS).split()), 100)
    return f"# Codebooks and accuracy\n\n{about}\n\n{table(HEAD, rows)}"


def spread(values: list[float]) -> str:
    text = f"{statistics.mean(values):.1f}"
    return text + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def main(given: Sequence[str] | None = None) -> None:
    cells = [
        (form, seed) for seed in range(SEEDS) for form in FORMS if not seed or form in REPEATED
    ]
    study(__doc__, HERE / "flowers.jsonl", ("frozen", "seed"), lambda: cells, run, page, given)


if __name__ == "__main__":
    main()
