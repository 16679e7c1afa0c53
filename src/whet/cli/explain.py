"""`whet explain`: what the code of an error means, why it happens, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from .. import errors
from ..errors import WhetError
from .options import JsonOpt
from .printing import out, say, say_json

PAGES = Path(errors.__file__).parent / "explain"


@dataclass(frozen=True)
class Page:
    """What there is to say about an error, in Markdown; the title is its first line."""

    code: str
    name: str  # of the class
    title: str
    text: str


def page(kind: type[WhetError]) -> Page:
    text = (PAGES / f"{kind.code}.md").read_text()
    title = text.partition("\n")[0].removeprefix(f"# {kind.code} {kind.__name__}: ")
    return Page(kind.code, kind.__name__, title, text)


def pages() -> list[Page]:
    """One for each class of errors, by code."""
    kinds = (e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, WhetError))
    return [page(kind) for kind in sorted(kinds, key=lambda kind: kind.code)]


def find(word: str) -> Page:
    known = {key: found for found in pages() for key in (found.code, found.name.upper())}
    if word.upper() in known:
        return known[word.upper()]
    near = get_close_matches(word.upper(), known, n=3) or ["W301"]
    raise WhetError(
        f"there is no error code {word!r}",
        try_=[*dict.fromkeys(f"whet explain {known[key].code}" for key in near), "whet explain"],
    )


def explain_command(
    code: Annotated[
        str | None, typer.Argument(help="as W301, or as BudgetError", metavar="CODE")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Say what the code of an error means, why it happens and what to do; without CODE, list all.

    Example: [cyan]whet explain W301[/]
    """
    if code is None:
        listed = pages()
        if as_json:
            say_json([asdict(found) for found in listed])
            return
        for found in listed:
            say(f"{found.code}  {found.name:<15}  {found.title}")
        return
    found = find(code)
    if as_json:
        say_json(asdict(found))
    elif out.is_terminal:
        from rich.markdown import Markdown

        out.print(Markdown(found.text), soft_wrap=False)
    else:
        say(found.text.rstrip("\n"))
