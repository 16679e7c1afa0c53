"""whet compiles a PyTorch model into a small C program that trains it where it runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import WhetError

if TYPE_CHECKING:
    from . import callbacks as callbacks
    from . import compress as compress
    from . import federated as federated
    from . import llm as llm
    from . import passes as passes
    from . import privacy as privacy
    from . import tinytl as tinytl
    from .api import Outputs as Outputs
    from .api import compare as compare
    from .api import compile as compile
    from .emit.program import Program as Program
    from .labs.search import Search as Search
    from .labs.search import TrialSettings as TrialSettings
    from .labs.search import contributions as contributions
    from .labs.search import search as search
    from .quantize import Int8 as Int8
    from .runtime import SampleCache as SampleCache
    from .runtime import Trainer as Trainer
    from .saved import load as load
    from .scheme import Rule as Rule
    from .scheme import Scheme as Scheme
    from .scheme import lora as lora
    from .training import Send as Send
    from .workbench import Workbench as Workbench
    from .workbench import plan as plan

__all__ = [
    "Int8", "Outputs", "Program", "Rule", "SampleCache", "Scheme", "Search", "Send", "Trainer",
    "TrialSettings", "WhetError", "Workbench", "compare", "compile", "contributions", "errors",
    "load", "lora", "plan", "search",
]  # fmt: skip
__version__ = "0.1.0"


# Where each name is. Modules are imported when they are asked for: `import whet` takes no time, and
# running a program needs no PyTorch.
LATE = {
    **dict.fromkeys(("Outputs", "compare", "compile"), ".api"),
    **dict.fromkeys(("Workbench", "plan"), ".workbench"),
    **dict.fromkeys(("Search", "TrialSettings", "contributions", "search"), ".labs.search"),
    **dict.fromkeys(("Rule", "Scheme", "lora"), ".scheme"),
    **dict.fromkeys(("SampleCache", "Trainer"), ".runtime"),
    "Int8": ".quantize", "Program": ".emit.program", "Send": ".training", "load": ".saved",
    "callbacks": ".callbacks", "compress": ".compress", "federated": ".federated", "llm": ".llm",
    "passes": ".passes", "privacy": ".privacy", "tinytl": ".tinytl",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in LATE:
        try:
            module = importlib.import_module(LATE[name], __name__)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise errors.FrontendError(
                "compiling needs PyTorch, which is not installed", try_="pip install torch"
            ) from None
        return getattr(module, name, module)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATE})
