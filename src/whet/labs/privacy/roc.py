"""How well a score tells members from others: ROC, AUC, and the rate at few false accusations.

An attack that is right about a few people and silent about the rest harms those few, and its mean
accuracy hides it. The true positive rate at a low false positive rate shows it (Carlini et al.,
"Membership Inference Attacks From First Principles", 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError
from ...report.svg import LETTER, element, escape, rule, text

Array = np.ndarray[Any, Any]
Z = 1.959964  # 95 % of a normal distribution lies within so many deviations
LEVELS = (0.01, 0.001)  # false positive rates that are reported
COLORS = ("#2b7bba", "#d1495b", "#5a9367", "#b07aa1", "#c98b2b", "#6b7a8f")


@dataclass(frozen=True)
class Rate:
    """A true positive rate with its 95 % interval, at the threshold that a level allows."""

    level: float  # the false positive rate allowed
    value: float
    low: float
    high: float
    false: int  # false positives at this threshold
    others: int  # non-members that were scored

    @property
    def measurable(self) -> bool:
        """Whether one false positive is within the level: else the threshold allows none at all."""
        return self.others * self.level >= 1

    @property
    def needed(self) -> int:
        """Non-members for about ten false positives, which fixes the level to about a third."""
        return math.ceil(10 / self.level)

    def __str__(self) -> str:
        words = f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}] at {self.level:.1%} FPR"
        if not self.measurable:
            words += f" (no false positive allowed: {self.others} non-members)"
        return words


@dataclass(frozen=True, eq=False)
class Roc:
    """True against false positive rates over all thresholds, the strictest first."""

    fpr: Array
    tpr: Array
    members: int
    others: int

    @classmethod
    def of(cls, members: Any, others: Any) -> Roc:
        """From the scores of members and of others; a higher score says `member`."""
        inside, outside = (np.asarray(s, np.float64).ravel() for s in (members, others))
        if not len(inside) or not len(outside):
            raise DataError("a ROC needs scores of members and of others")
        if not (np.isfinite(inside).all() and np.isfinite(outside).all()):
            raise DataError("scores must be finite")
        scores = np.concatenate([inside, outside])
        order = np.argsort(-scores, kind="stable")
        member = (np.arange(len(scores)) < len(inside))[order]
        last = np.append(np.diff(scores[order]) != 0, True)  # equal scores share a threshold
        hits, alarms = np.cumsum(member)[last], np.cumsum(~member)[last]
        return cls(
            np.append(0, alarms) / len(outside),
            np.append(0, hits) / len(inside),
            len(inside),
            len(outside),
        )

    @property
    def auc(self) -> float:
        """The chance that a member scores above another; equal scores count half."""
        return float(np.trapezoid(self.tpr, self.fpr))

    @property
    def auc_error(self) -> float:
        """Its standard error (Hanley and McNeil, 1982)."""
        a, m, n = self.auc, self.members, self.others
        one, two = a / (2 - a), 2 * a * a / (1 + a)
        spread = a * (1 - a) + (m - 1) * (one - a * a) + (n - 1) * (two - a * a)
        return math.sqrt(max(spread, 0.0) / (m * n))

    def tpr_at(self, level: float) -> Rate:
        """The most members found with a false positive rate of at most `level`."""
        at = int(np.flatnonzero(self.fpr <= level)[-1])
        value = float(self.tpr[at])
        low, high = wilson(round(value * self.members), self.members)
        return Rate(level, value, low, high, round(self.fpr[at] * self.others), self.others)

    def __str__(self) -> str:
        rates = "; ".join(f"TPR {self.tpr_at(level)}" for level in LEVELS)
        return f"AUC {self.auc:.3f} ± {Z * self.auc_error:.3f}; {rates}"

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        found = {"auc": self.auc, "auc_error": self.auc_error}
        for level in LEVELS:
            rate = self.tpr_at(level)
            key = f"tpr@{100 * level:g}%"
            found |= {key: rate.value, f"{key} low": rate.low, f"{key} high": rate.high}
        return found | {"members": self.members, "others": self.others}


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a binomial proportion (Wilson, 1927)."""
    p, n = successes / trials, trials
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


SIDE, EDGE, FLOOR = 320.0, 46.0, 1e-4  # of the plot, in pixels, and the least rate drawn
STYLE = """.roc{color:#222;font-family:sans-serif;max-width:100%;height:auto}
.roc .grid{stroke:#8884}
@media (prefers-color-scheme: dark){.roc{color:#ddd}}"""


def roc_svg(curves: Mapping[str, Roc], floor: float = 1e-3) -> str:
    """ROC curves on logarithmic axes from `floor` to 1; a random guess is the dashed diagonal."""
    floor = max(floor, FLOOR)

    def place(rate: float) -> float:
        return SIDE * (1 - math.log10(max(rate, floor)) / math.log10(floor))

    left, top = EDGE, 22.0
    bottom = top + SIDE
    parts = [element("style", STYLE)]
    for power in range(round(math.log10(floor)), 1):
        at, label = place(10.0**power), f"{100 * 10.0**power:g} %"
        parts += [
            rule(left + at, top, left + at, bottom, "", class_="grid"),
            rule(left, bottom - at, left + SIDE, bottom - at, "", class_="grid"),
            text(left + at, bottom + 15, label, text_anchor="middle"),
            text(left - 5, bottom - at + 4, label, text_anchor="end"),
        ]
    parts.append(
        rule(left, bottom, left + SIDE, top, "currentColor", stroke_dasharray="3 4", opacity="0.6")
    )
    parts.append(text(left + SIDE / 2, bottom + 32, "false positive rate", text_anchor="middle"))
    parts.append(text(4, 12, "true positive rate"))
    for i, (name, roc) in enumerate(curves.items()):
        color = COLORS[i % len(COLORS)]
        parts.append(
            element(
                "path", d=steps(roc, floor, left, bottom, place), fill="none", stroke=color,
                stroke_width=2.0,
            )
        )  # fmt: skip
        y = bottom + 52 + 18 * i
        parts.append(rule(left, y - 4, left + 18, y - 4, color, stroke_width=3.0))
        parts.append(text(left + 24, y, legend(name, roc)))
    height = bottom + 52 + 18 * len(curves)
    longest = max(len(legend(name, roc)) for name, roc in curves.items())
    width = left + max(SIDE + 24, 30 + 11 * LETTER * longest)
    title = element("title", escape("Membership inference, ROC on logarithmic axes"))
    return element(
        "svg", title, *parts, xmlns="http://www.w3.org/2000/svg", class_="roc",
        viewBox=f"0 0 {width:g} {height:g}", width=width, height=height,
        fill="currentColor", role="img",
    )  # fmt: skip


def legend(name: str, roc: Roc) -> str:
    return f"AUC {roc.auc:.3f}, {name}"


def steps(roc: Roc, floor: float, left: float, bottom: float, place: Any) -> str:
    """The curve as a path: right to the next false positive, then up."""
    points = [(left, bottom - place(float(roc.tpr[0])))]
    for x, y in zip(roc.fpr.tolist(), roc.tpr.tolist(), strict=True):
        across, up = left + place(x), bottom - place(y)
        if across > points[-1][0]:
            points.append((across, points[-1][1]))
        points.append((across, up))
    kept = [p for i, p in enumerate(points) if i == 0 or p != points[i - 1]]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept)
