"""The server of a test: FedAvg behind a guard. It keeps the global model of every round."""

import json
import os
from pathlib import Path

import numpy as np
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import whet
from whet.labs.federated.guard import Guard
from whet.labs.federated.guarded import guarded
from whet.labs.federated.local import Local
from whet.labs.federated.server import start

HOME = Path(os.environ["FEDERATED_HOME"])
app = ServerApp()


def keep(turn: int, arrays: dict[str, np.ndarray]) -> None:
    np.savez(HOME / f"new{turn}.npz", **arrays)
    (HOME / f"new{turn}.npz").rename(HOME / f"round{turn}.npz")
    if turn == 1 and (HOME / "hang-next").exists():
        (HOME / "hang-1").touch()  # node 1 will hang in round 2


@app.main()
def main(grid, context) -> None:
    config = context.run_config
    count, device = int(config["num-nodes"]), whet.load(HOME / "device.whet")
    fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
    strategy = guarded(fedavg, Guard(program=device, max_norm=10.0))
    start(
        grid, strategy, HOME / "net.whet", 3, local=Local(), evaluate=keep, config=config,
        timeout=float(config["patience"]),
    )  # fmt: skip
    (HOME / "rejected.json").write_text(json.dumps(strategy.rejected))
