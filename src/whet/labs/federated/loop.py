"""Federated averaging in one process, for tests, teaching and quick studies.

The average is computed in the order of Flower's strategies, so that the results are the same to the
bit if the same clients answer in the same order. `simulate` runs Flower itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError
from ..common.data import Array
from .local import Arrays, Client, Local, Score

HEADER = 128  # bytes of the header of a NPY file, in which Flower sends each array


@dataclass(frozen=True)
class Round:
    """The global model after a round; round 0 is the beginning."""

    number: int
    accuracy: float  # a fraction
    loss: float
    train_loss: float  # mean of the clients, by their number of samples
    sent: int  # bytes of arrays from the server to clients, in all rounds so far
    received: int  # and back


@dataclass(frozen=True, eq=False)
class History:
    arrays: Arrays  # the global model
    rounds: tuple[Round, ...]

    @property
    def accuracy(self) -> float:
        return self.rounds[-1].accuracy


Watch = Callable[[Round], None]


def federate(
    program: Any,
    clients: Sequence[Any],
    rounds: int = 3,
    local: Local = Local(),  # noqa: B008
    *,
    test: tuple[Array, Array] | None = None,
    initial: Mapping[str, Any] | None = None,
    fraction: float = 1.0,
    statistics: bool = False,
    watch: Watch | None = None,
) -> History:
    """FedAvg (arXiv:1602.05629), or FedProx if `local.mu` is not 0.

    `clients` have x, y, x_test and y_test; without `test`, the global model is judged by the test
    samples of all clients. In each round, a random `fraction` of the clients trains, at least one.
    """
    check(clients, rounds, fraction)
    client = Client(program, statistics)
    arrays: Arrays = {n: np.asarray(a) for n, a in (initial or client.give()).items()}
    taking = max(1, int(fraction * len(clients)))
    random = np.random.default_rng((local.seed, len(clients)))
    done: list[Round] = []
    train_loss, sent, received = float("nan"), 0, 0
    for turn in range(rounds + 1):
        if turn:
            chosen = sorted(random.permutation(len(clients))[:taking].tolist())
            replies = [client.train(arrays, clients[k], local, turn, k) for k in chosen]
            counts = [len(clients[k].y) for k in chosen]
            sent += len(chosen) * size(arrays)
            received += sum(size(reply) for reply, _ in replies)
            arrays = average([reply for reply, _ in replies], counts)
            train_loss = float(np.average([loss for _, loss in replies], weights=counts))
        score = judged(client, arrays, clients, test)
        done.append(Round(turn, score.accuracy, score.loss, train_loss, sent, received))
        if watch is not None:
            watch(done[-1])
    return History(arrays, tuple(done))


def average(replies: Sequence[Mapping[str, Array]], examples: Sequence[int]) -> Arrays:
    """Weighted by the number of samples, operation by operation as in Flower's FedAvg."""
    total = sum(examples)
    found: Arrays = {}
    for reply, count in zip(replies, examples, strict=True):
        factor = count / total
        for name, array in reply.items():
            if name in found:
                found[name] += array * factor
            else:
                found[name] = array * factor
    return found


def judged(
    client: Client,
    arrays: Mapping[str, Array],
    clients: Sequence[Any],
    test: tuple[Array, Array] | None,
) -> Score:
    """Of the test samples, or of those of all clients together."""
    parts = [test] if test is not None else [(c.x_test, c.y_test) for c in clients]
    scores = [client.judge(arrays, x, y) for x, y in parts if len(y)]
    if not scores:
        raise DataError("there are no samples to judge by", try_="test=(x, y)")
    counts = [score.examples for score in scores]
    means = (np.average([getattr(s, n) for s in scores], weights=counts)
             for n in ("accuracy", "loss"))  # fmt: skip
    accuracy, loss = map(float, means)
    return Score(accuracy, loss, sum(counts))


def size(arrays: Mapping[str, Array]) -> int:
    """Bytes of the arrays as Flower sends them; names, metrics and framing come on top."""
    return sum(HEADER + array.size * array.dtype.itemsize for array in arrays.values())


def check(clients: Sequence[Any], rounds: int, fraction: float) -> None:
    if not clients:
        raise DataError("there are no clients")
    if rounds < 1:
        raise DataError(f"{rounds} rounds are none")
    if not 0 < fraction <= 1:
        raise DataError(f"fraction={fraction} is not above 0 and at most 1")
