"""Every Python example in the README and the docs runs and prints what it says it prints."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def examples(page: Path) -> list[tuple[str, str | None]]:
    return [(m[1], m[2]) for m in BLOCK.finditer(page.read_text())]


@pytest.mark.parametrize("page", [p for p in PAGES if examples(p)], ids=lambda p: p.name)
def test_examples_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for code, expected in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        if expected is not None:
            same = doctest.OutputChecker().check_output(
                expected, printed.getvalue(), doctest.ELLIPSIS
            )
            assert same, f"{page.name} says\n{expected}\nbut prints\n{printed.getvalue()}"


def test_the_operator_page_is_up_to_date() -> None:
    from whet.docs import operator_page

    page = (ROOT / "docs" / "ops.md").read_text()
    assert page == operator_page(), "run: python -m whet.docs"
