"""A study that keeps a JSON record per line, beside the page that is made of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def kept(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def study(
    about: str | None,
    results: Path,
    names: Sequence[str],
    cells: Callable[[], Iterable[tuple[Any, ...]]],
    run: Callable[..., Record],
    page: Callable[[list[Record]], str],
    given: Sequence[str] | None = None,
) -> None:
    """The command of a study: run the cells that are not kept, then write the page.

    A cell is a tuple of the values that its record has under `names`, and what `run` takes.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--results", type=Path, default=results)
    asked = parser.parse_args(given)
    done = {tuple(record[name] for name in names) for record in kept(asked.results)}
    for cell in cells() if asked.what == "run" else ():
        if cell not in done:
            found = run(*cell)
            with open(asked.results, "a") as file:
                file.write(json.dumps(found) + "\n")
            print(found, flush=True)
    asked.results.with_suffix(".md").write_text(page(kept(asked.results)))
