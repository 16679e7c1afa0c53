"""The client: trains the program of this device on its own samples. NumPy and Flower, no torch."""

import os
from pathlib import Path

import numpy as np

from whet.federated import ClientData, client_app, dirichlet

HOME = Path(os.environ.get("FEDERATED_HOME", "/var/lib/federated"))  # net.whet and data.npz


def data(partition: int, partitions: int) -> ClientData:
    """The samples of this device. Here, devices share a file, and each has a part of it."""
    with np.load(HOME / "data.npz", allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    rows = dirichlet(found["y"], partitions, alpha=0.5, least=8)[partition]
    return ClientData(found["x"][rows], found["y"][rows], found["x_test"], found["y_test"])


app = client_app(HOME / "net.whet", data)
