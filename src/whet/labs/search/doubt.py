"""Whether a search found anything: candidates that know no more than chance are all alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import either
from ...scheme.contribution import Candidate, Outcome
from .lesson import Bench, Pupil
from .samples import classes_of

BEYOND = 3.0  # standard errors above chance: the best of some candidates is a lucky one
LESS = 0.99  # of the loss before training


def doubt(outcomes: Sequence[Outcome], benches: Sequence[Bench]) -> str:
    """What to say of the best of some candidates, judged on all splits; empty if it has learned."""
    learned = [o for o in outcomes if not o.diverged]
    if not outcomes:
        return ""
    known = classes_of(benches[0].model.training.graph)
    accuracies = [o.accuracy for o in learned if not math.isnan(o.accuracy)]
    if known is not None and accuracies:
        labels = np.concatenate([bench.judge.labels.ravel() for bench in benches])
        what = no_better_than_chance(max(accuracies), labels[labels != known.ignored], known.count)
    else:
        before = Pupil(benches[0], Candidate()).outcome(0).loss
        best = min((o.loss for o in learned), default=math.inf)
        worse = best > LESS * before
        what = f"the lowest loss is {best:.4g}, and it was {before:.4g} before" if worse else ""
    if not what:
        return ""
    rate = either("another learning rate, whet.Lesson(epochs=...)", "another --lr, more --epochs")
    return f"no candidate has learned anything: {what}; try {rate}, or more data"


def no_better_than_chance(accuracy: float, labels: np.ndarray, classes: int) -> str:
    """Chance is to say the most common class, every time."""
    common = np.unique(labels, return_counts=True)[1].max(initial=0) / max(len(labels), 1)
    chance = max(float(common), 1 / classes)
    error = math.sqrt(chance * (1 - chance) / max(len(labels), 1))
    if accuracy / 100 > chance + BEYOND * error:
        return ""
    return (
        f"the best is right on {accuracy:.1f} % of {len(labels)} samples, "
        f"always answering the most common class on {100 * chance:.1f} %"
    )
