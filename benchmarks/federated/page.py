"""The page of the federated study, from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.page import table
from benchmarks.federated import fashion, watch
from benchmarks.federated.fashion import Cell
from whet.federated import History, Round, rounds_svg

Records = Sequence[Mapping[str, Any]]

FASHION = """# Federated training of compiled programs

Made by `python -m benchmarks.federated` from results.jsonl.gz.

## Fashion-MNIST, ten clients

Percent of the 10,000 test pictures after {rounds} rounds, mean of {seeds} seeds ± their deviation. A
network of two convolutions and a classifier (11,274 parameters, fp32, all of them train), {pictures:,}
training pictures divided among {clients} clients, {epochs} epochs of a client in a round, SGD at {rate},
batches of {batch}. "In one place" trains on all pictures for as many epochs. The splits are Dirichlet
by class; the values of mu were not tuned. All clients train in every round.

"""
FLOWER = """The row with Flower's simulation is the first seed on {engine} and Ray. Tests hold both
engines to the same bits where clients answer in the same order; with ten clients in any order, sums
are rounded differently.

"""
WATCH = """## The watch, ten people

Percent of held-out windows of people whom the factory never saw, in int8 with a carry of 8 bits.
The factory model is pretrained on two people; then all ten train it, each on the first halves of
their recordings, and are judged by the second halves of their own. There are five pairs of factory
people, so that each line is the mean of up to four trainings. "Alone" is {epochs} epochs on one's own
windows, "together" {rounds} rounds of one epoch each (FedAvg), "then alone" {personal} epochs more,
"in one place" {epochs} epochs on the windows of all ten. Steps of one window at {rate}, falling to 0.

"""


def write_page(folder: Path, records: Records) -> None:
    (folder / "README.md").write_text(page(records))
    if of(records, "fashion"):
        (folder / "rounds.svg").write_text(curves(records))


def of(records: Records, study: str) -> list[Mapping[str, Any]]:
    return [r for r in records if r["study"] == study]


def page(records: Records) -> str:
    parts = []
    if of(records, "fashion"):
        parts.append(fashion_part(of(records, "fashion")))
    if of(records, "watch"):
        parts.append(watch_part(of(records, "watch")))
    return "\n".join(parts)


def grouped(records: Records) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Records of all seeds, by split and way of training."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    ordered = sorted(records, key=lambda r: (r["engine"] != "loop", r["strategy"], r["mu"]))
    for split in ("central", *fashion.SPLITS):
        for r in ordered:
            if r["split"] == split:
                words = {k: r[k] for k in ("split", "strategy", "mu", "seed", "engine")}
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
        bytes = statistics.mean(r["sent"] + r["received"] for r in found)
        traffic = "-" if split == "central" else f"{bytes / 1e6:.1f} MB"
        rows.append([f"{'' if split == 'central' else split + ', '}{name}", *shares, traffic])
    first = records[0]
    text = FASHION.format(
        rounds=first["rounds"], seeds=1 + max(r["seed"] for r in records),
        pictures=first["pictures"], clients=fashion.CLIENTS, epochs=fashion.EPOCHS,
        rate=fashion.RATE, batch=fashion.BATCH,
    )  # fmt: skip
    head = ["", "round 5", f"round {first['rounds'] // 2}", "at the end", "sent and received"]
    if any(r["engine"] == "flower" for r in records):
        text += FLOWER.format(engine="Flower")
    return f"{text}{table(head, rows)}\n![Accuracy over rounds](rounds.svg)\n"


def curves(records: Records) -> str:
    """The first seed's rounds for the non-IID splits, and IID."""
    shown = {}
    for (split, name), found in grouped(of(records, "fashion")).items():
        if split != "central" and found[0]["engine"] == "loop":
            shown[f"{split}, {name}"] = mean_history(found)
    return rounds_svg(shown, "Fashion-MNIST, ten clients, means of the seeds")


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
    rows.append(["**all**, ± between pairs", *map(percent, pairs)])
    text = WATCH.format(
        epochs=watch.EPOCHS, rounds=records[0]["rounds"], personal=watch.PERSONAL, rate=watch.RATE
    )
    return text + table(["person", *watch.WAYS], rows)


def values(records: Records, way: str, person: int) -> list[float]:
    """JSON has turned the numbers of people into words."""
    found = ({int(p): v for p, v in r["accuracy"][way].items()} for r in records)
    return [row[person] for row in found if person in row]
