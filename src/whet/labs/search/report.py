"""What a search found: a table, the schemes, the evidence, and pictures of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import BuildError
from ...report import kib
from ...scheme import Scheme
from ...scheme.contribution import Contributions, Outcome
from . import charts
from .within import Found


@dataclass(frozen=True)
class Row:
    """A budget, what was found for it, and how long a step of that takes here."""

    found: Found
    scheme: Scheme
    milliseconds: float


def percent(outcome: Outcome | None) -> str:
    known = outcome is not None and not math.isnan(outcome.accuracy)
    return f"{outcome.accuracy:.1f} %" if outcome is not None and known else "-"


@dataclass(frozen=True)
class SearchReport:
    rows: tuple[Row, ...]
    contributions: Contributions  # as they were measured
    seconds: Mapping[str, float]  # of each part of the work
    missed: tuple[int, ...] = ()  # budgets that are too small
    least: int = 0  # bytes that the head alone takes

    @property
    def scheme(self) -> Scheme:
        """That of the last budget."""
        return self.rows[-1].scheme

    def __repr__(self) -> str:
        budgets = ", ".join(kib(row.found.budget) for row in self.rows)
        return f"<SearchReport for {budgets}, by {self.contributions.measure}>"

    def __str__(self) -> str:
        head = (
            "budget",
            "RAM",
            "biases",
            "weights",
            "sum of gains",
            "accuracy",
            "loss",
            "ms/step here",
        )
        lines = [head]
        for row in self.rows:
            f = row.found
            lines.append((
                kib(f.budget), kib(f.ram), f"last {f.candidate.biases}",
                f"of {len(f.candidate.weights)} layers", f"{f.score:+.3g}",
                percent(f.outcome),
                f"{f.outcome.loss:.3f}" if f.outcome else "-",
                f"{row.milliseconds:.2f}",
            ))  # fmt: skip
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = ["  ".join(w.rjust(n) for w, n in zip(line, widths, strict=True)) for line in lines]
        took = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in self.seconds.items())
        text += [
            f"{kib(budget)} are too few: the head alone takes {kib(self.least)}"
            for budget in self.missed
        ]
        return "\n".join([*text, "", f"contributions by {self.contributions.measure}; {took}"])

    def write(self, folder: str | Path) -> Path:
        """Schemes as TOML, contributions as JSON, and three pictures."""
        root = Path(folder)
        files = {
            "contributions.json": self.contributions.to_json(),
            "biases.svg": charts.biases_svg(self.contributions),
            "weights.svg": charts.weights_svg(self.contributions),
        }
        if all(row.found.outcome is not None for row in self.rows):
            files["budgets.svg"] = charts.budgets_svg([row.found for row in self.rows])
        write(root, files)
        self.write_schemes(root)
        return root

    def write_schemes(self, path: str | Path) -> list[Path]:
        """As TOML: to a folder, or to a file, if there is one budget."""
        root, name = Path(path), f"{self.scheme.name}.toml"
        if root.suffix == ".toml" and not root.is_dir():
            if len(self.rows) > 1:
                raise BuildError(f"{len(self.rows)} schemes do not go into {root}", try_="a folder")
            root, name = root.parent, root.name
        files = {f"{row.scheme.name}.toml": row.scheme.to_toml() for row in self.rows[:-1]}
        return write(root, files | {name: self.scheme.to_toml()})


def write(root: Path, files: Mapping[str, str]) -> list[Path]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / name).write_text(text)
    except OSError as error:
        raise BuildError(f"cannot write to {root}", why=str(error.strerror)) from error
    return [root / name for name in files]
