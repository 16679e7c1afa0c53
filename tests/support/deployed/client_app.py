"""Clients of a test: one hangs when it is told to, and one is hostile."""

import os
import time
from pathlib import Path

import numpy as np

from whet.federated import ClientData, client_app
from whet.labs.federated.mods import BLOB, record, round_of
from whet.runtime.update import Update, encode

HOME = Path(os.environ["FEDERATED_HOME"])


def data(partition: int, partitions: int) -> ClientData:
    if (HOME / f"hang-{partition}").exists():
        (HOME / f"hanging-{partition}").touch()
        time.sleep(600)  # until it is killed
    with np.load(HOME / f"part{partition}.npz", allow_pickle=False) as file:
        return ClientData(*(file[name] for name in ("x", "y", "x_test", "y_test")))


def hostile(message, context, call_next):
    """Another kind of wrong update in each round."""
    reply = call_next(message, context)
    if "hostile" not in context.node_config:
        return reply
    turn = round_of(message.content)
    arrays = {n: a.numpy().copy() for n, a in reply.content["arrays"].items()}
    if turn == 1:
        arrays["0.bias"][0] = np.nan
    elif turn == 2:
        arrays["0.bias"] += 1e6
    else:
        numbers = np.load(HOME / "model.npy", allow_pickle=False)  # fingerprint, coordinates
        old = Update(int(numbers[0]), 1, int(numbers[1]), None, np.ones(numbers[1], np.float32))
        arrays = {BLOB: np.frombuffer(encode(old), np.uint8)}
    reply.content["arrays"] = record(arrays)
    return reply


app = client_app(HOME / "net.whet", data, mods=[hostile])
