"""One call for every attack on images."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import WhetError
from .analytic import analytic
from .cosine import cosine
from .dlg import dlg
from .gradients import Observation
from .recovered import Progress, Recovered

ITERATIVE: dict[str, Callable[..., Recovered]] = {"dlg": dlg, "cosine": cosine}


def attack(
    observation: Observation,
    *,
    method: str = "dlg",
    restarts: int = 4,
    iterations: int | None = None,
    adaptive: bool = True,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Recovered:
    """Reconstruct the batch that an observed gradient was computed from.

    An adaptive attacker knows which coordinates a defence has removed and ignores them, takes the
    labels from the gradient of the last layer where that shows them, and searches along a line.
    A naive one runs the attack as it was first published. `on_progress` is called every 10
    iterations with the start, the iteration, the matching loss and the images.
    """
    if method == "analytic":
        return analytic(observation)
    if method not in ITERATIVE:
        known = ", ".join(repr(name) for name in (*ITERATIVE, "analytic"))
        raise WhetError(f"there is no attack {method!r}", try_=known)
    return ITERATIVE[method](
        observation, restarts=restarts, iterations=iterations, adaptive=adaptive, seed=seed,
        on_progress=on_progress,
    )  # fmt: skip
