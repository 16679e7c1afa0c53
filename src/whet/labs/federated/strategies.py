"""Flower's strategies by name. Imported only where Flower is used."""

from __future__ import annotations

from typing import Any

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from ...errors import WhetError

NAMES = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedadam": "FedAdam",
    "krum": "Krum",
    "trimmed": "FedTrimmedAvg",
}


def strategy_of(name: str | Strategy, **options: Any) -> Strategy:
    """One of NAMES with Flower's options, or a strategy as it is."""
    if isinstance(name, Strategy):
        if options:
            raise WhetError(f"{', '.join(options)}: the strategy is made already")
        return name
    if name not in NAMES:
        raise WhetError(f"there is no strategy {name!r}", try_=", ".join(NAMES))
    made: Strategy = getattr(flower, NAMES[name])(**options)
    return made
