"""The cells of the leakage study: a batch or sentence, a program, a defence, an attacker each."""

from __future__ import annotations

import base64
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.privacy import subjects
from whet.labs.privacy import (
    Encoder,
    Observation,
    Recovered,
    defences,
    determined,
    masked_step,
    observe,
    recover_text,
    recovered_tokens,
    score,
)
from whet.labs.privacy.cosine import cosine
from whet.labs.privacy.defences import Defended
from whet.labs.privacy.dlg import dlg
from whet.labs.privacy.idlg import labels
from whet.labs.privacy.score import pixels

EXACT = 1e-3  # mean squared error of an image that was recovered exactly

# --- What is compared -----------------------------------------------------------------------------

Rule = whet.Rule
QUARTER = whet.Scheme(
    [Rule("7.*"), *(Rule(f"{n}.weight", channels=0.25) for n in (2, 4)),
     *(Rule(f"{n}.bias") for n in (2, 4))], name="channels 25 %",
)  # fmt: skip


def relu_quarter(bias: str) -> whet.Scheme:
    rules = [Rule("7.*"), Rule("3.weight", channels=0.25), Rule(bias)]
    return whet.Scheme(rules, name="channels 25 %")


UPDATES: dict[str, dict[str, Any]] = {  # arguments of whet.compile
    "full": {"update": "full"},
    "last": {"update": "last"},
    "bias+last": {"update": "bias+last"},
    "channels 25 %": {"update": QUARTER},
    "int8": {"update": "full", "dtype": "int8"},
    "int8, integer gradients": {"update": "full", "dtype": whet.Int8(gradients="int8")},
    "int8, channels 25 %": {"update": QUARTER, "dtype": "int8"},
}
VARIANCES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)  # absolute, as in the DLG paper; the first is ours
Defence = Callable[..., Defended]


def noise(kind: Defence, variance: float) -> Defence:
    return partial(kind, scale=variance**0.5, absolute=True)


def seedless(defence: Defence, **options: Any) -> Defence:
    return lambda gradients, seed: defence(gradients, **options)


LIMIT = 1.0  # norm that DP clips to
DEFENCES: dict[str, Defence] = {
    "none": seedless(defences.none),
    **{f"Gaussian, variance {v:g}": noise(defences.gaussian, v) for v in VARIANCES},
    **{f"Laplacian, variance {v:g}": noise(defences.laplacian, v) for v in VARIANCES[1:]},
    **{f"pruning {p} %": seedless(defences.prune, fraction=p / 100) for p in (20, 50, 70, 90, 99)},
    "fp16": seedless(defences.fp16),
    "int8 gradients": seedless(defences.int8),
    **{f"DGC, top {100 * k:g} %": seedless(defences.top_k, fraction=k) for k in (0.01, 0.001)},
    **{f"DP, clip {LIMIT:g}, noise {m:g}": partial(defences.clip_and_noise, limit=LIMIT,
                                                   multiplier=m) for m in (0.001, 0.01, 0.1, 1.0)},
}  # fmt: skip
Attacker = Callable[[Observation], Recovered]
published = partial(dlg, adaptive=False, restarts=4, iterations=1200)
ATTACKERS: dict[str, Attacker] = {
    "published": published,  # DLG as in the paper
    "published, mask": partial(published, masked=True),
    "published, label": lambda o: published(o, labels=labels(o)),
    "adaptive": partial(dlg, restarts=4, iterations=500),
    "cosine": partial(cosine, restarts=2, iterations=1500),
    "published, batch": partial(dlg, adaptive=False, restarts=2, iterations=2700),
    "one by one, batch": partial(dlg, restarts=1, iterations=2400, one_by_one=True),
    "adaptive, batch": partial(dlg, restarts=2, iterations=800),
}


@dataclass(frozen=True)
class Cell:
    """`subject` is photo (colour), grey or clothes.

    Photographs are given to the network of the DLG paper with 12 channels, or 32 if it is wide;
    clothes to one with ReLU and batch norm, trained or not.
    """

    part: str
    subject: str
    index: int
    update: str = "full"
    defence: str = "none"
    attacker: str = "adaptive"
    batch: int = 1

    @property
    def title(self) -> str:
        return ", ".join(str(value) for value in asdict(self).values())


PHOTOS, BATCHES, SENTENCES = 6, 3, 12
PRUNED = [name for name in DEFENCES if name.startswith("pruning")]
TEXT_UPDATES = {
    "full": "full",
    "layers+last": whet.Scheme([Rule("layers.*"), Rule("head.*")], name="layers+last"),
    "layer 2+last": whet.Scheme([Rule("layers.1.*"), Rule("head.*")], name="layer 2+last"),
}


def planned() -> list[Cell]:
    single = [Cell("single", "photo", i, attacker=a)
              for a in ("published", "adaptive") for i in range(PHOTOS)]  # fmt: skip
    ways = ("published, batch", "adaptive, batch")
    batch = [Cell("batch", s, i, attacker=a, batch=8)
             for s in ("grey", "photo", "photo, wide") for a in ways for i in range(BATCHES)
             if s == "grey" or i == 0]  # fmt: skip
    batch.append(Cell("batch", "grey", 0, attacker="one by one, batch", batch=8))
    defended = [Cell("defence", "photo", i, defence=d, attacker=a)
                for d in DEFENCES for a in ("published", "adaptive", "cosine")
                for i in range(4)]  # fmt: skip
    parts = [Cell("defence", "photo", i, defence=d, attacker=a)
             for d in ("none", *PRUNED[:3]) for a in ("published, mask", "published, label")
             for i in range(4)]  # fmt: skip
    sparse = [Cell("sparse", s, i, update=u, attacker=a)
              for s in ("photo", "grey") for u in UPDATES for a in ("adaptive", "cosine")
              for i in range(4)]  # fmt: skip
    means = {"full": "rows", "layers+last": "span match", "layer 2+last": "match"}
    trained = [Cell("trained", f"clothes, {s}", i, update=u, attacker=a)
               for s in ("untrained", "trained") for u in UPDATES for a in ("adaptive", "cosine")
               for i in range(4) if s == "trained" or u == "full"]  # fmt: skip
    text = [Cell("text", "sentence", i, update=u, attacker=a)
            for u, names in means.items() for a in names.split()
            for i in range(SENTENCES)]  # fmt: skip
    bound = [Cell("bound", s, 0, update=u, attacker="") for s in ("photo", "grey") for u in UPDATES]
    bound += [Cell("bound", "photo", 0, defence=d, attacker="") for d in DEFENCES if d != "none"]
    accuracy = [Cell("accuracy", "clothes", 0, defence=d, attacker="") for d in DEFENCES]
    return [*batch, *accuracy, *single, *text, *bound, *trained, *defended, *parts, *sparse]


# --- One cell -------------------------------------------------------------------------------------


def run(cell: Cell) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.process_time()
    how = {"text": run_text, "accuracy": run_accuracy, "bound": run_bound}.get(
        cell.part, run_images
    )
    return {"cell": asdict(cell), **how(cell), "cpu": time.process_time() - start}


def observed(cell: Cell) -> tuple[torch.Tensor, torch.Tensor, Observation, Defended]:
    """A batch, its labels, and what an attacker sees of them after a defence."""
    options = dict(UPDATES[cell.update])
    kind, _, state = cell.subject.partition(", ")
    if kind == "clothes":
        images, classes = subjects.clothes("t10k", cell.index + 1)
        x, y, model = images[-1:], classes[-1:], subjects.relu_net(state == "trained")
        typical = subjects.clothes("train", 32)[0]
        if options["update"] is QUARTER:
            # In an int8 program the convolution's bias is that of the batch norm behind it.
            options["update"] = relu_quarter("4.bias" if "dtype" in options else "3.bias")
    else:
        channels = 3 if kind == "photo" else 1
        x, y = subjects.photographs(cell.index * cell.batch, cell.batch, channels)
        model = subjects.lenet(channels, 32 if state == "wide" else 12, seed=cell.index)
        typical = subjects.photographs(1000, 32, channels)[0]
    if "dtype" in options:
        options["calibrate"] = [typical]
    program = whet.compile(model, (x,), accumulate=True, **options)
    plain = observe(program, x, y)
    sent = DEFENCES[cell.defence](plain.gradients, seed=cell.index)
    seen = plain.defended(sent.gradients, sent.masks, noise=sent.absolute, scaled=sent.scaled)
    return x, y, seen, sent


def run_images(cell: Cell) -> dict[str, Any]:
    x, y, observation, sent = observed(cell)
    found = ATTACKERS[cell.attacker](observation)
    scored = score(x, found.images)
    told = labels(observation)
    return {
        "coordinates": observation.coordinates, "unknowns": x.numel(),
        "rms": defences.rms(sent.gradients), "noise": sent.absolute, "relative": sent.relative,
        "mse": scored.mse.tolist(), "psnr": scored.psnr.tolist(), "ssim": scored.ssim.tolist(),
        "baseline": scored.baseline.tolist(), "labels": sorted(y.tolist()),
        "told": None if told is None else told.tolist(),
        "losses": list(found.losses), "diverged": found.diverged,
        "first_exact": first_exact(x, found), "evaluations": found.evaluations,
        "seconds": found.seconds, "images": encoded(found.images[scored.order]),
    }  # fmt: skip


def run_bound(cell: Cell) -> dict[str, Any]:
    x, y, observation, _ = observed(cell)
    found = asdict(determined(observation, x, y))
    del found["values"]
    return found


def first_exact(x: torch.Tensor, found: Recovered) -> int | None:
    """The iteration at which the start that was picked had recovered half of the batch exactly."""
    for snapshot in found.history:
        if np.mean(score(x, snapshot.images).mse < EXACT) >= 0.5:
            return snapshot.iteration
    return None


def encoded(images: Any) -> str:
    return base64.b64encode(np.rint(pixels(images) * 255).astype(np.uint8).tobytes()).decode()


def run_text(cell: Cell) -> dict[str, Any]:
    tokens, words = subjects.sentence(cell.index)
    length = tokens.shape[1]
    model = Encoder(subjects.VOCABULARY, length, seed=cell.index)
    x, y = masked_step(tokens, [cell.index % length], subjects.MASK)
    program = whet.compile(
        model, (x,), loss=nn.CrossEntropyLoss(), labels=y, accumulate=True,
        update=TEXT_UPDATES[cell.update],
    )  # fmt: skip
    observation = observe(program, x, y)
    found = recover_text(observation, mask=subjects.MASK, method=cell.attacker, seed=cell.index)
    bag, placed = recovered_tokens(tokens[0].numpy(), found.tokens)
    vocabulary = subjects.words_of_cola()[1]
    return {
        "words": words, "found": [vocabulary[i] for i in found.tokens], "bag": bag,
        "placed": placed, "evaluations": found.evaluations, "seconds": found.seconds,
    }  # fmt: skip


CLIENTS, SAMPLES, TESTED, EPOCHS, LR, MOMENTUM = 16, 8000, 2000, 3, 0.02, 0.9


def run_accuracy(cell: Cell) -> dict[str, Any]:
    """Train with the very updates that are attacked: each of 16 clients sends one of one sample."""
    x, y = subjects.clothes("train", SAMPLES)
    model = subjects.lenet(1)
    program = whet.compile(model, (x[:1],), accumulate=True)
    trainer = program.load()
    weights = {n: a.astype(np.float32) for n, a in trainer.arrays().items()}
    speed = {n: np.zeros_like(a) for n, a in weights.items()}
    random = np.random.default_rng(0)
    defence, sent = DEFENCES[cell.defence], 0
    for _ in range(EPOCHS):
        for group in random.permutation(SAMPLES).reshape(-1, CLIENTS):
            total = {n: np.zeros_like(a) for n, a in weights.items()}
            for i in group:
                trainer.gradients(x[i : i + 1], y[i : i + 1])
                found = trainer.collected(real=True)
                trainer.apply(lr=0.0)
                for name, g in defence(found, seed=sent).gradients.items():
                    total[name] += g / CLIENTS
                sent += 1
            for name, g in total.items():
                speed[name] = MOMENTUM * speed[name] + g
                weights[name] = weights[name] - np.float32(LR) * speed[name]
            trainer.load_state_dict(weights)
    tests, names = subjects.clothes("t10k", TESTED)
    guessed = np.asarray(trainer.predict(tests)).argmax(1)
    return {"accuracy": 100 * float(np.mean(guessed == names.numpy()))}
