"""`whet privacy`: attack the update that a program would send, before somebody else does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import DataError
from .files import check_file
from .groups import Memory, Numbers, Training, with_groups
from .models import Invocation, sizes
from .options import InputOpt, JsonOpt, ModelArg, UpdateOpt
from .printing import say, say_json, waiting
from .run import Batches

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..labs.privacy.accounting import Account
    from ..labs.privacy.audit import Attempt

app = typer.Typer(no_args_is_help=True, help="See what shared updates tell about the data.")


def listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@app.command("audit")
@with_groups
def audit_command(
    *,
    model: ModelArg,
    input: InputOpt,
    data: Annotated[
        Path,
        typer.Option(
            help=".npz with x and y, of which one batch is attacked; with x_test and y_test, the "
            "cost of each defence and membership inference are measured as well"
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="the page to write, as .html")
    ] = Path("audit.html"),
    attack: Annotated[
        str, typer.Option(help="dlg, cosine, analytic, separated by commas")
    ] = "dlg,cosine",
    defences: Annotated[
        str,
        typer.Option(
            help="as noise:0.01,laplace:0.01,prune:0.9,top-k:0.01,fp16,int8,clip:1,dp:1:0.5; noise "
            "is relative to the gradients' RMS, noise-abs:1e-3 is not"
        ),
    ] = "",
    restarts: Annotated[int, typer.Option(min=1, help="starts of each attack")] = 4,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="of each start; each attack has a default")
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="the first sample of the batch")] = 0,
    steps: Annotated[
        int, typer.Option(min=0, help="local steps before the update is sent; 0 sends gradients")
    ] = 0,
    train_steps: Annotated[
        int, typer.Option(min=1, help="steps of training behind each defence")
    ] = 300,
    seed: Annotated[int, typer.Option(min=0, help="of starts, noise and batches")] = 0,
    of: Annotated[
        str | None,
        typer.Option(help="the PyTorch model, where MODEL is a saved program", metavar="MODEL"),
    ] = None,
    update: UpdateOpt = None,
    training: Training,
    saving: Memory,
    kind: Numbers,
    as_json: JsonOpt = False,
) -> None:
    """Attack the update that MODEL's program would send, and write what was found as a page.

    Example: [cyan]whet privacy audit model.py:make -i 1,3,32,32 --data d.npz --defences int8[/]
    """
    saved = model.endswith(".whet")
    if saved and of is None:
        raise DataError(
            f"{model} is a saved program, and an attack needs the PyTorch model",
            why="it compares the update with gradients of guesses, which PyTorch computes",
            try_="--of package.module:make_model, from which the program was compiled",
        )
    if of is not None and not saved:
        raise DataError(f"--of {of} is for saved programs", try_="leave it out")
    check_file(output, ".html")
    invocation = training.invocation(of or model, input)
    batches = Batches.read(data)
    batch = sizes(input[0])[0][0]
    if first + batch > len(batches.x):
        raise DataError(
            f"there is no batch of {batch} from sample {first} on",
            why=f"{data} has {len(batches.x)} samples",
            try_="--first 0, or a smaller batch: the first number of --input",
        )
    options = kind.arguments(input) | saving.arguments() | {"update": update}
    made: dict[str, Any] = {}
    if saved:
        program, made = loaded(model, invocation, options)
    else:
        program = invocation.compile(**options, accumulate=steps == 0)
    batches.check(program, batch)
    if batches.test is not None:
        made |= dict(train=(batches.x, batches.y), test=batches.test, train_steps=train_steps)
    from ..labs.privacy.audit import audit, span_of

    if batches.x.dtype.kind == "f":
        made["span"] = span_of(batches.x)
    columns = (
        TextColumn("{task.percentage:3.0f} %"),
        BarColumn(20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    rows = slice(first, first + batch)
    with Progress(*columns, console=waiting) as progress:
        task = progress.add_task("", total=1.0)
        found = audit(
            program, batches.x[rows], batches.y[rows], attacks=listed(attack),
            defences=listed(defences), restarts=restarts, iterations=iterations, steps=steps,
            seed=seed, on_progress=lambda words, done: progress.update(
                task, completed=done, description=words
            ), **made,
        )  # fmt: skip
        progress.update(task, completed=1.0, description="done")
    page = found.write(output)
    if as_json:
        attempts = [as_data(attempt) for attempt in found.attempts]
        say_json(
            {
                "sent": found.sent,
                "verdict": found.verdict,
                "attempts": attempts,
                "page": str(page),
            }
        )
        return
    say(str(found))
    say(f"\nwrote {page}")


def as_data(attempt: Attempt) -> dict[str, Any]:
    score = attempt.score
    return {
        "attack": attempt.method,
        "defence": attempt.defence.name,
        "coordinates": attempt.coordinates,
        "recovered": attempt.recovered,
        "labels": attempt.labels,
        "psnr": None if score is None else [float(x) for x in score.psnr],
        "ssim": None if score is None else [float(x) for x in score.ssim],
        "note": attempt.note,
    }


def loaded(
    path: str, invocation: Invocation, options: dict[str, Any]
) -> tuple[Program, dict[str, Any]]:
    """A saved program, and what an audit is told about the model it was compiled from.

    The attacker's model has the trained numbers of the program; the frozen ones must be the same,
    which the checksum of a program compiled from it tells.
    """
    import whet

    program = whet.load(path)
    again = invocation.compile(**options | {"update": options["update"] or program.scheme})
    if again.identity != program.identity:
        raise DataError(
            f"{path} was not compiled from {invocation.model}",
            why="an operation, a frozen number or what trains differs",
            try_="the same weights, --input, --update and --dtype as when it was compiled",
        )
    source = again.source
    return program, dict(model=source.model, loss=source.loss)


@app.command("account")
def account_command(
    noise: Annotated[
        float, typer.Option(min=0, help="deviation in clipping norms: of the sum, or of a device's")
    ],
    rounds: Annotated[int, typer.Option(min=1, help="rounds in all")],
    clients: Annotated[int, typer.Option(min=1, help="clients there are")] = 1,
    per_round: Annotated[int, typer.Option(min=1, help="clients in a round")] = 1,
    delta: Annotated[float, typer.Option(help="chance that the bound does not hold")] = 1e-5,
    as_json: JsonOpt = False,
) -> None:
    """Say what (epsilon, delta) clipping and noise give, under each way of sampling clients.

    Example: [cyan]whet privacy account --noise 1 --rounds 100 --clients 1000 --per-round 10[/]
    """
    from ..labs.privacy.accounting import accounts

    found: list[Account] = accounts(
        noise=noise, rounds=rounds, clients=clients, per_round=per_round, delta=delta
    )
    if as_json:
        say_json([asdict(one) for one in found])
        return
    for one in found:
        say(f"{one.sampling:<8} {one}")
