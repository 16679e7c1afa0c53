"""`whet report`: a page about the program of a model, and a trace of its training step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import FrontendError
from ..passes import check_switches
from ..settings import parse_bytes
from .files import check_file
from .groups import Memory, Numbers, Sizing, with_groups
from .options import InputOpt, ModelArg, RamOpt, TargetOpt, UpdateOpt
from .printing import say

PASSES = ("inplace", "keep_bits", "reorder", "stream_rows", "fuse_layers", "schedule")


@with_groups
def report_command(
    *,
    model: ModelArg,
    input: InputOpt,
    sizing: Sizing,
    html: Annotated[
        Path | None, typer.Option("--html", "-o", help="write a page, as .html")
    ] = None,
    update: UpdateOpt = None,
    against: Annotated[
        str | None, typer.Option(help="a scheme to show beside it, as full", metavar="SCHEME")
    ] = None,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="show the arena without each of some passes")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="measure every kernel call, as .json for Perfetto")
    ] = None,
    target: TargetOpt = "host",
    ram: RamOpt = None,
    saving: Memory,
    kind: Numbers,
) -> None:
    """Write a page about the program of MODEL: its arena step by step, layers, energy.

    Without --html and --trace, print the report as text.

    Example: [cyan]whet report whet.models:lenet -i 4,1,28,28 --update last -o report.html[/]
    """
    if html is None and (against or ladder):
        raise FrontendError("--against and --ladder are parts of a page", try_="-o report.html")
    invocation = sizing.invocation(model, input)
    for path, suffix in ((html, ".html"), (trace, ".json")):
        if path is not None:
            check_file(path, suffix)
    budget = None if ram is None else parse_bytes(ram)
    arguments = {**saving.arguments(), **kind.arguments(input)}
    program = invocation.compile(update=update, target=str(target), ram=ram, **arguments)
    if trace is not None:
        say(f"measured {program.trace(trace)}; open it at ui.perfetto.dev")
    if html is not None:
        skipped = check_switches(saving.without or ())
        without = [name for name in PASSES if name not in skipped] if ladder else ()
        program.report(html, title=model, against=against, budget=budget, without=without)
        say(f"wrote {html}")
    if html is None and trace is None:
        say(program.report())
