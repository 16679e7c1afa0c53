"""Defences by name, as said on a command line: `prune:0.9`, `noise:0.01`, `dp:1:0.5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import DataError
from . import defences
from .defences import Defended
from .recovered import Array

Gradients = Mapping[str, Array]


@dataclass(frozen=True)
class Choice:
    """A defence with its numbers."""

    name: str
    words: str
    apply: Callable[[Gradients, int], Defended]  # gradients and a seed
    numbers: tuple[float, ...] = ()


# How many numbers follow each name, what it does in words, and what does it.
KNOWN: dict[str, tuple[int, str, Callable[..., Defended]]] = {
    "none": (0, "no defence", lambda g, seed: defences.none(g)),
    "noise": (
        1, "Gaussian noise of {0:g} times the gradients' RMS",
        lambda g, seed, a: defences.gaussian(g, a, seed=seed),
    ),
    "noise-abs": (
        1, "Gaussian noise with deviation {0:g}",
        lambda g, seed, a: defences.gaussian(g, a, absolute=True, seed=seed),
    ),
    "laplace": (
        1, "Laplacian noise of {0:g} times the gradients' RMS",
        lambda g, seed, a: defences.laplacian(g, a, seed=seed),
    ),
    "prune": (
        1, "the smallest {percent:g} % of each tensor set to zero",
        lambda g, seed, a: defences.prune(g, a),
    ),
    "top-k": (
        1, "only the largest {percent:g} % sent", lambda g, seed, a: defences.top_k(g, a),
    ),
    "fp16": (0, "rounded to 16-bit floats", lambda g, seed: defences.fp16(g)),
    "int8": (0, "rounded to 8-bit integers", lambda g, seed: defences.int8(g)),
    "clip": (1, "scaled to a norm of at most {0:g}", lambda g, seed, a: defences.clip(g, a)),
    "dp": (
        2, "clipped to a norm of {0:g}, then noise of {1:g} times that",
        lambda g, seed, a, b: defences.clip_and_noise(g, a, b, seed=seed),
    ),
}  # fmt: skip
EXAMPLE = (
    "noise:0.01, noise-abs:1e-3, laplace:0.01, prune:0.9, top-k:0.01, fp16, int8, clip:1, dp:1:0.5"
)


def defence(text: str) -> Choice:
    """The defence that `prune:0.9` names."""
    name, *words = text.strip().split(":")
    if name not in KNOWN:
        raise DataError(f"there is no defence {name!r}", try_=EXAMPLE)
    count, said, function = KNOWN[name]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise DataError(
            f"the numbers of the defence {text!r} are not numbers", try_=EXAMPLE
        ) from None
    if len(numbers) != count:
        raise DataError(
            f"the defence {text!r} has {len(numbers)} numbers, {name} takes {count}", try_=EXAMPLE
        )
    found = Choice(
        text.strip(),
        said.format(*numbers, percent=100 * sum(numbers[:1])),
        lambda gradients, seed: function(gradients, seed, *numbers),
        tuple(numbers),
    )
    found.apply({"w": np.ones(2, np.float32)}, 0)  # refuses what the numbers may not be
    return found
