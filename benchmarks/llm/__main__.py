"""Language models: the studies of this folder, one after the other.

    python -m benchmarks.llm          time and memory of a step, gradients, and quality
    python -m benchmarks.llm page     their pages again from what is kept

Each is a program of its own with more arguments: benchmarks.llm.step, .gradients and .quality.
"""

from __future__ import annotations

import sys

from benchmarks.llm import gradients, quality, step


def main() -> None:
    given = sys.argv[1:]
    if given not in ([], ["page"]):
        raise SystemExit(__doc__)
    for study in (step, gradients, quality):
        study.main(given)


if __name__ == "__main__":
    main()
