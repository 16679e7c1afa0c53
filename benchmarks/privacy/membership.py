"""Who was trained on, and whose data is it: membership and property inference on whet programs.

    python -m benchmarks.privacy.membership                  all cells; writes membership.md
    python -m benchmarks.privacy.membership --workers 2      on two processes
    python -m benchmarks.privacy.membership --small          a first look: one seed, fewer samples
    python -m benchmarks.privacy.membership page             the page again, from what is stored

Needs Fashion-MNIST (the Debian package dataset-fashion-mnist) and the package seglearn. Results are
kept in membership.jsonl.gz, one line a cell; a run that was stopped continues there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import results
from whet.demo import watch
from whet.demo.pictures import fashion_mnist_folder, read_idx
from whet.demo.recordings import WINDOW, Recording, load
from whet.labs.common.workers import Workers
from whet.labs.privacy.costs import accuracy, train
from whet.labs.privacy.membership import flat
from whet.privacy import (
    PropertyAttack,
    Roc,
    account,
    alignment_scores,
    confidences,
    defence,
    lira,
    losses,
    norm_scores,
    sample_gradients,
)

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "membership.jsonl.gz", HERE / "membership.md"
SPARSE = whet.Scheme(
    [whet.Rule("*.bias"), whet.Rule("7.weight"), whet.Rule("5.weight", channels=0.25)],
    name="sparse",
)
UPDATES: dict[str, Any] = {"full": "full", "last": "last", "sparse": SPARSE}
DEFENCES = ("none", "dp:1:0.1", "dp:1:1")
LR, BATCH = 0.05, 10
CELL = ("study", "update", "defence", "seed", "size")  # what names a cell
NAMES = {"lira": "calibrated"}
LEVELS = {"tpr@1%": 0.01, "tpr@0.1%": 0.001}
Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    name: str
    seeds: int
    members: int = 500
    public: int = 4000  # samples that the network is pretrained on
    others: int = 10_000  # ten false positives at 0.1 %
    scored: int = 2000  # of these, those whose gradients are taken
    epochs: int = 40
    shadows: int = 4
    batches: int = 40  # of each person, to train on and to judge by


SIZES = {
    "full": Size("full", 3),
    "small": Size("small", 1, 200, 1000, 2000, 500, 25, 2, 12),
}


# Membership: Fashion-MNIST ----------------------------------------------------------------------


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10),
    ).eval()  # fmt: skip


@cache
def pictures(part: str) -> Pair:
    folder = fashion_mnist_folder()
    x = read_idx(folder / f"{part}-images-idx3-ubyte.gz").reshape(-1, 1, 28, 28)
    return (x / np.float32(255)).astype(np.float32), read_idx(
        folder / f"{part}-labels-idx1-ubyte.gz"
    ).astype(np.int64)


def split(size: Size, seed: int) -> Iterator[Pair]:
    """Members, public samples, others, and the members of each shadow: no sample is in two."""
    x, y = pictures("train")
    order = np.random.default_rng(seed).permutation(len(x))
    for count in (size.members, size.public, size.others, *[size.members] * size.shadows):
        rows, order = order[:count], order[count:]
        yield x[rows], y[rows]


def compiled(model: nn.Module, update: Any, batch: int = BATCH) -> whet.Program:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    x = torch.zeros(batch, 1, 28, 28)
    return whet.compile(model, (x,), optimizer=optimizer, update=update, accumulate=batch == 1)


def pretrained(public: Pair, seed: int) -> nn.Module:
    model = network(seed)
    trainer = compiled(model, "full").load(threads=1)
    train(trainer, public, 3 * len(public[0]) // BATCH, seed=seed)
    model.load_state_dict(trainer.state_dict(), strict=False)
    return model


def membership(update: str, guard: str, seed: int, size: Size) -> dict[str, Any]:
    members, public, others, *shadows = split(size, seed)
    model = pretrained(public, seed)
    program, choice = compiled(model, UPDATES[update]), defence(guard)
    steps = size.epochs * size.members // BATCH
    x, y = (np.concatenate(parts) for parts in zip(members, others, strict=True))
    outputs = []
    for data in (members, *shadows):
        trainer = program.load(threads=1)
        train(trainer, data, steps, None if guard == "none" else choice, seed)
        if data is members:
            target = trainer
        outputs.append(trainer.predict(x))
    known = size.members
    by_loss = -losses(outputs[0], y)
    by_lira = lira(confidences(outputs[0], y), [confidences(o, y) for o in outputs[1:]])
    alone = compiled(model, UPDATES[update], 1).load(threads=1)
    some = slice(0, known + size.scored)
    before = sample_gradients(alone, x[some], y[some])
    alone.load_state_dict(target.state_dict())
    after = norm_scores(sample_gradients(alone, x[some], y[some]))
    found = {
        "loss": Roc.of(by_loss[:known], by_loss[known:]),
        "lira": Roc.of(by_lira[:known], by_lira[known:]),
        "gradient": Roc.of(after[:known], after[known:]),
        "in the batch": in_the_batch(before[:known], choice, seed),
    }
    right = (outputs[0][:known].argmax(1) == y[:known]).mean()
    return {
        "train accuracy": float(right),
        "accuracy": accuracy(target, *pictures("t10k")),
        "rocs": {name: roc.as_dict() for name, roc in found.items()},
        "steps": steps,
        "coordinates": before.shape[1],
    }


def in_the_batch(rows: np.ndarray, choice: Any, seed: int, batches: int = 30) -> Roc:
    """Which samples is one update of? Those of a batch against the others it could have had."""
    rng = np.random.default_rng(seed)
    inside, outside = [], []
    for turn in range(batches):
        order = rng.permutation(len(rows))
        sent = choice.apply({"all": rows[order[:BATCH]].mean(0).astype(np.float32)}, turn)
        scores = alignment_scores(rows[order], sent.gradients["all"])
        inside.append(scores[:BATCH])
        outside.append(scores[BATCH:])
    return Roc.of(np.concatenate(inside), np.concatenate(outside))


# Properties: whose exercises an update is of ----------------------------------------------------


def windows_of(recordings: list[Recording], start: float, stop: float) -> dict[int, list[Any]]:
    """Windows of each exercise, from a stretch of every recording."""
    found: dict[int, list[Any]] = {}
    for r in recordings:
        first, last = int(start * len(r.signal)), int(stop * len(r.signal)) - WINDOW
        pieces = [r.signal[i : i + WINDOW] for i in range(first, last + 1, WINDOW // 2)]
        found.setdefault(r.exercise, []).extend(pieces)
    return found


def properties(update: str, seed: int, size: Size) -> dict[str, Any]:
    """Updates of batches of one person each, exercises drawn alike for all; whose is it?

    The network was pretrained on the first five people. The attacker has the first half of every
    recording, and is judged on the second.
    """
    recordings, _ = load()
    known = np.concatenate([r.signal for r in recordings if r.person <= 5])
    mean, deviation = known.mean(0), known.std(0)
    torch.manual_seed(seed)
    first = [r for r in recordings if r.person <= 5]
    cut = [(w, k) for k, ws in windows_of(first, 0, 0.5).items() for w in ws]
    x = torch.tensor(np.stack([(w - mean) / deviation for w, _ in cut]), dtype=torch.float32)
    model = watch.pretrained((x, torch.tensor([k for _, k in cut])), seed).folded()
    program = whet.compile(model, (x[:BATCH],), update=update, accumulate=True)
    rng = np.random.default_rng(seed)
    people = sorted({r.person for r in recordings})
    rows: list[list[Any]] = [[], []]
    owner: list[list[int]] = [[], []]
    trainer = program.load(threads=1)
    empty = trainer.save()
    for half, (start, stop) in enumerate(((0, 0.5), (0.5, 1))):
        for person in people:
            own = windows_of([r for r in recordings if r.person == person], start, stop)
            for _ in range(size.batches):
                labels = rng.choice(sorted(own), BATCH)
                batch = np.stack([own[k][rng.integers(len(own[k]))] for k in labels])
                trainer.gradients(((batch - mean) / deviation).astype(np.float32), labels)
                rows[half].append(flat(trainer.collected()))
                owner[half].append(person)
                trainer.load(empty)
    found = {}
    for person in people:
        attack = PropertyAttack.fit(np.stack(rows[0]), np.array(owner[0]) == person, seed=seed)
        found[str(person)] = attack.judge(np.stack(rows[1]), np.array(owner[1]) == person).as_dict()
    return {"rocs": found, "coordinates": len(rows[0][0])}


# Cells and the page -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    size: Size

    def cells(self) -> list[dict[str, Any]]:
        found = [
            {"study": "membership", "update": u, "defence": d, "seed": s, "size": self.size.name}
            for s in range(self.size.seeds)
            for u in UPDATES
            for d in DEFENCES
        ]
        return found + [
            {"study": "property", "update": u, "seed": s, "size": self.size.name}
            for s in range(self.size.seeds)
            for u in ("full", "bias+last", "last")
        ]

    def run(self, cell: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(1)
        if cell["study"] == "property":
            return cell | properties(cell["update"], cell["seed"], self.size)
        return cell | membership(cell["update"], cell["defence"], cell["seed"], self.size)


def percent(values: list[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def rate(rows: list[dict[str, Any]], score: str, key: str) -> str:
    def mean(name: str) -> float:
        return statistics.mean(row["rocs"][score][name] for row in rows)

    if key == "auc":
        return f"{mean(key):.3f}"
    allowed = min(row["rocs"][score]["others"] for row in rows) * LEVELS[key]
    return (
        f"{100 * mean(key):.1f} [{100 * mean(f'{key} low'):.1f}, {100 * mean(f'{key} high'):.1f}]"
        + (" (none)" if allowed < 1 else "")
    )


ABOUT = """# Who was trained on, and whose data is it

Made by `python -m benchmarks.privacy.membership{flag}`.

## Membership

A CNN of 26,698 parameters, pretrained on {public:,} pictures of Fashion-MNIST, is trained further
on {members} others by a whet program: {epochs} epochs in batches of {batch}. Can one tell those
{members} from {others:,} that were not used? `sparse` trains the biases, the last layer and a
quarter of the inputs of the layer before. With noise, the update of every step is clipped to a norm
of 1 and has Gaussian noise of so many clipping norms added. TPR in percent, with the mean of the
95 % intervals of the runs; {seeds}. (none): there are too few non-members for one false positive,
so the threshold allows none at all.

- *loss*: a low loss says member (Yeom et al., 2018).
- *calibrated*: relative to {shadows} shadow models that never saw the sample (LiRA, offline;
  Carlini et al., 2022).
- *gradient*: a small gradient says member ({scored:,} non-members).
- *in the batch*: one update is of {batch} of the {members} samples. Which? By the cosine with the
  gradient of each, before training further; the other {members} less {batch} are the non-members.
  Thirty such updates, of the same samples: the intervals take scores as independent and are
  too narrow.
"""


def kept_size(asked: Size) -> Size:
    """The size that was asked for, or the one that there are results of."""
    kept = {row["size"] for row in results.read(KEPT)}
    return asked if asked.name in kept or not kept else SIZES[min(kept)]


def page(size: Size) -> str:
    kept = [row for row in results.read(KEPT) if row["size"] == size.name]
    seeds = "one seed" if size.seeds == 1 else f"means of {size.seeds} seeds"
    words = vars(size) | {"seeds": seeds, "batch": BATCH}
    lines = [ABOUT.format(flag="" if size.name == "full" else " --small", **words)]
    head = ["update", "noise", "numbers sent", "training accuracy, %", "test accuracy, %", "attack",
            "AUC", "TPR at 1 % FPR", "TPR at 0.1 % FPR"]  # fmt: skip
    lines += ["| " + " | ".join(head) + " |", "|---|---|--:|--:|--:|---|--:|--:|--:|"]
    for update in UPDATES:
        for guard in DEFENCES:
            rows = [r for r in kept if (r["update"], r.get("defence")) == (update, guard)]
            if not rows:
                continue
            noise = guard.rpartition(":")[2]
            for score in rows[0]["rocs"]:
                lines.append(
                    f"| {update} | {noise} | {rows[0]['coordinates']:,} "
                    f"| {percent([r['train accuracy'] for r in rows])} "
                    f"| {percent([r['accuracy'] for r in rows])} | {NAMES.get(score, score)} "
                    f"| {rate(rows, score, 'auc')} | {rate(rows, score, 'tpr@1%')} "
                    f"| {rate(rows, score, 'tpr@0.1%')} |"
                )
    return "\n".join([*lines, *guarantees(kept), *of_people(kept, size), ""])


def guarantees(kept: list[dict[str, Any]]) -> list[str]:
    """What the noise above guarantees: nothing worth the name."""
    steps = next((r["steps"] for r in kept if r["study"] == "membership"), None)
    if steps is None:
        return []
    lines = ["", "What this noise guarantees to one client whose every update is seen:", ""]
    for guard in DEFENCES[1:]:
        noise = float(guard.split(":")[2])
        lines.append(f"- {account(noise=noise, rounds=steps, sampling='local')}")
    return lines


def of_people(kept: list[dict[str, Any]], size: Size) -> list[str]:
    lines = [
        "",
        "## Properties",
        "",
        "Ten people did the same exercises with a watch. An update is the gradient of a batch of "
        f"{BATCH} windows\nof one person, exercises drawn alike for everyone. The attacker learned "
        "from updates of the first\nhalf of every recording and is judged on those of the second: "
        f"is this update of a certain person?\n{size.batches} updates a person and half; AUC over "
        "the ten people.",
        "",
        "| update | numbers sent | mean AUC | least | most |",
        "|---|--:|--:|--:|--:|",
    ]
    for update in ("full", "bias+last", "last"):
        rows = [r for r in kept if r["study"] == "property" and r["update"] == update]
        values = [roc["auc"] for r in rows for roc in r["rocs"].values()]
        if values:
            lines.append(
                f"| {update} | {rows[0]['coordinates']:,} | {statistics.mean(values):.3f} "
                f"| {min(values):.3f} | {max(values):.3f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["run", "page"], default="run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    study = Study(SIZES["small" if args.small else "full"])
    if args.what == "run":
        kept = [{k: v for k, v in row.items() if k in CELL} for row in results.read(KEPT)]
        cells = [cell for cell in study.cells() if cell not in kept]
        for done, (cell, row) in enumerate(Workers(args.workers).results(study, cells), 1):
            results.append(KEPT, row)
            names = " ".join(str(v) for v in cell.values())
            aucs = " ".join(f"{k} {r['auc']:.3f}" for k, r in row["rocs"].items())
            print(f"{done}/{len(cells)}  {names}: {aucs}", flush=True)
    PAGE.write_text(page(kept_size(study.size)))


if __name__ == "__main__":
    main()
