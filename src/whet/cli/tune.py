"""`whet tune`: measure this machine, and keep what was measured if it can be relied upon."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import WhetError
from .options import JsonOpt
from .printing import say, say_json, waiting

if TYPE_CHECKING:
    from ..passes.machine import Machine


def tune_command(
    force: Annotated[
        bool, typer.Option("--force", help="keep what was measured on a busy machine, too")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="remove what was kept, and measure nothing")
    ] = False,
    as_json: JsonOpt = False,
) -> None:
    """Measure this machine, once, for the choice of kernels; takes some fifteen seconds.

    Example: [cyan]whet tune[/]
    """
    from ..tune.kept import forget, keep
    from ..tune.measure import QUIET, tune

    if reset:
        path = forget()
        say("nothing was kept" if path is None else f"removed {path}")
        return
    with waiting.status("building and measuring"):
        machine, noise = tune()
    if as_json:
        say_json(asdict(machine) | {"noise": noise})
    else:
        tell(machine, noise)
    if noise > QUIET and not force:
        raise WhetError(
            "this machine is too busy to be measured; nothing was kept",
            why=f"times were {noise:.0%} above the quickest, and {QUIET:.0%} would do",
            try_=("whet tune again, when little else runs", "whet tune --force keeps them anyway"),
        )
    path = keep(machine)
    if not as_json:
        say(f"kept in {path}, which compile reads from now on")


def tell(machine: Machine, noise: float) -> None:
    say(f"  {2 * machine.macs:6.0f}    GFLOP/s of a convolution summed tap by tap")
    say(f"  {machine.rows:6}    rows in a block of a matrix product are the fastest")
    say(f"  {machine.near:9.2f} ns to change the form of a number in the cache")
    say(f"  {machine.far:9.2f} ns to do so outside")
    say(f"  {machine.wake / 1000:8.1f}  us to share work with a second thread: worth it from")
    say(f"  {machine.grain / 1000:6.0f}    thousand multiplications on")
    say(f"  {noise:6.0%}    noise: how far times were above the quickest")
