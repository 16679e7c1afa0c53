"""The random numbers of this process that data may be drawn by: their state, and back to it."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError

Known = dict[str, Any]  # numbers, texts, bytes, and lists of these


def now(generators: Sequence[Any] = ()) -> Known:
    """The state of Python's, NumPy's and PyTorch's global generators, and of these of PyTorch."""
    version, words, gauss = random.getstate()
    known: Any = np.random.get_state(legacy=True)
    name, keys, place, has_gauss, cached = known
    torch = sys.modules.get("torch")
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, keys.astype("<u4").tobytes(), int(place), int(has_gauss), float(cached)],
        "torch": None if torch is None else bytes(torch.get_rng_state().numpy()),
        "generators": [bytes(generator.get_state().numpy()) for generator in generators],
    }


def restore(known: Any, generators: Sequence[Any] = ()) -> None:
    """What `now` gave; DataError if it was something else, or of other generators."""
    try:
        _restore(known, generators)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(
            "the random numbers of the run cannot be set back",
            why=f"{type(error).__name__}: {error}",
            try_="the same data and loader as before",
        ) from error


def _restore(known: Known, generators: Sequence[Any]) -> None:
    version, words, gauss = known["python"]
    name, keys, *rest = known["numpy"]
    if len(known["generators"]) != len(generators):
        raise ValueError(f"{len(known['generators'])} generators, not {len(generators)}")
    random.setstate((version, tuple(words), gauss))
    np.random.set_state((name, np.frombuffer(keys, "<u4"), *rest))
    torch = sys.modules.get("torch")
    states = list(zip(generators, known["generators"], strict=True))
    if torch is None:
        return
    if known["torch"] is not None:
        torch.set_rng_state(torch.frombuffer(bytearray(known["torch"]), dtype=torch.uint8))
    for generator, state in states:
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
