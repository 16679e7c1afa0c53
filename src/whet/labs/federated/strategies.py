"""Flower's strategies, behind a check of what clients send. Imported only where Flower is used."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
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
log = logging.getLogger("flwr")


class Admit(Protocol):
    """Says why a reply is not to be used, or None.

    If it has a method `begin(round, arrays)`, that is told the number of each round and the global
    parameters by name, before they are sent.
    """

    def __call__(self, message: Message, /) -> str | None: ...


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


class Admitting(Strategy):
    """A strategy that sees only the replies that `admit` has nothing against.

    Others are logged with the reason and dropped; if none is left, the global model stays as it is.
    What a strategy computes in float64, as FedAdam does, travels as float32.
    """

    def __init__(self, strategy: Strategy, admit: Admit | None = None) -> None:
        self.strategy = strategy
        self.admit = admit
        self.refused: list[tuple[int, int, str]] = []  # round, node, reason

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if (begin := getattr(self.admit, "begin", None)) is not None:
            begin(server_round, {name: array.numpy() for name, array in arrays.items()})
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        admitted = [m for m in replies if self._admitted(server_round, m)]
        if not any(m.has_content() for m in admitted):
            log.warning("round %d: no update is left; the global model stays", server_round)
            return None, None
        arrays, metrics = self.strategy.aggregate_train(server_round, admitted)
        if arrays is None:
            return None, metrics
        return ArrayRecord({n: Array(narrow(a.numpy())) for n, a in arrays.items()}), metrics

    def _admitted(self, server_round: int, message: Message) -> bool:
        if self.admit is None or not message.has_content():  # Flower logs errors
            return True
        reason = self.admit(message)
        if reason is None:
            return True
        node = message.metadata.src_node_id
        self.refused.append((server_round, node, reason))
        log.warning("round %d: the update of node %d is refused: %s", server_round, node, reason)
        return False

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()


def narrow(array: Any) -> Any:
    return np.asarray(array, np.float32) if array.dtype == np.float64 else array
