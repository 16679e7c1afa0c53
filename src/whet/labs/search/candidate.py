"""Candidates for a scheme, and the gains of their parts.

A candidate is a point of the space that arXiv:2206.15472 searches: the head, the biases of the last
layers before it, and fractions of the weights of some of those layers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...scheme import Parameter, Scheme, last_layer, sparse
from ..common.validate import Outcome

RATIOS = (0.125, 0.25, 0.5, 1.0)  # fractions of a weight's input channels
Part = tuple[int, float]  # a layer, and the fraction of its weight that trains


@dataclass(frozen=True, order=True)
class Candidate:
    """What trains besides the head: biases of the last layers before it, and parts of weights."""

    biases: int = 0
    weights: tuple[Part, ...] = ()  # layers count from 0 in forward order

    def scheme(self, parameters: Sequence[Parameter], name: str = "", origin: str = "") -> Scheme:
        rules = sparse(parameters, self.biases, dict(self.weights)).rules
        return Scheme(rules, name or str(self), origin)

    def __str__(self) -> str:
        parts = [f"{layer}@{ratio:g}" for layer, ratio in self.weights]
        return " ".join([f"biases-{self.biases}", *parts])


HEAD = Candidate()


@dataclass(frozen=True)
class Space:
    """All candidates of a model."""

    parameters: tuple[Parameter, ...]

    @property
    def depth(self) -> int:
        """The number of layers before the head."""
        return max(0, last_layer(self.parameters))

    @property
    def ratios(self) -> dict[int, tuple[float, ...]]:
        """The distinct fractions of each layer before the head."""
        found: dict[int, tuple[float, ...]] = {}
        for p in self.parameters:
            if p.kind == "weight" and 0 <= p.layer < self.depth:
                # the smallest of fractions that mean the same number of channels
                counts = {max(1, round(r * p.channels)): r for r in reversed(RATIOS)}
                divisible = p.channels > 1 and not p.otherwise
                ratios = {**counts, p.channels: 1.0}.values() if divisible else [1.0]
                found[p.layer] = tuple(sorted(ratios))
        return found

    @property
    def layers(self) -> tuple[str, ...]:
        """The name of each layer's weight, the head's last; empty if it has none that trains."""
        by_layer = {p.layer: p.name for p in self.parameters if p.kind == "weight"}
        return tuple(by_layer.get(i, "") for i in range(self.depth + 1))

    def reach(self, layer: int) -> int:
        """How many of the last biases it takes to include this layer's."""
        return self.depth - layer

    @property
    def prefixes(self) -> list[Candidate]:
        """Those that train biases alone."""
        return [Candidate(k) for k in range(self.depth + 1)]

    def single(self, layer: int, ratio: float) -> Candidate:
        """One part of one weight, with the biases from there on."""
        return Candidate(self.reach(layer), ((layer, ratio),))

    @property
    def singles(self) -> list[Candidate]:
        """Those that train parts of one weight."""
        return [self.single(i, r) for i, ratios in self.ratios.items() for r in ratios]

    def trained(self, candidate: Candidate) -> dict[str, Any]:
        """The parameters that train: equal for candidates that differ in absent biases only."""
        return candidate.scheme(self.parameters).resolve(self.parameters)


@dataclass(frozen=True)
class Contributions:
    """Gains over training the head alone.

    `biases[k]` is the gain of the last k biases. `weights[layer, fraction]` comes on top of the
    biases from that layer on; parts that are not in it are not worth their memory. `outcomes` are
    those of all trials; a proxy has none.
    """

    measure: str  # "accuracy", "loss", or the name of a proxy
    biases: tuple[float, ...]
    weights: Mapping[Part, float]
    layers: tuple[str, ...] = ()
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
        """From the outcomes of candidates that train biases, or those and one weight."""
        table = dict(sorted(outcomes.items()))
        last = max(c.biases for c in table)
        prefixes = [table[Candidate(k)] for k in range(last + 1)]
        biases = finite([outcome.gain(measure, prefixes[0]) for outcome in prefixes])
        known = {
            c.weights[0]: outcome.gain(measure, prefixes[c.biases])
            for c, outcome in table.items()
            if c.weights and not prefixes[c.biases].diverged
        }
        weights = dict(zip(known, finite(list(known.values())), strict=True))
        return cls(measure, tuple(biases), weights, tuple(layers), table)

    def score(self, candidate: Candidate) -> float:
        """The sum of the gains of its parts."""
        return self.biases[candidate.biases] + sum(
            self.weights.get(part, 0.0) for part in candidate.weights
        )

    def to_json(self) -> str:
        weights = [[*part, gain] for part, gain in self.weights.items()]
        outcomes = {str(c): outcome.as_dict() for c, outcome in self.outcomes.items()}
        return json.dumps({**vars(self), "weights": weights, "outcomes": outcomes}, indent=1)


def finite(gains: Sequence[float]) -> list[float]:
    """Gains of diverged trials are set below all others, by the range of those."""
    known = [gain for gain in gains if math.isfinite(gain)] or [0.0]
    floor = min(known) - ((max(known) - min(known)) or 1.0)
    return [gain if math.isfinite(gain) else floor for gain in gains]
