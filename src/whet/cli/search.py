"""`whet search`: budgets in, schemes out, with the evidence."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from ..errors import BuildError, DataError
from ..report import kib
from ..settings import parse_bytes
from .files import check_file, check_folder
from .models import Invocation, import_file, import_name, numbers, reason
from .options import (
    CalibrateOpt,
    ClipOpt,
    DecayOpt,
    DTypeName,
    DTypeOpt,
    InputOpt,
    Int8Opt,
    LossName,
    LossOpt,
    LrOpt,
    ModelArg,
    MomentumOpt,
    OptimizerName,
    OptimizerOpt,
    TargetOpt,
    TrainOpt,
)
from .run import Batches

if TYPE_CHECKING:
    from ..labs.search import SearchReport

console = Console(highlight=False, soft_wrap=True)


FOLDER = "search"


class SearchCommand(TyperCommand):
    """Takes a --plot without a folder, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], "--"]
        pairs = zip(args, following, strict=True)
        named = [[a, FOLDER] if a == "--plot" and b.startswith("-") else [a] for a, b in pairs]
        return super().parse_args(ctx, [word for words in named for word in words])


class ByName(StrEnum):
    fine_tuning = "fine-tuning"
    fisher = "fisher"
    gradient = "gradient"
    gradient_byte = "gradient/byte"
    one_batch = "one-batch"


class MethodName(StrEnum):
    exact = "exact"
    evolution = "evolution"


def search_command(
    model: ModelArg,
    input: InputOpt,
    data: Annotated[
        str,
        typer.Option(
            help=".npz with x and y, and x_test and y_test to judge by; or file.py:function that "
            "gives (x, y) or a loader of such batches"
        ),
    ],
    ram: Annotated[str, typer.Option(help="budgets, as 64K,128K,256K,1M")],
    by: Annotated[ByName, typer.Option(help="how gains are found out")] = ByName.fine_tuning,
    method: Annotated[MethodName, typer.Option(help="how gains are put together")] = (
        MethodName.exact
    ),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="where schemes go: a folder, or a .toml file for one budget; the current folder "
            "by default, or that of --plot",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help=f"folder for schemes, contributions and pictures; or {FOLDER}, if bare"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes; as many as there are cores by default")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="address of a Ray cluster, or `local` for one of this machine"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="where outcomes are kept; a stopped run goes on from there")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="of a candidate's training")] = 3,
    batch: Annotated[
        int | None, typer.Option(min=1, help="samples that candidates train on at once")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=16, help="of samples that are used")] = None,
    finals: Annotated[
        int, typer.Option(min=0, help="how much longer whole candidates train; 0: none do")
    ] = 2,
    splits: Annotated[
        int, typer.Option(min=1, help="of the data that those are judged on; no sample twice")
    ] = 4,
    rounds: Annotated[int, typer.Option(min=0, help="of trying whole candidates")] = 4,
    draws: Annotated[int, typer.Option(min=1, help="candidates for each budget in a round")] = 6,
    seed: Annotated[
        int, typer.Option(min=0, help="of the order of samples, of evolution and of draws")
    ] = 0,
    loss: LossOpt = LossName.cross_entropy,
    optimizer: OptimizerOpt = OptimizerName.sgd,
    lr: LrOpt = 0.01,
    momentum: MomentumOpt = 0.0,
    weight_decay: DecayOpt = 0.0,
    clip_norm: ClipOpt = None,
    train: TrainOpt = False,
    target: TargetOpt = "host",
    dtype: DTypeOpt = DTypeName.float32,
    calibrate: CalibrateOpt = None,
    int8: Int8Opt = None,
) -> None:
    """Find what to train of MODEL within each budget of RAM: which biases, which weights.

    Every candidate is a compiled program, trained and judged on your data. What is found out is
    kept: a run that was stopped goes on where it was.
    """
    import whet

    budgets = [parse_bytes(word.strip()) for word in ram.split(",") if word.strip()]
    if output is not None:
        check_output(output, len(set(budgets)))
    if plot is not None:
        check_folder(plot, "pictures")
    recipe = Invocation(model, input, loss, optimizer, lr, momentum, weight_decay, clip_norm, train)
    samples, judge = read_data(data)
    words = whet.Search(
        by=by.value,
        method=method.value,
        lesson=whet.Lesson(epochs=epochs, seed=seed),
        finals=finals,
        splits=splits,
        rounds=rounds,
        draws=draws,
        batch=batch,
        judge=judge,
        limit=limit,
        workers=workers or cores(),
        ray=ray,
        store=store,
        seed=seed,
        progress=True,
    )
    try:
        found = whet.search(
            **recipe.arguments(),
            **numbers(dtype, calibrate, int8, input),
            data=samples,
            ram=budgets,
            search=words,
            target=str(target),
        )
    except KeyboardInterrupt:
        console.print(f"stopped; the same command goes on, from {words.folder}", markup=False)
        raise typer.Exit(130) from None
    tell(found, plot, output)


def check_output(path: Path, budgets: int) -> None:
    if path.suffix != ".toml" or path.is_dir():
        check_folder(path, "schemes")
        return
    check_file(path)
    if budgets > 1:
        raise BuildError(f"{budgets} schemes do not go into {path}", try_="--output FOLDER")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tell(found: SearchReport, plot: Path | None, output: Path | None) -> None:
    console.print(str(found), markup=False)
    for row in found.rows:
        console.print(f"\n{row.scheme.name}", markup=False)
        for line in row.scheme.origin.split("; "):
            console.print(f"  {line}", markup=False)
        width = max(map(len, row.found.rivals), default=0)
        for name, rival in row.found.rivals.items():
            mark = "*" if rival.candidate == row.found.candidate else " "
            words = f"{name:<{width}} {kib(rival.ram):>10}  {rival.outcome}"
            console.print(f"  {mark} {words}", markup=False)
    console.print()
    if plot is not None:
        folder = found.write(plot)
        console.print(f"wrote schemes, contributions and pictures to {folder}", markup=False)
    if output is not None or plot is None:
        paths = found.write_schemes(output or Path())
        console.print(f"wrote {', '.join(map(str, paths))}", markup=False)
    else:
        paths = [folder / f"{found.scheme.name}.toml"]
    console.print(f"next: whet compile ... --update {paths[-1]}", markup=False)


def read_data(text: str) -> tuple[Any, Any]:
    """Samples to train on, and to judge by if there are some for that."""
    if text.endswith(".py"):
        raise DataError(f"{text} is a file of Python", try_=f"{text}:function_that_gives_data")
    path, colon, name = text.rpartition(":")
    if not colon or text.endswith(".npz"):
        batches = Batches.read(Path(text))
        return (batches.x, batches.y), batches.test
    try:
        module = import_file(path) if path.endswith(".py") else import_name(path)
        made = getattr(module, name)
        return (made() if callable(made) else made), None
    except Exception as error:
        raise DataError(
            f"cannot read data from {text}", why=reason(error), try_="data.npz or file.py:loader"
        ) from error
