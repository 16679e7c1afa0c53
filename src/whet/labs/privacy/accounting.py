"""Differential privacy of clipped and noised updates: (epsilon, delta), with what it assumes.

An epsilon alone says nothing: it depends on how clients are sampled, on what two neighbouring sets
of data differ in, and on who sees what. `account` therefore returns these with the number.

`noise` is the deviation of the Gaussian noise in units of the clipping norm C: that of the noise
in the sum of a round's updates, or with sampling="local" that of the noise which each device adds
to its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import DataError, WhetError


@dataclass(frozen=True)
class Setting:
    """What is assumed about a round."""

    sampling: str
    neighbours: str
    sees: str
    sensitivity: float  # how far neighbours move what is seen, in clipping norms


SETTINGS = {
    "poisson": Setting(
        "each client takes part with a fixed probability, independently of the others",
        "one client more or less",
        "the noisy sums, not who took part",
        1.0,
    ),
    "fixed": Setting(
        "a fixed number of clients, drawn without replacement, as FedAvg does",
        "the data of one client replaced",
        "the noisy sums, not who took part",
        2.0,  # its update may turn from C in one direction to C in the other
    ),
    "none": Setting(
        "every client in every round, or it is known who took part",
        "one client more or less",
        "the noisy sums",
        1.0,
    ),
    "local": Setting(
        "none: the client takes part in every round counted",
        "the data of that client replaced",
        "every single update, after the device has clipped it and added noise",
        2.0,
    ),
}


@dataclass(frozen=True)
class Account:
    """An epsilon with everything it holds for."""

    epsilon: float
    delta: float
    noise: float  # in clipping norms
    rounds: int
    clients: int
    per_round: int
    sampling: str  # a key of SETTINGS

    @property
    def setting(self) -> Setting:
        return SETTINGS[self.sampling]

    def __str__(self) -> str:
        s = self.setting
        return (
            f"epsilon {number(self.epsilon)} at delta {self.delta:g} for {self.rounds} rounds; "
            f"noise of {self.noise:g} times the clipping norm; sampling: {s.sampling}"
            + (
                f" ({self.per_round} of {self.clients})"
                if self.sampling in ("poisson", "fixed")
                else ""
            )
            + f"; neighbours: {s.neighbours}; the attacker sees: {s.sees}; Renyi accountant"
        )


def account(
    *,
    noise: float,
    rounds: int,
    delta: float = 1e-5,
    clients: int = 1,
    per_round: int = 1,
    sampling: str = "fixed",
) -> Account:
    """The privacy of `rounds` rounds in which clipped updates are summed and noised.

    Fixed sampling is accounted for as in Wang, Balle and Kasiviswanathan (2019). Their bound takes
    the noise relative to the distance between sums of neighbours. Replacing a client moves a sum by
    up to two clipping norms, so half of `noise` goes into it.
    """
    check(noise, rounds, delta, clients, per_round, sampling)
    found = 0.0 if rounds == 0 else math.inf
    if noise > 0 and rounds > 0:
        found = epsilon(noise / SETTINGS[sampling].sensitivity, rounds, delta, clients, per_round,
                        sampling)  # fmt: skip
    return Account(found, delta, noise, rounds, clients, per_round, sampling)


def accounts(samplings: Iterable[str] = tuple(SETTINGS), **words: Any) -> list[Account]:
    """The same rounds under each way of sampling."""
    return [account(sampling=sampling, **words) for sampling in samplings]


def account_table(found: Iterable[Account]) -> str:
    """Markdown: one line for each account, what it assumes in words."""
    lines = [
        "| sampling | neighbours differ by | the attacker sees | epsilon | delta |",
        "|---|---|---|--:|--:|",
    ]
    for a in found:
        s = a.setting
        lines.append(
            f"| {s.sampling} | {s.neighbours} | {s.sees} | {number(a.epsilon)} | {a.delta:g} |"
        )
    return "\n".join(lines)


def number(epsilon: float) -> str:
    return f"{epsilon:.2f}" if math.isfinite(epsilon) else "infinite"


def epsilon(
    noise: float, rounds: int, delta: float, clients: int, per_round: int, sampling: str
) -> float:
    """By the Renyi accountant of dp-accounting; `noise` is relative to the sensitivity."""
    try:
        import dp_accounting as dp
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError as error:
        raise WhetError(
            "accounting needs the package dp-accounting", try_="pip install dp-accounting"
        ) from error

    neighbours = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event: Any = dp.GaussianDpEvent(noise)
    if sampling == "poisson":
        event = dp.PoissonSampledDpEvent(per_round / clients, event)
    elif sampling == "fixed":
        neighbours = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(clients, per_round, event)
    accountant = RdpAccountant(neighboring_relation=neighbours)
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True  # it reports each order it leaves out
    try:
        accountant.compose(dp.SelfComposedDpEvent(event, rounds))
        return float(accountant.get_epsilon(delta))
    finally:
        logger.disabled = before


def check(
    noise: float, rounds: int, delta: float, clients: int, per_round: int, sampling: str
) -> None:
    if sampling not in SETTINGS:
        raise DataError(f"sampling={sampling!r} is unknown", try_=", ".join(SETTINGS))
    if not (math.isfinite(noise) and noise >= 0):
        raise DataError(f"noise={noise} is not a deviation", try_="noise=1.0")
    if not 0 < delta < 1:
        raise DataError(f"delta={delta} is not between 0 and 1", try_="delta=1e-5")
    if rounds < 0 or not 1 <= per_round <= clients:
        raise DataError(
            f"{per_round} of {clients} clients for {rounds} rounds cannot be",
            try_="clients=1000, per_round=100, rounds=100",
        )
