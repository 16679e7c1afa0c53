"""Draw docs/images/memory.svg from the pages of results: `python tools/memory_picture.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from whet.report import svg

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "memory.svg"
WIDTH, ROW, LEFT, RIGHT = 820, 25.0, 300.0, 130.0
OURS, THEIRS = "#c2313d", "#b8b8b8"

Bar = tuple[str, float]  # what it is of, and MB


def cells(page: str, start: str) -> list[str]:
    """The cells of the only row of a page that begins with this one."""
    lines = (ROOT / page).read_text().splitlines()
    (row,) = (line for line in lines if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def number(text: str) -> float:
    found = re.match(r"[\d,]+(\.\d+)?", text)
    assert found, text
    return float(found[0].replace(",", ""))


def groups() -> Iterator[tuple[str, list[Bar]]]:
    vision, language = "benchmarks/memory/README.md", "benchmarks/llm/memory.md"
    for title, row in (
        ("MCUNet-5fps, everything trains", "mcunet-5fps, full"),
        ("MCUNet-5fps, the published sparse scheme", "mcunet-5fps, mcunet-5fps-49kb"),
    ):
        _, ours, theirs, *_ = cells(vision, row)
        found = {"PyTorch": theirs, "whet": ours}
        yield title, [(who, number(kib) * 1024 / 1e6) for who, kib in found.items()]
    peak = 6
    shipped, torch = (number(cells(language, row)[peak]) for row in ("as shipped", "PyTorch"))
    bars = [("PyTorch", torch * 2**20 / 1e6), ("whet", shipped * 2**20 / 1e6)]
    yield "SmolLM2-135M, two of 30 blocks, sparse", bars


def picture() -> str:
    found = list(groups())
    most = max(size for _, bars in found for _, size in bars)
    parts, y = [], 78.0
    for title, bars in found:
        parts.append(svg.text(20, y + 30, title, 12))
        for who, size in bars:
            width = max((WIDTH - LEFT - RIGHT) * size / most, 1.5)
            color, words = (OURS, "bold") if who == "whet" else (THEIRS, "normal")
            parts.append(svg.rect(LEFT, y, width, ROW - 6, rx=2, fill=color))
            label = f"{who} {size:,.0f} MB" if size >= 10 else f"{who} {size:.1f} MB"
            parts.append(svg.text(LEFT + width + 7, y + 14, label, 12, font_weight=words))
            y += ROW
        y += 14
    about = "highest resident memory of the whole process, batch 1, CPU; less is better"
    return svg.page("Memory of a training step", about, parts, WIDTH, y + 4)


if __name__ == "__main__":
    PICTURE.write_text(picture())
