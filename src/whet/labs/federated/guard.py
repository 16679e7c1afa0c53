"""What a server checks before it lets an update change the global model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, UpdateError
from ...runtime.update import Update, coordinates, decode

if TYPE_CHECKING:
    from ... import Program

Array = npt.NDArray[Any]
Sent = bytes | Update | Mapping[str, Any]
FEW = 3  # norms that make a median


class Guard:
    """Admits one sound update per client and round, and says why others are not.

    An update is what a client sends: arrays by name, which replace those of the global model, or an
    `Update` (as bytes or decoded), which is added to it. Its norm is that of the change it makes:
    for arrays the distance to the global model, for an `Update` that of its coordinates.
    It may be at most `max_norm`, and at most `times_median` times the median of the round.

    These checks find what is malformed, replayed or far too large. A hostile client can still send
    something small and wrong: that is what robust aggregation is for (Krum, trimmed mean).
    """

    def __init__(
        self,
        *,
        program: Program | None = None,
        fingerprint: int | None = None,
        n: int | None = None,
        max_norm: float | None = None,
        times_median: float | None = None,
        max_weight: float | None = None,
    ) -> None:
        """`program`, or its fingerprint and number of coordinates, to admit `Update`s."""
        self.program = program
        if program is not None:
            fingerprint, n = program.fingerprint, coordinates(program)
        for name, limit in (("max_norm", max_norm), ("times_median", times_median)):
            if limit is not None and not 0 < limit < np.inf:
                raise DataError(f"{name}={limit} is not a limit", try_=f"{name}=10.0")
        self.fingerprint, self.n, self.max_weight = fingerprint, n, max_weight
        self.max_norm, self.times_median = max_norm, times_median
        self.round: int | None = None
        self.model: dict[str, Array] = {}  # the global one, in this round
        self._seen: set[object] = set()
        self._norms: list[float] = []  # of those admitted in this round

    def begin(self, round: int, model: Mapping[str, Any]) -> None:
        """Start a round with this global model. Rounds only go forward."""
        if self.round is not None and round <= self.round:
            raise DataError(f"round {round} does not come after round {self.round}")
        self.round, self._seen, self._norms = round, set(), []
        self.model = {name: np.asarray(array) for name, array in model.items()}

    def admit(
        self, client: object, sent: Sent, round: int | None = None, weight: float | None = None
    ) -> str | None:
        """None if the update may be used, else a sentence that says why not.

        `round` is the one that the client says it answers, unless an `Update` says it. A median
        exists from the third update of a round on; `sift` has that of all of them.
        """
        reason, norm = self._judge(client, sent, round, weight)
        if reason is None and len(self._norms) >= FEW:
            reason = self._beside(client, norm, statistics.median(self._norms))
        if reason is None:
            self._seen.add(client)
            self._norms.append(norm)
        return reason

    def sift(
        self,
        replies: Mapping[Any, Sent],
        rounds: Mapping[Any, int] | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> dict[Any, str | None]:
        """`admit` for all replies of a round at once, by client.

        Their order does not matter: norms are compared with the median of all that are sound.
        """
        judged = {
            client: self._judge(
                client, sent, (rounds or {}).get(client), (weights or {}).get(client)
            )
            for client, sent in replies.items()
        }
        norms = [norm for reason, norm in judged.values() if reason is None]
        found: dict[Any, str | None] = {}
        for client, (reason, norm) in judged.items():
            if reason is None and len(norms) >= FEW:
                reason = self._beside(client, norm, statistics.median(norms))
            if reason is None:
                self._seen.add(client)
                self._norms.append(norm)
            found[client] = reason
        return found

    # Below: one update ---------------------------------------------------------------------------

    def _judge(
        self, client: object, sent: Sent, round: int | None, weight: float | None
    ) -> tuple[str | None, float]:
        """Why it is not sound, and the norm of what it changes."""
        if self.round is None:
            raise DataError("no round has begun", try_="guard.begin(1, arrays)")
        try:
            if client in self._seen:
                raise Refused(f"it already sent an update in round {self.round}")
            if weight is not None:
                self._check_weight(weight)
            if isinstance(sent, Mapping):
                self._check_round(round)
                norm = self._of_arrays(sent)
            else:
                norm = self._of_update(sent)
            if not np.isfinite(norm):
                raise Refused("its norm is not finite")
            if self.max_norm is not None and norm > self.max_norm:
                raise Refused(f"its norm is {norm:.4g}, the limit is {self.max_norm:.4g}")
        except (Refused, UpdateError) as error:
            text = str(error) if isinstance(error, Refused) else in_a_line(error)
            return f"client {client}: {text}", np.inf
        return None, norm

    def _beside(self, client: object, norm: float, median: float) -> str | None:
        if self.times_median is None or norm <= self.times_median * median:
            return None
        return (
            f"client {client}: its norm is {norm:.4g}, more than {self.times_median:g} times the "
            f"median of this round, {median:.4g}"
        )

    def _check_round(self, round: int | None) -> None:
        if round is not None and round != self.round:
            word = "replayed" if round < (self.round or 0) else "from the future"
            raise Refused(f"it answers round {round}, this is round {self.round}: it is {word}")

    def _check_weight(self, weight: float) -> None:
        most = np.inf if self.max_weight is None else self.max_weight
        if (
            not isinstance(weight, (int, float, np.number))
            or not 0 < weight <= most
            or weight == np.inf
        ):
            allowed = "a positive number" if most == np.inf else f"above 0 and at most {most:g}"
            raise Refused(f"its weight is {weight!r}, not {allowed}")

    def _of_update(self, sent: bytes | Update) -> float:
        if self.fingerprint is None or self.n is None:
            raise Refused("it is an update in coordinates, and this server takes arrays by name")
        if not isinstance(sent, (bytes, Update)):
            raise Refused(f"it is neither arrays nor an update, but {type(sent).__name__}")
        if isinstance(sent, bytes):
            sent = decode(sent, self.fingerprint, self.n)
        if (sent.fingerprint, sent.n) != (self.fingerprint, self.n):
            raise Refused("it belongs to another model or scheme")
        self._check_round(sent.round)
        if not np.isfinite(sent.values).all():
            raise Refused("it holds numbers that are not finite")
        return float(np.linalg.norm(sent.values.astype(np.float64)))

    def _of_arrays(self, sent: Mapping[str, Any]) -> float:
        model = self.model
        if wrong := sorted(map(str, sent.keys() ^ model.keys())):
            word = "is missing" if wrong[0] in model else "does not belong to the model"
            raise Refused(f"{wrong[0][:80]!r} {word}")
        return float(np.sqrt(sum(self._square(name, sent[name]) for name in model)))

    def _square(self, name: str, given: Any) -> float:
        """The squared distance to the global model, of one array."""
        own = self.model[name]
        if not isinstance(given, np.ndarray):
            raise Refused(f"{name!r} is no array, but {type(given).__name__}")
        if given.shape != own.shape:
            raise Refused(f"{name!r} has shape {given.shape}, the model {own.shape}")
        if given.dtype != own.dtype:
            raise Refused(f"{name!r} has dtype {given.dtype}, the model {own.dtype}")
        if not np.isfinite(given).all():
            count = int((~np.isfinite(given)).sum())
            raise Refused(f"{name!r} holds {count:,} numbers that are NaN or infinite")
        with np.errstate(over="ignore"):
            return float(np.square(given.astype(np.float64) - own.astype(np.float64)).sum())


class Refused(Exception):
    """Why one update is not sound; never leaves this module."""


def in_a_line(error: UpdateError) -> str:
    return ": ".join([error.what.removeprefix("the update is refused: "), *error.why[:1]])
