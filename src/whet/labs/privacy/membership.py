"""Membership inference: was this sample among those that the model was trained on?

Three attackers, from what they see. Scores are higher for likely members; `Roc.of` judges them.

loss        sees the model's output: a low loss says member (Yeom et al., 2018)
calibrated  the same, relative to models that were not trained on the sample: `lira`, offline, with
            one variance for all samples (Carlini et al., 2022)
gradients   sees parameters or updates: a small gradient says member, and so does one that points
            along an observed update (Melis et al., 2019; Nasr et al., 2019)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import DataError
from ...runtime import Trainer, to_numpy
from .roc import Array


def losses(logits: Any, labels: Any) -> Array:
    """The cross-entropy of each sample."""
    logs = log_softmax(logits)
    found: Array = -np.take_along_axis(logs, indices(labels, logs), 1)[:, 0]
    return found


def confidences(logits: Any, labels: Any) -> Array:
    """log(p / (1 - p)) of the right class: nearly normal over models, as `lira` assumes."""
    logs = log_softmax(logits)
    at = indices(labels, logs)
    right = np.take_along_axis(logs, at, 1)[:, 0]
    others = logs.copy()
    np.put_along_axis(others, at, -np.inf, 1)
    top = others.max(1, keepdims=True)
    wrong = top[:, 0] + np.log(np.exp(others - top).sum(1))
    found: Array = right - wrong
    return found


def loss_scores(trainer: Trainer, x: Any, y: Any) -> Array:
    """Score samples by the loss of a program's prediction."""
    return -losses(trainer.predict(to_numpy(x)), y)


def lira(target: Any, shadows: Sequence[Any]) -> Array:
    """Score samples by how far their confidence is above that of models that never saw them.

    `target` and every array of `shadows` hold `confidences` of the same samples. With few shadows
    the variance of one sample is unknown, so one variance serves all of them.
    """
    if len(shadows) < 2:
        raise DataError("calibration needs two shadow models or more", why=f"got {len(shadows)}")
    seen, others = np.asarray(target, np.float64), np.asarray(shadows, np.float64)
    if others.shape[1:] != seen.shape:
        raise DataError(
            f"shadows have confidences of {others.shape[1:]}, the model of {seen.shape}"
        )
    spread = float(np.sqrt(others.var(0, ddof=1).mean()))
    return (seen - others.mean(0)) / max(spread, 1e-12)


def sample_gradients(trainer: Trainer, x: Any, y: Any) -> Array:
    """The gradient of each sample alone, as rows: what a program of batch 1 collects.

    Parameters, state and what was collected before stay as they are.
    """
    if trainer.program.batch != 1 or "gradients" not in trainer.program.entries:
        raise DataError(
            "gradients of single samples need a program of batch 1 that collects them",
            why=f"this one has batch {trainer.program.batch} and the entry points "
            + ", ".join(trainer.program.entries),
            try_="whet.compile(model, (x[:1],), accumulate=True)",
        )
    inputs, labels = to_numpy(x), to_numpy(y)
    before = trainer.save()
    try:
        clear(trainer)
        empty, rows = trainer.save(), []
        for i in range(len(inputs)):
            trainer.gradients(inputs[i : i + 1], labels[i : i + 1])
            rows.append(flat(trainer.collected(real=True)))
            trainer.load(empty)
    finally:
        trainer.load(before)
    return np.stack(rows)


def clear(trainer: Trainer) -> None:
    """Nothing collected; whatever else this changes is restored by the caller."""
    trainer.apply(lr=0.0, scale=0.0)


def norm_scores(gradients: Any) -> Array:
    """Score samples by the norm of their gradient: what was learned pulls little."""
    rows = np.asarray(gradients, np.float64)
    return -np.asarray(np.linalg.norm(rows, axis=1))


def alignment_scores(gradients: Any, update: Any) -> Array:
    """Score samples by the cosine between their gradient and an observed update.

    The update is a gradient, or parameters before minus parameters after.
    """
    rows, seen = np.asarray(gradients, np.float64), np.asarray(update, np.float64).ravel()
    if rows.shape[1] != len(seen):
        raise DataError(f"gradients have {rows.shape[1]} coordinates, the update {len(seen)}")
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(seen)
    return np.asarray(rows @ seen / np.maximum(norms, 1e-30))


def flat(update: Mapping[str, Any]) -> Array:
    """An update as one vector, parameter after parameter."""
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in update.values()])


def flat_rows(updates: Iterable[Mapping[str, Any]]) -> Array:
    return np.stack([flat(update) for update in updates])


def log_softmax(logits: Any) -> Array:
    scores = np.asarray(to_numpy(logits), np.float64)
    if scores.ndim != 2:
        raise DataError(
            f"outputs of shape {scores.shape} are not scores of classes", try_="[samples, classes]"
        )
    scores = scores - scores.max(1, keepdims=True)
    found: Array = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return found


def indices(labels: Any, logs: Array) -> Array:
    found = to_numpy(labels)
    if found.shape != (len(logs),) or found.dtype.kind not in "iu":
        raise DataError(
            f"labels are {found.dtype} of shape {found.shape}, not one class per sample"
        )
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < logs.shape[1]:
        raise DataError(f"labels are not classes below {logs.shape[1]}")
    return found.astype(np.int64)[:, None]
