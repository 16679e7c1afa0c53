"""`whet run`: compile, build and train where the program is for, with progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import CheckpointError, DataError, option
from .files import SAVE, check_file, opening, read_archive
from .groups import Compiling, Memory, Numbers, Training, with_groups
from .models import sizes
from .options import InputOpt, JsonOpt, ModelArg, TargetOpt
from .printing import note, say, say_json, waiting

if TYPE_CHECKING:
    from ..ir import Array
    from ..runtime import Trainer


@with_groups
def run_command(
    *,
    model: ModelArg,
    input: InputOpt,
    target: TargetOpt = "cortex-m7",
    data: Annotated[
        Path | None,
        typer.Option(help=".npz with x and y, and x_test and y_test to judge by; else made-up"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="training steps")] = 50,
    load: Annotated[Path | None, typer.Option(help="checkpoint to begin with")] = None,
    save: Annotated[Path | None, typer.Option(help="checkpoint to write at the end")] = None,
    watch: Annotated[bool, typer.Option(help="check every load and store, and count")] = True,
    training: Training,
    compiling: Compiling,
    saving: Memory,
    kind: Numbers,
    as_json: JsonOpt = False,
) -> None:
    """Train MODEL on an emulated microcontroller, or on this machine.

    Example: [cyan]whet run whet.models:lenet -i 1,1,28,28 --update last[/]
    """
    invocation = training.invocation(model, input)
    if save is not None:
        check_file(save)
    if load is not None:
        opening(load, CheckpointError, option("save", "FILE") + " writes one")
    found = Batches.read(data) if data is not None else None
    options = compiling.arguments() | saving.arguments() | kind.arguments(input)
    program = invocation.compile(**options, target=str(target))
    batches = found or Batches.made_up(program)
    batch = sizes(input[0])[0][0]
    batches.check(program, batch)
    with waiting.status("building"):
        trainer = program.target.load(program, watched=watch)
    tell = note if as_json else say
    if load is not None:
        trainer.load(load)
        tell(f"loaded {load}")
    before = judge(trainer, batches, batch, "before", tell)
    try:
        losses = learn(trainer, batches, batch, steps)
        tell(f"loss {losses[0]:.6f} -> {losses[-1]:.6f} in {len(losses)} steps")
    finally:  # what was learned until it was stopped, too
        if save is not None:
            trainer.save(save)
            tell(f"saved {save}")
    after = judge(trainer, batches, batch, "after ", tell)
    trainer.close()
    if as_json:
        from ..report import to_json

        accuracy = {"before": before, "after": after}
        say_json({"losses": losses, "accuracy": accuracy, "program": to_json(program)})
        return
    if lines := trainer.summary():
        say("\n".join(["", *lines]))
    say()
    say(program.report())


class Batches:
    """Samples to train on, and some to judge by."""

    def __init__(self, x: Array, y: Array, test: tuple[Array, Array] | None) -> None:
        if not x.ndim or not y.ndim:
            raise DataError("x and y hold one number, not samples", try_=SAVE)
        if len(x) != len(y):
            raise DataError(f"there are {len(x)} inputs and {len(y)} labels")
        self.x, self.y, self.test = x, y, test

    @classmethod
    def read(cls, path: Path) -> Batches:
        found = read_archive(path)
        if missing := {"x", "y"} - found.keys():
            words = f"{path} has no {' and no '.join(sorted(missing))}"
            raise DataError(words, try_=SAVE)
        if ("x_test" in found) != ("y_test" in found):
            raise DataError(f"{path} has one of x_test and y_test", try_="both, or neither")
        test = (found["x_test"], found["y_test"]) if "x_test" in found else None
        return cls(found["x"], found["y"], test)

    def check(self, program: Any, batch: int) -> None:
        """Every sample, before anything is built: it would be late to find the last one wrong."""
        from ..runtime.arrays import stored_batch

        parts = {"x": (self.x, self.y)} | ({"x_test": self.test} if self.test is not None else {})
        for name, (x, y) in parts.items():
            if len(x) < batch and (name == "x" or not program.independent):
                raise DataError(
                    f"{name} has {len(x)} samples, fewer than a batch of {batch}",
                    try_="more of them, or a smaller batch: the first number of --input",
                )
            for at in range(0, len(x) - batch + 1, batch):
                try:
                    stored_batch(program, x[at : at + batch], y[at : at + batch])
                except DataError as error:
                    where = f"{name}, samples {at} to {at + batch - 1}"
                    raise error.found_in(where, "") from error

    @classmethod
    def made_up(cls, program: Any) -> Batches:
        """One batch of noise with the same label throughout."""
        import numpy as np

        note("no --data: training on one made-up batch")
        from ..ir import DType, Role
        from ..runtime.arrays import check_one_input

        check_one_input(program)
        step = program.entries["train_step"]
        (leaf,), (label, *others) = step.leaves_of(Role.INPUT), step.leaves_of(Role.LABEL)
        if others:
            raise DataError(f"the loss takes {1 + len(others)} labels; nothing makes these up")
        shape = program.tensors[leaf.name].shape
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        if leaf.type.dtype is DType.I32:  # ids
            x = np.zeros(shape, np.int32)
        y = np.zeros(program.tensors[label.name].shape, label.type.dtype.numpy)
        return cls(x, y, None)


def learn(trainer: Trainer, batches: Batches, batch: int, steps: int) -> list[float]:
    """The loss of each step."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    last, losses = len(batches.x) - batch, []
    with Progress(*columns, console=waiting) as progress:
        task = progress.add_task("", total=steps, loss=float("nan"))
        for step in range(steps):
            at = step * batch % (last + 1)
            loss = trainer.step(batches.x[at : at + batch], batches.y[at : at + batch])
            progress.update(task, advance=1, loss=loss)
            losses.append(loss)
    return losses


def judge(
    trainer: Trainer, batches: Batches, batch: int, when: str, tell: Callable[[str], None]
) -> float | None:
    """The fraction of the test samples that is recognised: of those that fill a batch, if samples
    depend on each other."""
    if batches.test is None:
        return None
    x, y = batches.test
    count = len(x) if trainer.program.independent else len(x) - len(x) % batch
    pieces = ((x[at : at + batch], y[at : at + batch]) for at in range(0, count, batch))
    right = sum(int((trainer.predict(some).argmax(1) == labels).sum()) for some, labels in pieces)
    tell(f"accuracy {when}  {right / count:6.1%}")
    return right / count
