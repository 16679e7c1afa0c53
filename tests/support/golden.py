"""Golden files: what a program looked like when it was last accepted (`pytest --accept`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
# A checksum of numbers, as model.c passes it to functions of the kernels: it depends on all digits.
IDENTITY = re.compile(r", 0x[0-9a-f]{8}u,")


def steady(content: bytes) -> str:
    """Text with numbers of a few digits: the last ones of a sum depend on the processor."""
    text = IDENTITY.sub(", identity,", content.decode())
    return NUMBER.sub(lambda match: f"{float(match[0]):.3g}", text)


def spelled(texts: Mapping[str, str], paths: Iterable[str]) -> str:
    """Some files of a program as one text, each below its name."""
    return "".join(f"==== {path}\n{texts[path]}" for path in paths)
