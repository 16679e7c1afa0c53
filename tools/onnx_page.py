"""Write the table of docs/onnx.md: ONNX's own node tests, and what is refused.

python tools/onnx_page.py
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- by tools/onnx_page.py -->\n", "<!-- end -->\n"


def page(verdicts: Sequence[Any]) -> str:
    """The counts, the tests that are refused, and the operators with a row."""
    from whet.frontend.onnx.rows import ROWS

    counts = Counter(v.kind for v in verdicts)
    refused = Counter(v.op for v in verdicts if v.kind == "refused")
    total = Counter(v.op for v in verdicts)
    lines = [
        "| float tests of ONNX | right | refused | wrong |",
        "|--:|--:|--:|--:|",
        f"| {len(verdicts)} | {counts['right']} | {counts['refused']} | {counts['wrong']} |",
        "",
        "| refused | tests | of |",
        "|---|--:|--:|",
        *(f"| `{op}` | {n} | {total[op]} |" for op, n in sorted(refused.items())),
        "",
    ]
    names = ", ".join(f"`{op}`" for _, op in sorted(ROWS, key=lambda key: key[1]))
    rows = f"The {len(ROWS)} operators with a row: {names}."
    return "\n".join([*lines, *textwrap.wrap(rows, 100, break_on_hyphens=False)]) + "\n"


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from onnx_suite import verdicts

    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + "\n" + page(verdicts()) + "\n" + END + after)


if __name__ == "__main__":
    main()
