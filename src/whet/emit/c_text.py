"""Write pieces of C: comments, calls, numbers, prototypes, declarations."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from ..errors import InternalError
from ..ir import Type
from ..names import for_comment

WIDTH = 100


def comment(text: str, indent: str = "    ") -> list[str]:
    """A comment. The text may contain names from the model, so anything that could end it is
    escaped."""
    text = for_comment(text)
    if len(indent) + len(text) + 6 <= WIDTH:
        return [f"{indent}/* {text} */"]
    width = WIDTH - len(indent) - 10
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    middle = [f"{indent} *     {line}" for line in lines[1:-1]]
    return [f"{indent}/* {lines[0]}", *middle, f"{indent} *     {lines[-1]} */"]


def call_text(function: str, args: Sequence[str], indent: str = "    ") -> list[str]:
    line = f"{indent}{function}({', '.join(args)});"
    if len(line) <= WIDTH:
        return [line]
    body = textwrap.wrap(  # between arguments, or between the elements of an array argument
        ", ".join(a.replace(" ", "\0").replace(",\0", ", ") for a in args),
        max(20, WIDTH - len(indent) - len(function) - 3),
        break_long_words=False,
        break_on_hyphens=False,
    )
    body = [part.replace("\0", " ") for part in body]
    hang = " " * (len(indent) + len(function) + 1)
    return [
        f"{indent}{function}({body[0]}",
        *(f"{hang}{part}" for part in body[1:-1]),
        f"{hang}{body[-1]});",
    ]


def number_text(x: int | float) -> str:
    """An int or a float. A NumPy scalar is a bug in the caller, so it is rejected."""
    if type(x) is float:
        return float_text(x)
    if type(x) is int:
        return str(x)
    raise InternalError(f"a kernel argument is a {type(x).__name__}, neither int nor float")


def float_text(x: float) -> str:
    value = np.float32(x)
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value!s}f"


def opened(prototype: str) -> list[str]:
    """The first lines of a function definition."""
    head = wrap_prototype(prototype)
    return [*head[:-1], f"{head[-1]} {{"]


def wrap_prototype(text: str) -> list[str]:
    """A prototype in as many lines as it needs, broken between parameters."""
    name, _, rest = text.partition("(")
    return [line.removesuffix(";") for line in call_text(name, rest[:-1].split(", "), "")]


def declaration(t: Type, word: str) -> str:
    shape = " /* " + "x".join(map(str, t.shape)) + " */" if len(t.shape) > 1 else ""
    return f"{t.dtype.c} {word}[{t.elements}]{shape}"
