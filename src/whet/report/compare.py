"""Compare one model under several update schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .kept import kept_buffers
from .program import gap, kib

if TYPE_CHECKING:
    from ..emit.program import Program


@dataclass(frozen=True)
class Comparison:
    """A scheme's memory in bytes; `without` has the arena and RAM with one pass disabled."""

    scheme: str
    memory: Mapping[str, int]
    kept: int  # activations kept for the backward pass
    without: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, scheme: str, program: Program, others: Mapping[str, Program]) -> Comparison:
        kept = sum(b.bytes for b in kept_buffers(program.plans["train_step"]))
        without = {name: (p.memory["arena"], p.memory["ram"]) for name, p in others.items()}
        return cls(scheme, program.memory, kept, without)

    def __repr__(self) -> str:
        arena, ram = kib(self.memory["arena"]), kib(self.memory["ram"])
        return f"<Comparison {self.scheme!r}: {arena} of arena, {ram} of RAM>"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def comparison_table(rows: Sequence[Comparison]) -> str:
    """Factors are relative to the first row, and those of a pass to its own row."""
    passes = list(rows[0].without)
    head = ["scheme", "trained", "kept", "arena", "gap", "less", "RAM", "less"]
    lines = [[*head, *(f"without {name}" for name in passes)]]
    first = rows[0].memory
    for row in rows:
        m = row.memory
        sizes = [kib(m["trained"]), kib(row.kept), kib(m["arena"])]
        factors = [gap(m["arena"], m["lower_bound"]), times(first["arena"], m["arena"])]
        total = [kib(m["ram"]), times(first["ram"], m["ram"])]
        others = [
            f"{kib(a)} {times(a, m['arena'])}" for a, _ in (row.without[name] for name in passes)
        ]
        lines.append([row.scheme, *sizes, *factors, *total, *others])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def times(before: int, after: int) -> str:
    return f"{before / after:.1f}x" if after else "-"
