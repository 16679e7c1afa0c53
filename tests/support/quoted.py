"""Read the tables of a page of results, and find the numbers that a page of the docs quotes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def text_of(page: str) -> str:
    """As one line, so that it does not matter where lines break."""
    return " ".join((ROOT / page).read_text().split())


Table = tuple[str, list[str], dict[str, list[str]]]  # the heading above, the head, rows by name


@functools.cache
def tables(page: str) -> list[Table]:
    found: list[Table] = []
    heading, inside = "", False
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [c.strip().strip("*") for c in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif not inside:
            inside = True
            found.append((heading, cells, {}))
        elif not cells[0].startswith("--"):
            found[-1][2][cells[0]] = cells
    return found


def table(page: str, column: str, under: str = "") -> Table:
    """The only one with this column (below this heading, or whose head begins so)."""
    (one,) = [t for t in tables(page) if column in t[1] and (under in t[0] or t[1][0] == under)]
    return one


def cell(page: str, row: str, column: str, under: str = "") -> str:
    _, head, rows = table(page, column, under)
    assert head.count(column) == 1, f"two columns {column}"
    return rows[row][head.index(column)]


def column(page: str, name: str, under: str = "") -> dict[str, str]:
    """The cells of a column by row."""
    _, _, rows = table(page, name, under)
    return {row: cell(page, row, name, under) for row in rows}


def number(text: str) -> float:
    """The first of a cell."""
    found = re.search(r"[-+]?\d[\d,]*(\.\d+)?", text)
    assert found, text
    return float(found[0].replace(",", ""))


def whole(x: float | str, digits: int = 0) -> str:
    """Rounded as people do, halves up; the cell of a table is taken for exact."""
    value = Decimal(str(number(x) if isinstance(x, str) else x))
    return f"{value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


NUMBER = r"(?<![\w.:/=-])\d[\d,]*(?:\.\d+)?"
WORDS = "%|KiB|KB|MB|GB|MiB|ms|M|bytes|times|points|million|core-minutes|instructions"
UNIT = rf"(?:x\b| ?(?:{WORDS})(?!\w))"
FIGURE = re.compile(rf"{NUMBER}{UNIT}|(?<![\w.:/=-])\d+(?:[.,]\d+)+")


def sections(page: str) -> list[str]:
    """Those that name a file of results, without their examples."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    parts = re.split(r"^#+ .*$", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in parts if re.search("benchmarks[/.]", part)]


def figures(text: str, held: Iterable[str] = ()) -> list[str]:
    """The figures of a text that are in none of the sentences that are held."""
    spans = [m.span() for sentence in held for m in re.finditer(re.escape(sentence), text)]
    found = FIGURE.finditer(text)
    return [m[0] for m in found if not any(a <= m.start() and m.end() <= b for a, b in spans)]
