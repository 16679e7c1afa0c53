"""The Python examples of a page, each with the output that the page shows below it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def examples(page: Path) -> list[tuple[str, str | None]]:
    return [(m[1], m[2]) for m in BLOCK.finditer(page.read_text())]
