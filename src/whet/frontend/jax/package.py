"""JAX itself."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import FrontendError


def jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise FrontendError(
            "functions of JAX need JAX, which is not installed", try_="pip install jax flax"
        ) from None
