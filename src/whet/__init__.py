"""whet compiles a PyTorch model into a small C program that trains it where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from . import passes as passes
from .emit.program import Program
from .errors import WhetError
from .quantize import Int8
from .runtime import Trainer
from .scheme import Rule, Scheme

if TYPE_CHECKING:
    from .api import compare as compare
    from .api import compile as compile

__all__ = [
    "Int8", "Program", "Rule", "Scheme", "Trainer", "WhetError", "compare", "compile", "errors",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Compiling needs PyTorch, running a program does not: import it when it is asked for."""
    if name in ("compare", "compile"):
        try:
            from . import api
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise errors.FrontendError(
                "compiling needs PyTorch, which is not installed", try_='pip install "whet[torch]"'
            ) from None
        return getattr(api, name)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")
