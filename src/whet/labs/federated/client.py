"""A program as a Flower client. Imports NumPy and Flower, not torch: each message is a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import WhetError
from .local import Client, Local

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

ARRAYS, CONFIG, METRICS, EXAMPLES = "arrays", "config", "metrics", "num-examples"


def flower() -> Any:
    """The package, or how to install it."""
    try:
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp.strategy
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise WhetError("Flower is not installed", try_='pip install "whet[fl]"') from error
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
    trains travels, and running statistics if asked for; `mods` are Flower's.
    """
    flwr = flower()
    app: ClientApp = flwr.clientapp.ClientApp(mods=list(mods))
    held: list[Client] = []  # opened by the first message

    def client() -> Client:
        if not held:
            held.append(Client(program, statistics))
        return held[0]

    def own(context: Context) -> tuple[int, Any]:
        number, count = (int(context.node_config[n]) for n in ("partition-id", "num-partitions"))
        return number, data(number, count)

    def reply(message: Message, arrays: Any, metrics: dict[str, Any]) -> Message:
        content = flwr.app.RecordDict({METRICS: flwr.app.MetricRecord(metrics)})
        if arrays is not None:
            content[ARRAYS] = record(arrays)
        answer: Message = flwr.app.Message(content=content, reply_to=message)
        return answer

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config: dict[str, Any] = dict(message.content.config_records.get(CONFIG, {}))
        local = Local.of(config, context.run_config)
        number, samples = own(context)
        turn = int(config.get("server-round", 0))
        arrays, loss = client().train(received(message), samples, local, turn, number)
        return reply(message, arrays, {EXAMPLES: len(samples.y), "train_loss": loss})

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        _, samples = own(context)
        score = client().judge(received(message), samples.x_test, samples.y_test)
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
