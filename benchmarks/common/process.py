"""What the operating system knows about a process. Imports nothing but the standard library."""

from __future__ import annotations

from pathlib import Path


def high_water(pid: int | str) -> int:
    """Peak resident KiB. Unlike getrusage, this does not count what the parent had before."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
