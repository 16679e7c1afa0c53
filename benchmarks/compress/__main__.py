"""All studies of compression, one after the other.

    python -m benchmarks.compress                      everything; each goes on where it was stopped
    python -m benchmarks.compress lenets structured    some of them
    python -m benchmarks.compress page                 all pages again, from what is kept

$MNIST names the folder with the files of MNIST, $WHET_CIFAR10 that of CIFAR-10, $WHET_DATA the one
with pretrained weights and Flowers-102. A study whose data are missing says so and is left out.
What each needs and takes, `python -m benchmarks.compress.lenets --help` and so on say.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

NEEDS = {
    "lenets": None,
    "structured": None,
    "device": "WHET_DATA",
    "flowers": "WHET_DATA",
    "curves": "WHET_CIFAR10",
    "distillation": "WHET_CIFAR10",
}


def words(study: str, page: bool) -> list[str]:
    """The arguments of python."""
    mnist = ["--mnist", os.environ["MNIST"]] if study == "lenets" and "MNIST" in os.environ else []
    return ["-m", f"benchmarks.compress.{study}", *(["page"] if page else mnist)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("studies", nargs="*", help=", ".join((*NEEDS, "page")))
    asked = parser.parse_args().studies
    if unknown := set(asked) - {*NEEDS, "page"}:
        parser.error(f"there is no study {', '.join(unknown)}: choose of {', '.join(NEEDS)}")
    page = "page" in asked
    failed = []
    for study in [s for s in asked if s != "page"] or NEEDS:
        needed = NEEDS[study]
        if not page and needed is not None and needed not in os.environ:
            print(f"{study} is left out: {needed} is not set", file=sys.stderr)
        elif subprocess.run([sys.executable, *words(study, page)]).returncode:
            failed.append(study)
    if failed:
        sys.exit(f"{' and '.join(failed)} did not end well")


if __name__ == "__main__":
    main()
