"""What the pages of all benchmarks have in common."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def wrapped(text: str, **words: object) -> str:
    """A paragraph, with the words put in."""
    return textwrap.fill(" ".join(text.format(**words).split()), 100, break_on_hyphens=False) + "\n"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
