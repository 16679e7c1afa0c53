"""The notebooks run from top to bottom, and what is stored in them is fit to be shown."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|usr|work|opt|var|Users|mnt|private)/")

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def test_there_are_notebooks_and_the_page_lists_them_in_order() -> None:
    listed = re.findall(r"\]\((\S+\.ipynb)\)", (FOLDER / "README.md").read_text())
    assert listed == [path.name for path in NOTEBOOKS] and len(listed) >= 9


@every_notebook
def test_stored_outputs_are_whole_and_name_no_place_of_a_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert any("image/png" in o.get("data", {}) for o in outputs), "a picture"
    assert any("assert " in cell.source for cell in code), "what the text says is held"
    assert "## Questions" in notebook.cells[-1].source
    texts = [cell.source for cell in notebook.cells]
    for output in outputs:
        texts.append(output.get("text", ""))
        texts += [str(v) for kind, v in output.get("data", {}).items() if kind.startswith("text/")]
    assert not [found[0] for text in texts if (found := ABSOLUTE.search(text))]
    assert not any(cell.metadata for cell in notebook.cells), "run: python tools/notebooks.py"


def test_a_path_of_a_machine_is_recognised() -> None:
    assert ABSOLUTE.search("in /home/somebody/x") and ABSOLUTE.search('"/tmp/x"')
    assert not ABSOLUTE.search("https://example.org/home/x a/tmp/b")


@pytest.mark.slow
@every_notebook
def test_the_notebook_runs(path: Path) -> None:
    """Its `assert` statements hold what its text says."""
    from notebooks import run

    now, stored = run(path), nbformat.read(path, as_version=4)
    assert [cell.source for cell in now.cells] == [cell.source for cell in stored.cells]
    kinds = [[o.output_type for o in cell.get("outputs", [])] for cell in now.cells]
    assert kinds == [[o.output_type for o in cell.get("outputs", [])] for cell in stored.cells]
