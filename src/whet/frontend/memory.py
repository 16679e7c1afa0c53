"""A limit on memory while a library reads an untrusted file.

HDF5 allocates the sizes that a file states, so a damaged file of 32 KB can exhaust the memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

STATM = Path("/proc/self/statm")  # the first number: pages of address space


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """Allocations of this process fail once it has taken `more` bytes; on Linux, else no limit."""
    if not STATM.exists():
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limits = [limit for limit in (soft, hard, now + more) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
