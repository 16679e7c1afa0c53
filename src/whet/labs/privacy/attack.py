"""One call for every attack on images."""

from __future__ import annotations

from ...errors import WhetError
from .gradients import Observation
from .recovered import Progress, Recovered

METHODS = ("dlg", "cosine", "analytic")


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
    raise WhetError(f"there is no attack {method!r}", try_=", ".join(METHODS))
