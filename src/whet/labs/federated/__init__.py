"""Devices that learn together: a program is a client of Flower, and only what trains travels.

`client_app` and `server_app` are for `flwr run`, and `Gateway` speaks for a microcontroller.
`simulate` runs many clients on one machine, by `federate`, a loop in this process, or by Flower.
`distributed` exchanges compressed gradients instead. Nothing here imports torch, and Flower is
imported only where it is used.
"""

from .client import client_app, gateway_app
from .dgc import Compression, Compressor
from .distributed import distributed
from .gateway import Gateway, GatewayClient
from .guard import Guard
from .guarded import guarded
from .local import Client, ClientData, Local, Score
from .loop import History, Round, average, federate
from .mods import dgc_mod
from .plot import rounds_svg
from .server import server_app
from .simulate import simulate
from .split import by_group, dirichlet, iid

__all__ = [
    "Client", "ClientData", "Compression", "Compressor", "Gateway", "GatewayClient", "Guard",
    "History", "Local", "Round", "Score", "average", "by_group", "client_app", "dgc_mod",
    "dirichlet", "distributed", "federate", "gateway_app", "guarded", "iid", "rounds_svg",
    "server_app", "simulate",
]  # fmt: skip
