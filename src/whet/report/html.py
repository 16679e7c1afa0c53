"""Small HTML tables of a program and of a check, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .program import kib
from .svg import escape

if TYPE_CHECKING:
    from ..emit.program import Program

SHOWN = 6  # trained parameters listed by name
LEFT = ' style="text-align: left"'


def table(title: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table of escaped plain text; the first cell of a row is its heading."""
    lines = [f"<table><caption{LEFT}>{escape(title)}</caption>"]
    for head, *cells in rows:
        columns = "".join(f"<td{LEFT}>{escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th{LEFT}>{escape(head)}</th>{columns}</tr>")
    return "\n".join([*lines, "</table>"])


def program_html(program: Program) -> str:
    memory, trained = program.memory, program.storage.params
    parts = {"arena": "arena", "trained": "trained parameters", "state": "state", "io": "arrays"}
    detail = ", ".join(f"{kib(memory[key])} {word}" for key, word in parts.items() if memory[key])
    names = list(program.trained)
    more = [f"and {len(names) - SHOWN} others"] if len(names) > SHOWN else []
    rows = [
        ("target", program.target.name),
        ("dtype", program.dtype),
        ("scheme", program.scheme.name if program.scheme else ""),
        ("trains", ", ".join([*names[:SHOWN], *more])),
        (
            "parameters",
            f"{program.parameters:,}, {sum(t.elements for t in trained.values()):,} of them "
            f"trained ({len(trained)} tensors)",
        ),
        ("RAM", f"{kib(memory['ram'])}: {detail}"),
        ("flash, without code", kib(memory["flash"])),
        ("entry points", ", ".join(program.entries)),
    ]
    return table(f"whet program {program.name}", (row for row in rows if row[1]))
