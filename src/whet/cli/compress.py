"""`whet compress`: a smaller model, with accuracy and bytes after each stage."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DataError, SchemeError, option
from .fed import manual_seed
from .files import check_folder
from .models import load_model, sizes
from .options import InputOpt, JsonOpt, ModelArg
from .printing import note, resumable, say, say_json
from .run import Batches

if TYPE_CHECKING:
    from ..labs.compress import Stage

OF_STAGE = ("name", "accuracy", "numbers", "nonzeros", "bytes", "seconds")
STATES = "states"  # the folder beside the results that a stopped run resumes from


class ScopeName(StrEnum):
    all = "global"
    layer = "layer"


def compress_command(
    *,
    model: ModelArg,
    input: InputOpt,
    data: Annotated[
        Path, typer.Option(help=".npz with x and y, and x_test and y_test to judge by")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="folder to write; a stopped run resumes there"),
    ],
    prune: Annotated[
        str | None,
        typer.Option(help="the share of weights to remove: 0.9, or by layer, fc1:0.95,conv*:0.6"),
    ] = None,
    kmeans: Annotated[
        str | None,
        typer.Option(help="bits of a weight, shared values: 4, or by layer, conv*:8,fc*:4"),
    ] = None,
    scope: Annotated[
        ScopeName, typer.Option(help="whether weights are ranked over all layers or in each")
    ] = ScopeName.all,
    half: Annotated[
        bool, typer.Option("--half", help="round numbers to 16 bits at the end")
    ] = False,
    channels: Annotated[
        float | None, typer.Option(help="the share of output channels that stays")
    ] = None,
    distill: Annotated[
        str | None,
        typer.Option(help="the teacher, as MODEL is named; training is by its losses"),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="rounds of training before all else")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="prunings, each with a round of training")] = 5,
    settle: Annotated[int, typer.Option(min=0, help="more rounds of training at the target")] = 1,
    centroid_rounds: Annotated[
        int, typer.Option(min=0, help="rounds of training of shared values")
    ] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="of a round")] = 1,
    lr: Annotated[float, typer.Option(min=0, help="learning rate of Adam")] = 1e-3,
    batch: Annotated[int, typer.Option(min=1, help="samples of a step")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="of weights, order and clusters")] = 0,
    as_json: JsonOpt = False,
) -> None:
    """Prune MODEL, share its weights, and write the compressed file with what was done.

    Example: [cyan]whet compress model.py:make -i 1,1,28,28 --data d.npz --prune 0.9 -o small/[/]
    """
    from ..labs.compress import compress

    check_folder(output, "the compressed model")
    removed, bits = by_layer("prune", prune, float), by_layer("kmeans", kmeans, int)
    found = Batches.read(data)
    check_inputs(found, input, data)
    manual_seed(seed)
    teacher = None if distill is None else load_model(distill)
    manual_seed(seed)
    tell = note if as_json else say
    tell(f"{'stage':<9}{'accuracy':>9}{'not zero':>14}{'bytes':>14}")
    with resumable(output / STATES):
        made = compress(
            load_model(model), (found.x, found.y), test=found.test, prune=removed, kmeans=bits,
            half=half, scope=scope.value, channels=channels, distill=teacher, first=first,
            rounds=rounds, settle=settle, centroid_rounds=centroid_rounds, epochs=epochs,
            lr=lr, batch=batch, seed=seed, folder=output / STATES,
            watch=lambda stage: tell(line(stage)),
        )  # fmt: skip
    paths = made.write(output)
    if as_json:
        stages = [{name: getattr(stage, name) for name in OF_STAGE} for stage in made.stages]
        say_json({"stages": stages, "files": [str(path) for path in paths]})
        return
    say(f"\n{made.layer_table()}")
    say(f"\n{made.ratio:.1f} times smaller, reloads from {paths[0]}")
    say(f"wrote {', '.join(map(str, paths[1:3]))}")
    if channels is None:  # the shapes are those of MODEL
        shape = " ".join(f"--input {text}" for text in input)
        sparse = " --sparse" if prune is not None else ""
        words = f"whet compile {shlex.quote(model)} {shape} --weights {paths[0]}{sparse} -o OUT"
        say(f"next: {words}")


def line(stage: Stage) -> str:
    return f"{stage.name:<9}{stage.accuracy:>9.2f}{stage.nonzeros:>14,}{stage.bytes:>14,}"


def by_layer(name: str, text: str | None, number: Callable[[str], Any]) -> Any:
    """One number, or numbers by pattern: `conv*:8,fc*:4`."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    try:
        if ":" not in text:
            return number(text)
        pairs = (word.rpartition(":") for word in words)
        return {pattern: number(value) for pattern, _, value in pairs}
    except ValueError as error:
        raise SchemeError(
            f"{option(name, text)} gives no number", why=str(error), try_=EXAMPLES[name]
        ) from error


EXAMPLES = {
    "prune": ("--prune 0.9", "--prune fc1:0.95,fc2:0.8"),
    "kmeans": ("--kmeans 4", "--kmeans conv*:8,fc*:4"),
}


def check_inputs(found: Batches, inputs: list[str], path: Path) -> None:
    shape, _ = sizes(inputs[0])
    if len(inputs) > 1 or found.x.shape[1:] != shape[1:]:
        raise DataError(
            f"the samples of {path} do not fit --input {' '.join(inputs)}",
            why=f"a sample has the shape {found.x.shape[1:]}",
            try_=f"--input {','.join(map(str, (1, *found.x.shape[1:])))}",
        )
