"""`whet train`: compile a model within a budget, train it on data, and keep all of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BuildError
from ..writing import write_whole
from .fed import manual_seed
from .files import check_folder
from .groups import Compiling, Memory, Numbers, Training, with_groups
from .options import InputOpt, JsonOpt, ModelArg, TargetOpt
from .printing import resumable, say, say_json, waiting
from .run import Batches
from .search import read_data

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..fit.history import History
    from ..runtime import Trainer


@with_groups
def train_command(
    *,
    model: ModelArg,
    input: InputOpt,
    data: Annotated[
        str,
        typer.Option(
            help=".npz with x and y, and x_test and y_test to validate by; or file.py:function "
            "that returns (x, y) or a loader of such batches"
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "--out", "-o", help="folder for weights, history and report"),
    ],
    validation_data: Annotated[
        str | None, typer.Option(help="data to validate by, named like --data")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="how often all samples are seen")] = 5,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1, help="stop after as many epochs without improvement, and keep the best weights"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of initial weights and of the order")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in the output folder")
    ] = False,
    training: Training,
    target: TargetOpt = "host",
    compiling: Compiling,
    saving: Memory,
    kind: Numbers,
    json: JsonOpt = False,
) -> None:
    """Train MODEL within a budget of RAM, and write its weights, history and report.

    The run is saved as it goes on: after a stop, the same command with --resume goes on from there,
    to the bit.

    Example: [cyan]whet train model.py:make -i 8,3,64,64 --data d.npz --ram 256K -o run/[/]
    """
    from ..callbacks import EarlyStopping
    from ..fit.resume import FILE

    check_folder(output, "the run")
    if (output / FILE).exists() and not resume:
        raise BuildError(
            f"the folder {output} holds a run already", try_=("--resume", "another --output")
        )
    invocation = training.invocation(model, input)
    samples, validation = read_data(data)
    if validation_data is not None:
        validation, _ = read_data(validation_data)
    manual_seed(seed)
    options = compiling.arguments() | saving.arguments() | kind.arguments(input)
    program = invocation.compile(**options, target=str(target))
    check(program, samples, validation)
    with waiting.status("building"):
        trainer = program.load()
    monitor = "loss" if validation is None else "val_loss"
    stopping = EarlyStopping(monitor, patience=patience or 0, restore_best_weights=True)
    callbacks = [] if patience is None else [stopping]
    with resumable(output, "the same command with --resume"):
        history = trainer.fit(samples, epochs=epochs, validation_data=validation, seed=seed,
                              resume=output, callbacks=callbacks)  # fmt: skip
    names = write(output, program, trainer, history)
    trainer.close()
    if json:
        say_json({"epoch": history.epoch, "history": history.history, "files": names})
        return
    for line in trainer.summary():
        say(line)
    say(f"wrote {', '.join(names)} to {output}")
    if "report.html" not in names:
        say("no report.html, whose charts need Matplotlib: pip install matplotlib")


def check(program: Program, samples: Any, validation: Any) -> None:
    """Arrays, before anything is built: it would be late to find the last sample wrong."""
    if isinstance(samples, tuple) and len(samples[0]) >= program.batch:
        test = validation if isinstance(validation, tuple) else None
        Batches(samples[0], samples[1], test).check(program, program.batch)


def write(folder: Path, program: Program, trainer: Trainer, history: History) -> list[str]:
    """What was learned, how, and by what."""
    trainer.save(folder / "weights.ckpt")
    program.save(folder / "program.whet")
    history.save(folder / "history.json")
    history.save(folder / "history.svg")
    try:
        write_whole(folder / "report.txt", program.report() + "\n")
    except OSError as error:
        raise BuildError(f"cannot write to {folder}", why=str(error.strerror)) from error
    names = ["weights.ckpt", "program.whet", "history.json", "history.svg", "report.txt"]
    if find_spec("matplotlib") is None:
        return names  # its charts need the extra `report`
    program.report(folder / "report.html", history=history.history)
    return [*names, "report.html"]
