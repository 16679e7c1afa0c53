"""Keras itself, with PyTorch as its backend."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ...errors import FrontendError

VARIABLE = "KERAS_BACKEND"


def keras() -> Any:
    """The package, which decides about its backend when it is imported first."""
    if "keras" not in sys.modules:
        if os.environ.setdefault(VARIABLE, "torch") != "torch":
            raise wrong_backend(os.environ[VARIABLE])
    try:
        found: Any = importlib.import_module("keras")
    except ModuleNotFoundError as error:
        if error.name != "keras":
            raise
        raise FrontendError(
            "Keras models need Keras, which is not installed", try_="pip install keras"
        ) from None
    version = getattr(found, "__version__", "0")
    if int(version.partition(".")[0]) < 3:
        raise FrontendError(f"Keras {version} is too old", why="whet reads models of Keras 3")
    if found.config.backend() != "torch":
        raise wrong_backend(found.config.backend())
    return found


def wrong_backend(name: str) -> FrontendError:
    return FrontendError(
        f"Keras runs on {name!r}, and whet needs it on PyTorch",
        why="Keras decides about its backend once, when it is imported",
        try_=f"{VARIABLE}=torch in the environment, before keras is imported",
    )
