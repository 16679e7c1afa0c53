"""Everything whet raises on purpose.

WhetError
├── FrontendError        the model cannot be imported
│   └── UnsupportedOps   the model uses operators whet does not have
├── SchemeError          an update scheme or option is invalid or does not fit the model
├── BudgetError          the program needs more memory than allowed
├── ShapeError           the shapes or types of an operator's operands do not match
├── DataError            an array passed to a running program is not what it expects
├── NotFinite            the loss became NaN or infinite
├── CheckpointError      a checkpoint is damaged, or belongs to another model
├── UpdateError          a sent update is malformed or not acceptable
├── TargetError          the target is unknown, or does not support the request
├── BuildError           a program cannot be built, written or read
├── RunError             an emulated board or a gateway stopped or does not answer
├── CheckError           the C program and PyTorch disagree
└── InternalError        a defect of whet itself

Each has a code, and a page in explain/ that `whet explain CODE` prints.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .names import printable

_shell = False  # whether messages are for the command line


@contextmanager
def for_the_shell() -> Iterator[None]:
    """Messages created in this context name command-line options."""
    global _shell
    before, _shell = _shell, True
    try:
        yield
    finally:
        _shell = before


def either(python: str, shell: str) -> str:
    """The text for users of the Python API, or for users of the command line."""
    return shell if _shell else python


def option(name: str, value: Any = None) -> str:
    """An argument as the user writes it: `update="last"`, or `--update last` in the shell."""
    word = f"--{name.replace('_', '-')}"
    if value is None:
        return either(f"{name}=", word)
    if isinstance(value, bool):
        return either(f"{name}={value}", word if value else f"--no-{word[2:]}")
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return either(f"{name}={text}", f"{word} {shlex.quote(str(value))}")


def warn(text: str) -> None:
    """Warn at the line outside whet that led here."""
    home = str(Path(__file__).parent)
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(home):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(printable(text), stacklevel=depth)


class WhetError(Exception):
    """An error with four parts: what happened, where, why in numbers, and what would work."""

    code = "W000"

    def __init__(
        self,
        what: str,
        *,
        at: str | Sequence[str] = (),
        why: str | Sequence[str] = (),
        try_: str | Sequence[str] = (),
    ) -> None:
        self.what = what
        self._parts = {"at": at, "why": why, "try_": try_}
        lines = [f"{what}  [{self.code}]"]
        for label, parts in (("at", at), ("why", why), ("try", try_)):
            listed = [parts] if isinstance(parts, str) else parts
            for i, part in enumerate(part for part in listed if part):
                lines.append(f"  {label if i == 0 else '':<5} {part}")
        super().__init__(printable("\n".join(lines)))

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons in numbers, each a line of the message."""
        given = self._parts["why"]
        return (given,) if isinstance(given, str) else tuple(given)

    def found_in(self, at: str, why: str) -> WhetError:
        """The same error, saying where and first of all why."""
        parts = self._parts | {"at": at, "why": tuple(word for word in (why, *self.why) if word)}
        return _again(type(self), self.what, parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all parts, for errors from other processes."""
        return _again, (type(self), self.what, self._parts)


def _again(kind: type[WhetError], what: str, parts: dict[str, Any]) -> WhetError:
    return kind(what, **parts)


class FrontendError(WhetError):
    code = "W101"


class UnsupportedOps(FrontendError):
    code = "W102"


class ShapeError(WhetError):
    code = "W201"


class BudgetError(WhetError):
    """`hints` are those of the message, each with its `change` and its bytes of `ram`."""

    code = "W301"
    hints: tuple[Any, ...] = ()


class SchemeError(WhetError):
    code = "W302"


class DataError(WhetError):
    code = "W401"


class NotFinite(WhetError):
    code = "W402"


class CheckpointError(WhetError):
    code = "W403"


class UpdateError(WhetError):
    code = "W404"


class BuildError(WhetError):
    code = "W501"


class TargetError(WhetError):
    code = "W503"


class RunError(WhetError):
    code = "W504"


class CheckError(WhetError):
    code = "W502"


class InternalError(WhetError):
    code = "W900"
