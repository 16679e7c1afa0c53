"""A Flower strategy behind a guard: what the guard does not admit never reaches it.

Flower's own strategies stop the whole run if one client's reply has other names than the others',
and average whatever numbers they find. Replies are bytes from others: nothing in here trusts them.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import UpdateError
from ...runtime.update import decode
from .guard import Array, Guard, Refused, Sent, in_a_line
from .mods import BLOB, ROUND, arrays_of, expanded, record

log = logging.getLogger("flwr")
LONGEST = 1000  # bytes that the header of an array may take
WEIGHT = "num-examples"
NPY = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][biufc]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \((|\d{1,10},|\d{1,10}(?:, \d{1,10}){1,8})\), \} *\n",
    re.DOTALL,
)  # one way alone to read any text, so that it takes no longer than the text is long


def guarded(strategy: Any, guard: Guard) -> Any:
    """`strategy`, given only the replies that `guard` admits. If it admits none, the global model
    stays as it is. Reasons are logged and kept in `rejected`, by round and node.

    A guard with a program lets clients send updates in bytes (see `dgc_mod` and `Send`), which are
    added to the global model before the strategy sees them. What a strategy computes in float64,
    as FedAdam does, travels as float32.
    """
    from flwr.serverapp.strategy import Strategy

    weight = getattr(strategy, "weighted_by_key", WEIGHT)

    class Guarded(Strategy):
        def __init__(self) -> None:
            self.guard = guard
            self.rejected: dict[int, dict[int, str]] = {}

        def configure_train(
            self, server_round: int, arrays: Any, config: Any, grid: Any
        ) -> Iterable[Any]:
            guard.begin(server_round, arrays_of(arrays))
            return strategy.configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
            replies = list(replies)
            reasons = sift(guard, [r for r in replies if not r.has_error()], weight)
            self.rejected[server_round] = reasons
            for reason in reasons.values():
                log.warning("update rejected, %s", reason)
            good = [r for r in replies if r.metadata.src_node_id not in reasons]
            if all(r.has_error() for r in good):
                log.warning("round %d: no update is left; the global model stays", server_round)
                return None, None
            arrays, metrics = strategy.aggregate_train(server_round, good)
            return None if arrays is None else narrow(arrays), metrics

        def configure_evaluate(self, *args: Any) -> Any:
            return strategy.configure_evaluate(*args)

        def aggregate_evaluate(self, *args: Any) -> Any:
            return strategy.aggregate_evaluate(*args)

        def summary(self) -> None:
            strategy.summary()

    return Guarded()


def is_guarded(strategy: Any) -> bool:
    return isinstance(getattr(strategy, "guard", None), Guard)


def narrow(arrays: Any) -> Any:
    """The same record, with float32 for float64."""
    found = {name: array.numpy() for name, array in arrays.items()}
    return record({n: np.asarray(a, np.float32) if a.dtype == np.float64 else a
                   for n, a in found.items()})  # fmt: skip


def sift(guard: Guard, replies: list[Any], weight: str = WEIGHT) -> dict[int, str]:
    """Why replies are refused, by node. Those that are not have plain arrays afterwards."""
    reasons: dict[int, str] = {}
    sent: dict[int, Sent] = {}
    rounds: dict[int, int] = {}
    weights: dict[int, float] = {}
    usual = Counter(filter(None, map(form, replies))).most_common(1)
    for reply in replies:
        node = reply.metadata.src_node_id
        try:
            if node in sent or node in reasons:
                raise Refused("it sent more than one reply")
            if form(reply) is None or form(reply) != usual[0][0]:
                raise Refused("its records are not those of the other replies")
            metrics = next(iter(reply.content.metric_records.values()))
            weights[node] = checked(metrics, weight)
            if ROUND in metrics:
                rounds[node] = number(metrics, ROUND)
            sent[node] = read(guard, reply)
        except (Refused, UpdateError) as error:
            text = str(error) if isinstance(error, Refused) else in_a_line(error)
            reasons[node] = f"client {node}: {text}"
    verdicts = guard.sift({n: s for n, s in sent.items() if n not in reasons}, rounds, weights)
    reasons |= {node: reason for node, reason in verdicts.items() if reason is not None}
    for reply in replies:
        if (node := reply.metadata.src_node_id) not in reasons:
            (key,) = reply.content.array_records
            reply.content[key] = record(dict(sent[node]))  # type: ignore[arg-type]
    return reasons


def form(reply: Any) -> tuple[Any, ...] | None:
    """Names of a reply's records and metrics, which must be the same in all replies."""
    arrays, metrics = reply.content.array_records, reply.content.metric_records
    if len(arrays) != 1 or len(metrics) != 1:
        return None
    ((name, values),) = metrics.items()
    sizes = {key: len(v) if isinstance(v, list) else None for key, v in values.items()}
    return (*arrays, name, *sorted(sizes.items()))


def checked(metrics: Any, weight: str) -> float:
    """The reply's weight."""
    for name, value in metrics.items():
        if not all(map(math.isfinite, value if isinstance(value, list) else [value])):
            raise Refused(f"its metric {name!r} is not finite")
    return number(metrics, weight)


def number(metrics: Any, name: str) -> Any:
    if name not in metrics or isinstance(metrics[name], list):
        raise Refused(f"it does not say {name!r}")
    return metrics[name]


def read(guard: Guard, reply: Any) -> dict[str, Array]:
    """The client's arrays, after a look at how long they are."""
    (given,) = reply.content.array_records.values()
    model, program = guard.model, guard.program
    if BLOB in given and program is not None:
        blob = given[BLOB].data
        most = LONGEST + 10 * (guard.n or 0)
        data = npy(blob, most, BLOB)
        if data.dtype != np.uint8:
            raise Refused("its update is not made of bytes")
        update = decode(data.tobytes(), guard.fingerprint, guard.n, guard.round)
        return expanded(program, update, model)
    if wrong := sorted(map(str, given.keys() ^ model.keys())):
        word = "is missing" if wrong[0] in model else "does not belong to the model"
        raise Refused(f"{wrong[0][:80]!r} {word}")
    return {name: npy(given[name].data, LONGEST + model[name].nbytes, name) for name in model}


def npy(data: bytes, most: int, name: str) -> Array:
    """An array in NumPy's format, version 1. What the header says is compared with the bytes there
    are before anything is allocated. NumPy's own reader runs Python's parser on the header."""
    if len(data) > most:
        raise Refused(f"{name!r} has {len(data):,} bytes, at most {most:,} are expected")
    found = NPY.match(data)
    if found is None or len(found[0]) != 10 + int.from_bytes(found[1], "little"):
        raise Refused(f"{name!r} is not an array of numbers")
    try:
        dtype = np.dtype(found[2].decode())
    except TypeError:
        raise Refused(f"{name!r} has no dtype that NumPy knows") from None
    shape = tuple(int(size) for size in found[4].split(b",") if size.strip())
    rest = memoryview(data)[found.end() :]
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise Refused(f"{name!r} has {len(rest):,} bytes, not those of {dtype}{list(shape)}")
    order: Any = "F" if found[3] == b"True" else "C"
    try:
        return np.frombuffer(rest, dtype).reshape(shape, order=order)
    except ValueError:  # of an array without elements, the product of the other sizes may overflow
        raise Refused(f"{name!r} has shape {shape}, which NumPy does not take") from None
