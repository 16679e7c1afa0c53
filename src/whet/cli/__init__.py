"""The command line: `whet compile`, `run`, `search`, `check`, `plan`, `compare`, `ir`, ..."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from .. import __version__
from ..errors import BuildError, WhetError, for_the_shell
from ..passes import check_switches
from ..settings import to_compare
from ..writing import write_whole
from . import demo, fed, privacy
from .compress import compress_command
from .explain import explain_command
from .files import check_file, check_folder
from .groups import Compiling, Memory, Numbers, Sizing, Training, with_groups
from .ir import ir_command
from .models import compiling
from .ops import ops_command
from .options import (
    InputOpt,
    JsonOpt,
    ModelArg,
    OutOpt,
    RamOpt,
    StepsOpt,
    TargetOpt,
    UpdateOpt,
    WithoutOpt,
)
from .printing import err, say, say_json, waiting
from .report import report_command
from .run import run_command
from .search import search_command
from .train import train_command
from .tune import tune_command

if TYPE_CHECKING:
    from ..emit.program import Program


# What a shell sees when a command ends; docs/cli.md has the same table.
EXIT_CODES = {
    0: "done",
    1: "an error, said on standard error with its code; `whet explain CODE` says more",
    2: "the command line is not valid",
    130: "stopped by Ctrl-C; files are as they were, or complete",
}
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Compile a PyTorch model into a small C program that trains it.",
    epilog="Exit codes: " + "; ".join(f"{code} {what}" for code, what in EXIT_CODES.items()),
)
app.add_typer(demo.app, name="demo")
app.add_typer(fed.app, name="fed")
app.add_typer(privacy.app, name="privacy")


def print_version(wanted: bool) -> None:
    if wanted:
        say(f"whet {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    pass


app.command("run")(run_command)
app.command("train")(train_command)
app.command("search")(search_command)
app.command("compress")(compress_command)


@app.command("compile")
@with_groups
def compile_command(
    *,
    model: ModelArg,
    input: InputOpt,
    output: OutOpt,
    training: Training,
    target: TargetOpt = "host",
    compiling: Compiling,
    saving: Memory,
    kind: Numbers,
    accumulate: Annotated[bool, typer.Option(help="add `gradients` and `apply`")] = False,
    generate: Annotated[
        bool, typer.Option("--generate", help="add `prefill` and `decode`, which write texts")
    ] = False,
    cache_prefix: Annotated[
        bool,
        typer.Option("--cache-prefix", help="add `prefix`, to run frozen layers once a sample"),
    ] = False,
    library: Annotated[
        bool, typer.Option("--library", help="the model alone, for a project with its own main")
    ] = False,
    as_json: JsonOpt = False,
) -> None:
    """Write a folder of C that trains MODEL and builds with `make`.

    Example: [cyan]whet compile whet.models:lenet -i 4,1,28,28 --update last -o out/[/]
    """
    start = time.perf_counter()
    invocation = training.invocation(model, input)
    check_folder(output, "the program")
    options = compiling.arguments() | saving.arguments() | kind.arguments(input)
    added = {"accumulate": accumulate, "generate": generate, "cache_prefix": cache_prefix}
    program = invocation.compile(**options, target=str(target), **added)
    with waiting.status("writing"):
        folder = program.write(output, library=library)
    files = sorted(program.library if library else program.files)
    if as_json:
        from ..report import to_json

        say_json({"folder": str(folder), "files": files, "program": to_json(program)})
        return
    say(program.report())
    say()
    seconds = time.perf_counter() - start
    say(f"wrote {len(files)} files to {folder} in {seconds:.1f} s")
    if library:
        say("next: add them to your project; docs/boards/ says how")
    else:
        say(f"next: {program.target.run_command(folder, compiling.name)}")


@app.command("check")
@with_groups
def check_command(
    *,
    model: ModelArg,
    input: InputOpt,
    training: Training,
    update: UpdateOpt = None,
    ram: RamOpt = None,
    saving: Memory,
    kind: Numbers,
    steps: StepsOpt = 10,
    as_json: JsonOpt = False,
) -> None:
    """Build the program and compare every gradient and some steps with PyTorch.

    Example: [cyan]whet check whet.models:lenet -i 4,1,28,28[/]
    """
    invocation = training.invocation(model, input)
    numbers = kind.arguments(input)
    program = invocation.compile(update=update, ram=ram, **saving.arguments(), **numbers)
    with waiting.status("building, and training beside PyTorch"):
        report = program.check(steps)
    if as_json:
        say_json(asdict(report))
    else:
        say(str(report))


@app.command("plan")
@with_groups
def plan_command(
    *,
    model: ModelArg,
    input: InputOpt,
    sizing: Sizing,
    update: UpdateOpt = None,
    target: TargetOpt = "host",
    ram: RamOpt = None,
    saving: Memory,
    kind: Numbers,
    as_json: JsonOpt = False,
    picture: Annotated[Path | None, typer.Option(help="draw the arena over time, as .svg")] = None,
    layers: Annotated[
        Path | None, typer.Option(help="draw activations and weights by layer, as .svg")
    ] = None,
) -> None:
    """Say where every byte of a training step goes, layer by layer, without writing a program.

    Example: [cyan]whet plan whet.models:lenet -i 4,1,28,28 --update last[/]
    """
    from ..report import arena_svg, layer_table, layers_svg, to_json

    invocation = sizing.invocation(model, input)
    for path in (picture, layers):
        if path is not None:
            check_file(path, ".svg")
    numbers = kind.arguments(input)
    program = invocation.compile(
        update=update,
        target=str(target),
        ram=ram,
        **saving.arguments(),
        **numbers,
    )
    if as_json:
        say_json(to_json(program))
    else:
        say(program.report())
        say()
        say(layer_table(program))
        say()
    title = f"{model}, {scheme_of(program)}"
    if picture is not None:
        draw(picture, arena_svg(program.plans["train_step"], title), as_json)
    if layers is not None:
        draw(layers, layers_svg(program, title), as_json)


def scheme_of(program: Program) -> str:
    return program.scheme.name if program.scheme is not None else ""


def draw(path: Path, svg: str, quiet: bool) -> None:
    try:
        write_whole(path, svg)
    except OSError as error:
        raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
    if not quiet:
        say(f"drew {path}")


@app.command("compare")
@with_groups
def compare_command(
    *,
    model: ModelArg,
    input: InputOpt,
    schemes: Annotated[
        str, typer.Option(help="what to compare, separated by commas; see `plan --update`")
    ] = "full,last,bias+last,norm+last",
    sizing: Sizing,
    without: WithoutOpt = None,
    kind: Numbers,
    as_json: JsonOpt = False,
) -> None:
    """Print the memory of one model under several update schemes.

    Every pass named by --without gets a column: the arena without it, and its own factor.

    Example: [cyan]whet compare whet.models:lenet -i 4,1,28,28 --schemes full,last[/]
    """
    import whet

    from ..report.compare import comparison_table

    invocation = sizing.invocation(model, input)
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    updates = to_compare(names)
    check_switches(without or ())
    numbers = kind.arguments(input)
    with compiling():
        rows = whet.compare(
            **invocation.arguments(), schemes=updates, without=without or (), **numbers
        )
    if as_json:
        say_json([row.as_dict() for row in rows])
    else:
        say(comparison_table(rows))
        if "reorder" in (without or ()):
            say("\nwithout reorder, updates stay at the end: fuse_updates and schedule are off too")


app.command("report")(report_command)
app.command("ir")(ir_command)
app.command("tune")(tune_command)
app.command("explain")(explain_command)
app.command("ops")(ops_command)


def main() -> None:
    try:
        with for_the_shell(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            app()
    except WhetError as error:
        err.print(f"whet: {error}", markup=False)
        if error.code != WhetError.code:
            err.print(f"  more  whet explain {error.code}", markup=False)
        sys.exit(1)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Without the place, which is in whet or in PyTorch."""
    err.print(f"whet: warning: {message}", markup=False)
