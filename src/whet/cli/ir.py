"""`whet ir`: print the graph of an entry point, as compiled or after one of the passes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from ..debug import Recorder, check_step, observing
from ..errors import WhetError
from .groups import Numbers, with_groups
from .models import Invocation
from .options import (
    InputOpt,
    LossOpt,
    ModelArg,
    OptimizerOpt,
    TrainOpt,
    UpdateOpt,
    WithoutOpt,
)
from .printing import err, say

ENTRIES = ("train_step", "predict", "predict_one")


@with_groups
def ir_command(
    *,
    model: ModelArg,
    input: InputOpt,
    entry: Annotated[str, typer.Option(help="train_step or predict")] = "train_step",
    after: Annotated[
        str | None, typer.Option(help="print the graph after this pass", metavar="PASS")
    ] = None,
    loss: LossOpt = None,
    optimizer: OptimizerOpt = None,
    train: TrainOpt = False,
    update: UpdateOpt = None,
    without: WithoutOpt = None,
    kind: Numbers,
) -> None:
    """Print the graph of an entry point.

    With --after, as a pass left it; the change in nodes and peak bytes goes to standard error.

    Example: [cyan]whet ir whet.models:lenet -i 4,1,28,28 --after fuse_layers[/]
    """
    if entry not in ENTRIES:
        raise WhetError(f"no entry point {entry!r}", try_=", ".join(ENTRIES))
    if after is not None:
        check_step(after)
    numbers = kind.arguments(input)
    invocation = Invocation(model, input, loss, optimizer, train=train)
    recorder = Recorder(entry)
    with observing(recorder) if after is not None else nullcontext():
        program = invocation.compile(update=update, without=without or (), **numbers)
    if entry not in program.entries:  # a batch of one, or samples that depend on each other
        raise WhetError(f"this program has no {entry}", try_=", ".join(program.entries))
    if after is None:
        say(str(program.entries[entry]))
        return
    graph, line = recorder.after(after)
    say(str(graph))
    err.print(line, markup=False)
