"""`whet fed`: clients with samples of their own train one model."""

from __future__ import annotations

from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import DataError, option
from ..writing import write_whole
from .files import check_file
from .groups import Numbers, Training, with_groups
from .options import JsonOpt, NameOpt, UpdateOpt
from .printing import say, say_json, waiting
from .run import Batches

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..labs.federated import ClientData, History, Local, Round
    from ..runtime import Trainer

app = typer.Typer(no_args_is_help=True, help="Devices that learn together.")
HELD_OUT = 5  # one sample of as many judges, if the data have none for that
SHOWN = 256  # samples that show an int8 program its ranges
IN_GROUPS = {f.name for group in (Training, Numbers) for f in fields(group)}
COMPILED_IN = {"batch", "update", "name"} | IN_GROUPS - {"lr"}  # what a saved program has decided


class StrategyName(StrEnum):
    fedavg = "fedavg"
    fedprox = "fedprox"
    fedadam = "fedadam"
    krum = "krum"
    trimmed = "trimmed"


class EngineName(StrEnum):
    loop = "loop"
    flower = "flower"


@app.command("simulate")
@with_groups
def simulate_command(
    *,
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="pkg.module:make_model or file.py:make_model, or a saved program (.whet)",
            metavar="MODEL",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help=".npz with x and y, and x_test and y_test to judge by; else every fifth sample is "
            "held out"
        ),
    ],
    clients: Annotated[int, typer.Option(min=1, help="how many there are")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="how often they meet")] = 20,
    alpha: Annotated[
        float | None,
        typer.Option(help="of Dirichlet: 0.1 gives each client few classes; none: all are alike"),
    ] = None,
    strategy: Annotated[StrategyName, typer.Option(help="of the server")] = StrategyName.fedavg,
    mu: Annotated[float, typer.Option(min=0, help="of FedProx: the pull to the global")] = 0.0,
    epochs: Annotated[int, typer.Option(min=1, help="of a client in a round")] = 1,
    fraction: Annotated[float, typer.Option(help="of the clients that train in a round")] = 1.0,
    batch: Annotated[int, typer.Option(min=1, help="samples of a step")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="of weights, split and order")] = 0,
    engine: Annotated[
        EngineName, typer.Option(help="this process, or Flower's simulation on Ray")
    ] = EngineName.loop,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="draw accuracy and bytes, as .svg")
    ] = None,
    training: Training,
    update: UpdateOpt = None,
    name: NameOpt = "net",
    kind: Numbers,
    as_json: JsonOpt = False,
) -> None:
    """Train MODEL with clients that keep their samples and send what trains.

    Example: [cyan]whet fed simulate model.py:make --data data.npz --clients 10 --rounds 20[/]
    """
    from ..labs.federated import Local, rounds_svg

    if output is not None:
        check_file(output, ".svg")
    if mu and strategy is not StrategyName.fedprox:
        raise DataError(f"{strategy.value} has no --mu", try_=option("strategy", "fedprox"))
    if not 0 < fraction <= 1:
        raise DataError(f"--fraction {fraction:g} is not above 0 and at most 1")
    given = {name for name in context.params if is_given(context, name)}
    if model.endswith(".whet") and (fixed := sorted(given & COMPILED_IN)):
        words = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        raise DataError(f"{model} is compiled already", why=f"{words} would change nothing")
    found = Batches.read(data)
    parts = divided(found, clients, alpha, seed)
    program = compiled(model, found, batch, seed, training, kind, update=update, name=name)
    local = Local(epochs=epochs, lr=training.lr if "lr" in given else None, mu=mu, seed=seed)
    history = run(program, parts, rounds, local, strategy.value, engine.value, fraction)
    if as_json:
        say_json([asdict(one) for one in history.rounds])
    else:
        tell(history, parts)
    if output is not None:
        how = "alike" if alpha is None else f"Dirichlet({alpha:g})"
        title = f"{model}, {clients} clients, {how}"
        write_whole(output, rounds_svg({strategy.value: history}, title))
        if not as_json:
            say(f"drew {output}")


@app.command("gateway")
def gateway_command(
    program: Annotated[
        Path, typer.Argument(help="saved, with send=whet.Send(...), for a microcontroller")
    ],
    socket: Annotated[Path, typer.Option(help="where clients on this machine ask")],
    data: Annotated[Path, typer.Option(help=".npz with x, y, x_test and y_test: the device's own")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="updates that leave the device, at most")
    ] = None,
    watch: Annotated[bool, typer.Option(help="check every load and store")] = False,
) -> None:
    """Speak for a device in a federation, until interrupted.

    Example: [cyan]whet fed gateway watch.whet --socket /run/watch.sock --data own.npz[/]
    """
    import logging
    import signal

    import whet

    from ..labs.federated import ClientData, Gateway

    loaded, found = whet.load(program), Batches.read(data)
    found.check(loaded, loaded.batch)
    own = ClientData(found.x, found.y, *(found.test or (found.x[:0], found.y[:0])))

    def connect() -> Trainer:
        return loaded.target.load(loaded, watched=watch)

    logging.basicConfig(level=logging.INFO, format="%(message)s")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for name in (signal.SIGTERM, signal.SIGINT):  # a shell's background jobs ignore the latter
        signal.signal(name, stop)
    with Gateway(connect, own, socket, limit=limit) as gateway:
        say(f"{len(own.y):,} samples; listening on {socket}")
        try:
            gateway.serve()
        except KeyboardInterrupt:
            say(f"{gateway.answered:,} updates were sent")


def is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def divided(found: Batches, clients: int, alpha: float | None, seed: int) -> list[ClientData]:
    """The samples of each client; all are judged by the same ones."""
    import numpy as np

    from ..labs.federated import ClientData, dirichlet, iid

    x, y, test = found.x, found.y, found.test
    if test is None:
        held = np.arange(len(y)) % HELD_OUT == 0
        order = np.random.default_rng(seed).permutation(len(y))
        test = x[order[held]], y[order[held]]
        x, y = x[order[~held]], y[order[~held]]
    rows = iid(len(y), clients, seed) if alpha is None else dirichlet(y, clients, alpha, seed)
    none = test[0][:0], test[1][:0]
    return [ClientData(x[r], y[r], *(test if k == 0 else none)) for k, r in enumerate(rows)]


def compiled(
    model: str,
    found: Batches,
    batch: int,
    seed: int,
    training: Training,
    kind: Numbers,
    **options: Any,
) -> Program:
    """The model for inputs like those of the data; a saved program as it is."""
    import whet

    if model.endswith(".whet"):
        return whet.load(model)
    manual_seed(seed)
    shape = ",".join(map(str, (batch, *found.x.shape[1:])))
    if found.x.dtype.kind in "iu":  # ids
        shape += f":{int(found.x.max()) + 1}"
    numbers = kind.arguments([shape])
    if "dtype" in numbers:
        numbers.setdefault("calibrate", [found.x[:SHOWN]])
    return training.invocation(model, [shape]).compile(**numbers, **options)


def manual_seed(seed: int) -> None:
    """Of the weights that the model begins with."""
    try:
        import torch
    except ModuleNotFoundError:  # compiling says so
        return
    torch.manual_seed(seed)


def run(
    program: Program,
    parts: list[ClientData],
    rounds: int,
    local: Local,
    strategy: str,
    engine: str,
    fraction: float,
) -> History:
    from ..labs.federated import simulate

    columns = (
        TextColumn("rounds"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]:.1%}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=waiting) as progress:
        task = progress.add_task("", total=rounds, accuracy=float("nan"))

        def watch(done: Round) -> None:
            progress.update(task, completed=done.number, accuracy=done.accuracy)

        return simulate(
            program, parts, rounds, local, strategy=strategy, engine=engine, fraction=fraction,
            watch=watch,
        )  # fmt: skip


def tell(history: History, parts: list[ClientData]) -> None:
    counts = sorted(len(part.y) for part in parts)
    last, first = history.rounds[-1], history.rounds[0]
    numbers = sum(array.size for array in history.arrays.values())
    each = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if counts[0] < counts[-1] else "")
    judges = max(len(part.y_test) for part in parts)
    rounds = f"{last.number} round{'s' * (last.number != 1)}"
    for line in (
        f"{len(parts)} clients with {each} samples, judged by {judges:,} others",
        f"accuracy {first.accuracy:.1%} before, {last.accuracy:.1%} after {rounds}",
        f"{numbers:,} numbers travel: {last.sent:,} bytes sent, {last.received:,} received",
    ):
        say(line)
