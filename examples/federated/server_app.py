"""The server: averages what the clients send, and judges the global model after each round."""

import functools
import os
from pathlib import Path

import numpy as np

from whet.federated import Client, server_app

HOME = Path(os.environ.get("FEDERATED_HOME", "/var/lib/federated"))  # net.whet and data.npz


@functools.cache
def client() -> Client:
    return Client(HOME / "net.whet")


def evaluate(turn: int, arrays: dict[str, np.ndarray]) -> dict[str, float]:
    with np.load(HOME / "data.npz", allow_pickle=False) as file:
        score = client().judge(arrays, file["x_test"], file["y_test"])
    print(f"round {turn}: accuracy {score.accuracy:.3f}", flush=True)
    return {"accuracy": score.accuracy, "loss": score.loss}


def keep(result) -> None:
    """The global model, by PyTorch's names, for `whet.runtime.set_trained`."""
    np.savez(HOME / "result.npz", **{name: a.numpy() for name, a in result.arrays.items()})


app = server_app("fedavg", HOME / "net.whet", evaluate=evaluate, finished=keep)
