"""What headers say of threads and of the machine's vectors."""

from __future__ import annotations

import re


def grain_h(template: str, grain: int) -> str:
    """whet_threads.h, with the number of multiplications from which sharing work pays."""
    return re.sub(r"(#define WHET_GRAIN) \d+", rf"\1 {grain}", template)


def rows_h(template: str, rows: int, lanes: int) -> str:
    """whet_lanes.h, with the fastest number of rows per block for vectors of this many lanes; 0
    rows leave it unchanged."""
    if not rows:
        return template
    tuned = re.sub(r"(#define WHET_TUNED_ROWS) \d+", rf"\1 {rows}", template)
    return re.sub(r"(#define WHET_TUNED_LANES) \w+", rf"\1 {lanes}", tuned)


def threads_h(prefix: str) -> list[str]:
    return [
        "/* Use up to `count` threads (1 by default) and return how many; no effect if count < 1.",
        " * Results are bit-identical for any number of threads. */",
        f"#define {prefix.upper()}_HAS_THREADS 1",
        f"int {prefix}_set_threads(int count);",
        "",
    ]
