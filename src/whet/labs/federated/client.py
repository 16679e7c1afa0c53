"""A program as a Flower client. Imports NumPy and Flower, not torch: each message is a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import WhetError
from .gateway import GatewayClient
from .local import Arrays, Client, Local, Score
from .mods import BLOB

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

ARRAYS, CONFIG, METRICS, EXAMPLES = "arrays", "config", "metrics", "num-examples"
GATEWAY = "gateway"  # in the configuration of a node: the socket of its device's gateway
Reply = tuple[Arrays, float, int]  # arrays, mean loss, number of samples


def flower() -> Any:
    """The package, or how to install it."""
    try:
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp.strategy
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise WhetError("Flower is not installed", try_='pip install "flwr>=1.41,<1.42"') from error
    return flwr


def client_app(
    program: Any,
    data: Callable[[int, int], Any],
    *,
    statistics: bool = False,
    mods: Sequence[Any] = (),
) -> ClientApp:
    """A Flower ClientApp that trains `program` on the samples of its partition.

    `program` is a compiled one, a trainer of one, or the path of a saved one. `data(partition,
    partitions)` gives an object with the arrays x, y, x_test and y_test. The message, or else the
    configuration of the app, may say `local-epochs`, `lr`, `proximal-mu` and `seed`. Only what
    trains travels, and running statistics if asked for; `mods` are Flower's. A node whose
    configuration has a `gateway` is spoken for by it, as in `gateway_app`.
    """
    held: list[Client] = []  # opened by the first message

    def client() -> Client:
        if not held:
            held.append(Client(program, statistics))
        return held[0]

    def samples(context: Context) -> Any:
        return data(*(int(context.node_config[n]) for n in ("partition-id", "num-partitions")))

    def train(arrays: Arrays, context: Context, local: Local, turn: int) -> Reply:
        if GATEWAY in context.node_config:
            return ask_to_train(None, arrays, context, local, turn)
        own = samples(context)
        found, loss = client().train(arrays, own, local, turn, number_of(context))
        return found, loss, len(own.y)

    def judge(arrays: Arrays, context: Context) -> Score:
        if GATEWAY in context.node_config:
            return gateway_of(None, context).judge(arrays)
        own = samples(context)
        return client().judge(arrays, own.x_test, own.y_test)

    return app_of(train, judge, mods)


def gateway_app(path: str | Path | None = None, *, mods: Sequence[Any] = ()) -> ClientApp:
    """A Flower ClientApp for a device behind a gateway, see gateway.py.

    It replies with the bytes of the device's update; the server reads them with `guarded`. Without
    `path`, the socket is what the configuration of the node says: --node-config 'gateway="..."'.
    """

    def train(arrays: Arrays, context: Context, local: Local, turn: int) -> Reply:
        return ask_to_train(path, arrays, context, local, turn)

    def judge(arrays: Arrays, context: Context) -> Score:
        return gateway_of(path, context).judge(arrays)

    return app_of(train, judge, mods)


def ask_to_train(
    path: str | Path | None, arrays: Arrays, context: Context, local: Local, turn: int
) -> Reply:
    found = gateway_of(path, context).train(arrays, local, turn, number_of(context))
    return {BLOB: np.frombuffer(found.update, np.uint8)}, found.loss, found.examples


def gateway_of(path: str | Path | None, context: Context) -> GatewayClient:
    if path is None and GATEWAY not in context.node_config:
        raise WhetError("the node has no gateway", try_="--node-config 'gateway=\"/run/w.sock\"'")
    return GatewayClient(str(context.node_config[GATEWAY]) if path is None else path)


def number_of(context: Context) -> int:
    return int(context.node_config.get("partition-id", 0))


def app_of(
    train: Callable[[Arrays, Any, Local, int], Reply],
    judge: Callable[[Arrays, Any], Score],
    mods: Sequence[Any],
) -> ClientApp:
    """Flower's app around what trains and what judges."""
    flwr = flower()
    app: ClientApp = flwr.clientapp.ClientApp(mods=list(mods))

    def reply(message: Message, arrays: Any, metrics: dict[str, Any]) -> Message:
        content = flwr.app.RecordDict({METRICS: flwr.app.MetricRecord(metrics)})
        if arrays is not None:
            content[ARRAYS] = record(arrays)
        answer: Message = flwr.app.Message(content=content, reply_to=message)
        return answer

    @app.train()
    def trained(message: Message, context: Context) -> Message:
        config: dict[str, Any] = dict(message.content.config_records.get(CONFIG, {}))
        local = Local.of(config, context.run_config)
        turn = int(config.get("server-round", 0))
        arrays, loss, examples = train(received(message), context, local, turn)
        return reply(message, arrays, {EXAMPLES: examples, "train_loss": loss})

    @app.evaluate()
    def evaluated(message: Message, context: Context) -> Message:
        score = judge(received(message), context)
        metrics = {EXAMPLES: score.examples, "accuracy": score.accuracy, "loss": score.loss}
        return reply(message, None, metrics)

    return app


def record(arrays: Any) -> Any:
    """Arrays by name as Flower's record."""
    flwr = flower()
    return flwr.app.ArrayRecord({name: flwr.app.Array(array) for name, array in arrays.items()})


def received(message: Message) -> dict[str, Any]:
    """The arrays of a message by name."""
    found = list(message.content.array_records.values())
    if len(found) != 1:
        raise WhetError(f"the message holds {len(found)} records of arrays, not one")
    return {name: array.numpy() for name, array in found[0].items()}
