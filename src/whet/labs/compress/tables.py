"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(n) for cell, n in zip(others, widths[1:], strict=True)]
        rows.append("  ".join(cells).rstrip())
    return "\n".join(rows)


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"
