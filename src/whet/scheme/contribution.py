"""What training each part of a model gains: the evidence that a scheme is chosen by.

A Candidate is a point of the space that arXiv:2206.15472 searches: the head, the biases of the last
layers before it, and fractions of the weights of some of them. An Outcome is how well a candidate
did; Contributions are the gains of its parts, which a search adds up.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import SchemeError
from .parameters import Parameter
from .presets import head, sparse
from .scheme import Scheme

DIVERGED = math.inf  # the loss of what has none
RATIOS = (0.125, 0.25, 0.5, 1.0)  # of a weight's input channels


@dataclass(frozen=True, order=True)
class Candidate:
    """What trains besides the head: biases of the last layers before it, and parts of weights."""

    biases: int = 0
    weights: tuple[tuple[int, float], ...] = ()  # layer, counted from 0 in forward order; fraction

    def scheme(self, parameters: Sequence[Parameter], name: str = "", origin: str = "") -> Scheme:
        found = sparse(parameters, self.biases, dict(self.weights), name or str(self))
        return Scheme(found.rules, found.name, origin)

    def with_part(self, part: tuple[int, float]) -> Candidate:
        """The same with this fraction of this layer."""
        weights = {**dict(self.weights), part[0]: part[1]}
        return Candidate(self.biases, tuple(sorted(weights.items())))

    def __str__(self) -> str:
        parts = [f"{layer}@{ratio:g}" for layer, ratio in self.weights]
        return " ".join([f"biases-{self.biases}", *parts])

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """The inverse of str."""
        first, *rest = text.split()
        pairs = (part.split("@") for part in rest)
        return cls(int(first.removeprefix("biases-")), tuple((int(i), float(r)) for i, r in pairs))


@dataclass(frozen=True)
class Outcome:
    """How a candidate did on pictures, or whatever it was, that it was not trained on."""

    accuracy: float  # percent; NaN where there are no classes
    loss: float
    epochs: int
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has neither NaN nor infinity."""
        words = asdict(self)
        return {k: v if math.isfinite(v) else None for k, v in words.items()}

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> Outcome:
        none = {"accuracy": math.nan, "loss": DIVERGED}
        known = {k: v for k, v in words.items() if v is not None}
        return cls(**{**none, **known})

    def __str__(self) -> str:
        percent = "" if math.isnan(self.accuracy) else f"{self.accuracy:.2f} %, "
        return f"{percent}loss {self.loss:.4f}"

    @property
    def diverged(self) -> bool:
        return not math.isfinite(self.loss)

    @classmethod
    def mean(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """Of one candidate on several splits; what diverged once has diverged."""
        if any(o.diverged for o in outcomes):
            return next(o for o in outcomes if o.diverged)
        accuracy, loss = (
            statistics.fmean(getattr(o, word) for o in outcomes) for word in ("accuracy", "loss")
        )
        seconds = round(sum(o.seconds for o in outcomes), 2)
        return cls(round(accuracy, 4), rounded(loss), outcomes[0].epochs, seconds)

    def better_than(self, other: Outcome) -> bool:
        """In one of the two, if not in both."""
        return self.accuracy > other.accuracy or self.loss < other.loss

    def gain(self, measure: str, base: Outcome) -> float:
        """What it gained over another: points of accuracy, or of loss, upwards in both."""
        if measure == "accuracy":
            return self.accuracy - base.accuracy
        return base.loss - self.loss


def depth(parameters: Sequence[Parameter]) -> int:
    """How many layers lie before the head."""
    return max(0, *(p.layer for p in head(parameters)), 0)


def reach(parameters: Sequence[Parameter], layer: int) -> int:
    """How many of the last biases it takes to come to a layer's own."""
    return depth(parameters) - layer


def choices(parameters: Sequence[Parameter]) -> dict[int, tuple[float, ...]]:
    """The fractions of each layer's weight that differ from each other, for all before the head."""
    found: dict[int, tuple[float, ...]] = {}
    for p in parameters:
        if p.kind == "weight" and 0 <= p.layer < depth(parameters):
            counts = {max(1, round(r * p.channels)): r for r in reversed(RATIOS)}
            # of those that mean as many channels the smallest, but the whole is 1
            some = p.channels > 1 and not p.otherwise
            parts = sorted({**counts, p.channels: 1.0}.values()) if some else [1.0]
            found[p.layer] = tuple(parts)
    return found


def names_of(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """The weight of each layer; empty where a layer has none that could train."""
    by_layer = {p.layer: p.name for p in parameters if p.kind == "weight"}
    return tuple(by_layer.get(i, "") for i in range(depth(parameters) + 1))


@dataclass(frozen=True)
class Contributions:
    """Gains over training the head alone, in points of what was measured.

    `biases[k]` is for the last k biases. `weights[layer, fraction]` comes on top of all biases from
    that layer on; what is not in it is not worth its memory.
    """

    measure: str  # "accuracy", "loss", or a proxy's name
    biases: tuple[float, ...]
    weights: Mapping[tuple[int, float], float]
    layers: tuple[str, ...] = ()
    seconds: float = 0.0
    base: Outcome | None = None
    outcomes: Mapping[Candidate, Outcome] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"<Contributions by {self.measure}: the last {len(self.biases) - 1} biases, "
            f"{len(self.weights)} weights>"
        )

    @classmethod
    def of(
        cls, outcomes: Mapping[Candidate, Outcome], measure: str, layers: Sequence[str]
    ) -> Contributions:
        """From what candidates achieved that train biases, or those and one weight."""
        base = outcomes[Candidate()]
        last = max(c.biases for c in outcomes)
        biases = sunk([outcomes[Candidate(k)].gain(measure, base) for k in range(last + 1)])
        known = {
            c.weights[0]: outcome.gain(measure, outcomes[Candidate(c.biases)])
            for c, outcome in sorted(outcomes.items())
            if c.weights and not outcomes[Candidate(c.biases)].diverged  # over what had no loss
        }
        weights = dict(zip(known, sunk(list(known.values())), strict=True))
        seconds = sum(outcome.seconds for outcome in outcomes.values())
        table = dict(sorted(outcomes.items()))
        return cls(measure, tuple(biases), weights, tuple(layers), seconds, base, table)

    def score(self, candidate: Candidate) -> float:
        """The sum over its parts, as if each helped as much in company as alone."""
        found = self.biases[candidate.biases]
        return found + sum(self.weights.get(part, 0.0) for part in candidate.weights)

    def to_json(self) -> str:
        body: dict[str, Any] = {
            "measure": self.measure,
            "biases": list(self.biases),
            "weights": [[*part, gain] for part, gain in self.weights.items()],
            "layers": list(self.layers),
            "seconds": self.seconds,
            "base": None if self.base is None else self.base.as_dict(),
            "outcomes": {str(c): o.as_dict() for c, o in self.outcomes.items()},
        }
        return json.dumps(body, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Contributions:
        try:
            body = json.loads(text)
            return cls(
                str(body["measure"]),
                tuple(float(gain) for gain in body["biases"]),
                {(int(i), float(r)): float(gain) for i, r, gain in body["weights"]},
                tuple(map(str, body["layers"])),
                float(body["seconds"]),
                None if body["base"] is None else Outcome.from_dict(body["base"]),
                {Candidate.parse(c): Outcome.from_dict(o) for c, o in body["outcomes"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SchemeError(
                "these are no contributions",
                why=f"{type(error).__name__}: {error}",
                try_="the contributions.json that `whet search` writes",
            ) from error


def sunk(gains: Sequence[float]) -> list[float]:
    """What has no gain, as it diverged, is as far below all others as those are apart."""
    finite = [gain for gain in gains if math.isfinite(gain)] or [0.0]
    floor = min(finite) - ((max(finite) - min(finite)) or 1.0)
    return [gain if math.isfinite(gain) else floor for gain in gains]


def rounded(number: float) -> float:
    """To some digits, whatever its size."""
    return float(f"{number:.7g}")
