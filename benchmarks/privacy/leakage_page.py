"""The page of the leakage study: its tables and pictures, from the results that are kept."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.common.page import processor, table
from benchmarks.privacy import subjects
from benchmarks.privacy.leakage_cells import DEFENCES, EXACT, UPDATES
from whet.labs.privacy import strip
from whet.labs.privacy.score import RECOVERED

Record = dict[str, Any]
Array = np.ndarray[Any, Any]
COMMAND = "python -m benchmarks.privacy.leakage"
PAPER = {  # accuracy, and whether it defends, of the DLG paper's table; recalled, not re-read
    "none": "76.3, no",
    "Gaussian, variance 0.0001": "75.6, no", "Gaussian, variance 0.001": "73.3, no",
    "Gaussian, variance 0.01": "45.3, yes", "Gaussian, variance 0.1": "<= 1, yes",
    "Laplacian, variance 0.0001": "75.6, no", "Laplacian, variance 0.001": "73.4, no",
    "Laplacian, variance 0.01": "46.2, yes", "Laplacian, variance 0.1": "<= 1, yes",
    "fp16": "76.1, no", "int8 gradients": "53.7, yes",
    **{f"pruning {p} %": "yes" for p in (50, 70, 90, 99)}, "pruning 20 %": "yes, the threshold",
}  # fmt: skip


class Kept:
    """Results by what their cells are."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    def of(self, part: str, **wanted: Any) -> list[Record]:
        def fits(cell: Record) -> bool:
            return cell["part"] == part and all(cell[k] == v for k, v in wanted.items())

        found = [r for r in self.records if fits(r["cell"])]
        return sorted(found, key=lambda r: r["cell"]["index"])

    def words(self, part: str, name: str) -> list[str]:
        return list(dict.fromkeys(r["cell"][name] for r in self.of(part)))


def write_page(out: Path, records: list[Record]) -> None:
    kept = Kept(records)
    out.mkdir(parents=True, exist_ok=True)
    drawn = Kept([r for r in records if "images" in r])
    for subject in ("photo", "grey"):
        if (picture := sparse_picture(drawn, subject)) is not None:
            (out / f"sparse-{subject}.png").write_bytes(picture)
    if (picture := clothes_picture(drawn)) is not None:
        (out / "sparse-clothes.png").write_bytes(picture)
    if (picture := batch_picture(drawn)) is not None:
        (out / "batch.png").write_bytes(picture)
    (out / "leakage.md").write_text(page(kept))


def page(kept: Kept) -> str:
    seconds = sum(r["cpu"] for r in kept.records)
    return "\n".join([
        "# What updates leak\n",
        f"Written by `{COMMAND}`: {len(kept.records)} cells, {seconds / 3600:.1f} hours of one "
        f"core of {processor()}.\n",
        INTRODUCTION,
        "## One picture\n", single_table(kept),
        "## A batch of 8\n", BATCH, batch_table(kept),
        "## Sentences\n", TEXT, text_table(kept),
        "## Defences\n", DEFENCE, defence_table(kept),
        "### Which knowledge breaks pruning\n", knowledge_table(kept), KNOWLEDGE,
        "## What does a sparse update leak?\n", SPARSE, sparse_table(kept),
        PICTURES,
        "## A network with ReLU and batch norm\n", TRAINED, trained_table(kept), CLOTHES,
    ])  # fmt: skip


PICTURES = """\
The command also writes `batch.png`, `sparse-photo.png` and `sparse-grey.png`: originals beside
reconstructions. They are not kept here, because the photographs are for research only; the pictures
of clothes below are.
"""

INTRODUCTION = f"""\
Gradients come from compiled programs. The network is that of the DLG paper (three convolutions of
12 channels with sigmoids, one linear layer, weights uniform from -0.5 to 0.5), untrained; pictures
are photographs of 32 x 32 pixels. *Published* is DLG as in its paper: normal noise as a start,
labels optimised, steps of fixed length. *Adaptive* starts near grey, optimises cosine coefficients,
has the label from the last layer, searches along lines, ignores what a defence removed and stops at
the noise it adds. *Cosine* is the attack of Geiping et al. with total variation. An attacker has
several starts and picks one by how well gradients match, never by the original. A start has
diverged if its matching loss ended above where it began or was not finite; where all starts
diverged, that says something about the optimiser and nothing about the defence. Recovered means a
PSNR of at least {RECOVERED:g} dB, exact an MSE below {EXACT:g}; pixels are from 0 to 1.
"""
BATCH = """\
A reconstruction is compared with the original that is assigned to it. In colour, the network with
12 channels cannot give away a batch of 8: its last layer tells 768 features of each picture and its
convolutions 8,136 numbers more, in total less than the 24,576 unknowns. The wide one has 32
channels.
"""
TEXT = """\
One step of masked language modelling of an encoder with 2 layers, width 64 and 1,000 words, random
weights, on CoLA sentences of 5 to 9 words, one of them hidden. *rows*: the embedding's gradient;
*span*: the first attention layer's; *match*: dummy embeddings, as DLG and TAG do it.
"""
DEFENCE = """\
Pictures recovered / not / all starts diverged, then the median PSNR of the pick. Noise is absolute,
as in the paper; sigma / RMS says what that is beside the gradients it is added to. Linear bound:
what an attacker would get who starts at the original, with independent pixels as a prior; attackers
with a better prior can be above it. Label: pictures whose label the last layer tells. Accuracy: the
same network for Fashion-MNIST, 3 epochs on 8,000 pictures, every update that of one picture under
the defence, 16 of them averaged; DGC without its accumulation. Cosine needs labels: it was not run
where the update shows none. The last column is recalled from the DLG paper (CIFAR-100; "yes" means
it defends there).
"""
SPARSE = """\
Coordinates are the numbers in the update, directions those of the picture that they determine to
better than half the variance of a pixel, at the original. int8 programs are attacked through the
float model that has their numbers.
"""
TRAINED = """\
Fashion-MNIST, two convolutions with ReLU and batch norm, one linear layer; trained for one epoch on
4,000 pictures, or not at all. The pictures attacked are new to it.
"""
KNOWLEDGE = """\
Neither the label nor the mask is enough: the published search does not get further with them. The
adaptive one has both, and a start, variables and steps that converge.
"""
CLOTHES = """\
![Clothes, and what comes back from sparse updates](sparse-clothes.png)

From left to right: the picture, and what the cosine attack has of these updates of the trained
network: full; last; bias+last; channels 25 %; int8; int8 with integer gradients; int8, channels
25 %. Networks trained on other processors round differently, and single pictures then come out a
few dB better or worse.
"""


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def outcome(records: list[Record]) -> str:
    """Recovered / not / all starts diverged."""
    lost = [r for r in records if r["diverged"] == len(r["losses"])]
    won = [r for r in records if r not in lost and mean(r["psnr"]) >= RECOVERED]
    return f"{len(won)} / {len(records) - len(won) - len(lost)} / {len(lost)}"


def psnr(records: list[Record]) -> str:
    return number(median(mean(r["psnr"]) for r in records)) if records else "-"


def starts(records: list[Record]) -> str:
    """Starts that diverged, of all."""
    return f"{sum(r['diverged'] for r in records)} of {sum(len(r['losses']) for r in records)}"


def told(records: list[Record]) -> str:
    right = sum(r["told"] == r["labels"] for r in records)
    return f"{right} of {len(records)}"


def single_table(kept: Kept) -> str:
    rows = []
    for name in kept.words("single", "attacker"):
        found = kept.of("single", attacker=name)
        exact = [r for r in found if r["mse"][0] < EXACT]
        when = [r["first_exact"] for r in exact if r["first_exact"] is not None]
        rows.append([name, f"{len(exact)} of {len(found)}", psnr(found),
                     number(median(r["baseline"][0] for r in found)),
                     number(median(r["ssim"][0] for r in found), 2), starts(found),
                     number(median(when), 0) if when else "-",
                     number(mean(r["seconds"] for r in found))])  # fmt: skip
    head = ["attacker", "exact", "PSNR, dB", "of the mean colour", "SSIM", "starts diverged",
            "iterations until exact", "CPU s, all starts"]  # fmt: skip
    return table(head, rows)


def by_attacker(kept: Kept, study: str, word: str) -> Iterator[tuple[str, str, list[Record]]]:
    """Results of one value of a word and one attacker, as far as there are any."""
    for value in kept.words(study, word):
        for name in kept.words(study, "attacker"):
            if found := kept.of(study, **{word: value}, attacker=name):
                yield value, name, found


def batch_table(kept: Kept) -> str:
    rows = []
    for subject, name, found in by_attacker(kept, "batch", "subject"):
        each = [value for r in found for value in r["psnr"]]
        rows.append([f"{subject}; {name.removesuffix(', batch')}",
                     f"{sum(v >= RECOVERED for v in each)} of {len(each)}",
                     number(mean(each)), number(max(each)), starts(found), told(found),
                     f"{found[0]['unknowns']:,}", f"{found[0]['coordinates']:,}",
                     number(mean(r["evaluations"] for r in found), 0),
                     number(mean(r["seconds"] for r in found), 0)])  # fmt: skip
    head = ["subject; attacker", "recovered", "mean PSNR, dB", "best", "starts diverged",
            "batches with all labels told", "unknowns", "coordinates", "evaluations",
            "CPU s, all starts"]  # fmt: skip
    return table(head, rows)


def text_table(kept: Kept) -> str:
    rows = []
    for update, name, found in by_attacker(kept, "text", "update"):
        rows.append([f"{update}; {name}", str(len(found)),
                     number(100 * mean(r["bag"] for r in found), 0),
                     number(100 * mean(r["placed"] for r in found), 0),
                     number(mean(r["evaluations"] for r in found), 0),
                     number(mean(r["seconds"] for r in found))])  # fmt: skip
    head = ["what trains; attacker", "sentences", "words, %", "in place, %", "evaluations", "CPU s"]
    shown = [r for r in kept.of("text", attacker="match") if r["placed"] < 1][:3]
    lines = [f"- *{' '.join(r['words'])}* became *{' '.join(r['found'])}*" for r in shown]
    return "\n".join([table(head, rows), *lines, ""])


def defence_table(kept: Kept) -> str:
    rows = []
    for name in DEFENCES:
        found = {a: kept.of("defence", defence=name, attacker=a)
                 for a in ("published", "adaptive", "cosine")}  # fmt: skip
        every = [r for records in found.values() for r in records]
        accuracy = kept.of("accuracy", defence=name)
        bound = kept.of("bound", subject="photo", update="full", defence=name)
        if not every and not accuracy and not bound:
            continue
        relative = mean(r["relative"] for r in every) if every else 0
        rows.append([name, f"{relative:.2g}" if relative else "-",
                     *(f"{outcome(rs)}; {psnr(rs)}" if rs else "-" for rs in found.values()),
                     starts(found["published"]) if found["published"] else "-",
                     number(bound[0]["psnr"] if bound else None),
                     told(found["adaptive"]) if found["adaptive"] else "-",
                     number(accuracy[0]["accuracy"] if accuracy else None),
                     PAPER.get(name, "-")])  # fmt: skip
    head = ["defence", "sigma / RMS", "published", "adaptive", "cosine",
            "starts of the published that diverged", "linear bound, dB", "label", "accuracy, %",
            "DLG paper"]  # fmt: skip
    return table(head, rows)


def knowledge_table(kept: Kept) -> str:
    names = ("published", "published, label", "published, mask", "adaptive")
    rows = []
    for defence in ("none", "pruning 20 %", "pruning 50 %", "pruning 70 %"):
        found = [kept.of("defence", defence=defence, attacker=a) for a in names]
        if any(found):
            rows.append([defence, *(f"{outcome(rs)}; {psnr(rs)}" if rs else "-" for rs in found)])
    return table(["defence", *names], rows)


def sparse_table(kept: Kept) -> str:
    rows = []
    for subject in ("photo", "grey"):
        for update in UPDATES:
            found = {a: kept.of("sparse", subject=subject, update=update, attacker=a)
                     for a in ("adaptive", "cosine")}  # fmt: skip
            bound = kept.of("bound", subject=subject, update=update, defence="none")
            every = [r for records in found.values() for r in records]
            if not every:
                continue
            best = found["adaptive"] or every
            known = f"{bound[0]['directions']:,} of {bound[0]['unknowns']:,}" if bound else "-"
            rows.append([f"{subject}; {update}", f"{every[0]['coordinates']:,}", known,
                         *(f"{outcome(rs)}; {psnr(rs)}" if rs else "-" for rs in found.values()),
                         number(median(r["ssim"][0] for r in best), 2),
                         number(median(r["baseline"][0] for r in best)),
                         number(bound[0]["psnr"] if bound else None), told(best)])  # fmt: skip
    head = ["picture; what trains", "coordinates", "directions", "adaptive", "cosine", "SSIM",
            "mean colour, dB", "linear bound, dB", "label"]  # fmt: skip
    return table(head, rows)


def trained_table(kept: Kept) -> str:
    rows = []
    for subject in kept.words("trained", "subject"):
        for update in UPDATES:
            found = {a: kept.of("trained", subject=subject, update=update, attacker=a)
                     for a in ("adaptive", "cosine")}  # fmt: skip
            if every := [r for records in found.values() for r in records]:
                best = found["cosine"] or every
                rows.append([f"{subject}; {update}", f"{every[0]['coordinates']:,}",
                             *(f"{outcome(rs)}; {psnr(rs)}" if rs else "-"
                               for rs in found.values()),
                             number(median(r["ssim"][0] for r in best), 2),
                             number(median(r["baseline"][0] for r in best)),
                             told(best)])  # fmt: skip
    head = ["network; what trains", "coordinates", "adaptive", "cosine", "SSIM, cosine",
            "mean colour, dB", "label"]  # fmt: skip
    return table(head, rows)


def decoded(record: Record) -> Array:
    cell = record["cell"]
    channels = 3 if cell["subject"].startswith("photo") else 1
    stored = np.frombuffer(base64.b64decode(record["images"]), np.uint8)
    return stored.reshape(cell["batch"], channels, subjects.SIDE, subjects.SIDE) / 255


def sparse_picture(kept: Kept, subject: str) -> bytes | None:
    """One row per picture: the original, then what comes back from each update."""
    columns = [kept.of("sparse", subject=subject, update=u, attacker="adaptive") for u in UPDATES]
    count = min(map(len, columns))
    if not count:
        return None
    originals = subjects.photographs(0, count, 3 if subject == "photo" else 1)[0].numpy()
    return rows_of(originals, columns)


def clothes_picture(kept: Kept) -> bytes | None:
    """The same for pictures of clothes, from the trained network and by their direction."""
    subject, attacker = "clothes, trained", "cosine"
    columns = [kept.of("trained", subject=subject, update=u, attacker=attacker) for u in UPDATES]
    columns = [column for column in columns if column]
    count = min(map(len, columns), default=0)
    return rows_of(subjects.clothes("t10k", count)[0].numpy(), columns) if count else None


def rows_of(originals: Array, columns: list[list[Record]]) -> bytes:
    count = len(originals)
    pictures = [np.concatenate([decoded(r) for r in column[:count]]) for column in columns]
    return strip([originals, *pictures], enlarge=2)


def batch_picture(kept: Kept) -> bytes | None:
    """Two rows: the originals of the first grey batch, and what the adaptive attacker has."""
    found = kept.of("batch", subject="grey", attacker="adaptive, batch")
    if not found:
        return None
    first = found[0]["cell"]
    originals = subjects.photographs(first["index"] * 8, 8, 1)[0].numpy()
    pairs = np.stack([originals, decoded(found[0])])
    return strip([pairs[:, i] for i in range(8)], enlarge=2)
