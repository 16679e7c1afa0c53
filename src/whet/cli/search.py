"""`whet search`: budgets in, schemes out, with the evidence."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BuildError, DataError
from ..report import kib
from ..settings import parse_bytes
from .files import check_file, check_folder
from .groups import Numbers, Training, with_groups
from .models import import_file, import_name, reason
from .options import InputOpt, JsonOpt, ModelArg, TargetOpt
from .printing import resumable, say, say_json
from .run import Batches

if TYPE_CHECKING:
    from ..labs.search import SearchReport


class ByName(StrEnum):
    fine_tuning = "fine-tuning"
    fisher = "fisher"
    gradient = "gradient"


class MethodName(StrEnum):
    exact = "exact"
    evolution = "evolution"


@with_groups
def search_command(
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
    ram: Annotated[str, typer.Option(help="budgets, such as 64K,128K,256K,1M")],
    by: Annotated[ByName, typer.Option(help="how gains are found")] = ByName.fine_tuning,
    method: Annotated[MethodName, typer.Option(help="how candidates are made from gains")] = (
        MethodName.exact
    ),
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="where schemes and contributions are written: a folder, or a .toml file if there "
            "is one budget",
        ),
    ] = Path(),
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes; one for each core by default")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="address of a Ray cluster, or `local` to start one on this machine"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="folder for outcomes; a stopped search resumes from it")
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, help="of a trial; finalists train twice as long")
    ] = 3,
    batch: Annotated[int | None, typer.Option(min=1, help="batch size of trials")] = None,
    finalists: Annotated[
        int, typer.Option(min=0, help="whole candidates trained for each budget; 0 for none")
    ] = 10,
    splits: Annotated[
        int, typer.Option(min=1, help="splits of the data that finalists are trained on")
    ] = 4,
    seed: Annotated[
        int, typer.Option(min=0, help="of the order of samples, the splits and the draws")
    ] = 0,
    training: Training,
    target: TargetOpt = "host",
    kind: Numbers,
    as_json: JsonOpt = False,
) -> None:
    """Find what to train of MODEL within each budget of RAM: which biases, which weights.

    Every candidate is a compiled program, trained and validated on your data. Outcomes are stored:
    a search that was stopped resumes where it was.

    Example: [cyan]whet search model.py:make -i 4,3,96,96 --data d.npz --ram 64K,128K[/]
    """
    import whet

    budgets = [parse_bytes(word.strip()) for word in ram.split(",") if word.strip()]
    check_output(output, len(set(budgets)))
    invocation = training.invocation(model, input)
    samples, validation = read_data(data)
    words = whet.Search(
        by=by.value,
        method=method.value,
        trial=whet.TrialSettings(epochs=epochs, seed=seed),
        finalists=finalists,
        splits=splits,
        batch=batch,
        validation=validation,
        workers=workers or cores(),
        ray=ray,
        store=store,
        progress=True,
    )
    with resumable(words.folder):
        found = whet.search(
            **invocation.arguments(),
            **kind.arguments(input),
            data=samples,
            ram=budgets,
            search=words,
            target=str(target),
        )
    if as_json:
        paths = found.write(output)
        say_json(as_data(found, paths))
    else:
        tell(found, output)


def as_data(found: SearchReport, paths: list[Path]) -> dict[str, Any]:
    """What a search found, and the files that it was written to."""
    rows = [
        {
            "budget": row.budget,
            "ram": row.ram,
            "scheme": row.scheme.name,
            "score": row.score,
            "outcome": None if row.outcome is None else asdict(row.outcome),
        }
        for row in found.rows
    ]
    return {"rows": rows, "missed": list(found.missed), "files": [str(path) for path in paths]}


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


def tell(found: SearchReport, output: Path) -> None:
    say(str(found))
    for row in found.rows:
        say(f"\n{row.scheme.name}")
        for line in row.scheme.origin.split("; "):
            say(f"  {line}")
        width = max(map(len, row.finalists), default=0)
        for name, finalist in row.finalists.items():
            mark = "*" if finalist.candidate == row.candidate else " "
            words = f"{name:<{width}} {kib(finalist.ram):>10}  {finalist.outcome}"
            say(f"  {mark} {words}")
    paths = found.write(output)
    say(f"\nwrote {', '.join(map(str, paths))}")
    last = [path for path in paths if path.suffix == ".toml"][-1]
    say(f"next: whet compile ... --update {last}")


def read_data(text: str) -> tuple[Any, Any]:
    """Samples to train on, and to validate by if there are separate ones."""
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
