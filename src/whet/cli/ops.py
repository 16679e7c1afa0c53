"""`whet ops`: which operators train, in which numbers and on which targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..errors import WhetError
from ..ir import Op
from ..ops import lookup, quantized
from ..quantize.integer import integer_form
from ..targets import TARGETS, Target
from .options import JsonOpt
from .printing import out, say, say_json

FAST = {"vec": "vector", "dsp": "DSP"}  # folders of kernels/ made for a kind of processor
DEFINED = re.compile(r"^[a-z][^;=\n]*?\bwhet_(\w+)\(", re.MULTILINE)
# What names of kernels end with, by the numbers of a program.
TYPES = {"float32": "(_f32)?", "int8": "(_(f32|i8|i16|i32))*", "bf16": "(_f32)?"}
WIDTH = 120  # of a table in a file


@dataclass(frozen=True)
class Row:
    """How one operator trains: for each kind of numbers, the kernels of each target.

    `kernels[dtype][target]` is "vector", "DSP" or "C", or "view" where there is nothing to compute.
    A dtype is missing where the operator stays in float32 in programs of such numbers.
    """

    op: str
    family: str
    kernels: dict[str, dict[str, str]]


@cache
def defined(folder: str) -> frozenset[str]:
    """The kernels of one folder, without the prefix that all have."""
    files = (resources.files("whet") / "kernels" / folder).iterdir()
    texts = (file.read_text() for file in files if file.name.endswith(".c"))
    return frozenset(name for text in texts for name in DEFINED.findall(text))


def kernels_of(op: type[Op], dtype: str, target: Target) -> str:
    """The folder that a target has kernels of this operator in, in words."""
    if op.view:
        return "view"
    for folder in target.isa:
        own = (re.fullmatch(op.name + TYPES[dtype], name) for name in defined(folder))
        if folder in FAST and any(own):
            everywhere = dtype != "int8" or op.same_bits  # int8 programs have the same bits
            return FAST[folder] if everywhere or folder == "dsp" else "C"
    return "C"


def forms_of(op: type[Op]) -> Iterator[tuple[str, type[Op]]]:
    yield "float32", op
    if (integer := integer_form(op)) is not None:
        yield "int8", integer
    if op.rounded is not None:
        yield "bf16", op.rounded


def family_of(op: type[Op]) -> str:
    return op.__module__.rsplit(".", 1)[-1]


def differentiated() -> list[type[Op]]:
    """The operators of float models that have a gradient, whatever form weights are stored in."""
    known = [op for op in Op.registry.values() if op.vjp is not Op.vjp and op.differentiable]
    forms = {form for op in known if (form := integer_form(op)) is not None and form is not op}
    codes = {lookup.__name__, quantized.__name__}  # what leads from floats to codes and back
    return [op for op in known if op not in forms and op.__module__ not in codes]


def rows() -> list[Row]:
    return [
        Row(
            op.name,
            family_of(op),
            {
                dtype: {name: kernels_of(form, dtype, t) for name, t in TARGETS.items()}
                for dtype, form in forms_of(op)
            },
        )
        for op in differentiated()
    ]


def cell(row: Row, dtype: str, targets: Sequence[str]) -> str:
    found = row.kernels.get(dtype)
    return "" if found is None else ", ".join(dict.fromkeys(found[name] for name in targets))


def columns() -> dict[str, list[str]]:
    """The targets of each column, by the first of them: the others have the same kernels."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, target in TARGETS.items():
        folders = tuple(folder for folder in target.isa if folder in FAST)
        found.setdefault(folders, []).append(name)
    return {names[0].rstrip("0123456789"): names for names in found.values()}


def ops_command(
    op: Annotated[
        str | None, typer.Argument(help="only operators with this in their name", metavar="NAME")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """List the operators that train, with the kernels that each kind of numbers has on each target.

    Example: [cyan]whet ops conv[/]
    """
    found = [row for row in rows() if op is None or op in row.op]
    if not found:
        raise WhetError(f"no operator that trains has {op!r} in its name", try_="whet ops")
    if as_json:
        say_json([asdict(row) for row in found])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("operator")
    for dtype in TYPES:
        for target in columns():
            table.add_column(f"{dtype}\n{target}")
    for row in found:
        cells = (cell(row, dtype, names) for dtype in TYPES for names in columns().values())
        table.add_row(row.op, *cells)
    wide = out if out.is_terminal else Console(width=WIDTH, highlight=False)
    wide.print(table)
    say("empty: the operator stays in float32 in programs of these numbers")
