"""Bytes as people write them."""

from __future__ import annotations

import re

from ..errors import FrontendError, either

UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def parse_bytes(text: int | str) -> int:
    """262144, "256K", "256 KiB" and "0.25M" are the same."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", str(text).strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        hint = either('262144, "256K" or "1M"', "262144, 256K or 1M")
        raise FrontendError(f"{text!r} is not a number of bytes", try_=hint)
    return int(float(match[1]) * UNITS[match[2].upper()])
