"""Run the notebooks from top to bottom and store what they print and draw.

python tools/notebooks.py [NAME ...]        by default all of them
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
LIMIT = 600  # seconds for a cell, and for the kernel to start on a busy machine


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of this run; the first cell that fails raises an error."""
    os.environ["WHET_UNTUNED"] = "1"  # programs are the same on a machine that was measured
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=LIMIT, startup_timeout=LIMIT, kernel_name="python3",
        record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    client.execute()
    return cleaned(notebook)


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what depends on the machine or the hour, and with the same names of cells."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            began = time.perf_counter()
            nbformat.write(run(path), path)
            print(f"{path.name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
