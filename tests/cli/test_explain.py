"""Every error code has a page, and the example on it raises that error."""

from __future__ import annotations

import doctest
import json
import os
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from examples import examples
from whet import errors
from whet.cli import app
from whet.cli.explain import PAGES, pages
from whet.errors import WhetError

COMPILED = {"W301", "W401", "W402", "W403", "W501", "W502"}  # takes a second or more


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["explain", *words])


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    codes = [found.code for found in pages()]
    assert codes == sorted(path.stem for path in PAGES.iterdir())
    for found in pages():
        assert found.text.startswith(f"# {found.code} {found.name}: {found.title}\n")
        headings = [line[3:] for line in found.text.splitlines() if line.startswith("## ")]
        assert headings == ["Why it happens", "What to do", "Example"], found.code
        if found.code != WhetError.code:
            assert found.title in (errors.__doc__ or ""), "the tree has the same words"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(found.code, marks=pytest.mark.slow if found.code in COMPILED else ())
        for found in pages()
    ],
)
def test_the_example_raises_the_error(code: str) -> None:
    path = PAGES / f"{code}.md"
    ((source, expected),) = examples(path)
    with mock.patch.dict(os.environ), pytest.raises(WhetError) as caught:
        exec(compile(source, str(path), "exec"), {"__name__": "example"})
    assert caught.value.code == code and expected is not None
    message = f"{caught.value}\n"
    assert doctest.OutputChecker().check_output(expected, message, doctest.ELLIPSIS), message


def test_a_page_is_printed_by_code_or_class() -> None:
    page = (PAGES / "W301.md").read_text()
    assert run("W301").stdout == run("w301").stdout == run("BudgetError").stdout == page
    found = json.loads(run("W301", "--json").stdout)
    assert found["name"] == "BudgetError" and found["text"] == page


def test_without_a_code_all_are_listed() -> None:
    lines = run().stdout.splitlines()
    assert len(lines) == len(pages())
    assert "W403  CheckpointError  a checkpoint is damaged, or belongs to another model" in lines
    assert [found["code"] for found in json.loads(run("--json").stdout)] == [
        line.split()[0] for line in lines
    ]


def test_an_unknown_code_names_near_ones() -> None:
    result = run("W310")
    assert isinstance(result.exception, WhetError)
    text = str(result.exception)
    assert "there is no error code 'W310'" in text and "whet explain W301" in text
    assert "whet explain W403" in str(run("CheckpontError").exception)
