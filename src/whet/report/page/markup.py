"""HTML as text: elements around escaped words."""

from __future__ import annotations

import html

from ...names import printable

VOID = ("input", "meta", "br")


def words(text: str) -> str:
    """Text of a page, from wherever it comes."""
    return html.escape(printable(text), quote=False)


def tag(name: str, *children: str, **attributes: str) -> str:
    """One element. Children are HTML already; `class_` is `class`, `data_kind` is `data-kind`."""
    parts = [name]
    for key, value in attributes.items():
        quoted = words(value).replace('"', "&quot;")
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{quoted}"')
    opening = f"<{' '.join(parts)}>"
    return opening if name in VOID else f"{opening}{''.join(children)}</{name}>"


def grid(
    head: list[str], rows: list[tuple[str, ...]], *, tall: bool = False, total: bool = False
) -> str:
    """A table of plain text; the first cell of a row is its heading."""
    top = tag("thead", tag("tr", *(tag("th", words(cell), scope="col") for cell in head)))
    lines = []
    for i, (first, *cells) in enumerate(rows):
        last = total and i == len(rows) - 1
        start = tag("th", words(first.strip()), scope="row", **indent(first))
        body = [tag("td", words(cell)) for cell in cells]
        lines.append(tag("tr", start, *body, **({"class_": "total"} if last else {})))
    table = tag("table", top, tag("tbody", *lines))
    return tag("div", table, class_="scroll tall" if tall else "scroll", tabindex="0")


def indent(first: str) -> dict[str, str]:
    return {"class_": "indent"} if first.startswith(" ") else {}
