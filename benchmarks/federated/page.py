"""The page of the federated study, from its records alone."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.page import table
from benchmarks.federated import fashion, watch
from benchmarks.federated.fashion import Cell
from whet.federated import History, Round, rounds_svg

Records = Sequence[Mapping[str, Any]]

TITLE = """# Federated training of compiled programs

Made by `python -m benchmarks.federated` from results.jsonl.gz.
"""
FASHION = """Percent of the 10,000 test pictures, mean of {seeds} ± their deviation. A network of
two convolutions and a classifier (11,274 parameters, fp32, all of them train), {pictures:,}
training pictures divided among {clients} clients, {epochs} epochs of a client in a round, SGD at
{rate}, batches of {batch}, {rounds} rounds. "In one place" trains on all pictures for as many
epochs, at several rates; "best" is the best round, which no client could know. The splits are
Dirichlet by class. All clients train in every round. The rate of the clients was chosen of 0.05,
0.1 and 0.2, and this network instead of LeNet-5, after short runs judged by test pictures; the
values of mu were not tuned."""
FLOWER = """The row of Flower's simulation is the first seed. Tests hold both engines to the same
bits where clients answer in the same order; ten clients answer in any order, so that sums are
rounded differently."""
WATCH = """Percent of held-out windows of people whom the factory never saw, in int8 with a carry of
8 bits. The factory model is pretrained on two people; then all ten train it, each on the first
halves of their recordings, and are judged by the second halves of their own. There are five pairs
of factory people: each line is the mean of {lines} trainings. "Alone" is {epochs} epochs on one's
own windows, "together" {rounds} rounds of one epoch each (FedAvg), "then alone" {personal} epochs
more, "in one place" {epochs} epochs on the windows of all ten. Steps of one window at a rate of
{rate} that falls to 0. Both halves are of one session. ± is the deviation between pairs. The number
of rounds was raised from 10 to 40 after a look at the first pair; rates of 0.006 and 0.02, and one
and three epochs in a round, made little difference there."""


def wrapped(text: str, **words: Any) -> str:
    return textwrap.fill(" ".join(text.format(**words).split()), 100) + "\n"


def write_page(folder: Path, records: Records) -> None:
    (folder / "README.md").write_text(page(records))
    if of(records, "fashion"):
        (folder / "rounds.svg").write_text(curves(records))


def of(records: Records, study: str) -> list[Mapping[str, Any]]:
    return [r for r in records if r["study"] == study]


def page(records: Records) -> str:
    parts = [TITLE]
    if of(records, "fashion"):
        parts.append(fashion_part(of(records, "fashion")))
    if of(records, "watch"):
        parts.append(watch_part(of(records, "watch")))
    return "\n".join(parts)


def grouped(records: Records) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Records of all seeds, by split and way of training."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    ordered = sorted(
        records, key=lambda r: (r["engine"] != "loop", r["strategy"], r["mu"], r["rate"])
    )
    for split in ("central", *fashion.SPLITS):
        for r in ordered:
            if r["split"] == split:
                words = {k: r[k] for k in ("split", "strategy", "mu", "seed", "engine", "rate")}
                found.setdefault((split, Cell(**words).name), []).append(r)
    return found


def percent(numbers: Sequence[float]) -> str:
    mean = f"{100 * statistics.mean(numbers):.1f}"
    return mean + (f" ± {100 * statistics.stdev(numbers):.1f}" if len(numbers) > 1 else "")


def fashion_part(records: Records) -> str:
    rows = []
    for (split, name), found in grouped(records).items():
        middle = found[0]["rounds"] // 2
        shares = [percent([r["accuracy"][k] for r in found]) for k in (5, middle, -1)]
        shares.append(percent([max(r["accuracy"]) for r in found]))
        bytes = statistics.mean(r["sent"] + r["received"] for r in found)
        traffic = "-" if split == "central" else f"{bytes / 1e6:.1f} MB"
        rows.append([f"{'' if split == 'central' else split + ', '}{name}", *shares, traffic])
    first, count = records[0], 1 + max(r["seed"] for r in records)
    text = wrapped(
        FASHION, rounds=first["rounds"], seeds=f"{count} seed{'s' if count > 1 else ''}",
        pictures=first["pictures"], clients=fashion.CLIENTS, epochs=fashion.EPOCHS,
        rate=fashion.RATE, batch=fashion.BATCH,
    )  # fmt: skip
    if any(r["engine"] == "flower" for r in records):
        text += "\n" + wrapped(FLOWER)
    head = [
        "",
        "round 5",
        f"round {first['rounds'] // 2}",
        "at the end",
        "best",
        "sent and received",
    ]
    picture = "![Accuracy over rounds](rounds.svg)\n"
    return "\n".join(["## Fashion-MNIST, ten clients\n", text, table(head, rows), picture])


def curves(records: Records) -> str:
    """Means of the seeds."""
    shown = {}
    for (split, name), found in grouped(of(records, "fashion")).items():
        if split != "central" and found[0]["engine"] == "loop":
            shown[f"{split}, {name}"] = mean_history(found)
    return rounds_svg(shown, "Fashion-MNIST, ten clients")


def mean_history(found: Records) -> History:
    last = len(found[0]["accuracy"]) - 1
    rounds = []
    for i in range(last + 1):
        means = {k: statistics.mean(r[k] for r in found) * i / last for k in ("sent", "received")}
        shares = {k: statistics.mean(r[k][i] for r in found) for k in ("accuracy", "loss")}
        sizes = {k: int(v) for k, v in means.items()}
        rounds.append(Round(i, shares["accuracy"], shares["loss"], float("nan"), **sizes))
    return History({}, tuple(rounds))


def watch_part(records: Records) -> str:
    people = sorted({int(p) for r in records for p in r["accuracy"]["factory"]})
    rows = [
        [str(p), *(percent(values(records, way, p)).partition(" ")[0] for way in watch.WAYS)]
        for p in people
    ]
    pairs = [
        [statistics.mean(map(float, r["accuracy"][way].values())) for r in records]
        for way in watch.WAYS
    ]
    rows.append(["**all**", *map(percent, pairs)])
    counts = sorted({len(values(records, "factory", p)) for p in people})
    text = wrapped(
        WATCH, lines=" or ".join(map(str, counts)), epochs=watch.EPOCHS, personal=watch.PERSONAL,
        rounds=records[0]["rounds"], rate=watch.RATE,
    )  # fmt: skip
    return "\n".join(["## The watch, ten people\n", text, table(["person", *watch.WAYS], rows)])


def values(records: Records, way: str, person: int) -> list[float]:
    """JSON has turned the numbers of people into words."""
    found = ({int(p): v for p, v in r["accuracy"][way].items()} for r in records)
    return [row[person] for row in found if person in row]
