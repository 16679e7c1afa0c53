"""whet compiles a PyTorch model into a small C program that trains it where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .emit.program import Program
from .errors import WhetError
from .runtime import Trainer

if TYPE_CHECKING:
    from .api import compile as compile

__all__ = ["Program", "Trainer", "WhetError", "compile", "errors"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`whet.compile` needs PyTorch, running a program does not: import it when it is asked for."""
    if name == "compile":
        try:
            from .api import compile
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise errors.FrontendError(
                "compiling needs PyTorch, which is not installed", try_='pip install "whet[torch]"'
            ) from None
        return compile
    raise AttributeError(f"module 'whet' has no attribute {name!r}")
