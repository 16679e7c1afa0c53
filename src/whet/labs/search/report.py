"""What a search found: a table, the schemes, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import BuildError
from ...report import kib
from ...scheme import Scheme
from ...writing import write_whole
from ..common.validate import Outcome
from .candidate import Candidate, Contributions


@dataclass(frozen=True)
class Finalist:
    """A whole candidate for a budget, and how it did."""

    candidate: Candidate
    ram: int
    outcome: Outcome


@dataclass(frozen=True)
class Row:
    """A budget, and the candidate chosen for it."""

    budget: int
    candidate: Candidate
    ram: int
    score: float  # the sum of its gains
    outcome: Outcome | None
    finalists: Mapping[str, Finalist] = field(repr=False)
    scheme: Scheme = field(repr=False)


@dataclass(frozen=True)
class SearchReport:
    rows: tuple[Row, ...]
    contributions: Contributions  # as measured
    seconds: Mapping[str, float]  # of each step of the search
    missed: tuple[int, ...] = ()  # budgets that are too small
    least: int = 0  # bytes that the head alone takes

    @property
    def scheme(self) -> Scheme:
        """That of the largest budget."""
        return self.rows[-1].scheme

    def __repr__(self) -> str:
        budgets = ", ".join(kib(row.budget) for row in self.rows)
        return f"<SearchReport for {budgets}, by {self.contributions.measure}>"

    def __str__(self) -> str:
        columns = "budget,RAM,biases,weights,sum of gains,accuracy,loss"
        lines = [columns.split(",")]
        for row in self.rows:
            outcome = row.outcome
            no_classes = outcome is None or math.isnan(outcome.accuracy)
            lines.append([
                kib(row.budget), kib(row.ram), f"last {row.candidate.biases}",
                f"of {len(row.candidate.weights)} layers", f"{row.score:+.3g}",
                "-" if outcome is None or no_classes else f"{outcome.accuracy:.1f} %",
                "-" if outcome is None else f"{outcome.loss:.3f}",
            ])  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(w.rjust(n) for w, n in zip(line, widths, strict=True)) for line in lines]
        text += [f"{kib(budget)} is too small: the head alone takes {kib(self.least)}"
                 for budget in self.missed]  # fmt: skip
        took = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in self.seconds.items())
        return "\n".join([*text, "", f"contributions by {self.contributions.measure}; {took}"])

    def write(self, path: str | Path) -> list[Path]:
        """Schemes as TOML and contributions as JSON to a folder; or one scheme to a .toml file."""
        root, texts = Path(path), {f"{row.scheme.name}.toml": row.scheme.to_toml()
                                   for row in self.rows}  # fmt: skip
        if root.suffix == ".toml" and not root.is_dir():
            if len(texts) > 1:
                raise BuildError(f"{len(texts)} schemes do not go into {root}", try_="a folder")
            root, texts = root.parent, {root.name: self.scheme.to_toml()}
        else:
            texts["contributions.json"] = self.contributions.to_json()
        try:
            root.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                write_whole(root / name, text)
        except OSError as error:
            raise BuildError(f"cannot write to {root}", why=str(error.strerror)) from error
        return [root / name for name in texts]


def evidence(
    budget: int, ram: int, chosen: Candidate, gains: Contributions, outcome: Outcome | None
) -> str:
    """Why each part is in a scheme."""
    unit = "points of accuracy" if gains.measure == "accuracy" else f"by {gains.measure}"
    lines = [
        f"chosen for {kib(budget)}, takes {kib(ram)}; sum of gains over the head alone "
        f"{gains.score(chosen):+.3g} {unit}",
        f"last {chosen.biases} biases {gains.biases[chosen.biases]:+.3g}",
    ]
    for layer, ratio in chosen.weights:
        name = gains.layers[layer] if gains.layers else f"layer {layer}"
        gain = gains.weights.get((layer, ratio), 0.0)
        lines.append(f"{name}, {ratio:g} of its channels {gain:+.3g}")
    if outcome is not None:
        lines.append(f"trained whole, on held-out samples: {outcome}")
    return "; ".join(lines)
