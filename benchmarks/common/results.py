"""Results of a study on disk: one JSON record per line, compressed.

The file is replaced as a whole with every record that is added. A run that is stopped leaves a
complete file behind, and the next one continues from it.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def append(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    known = gzip.decompress(path.read_bytes()) if path.exists() else b""
    lines = known + json.dumps(record).encode() + b"\n"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(gzip.compress(lines, 9, mtime=0))
    os.replace(partial, path)
