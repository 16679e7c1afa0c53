"""whet compiles a PyTorch model into a small C program that trains it where it runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from . import passes as passes
from .emit.program import Program
from .errors import WhetError
from .quantize import Int8
from .runtime import SampleCache, Trainer
from .saved import load
from .scheme import Rule, Scheme, lora
from .training import Send

if TYPE_CHECKING:
    from . import callbacks as callbacks
    from . import compress as compress
    from . import federated as federated
    from . import llm as llm
    from . import privacy as privacy
    from . import tinytl as tinytl
    from .api import Outputs as Outputs
    from .api import compare as compare
    from .api import compile as compile
    from .labs.search import Search as Search
    from .labs.search import TrialSettings as TrialSettings
    from .labs.search import contributions as contributions
    from .labs.search import search as search
    from .workbench import Workbench as Workbench
    from .workbench import plan as plan

__all__ = [
    "Int8", "Outputs", "Program", "Rule", "SampleCache", "Scheme", "Search", "Send", "Trainer",
    "TrialSettings", "WhetError", "Workbench", "compare", "compile", "contributions", "errors",
    "load", "lora", "plan", "search",
]  # fmt: skip
__version__ = "0.1.0"


LATE = {
    "Outputs": ".api", "compare": ".api", "compile": ".api", "plan": ".workbench",
    "Workbench": ".workbench",
    "Search": ".labs.search", "TrialSettings": ".labs.search", "contributions": ".labs.search",
    "search": ".labs.search", "tinytl": ".tinytl", "federated": ".federated",
    "privacy": ".privacy", "compress": ".compress", "llm": ".llm", "callbacks": ".callbacks",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Compiling needs PyTorch, running a program does not: import it when it is asked for."""
    if name in LATE:
        try:
            module = importlib.import_module(LATE[name], __name__)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise errors.FrontendError(
                "compiling needs PyTorch, which is not installed", try_='pip install "whet[torch]"'
            ) from None
        return getattr(module, name, module)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")
