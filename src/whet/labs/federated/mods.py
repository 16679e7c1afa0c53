"""Compressed updates in Flower: a client mod that sends them, and what the server reads them with.

A client app answers a training message with its new arrays. The mod replaces those by the
compressed difference to the arrays that came with the message, as bytes of an update (see
runtime/update.py). What was not sent is kept in the state of the client's context, which Flower
hands to the next round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...runtime.update import Update, by_name, coordinates, encode, flatten
from .dgc import Array, Compression, Compressor

if TYPE_CHECKING:
    from ... import Program

STATE = "whet.dgc"  # of a client, in its context
BLOB = "whet.update"  # the one array of a compressed reply
ROUND = "server-round"  # in the configuration that strategies send


def dgc_mod(program: Program, settings: Compression | None = None) -> Callable[..., Any]:
    """A mod for `ClientApp(mods=[...])` that compresses what training replies with.

    Unlike gradients, differences of weights hold a client's own momentum already: `momentum` is 0
    unless `settings` say otherwise. The server reads replies with `Guard(program=program)`.
    """
    chosen = settings or Compression(momentum=0.0)

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        if message.metadata.message_type.partition(".")[0] != "train":
            return call_next(message, context)
        before = arrays_of(only(message.content.array_records, "the message"))
        number = round_of(message.content)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        after = arrays_of(only(reply.content.array_records, "the reply"))
        change = {name: after[name] - before[name] for name in after.keys() & before.keys()}
        compressor = restored(context, program, chosen)
        update = compressor.compress(flatten(program, change, real=program.integer), number)
        (key,) = reply.content.array_records
        reply.content[key] = record({BLOB: np.frombuffer(encode(update), np.uint8)})
        context.state[STATE] = record({"velocity": compressor.velocity, "kept": compressor.kept})
        return reply

    return mod


def expanded(program: Program, update: Update, model: dict[str, Array]) -> dict[str, Array]:
    """The global model's arrays with a client's update added."""
    changes = by_name(program, update, real=program.integer)
    return {name: array + changes[name].astype(array.dtype) for name, array in model.items()}


def restored(context: Any, program: Program, settings: Compression) -> Compressor:
    """A client's compressor as its last round left it."""
    n = coordinates(program)
    compressor = Compressor(n, program.fingerprint, settings)
    if (kept := context.state.array_records.get(STATE)) is not None:
        arrays = arrays_of(kept)
        if arrays["kept"].shape == arrays["velocity"].shape == (n,):
            compressor.velocity, compressor.kept = arrays["velocity"], arrays["kept"]
    return compressor


def round_of(content: Any) -> int:
    found = [c[ROUND] for c in content.config_records.values() if ROUND in c]
    if len(found) != 1:
        raise DataError(f"the message does not say its round: {ROUND!r} is in no configuration")
    return int(found[0])


def only(records: Any, where: str) -> Any:
    if len(records) != 1:
        raise DataError(f"{where} has {len(records)} records of arrays, not one")
    return next(iter(records.values()))


def arrays_of(record: Any) -> dict[str, Array]:
    """Arrays of this client's own making, or of the server it trusts; see `guarded` for others."""
    return {name: array.numpy().copy() for name, array in record.items()}


def record(arrays: dict[str, Array]) -> Any:
    import flwr.app

    return flwr.app.ArrayRecord({name: flwr.app.Array(array) for name, array in arrays.items()})
