"""What updates tell: both studies, one after the other.

    python -m benchmarks.privacy                everything; each goes on where it was stopped
    python -m benchmarks.privacy leakage        one of them
    python -m benchmarks.privacy membership
    python -m benchmarks.privacy page           both pages again, from what is kept

Members are studied at the size of the page, `--small`. Both need Fashion-MNIST, leakage needs
$WHET_DATA as well (see subjects.py), membership the package seglearn. What each takes, `python -m
benchmarks.privacy.leakage --help` and `python -m benchmarks.privacy.membership --help` say.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

STUDIES = ("leakage", "membership")


def commands(what: str, workers: int) -> list[list[str]]:
    """The arguments of python for each study."""
    found = []
    for study in STUDIES if what in ("all", "page") else (what,):
        words = ["page"] if what == "page" else ["--workers", str(workers)]
        small = ["--small"] if study == "membership" else []
        found.append(["-m", f"benchmarks.privacy.{study}", *words, *small])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["all", *STUDIES, "page"], default="all")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    failed = [
        words[1]
        for words in commands(asked.what, asked.workers)
        if subprocess.run([sys.executable, *words]).returncode
    ]
    if failed:
        sys.exit(f"{' and '.join(failed)} did not end well")


if __name__ == "__main__":
    main()
