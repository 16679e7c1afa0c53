"""Sentences that MiniLM learns to judge: SST-2 and CoLA, in programs of whet.

A cell is one training. Sentences to train on have at most LENGTH tokens, in batches of BATCH drawn
by the seed, which also initialises the head; the rate rises for a tenth of the steps, and falls to
zero. The program's weights go into PyTorch now and then, where whole sentences are judged.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import whet
from benchmarks.common.pictures import data_path
from benchmarks.llm.packages import minilm
from whet.llm import pad

LENGTH, BATCH = 32, 16
RATE_STEPS = {"sst2": 200, "cola": 800}  # of a training that only chooses a rate
STEPS = {"sst2": 300, "cola": 1600}  # after 200, every scheme gives one answer to all of CoLA
EVERY = {"sst2": 150, "cola": 400}  # steps, test data judges
HELD = 1000  # training sentences by which rates are chosen
SCHEMES = ("last", "bias+last", "sparse-3", "lora+last", "full")
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
FIRST = {
    "sst2": {"last": 1e-2, "bias+last": 3e-3, "sparse-3": 3e-4, "lora+last": 3e-3, "full": 1e-4},
    "cola": {"last": 1e-2, "bias+last": 3e-3, "sparse-3": 1e-4, "lora+last": 1e-3, "full": 3e-5},
}

Sentence = tuple[str, int]


@dataclass(frozen=True)
class Task:
    """Ids and labels of sentences: to train on, held out of these, and to report."""

    train: list[tuple[list[int], int]]
    held: list[tuple[list[int], int]]
    test: list[tuple[list[int], int]]


@functools.cache
def task(name: str) -> Task:
    import tokenizers

    train, held, test = {"sst2": sst2, "cola": cola}[name]()
    library = tokenizers.Tokenizer.from_file(str(minilm() / "tokenizer.json"))
    library.no_padding()
    library.no_truncation()

    def ids(sentences: Sequence[Sentence]) -> list[tuple[list[int], int]]:
        return [(library.encode(text).ids, label) for text, label in sentences]

    order = np.random.default_rng(0).permutation(len(train))[:20_000]  # more are never seen
    short = [(row, y) for row, y in ids([train[i] for i in order]) if len(row) <= LENGTH]
    return Task(short, ids(held), ids(test))


def sst2() -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """What is kept as dev is part of GLUE's training data; as test, GLUE's validation data."""

    def part(name: str) -> list[Sentence]:
        text = gzip.decompress(data_path("text", f"sst2_{name}.tsv.gz").read_bytes()).decode()
        rows = (line.rsplit("\t", 1) for line in text.splitlines()[1:])
        return [(sentence, int(label)) for sentence, label in rows]

    return part("train"), part("dev")[:HELD], part("test")


def cola() -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Both of its dev files are GLUE's validation data."""
    with zipfile.ZipFile(data_path("text", "cola_public.zip")) as archive:

        def part(name: str) -> list[Sentence]:
            text = archive.read(f"cola_public/raw/{name}.tsv").decode()
            rows = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
            return [(row[3], int(row[1])) for row in rows]

        train = part("in_domain_train")
        test = part("in_domain_dev") + part("out_of_domain_dev")
    order = np.random.default_rng(1).permutation(len(train))
    return [train[i] for i in order[HELD:]], [train[i] for i in order[:HELD]], test


def batches(train: Sequence[tuple[list[int], int]], seed: int, steps: int) -> Any:
    rng = np.random.default_rng(seed)
    order = np.concatenate(
        [rng.permutation(len(train)) for _ in range(1 + steps * BATCH // len(train))]
    )
    for i in range(steps):
        rows = [train[k] for k in order[i * BATCH : (i + 1) * BATCH]]
        padded = pad([ids for ids, _ in rows], LENGTH)
        yield padded.ids, padded.mask, torch.tensor([label for _, label in rows])


def schedule(step: int, steps: int) -> float:
    """What the rate is multiplied by."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else (steps - step) / (steps - warm)


@torch.no_grad()
def judged(model: torch.nn.Module, rows: Sequence[tuple[list[int], int]]) -> dict[str, float]:
    """Of whole sentences, sorted by length: percent right, loss, and Matthews' correlation."""
    ordered = sorted(rows, key=lambda row: len(row[0]))
    scores, labels = [], []
    for i in range(0, len(ordered), 32):
        part = ordered[i : i + 32]
        ids, mask, _ = pad([row for row, _ in part], len(part[-1][0]))
        scores.append(model(ids, mask))
        labels += [label for _, label in part]
    found, wanted = torch.cat(scores), torch.tensor(labels)
    said = found.argmax(1)
    grid = np.zeros((2, 2))
    for a, b in zip(wanted.tolist(), said.tolist(), strict=True):
        grid[a, b] += 1
    below = np.sqrt(np.prod([*grid.sum(0), *grid.sum(1)]))
    matthews = (grid[0, 0] * grid[1, 1] - grid[0, 1] * grid[1, 0]) / below if below else 0.0
    return {
        "accuracy": 100 * float((said == wanted).float().mean()),
        "loss": float(torch.nn.functional.cross_entropy(found, wanted)),
        "matthews": 100 * float(matthews),
    }


def train(
    name: str, scheme: str, rate: float, seed: int, steps: int, rows: str, every: int
) -> dict[str, Any]:
    """One training; `rows` is the part of the task that judges, after each `every` steps."""
    from benchmarks.llm.hugging import minilm_classifier

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    own, model = task(name), minilm_classifier()
    adam = torch.optim.AdamW(model.parameters(), lr=rate)
    example = next(batches(own.train, seed, 1))
    program = whet.compile(model, example[:2], labels=example[2], optimizer=adam, update=scheme)
    trainer = program.load(threads=1)
    curve, losses, cpu = [], [], 0.0
    for i, (ids, mask, labels) in enumerate(batches(own.train, seed, steps)):
        start = time.process_time()
        losses.append(trainer.step((ids, mask), labels, lr=rate * schedule(i, steps)))
        cpu += time.process_time() - start
        if (i + 1) % every == 0:
            model.load_state_dict(trainer.state_dict(merge=True), strict=False)
            curve.append({"step": i + 1, **judged(model, getattr(own, rows))})
    trainer.close()
    return {
        "curve": curve, "losses": [float(np.mean(part)) for part in np.array_split(losses, 6)],
        "cpu": cpu, "ram": program.memory["ram"], "trained": program.memory["trained"],
    }  # fmt: skip
