"""The command line: `whet compile`, `whet check`, `whet ir`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from .errors import FrontendError, WhetError

if TYPE_CHECKING:
    import torch

    from .emit.program import Program

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Compile a PyTorch model into a small C program that trains it.",
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class LossName(StrEnum):
    cross_entropy = "cross-entropy"
    mse = "mse"
    l1 = "l1"
    smooth_l1 = "smooth-l1"
    bce = "bce-with-logits"
    nll = "nll"
    kl = "kl"


class OptimizerName(StrEnum):
    sgd = "sgd"
    adam = "adam"
    adamw = "adamw"


ModelArg = Annotated[
    str, typer.Argument(help="pkg.module:make_model or file.py:make_model", metavar="MODEL")
]
InputOpt = Annotated[
    list[str],
    typer.Option(
        "--input", "-i", help="shape with batch, as 1,3,128,128; ids below 1000 as 1,16:1000"
    ),
]
OutOpt = Annotated[Path, typer.Option("--output", "-o", help="folder for the C program")]
LossOpt = Annotated[LossName, typer.Option(help="what is minimised")]
OptimizerOpt = Annotated[OptimizerName, typer.Option(help="how parameters are updated")]
LrOpt = Annotated[float, typer.Option(help="learning rate; can be changed at run time")]
MomentumOpt = Annotated[float, typer.Option(help="of sgd")]
DecayOpt = Annotated[float, typer.Option(help="weight decay")]
ClipOpt = Annotated[float | None, typer.Option(help="limit of the gradients' total norm")]
TrainOpt = Annotated[
    bool, typer.Option("--train/--eval", help="batch norm and dropout as in training, or frozen")
]
NameOpt = Annotated[str, typer.Option(help="prefix of the C functions")]
StepsOpt = Annotated[int, typer.Option(min=1, help="how many steps to compare")]


@app.command("compile")
def compile_command(
    model: ModelArg,
    input: InputOpt,
    output: OutOpt,
    loss: LossOpt = LossName.cross_entropy,
    optimizer: OptimizerOpt = OptimizerName.sgd,
    lr: LrOpt = 0.01,
    momentum: MomentumOpt = 0.9,
    weight_decay: DecayOpt = 0.0,
    clip_norm: ClipOpt = None,
    train: TrainOpt = False,
    accumulate: Annotated[bool, typer.Option(help="add `gradients` and `apply`")] = False,
    name: NameOpt = "net",
) -> None:
    """Write a folder of C that trains MODEL and builds with `make`."""
    start = time.perf_counter()
    program = make_program(
        model, input, loss, optimizer, lr, momentum, weight_decay, clip_norm, train, name,
        accumulate,
    )  # fmt: skip
    folder = program.write(output)
    out.print(program.report(), markup=False)
    out.print()
    seconds = time.perf_counter() - start
    out.print(f"wrote {len(program.files)} files to {folder} in {seconds:.1f} s", markup=False)
    out.print(f"next: make -C {folder} && {folder}/{name}", markup=False)


@app.command("check")
def check_command(
    model: ModelArg,
    input: InputOpt,
    loss: LossOpt = LossName.cross_entropy,
    optimizer: OptimizerOpt = OptimizerName.sgd,
    lr: LrOpt = 0.01,
    momentum: MomentumOpt = 0.9,
    weight_decay: DecayOpt = 0.0,
    clip_norm: ClipOpt = None,
    train: TrainOpt = False,
    steps: StepsOpt = 10,
) -> None:
    """Build the program and compare every gradient and some steps with PyTorch."""
    program = make_program(
        model, input, loss, optimizer, lr, momentum, weight_decay, clip_norm, train, "net", False
    )
    out.print(str(program.check(steps)), markup=False)


@app.command("ir")
def ir_command(
    model: ModelArg,
    input: InputOpt,
    entry: Annotated[str, typer.Option(help="train_step or predict")] = "train_step",
    train: TrainOpt = False,
) -> None:
    """Print the graph of an entry point."""
    program = make_program(
        model, input, LossName.cross_entropy, OptimizerName.sgd, 0.01, 0.9, 0.0, None, train,
        "net", False,
    )  # fmt: skip
    if entry not in program.entries:
        raise WhetError(f"no entry point {entry!r}", try_=", ".join(program.entries))
    out.print(str(program.entries[entry]), markup=False)


def make_program(
    spec: str, inputs: list[str], loss: LossName, optimizer: OptimizerName, lr: float,
    momentum: float, decay: float, clip_norm: float | None, train: bool, name: str,
    accumulate: bool,
) -> Program:  # fmt: skip
    import whet

    compile = whet.compile  # says so if there is no PyTorch
    import torch

    examples = tuple(example(text) for text in inputs)
    model = load_model(spec)
    model.train(train)
    params = [p for p in model.parameters() if p.requires_grad]
    if not params:
        raise FrontendError("no parameter of the model requires a gradient", at=spec)
    rules: dict[OptimizerName, Any] = {
        OptimizerName.sgd: lambda: torch.optim.SGD(
            params, lr=lr, momentum=momentum, weight_decay=decay
        ),
        OptimizerName.adam: lambda: torch.optim.Adam(params, lr=lr, weight_decay=decay),
        OptimizerName.adamw: lambda: torch.optim.AdamW(params, lr=lr, weight_decay=decay),
    }
    losses: dict[LossName, Any] = {
        LossName.cross_entropy: torch.nn.CrossEntropyLoss,
        LossName.mse: torch.nn.MSELoss,
        LossName.l1: torch.nn.L1Loss,
        LossName.smooth_l1: torch.nn.SmoothL1Loss,
        LossName.bce: torch.nn.BCEWithLogitsLoss,
        LossName.nll: torch.nn.NLLLoss,
        LossName.kl: lambda: torch.nn.KLDivLoss(reduction="batchmean"),
    }
    try:
        rule = rules[optimizer]()
    except ValueError as error:
        raise FrontendError(f"{optimizer.value} cannot be set up so", why=str(error)) from error
    return compile(
        model, examples, loss=losses[loss](), optimizer=rule, clip_norm=clip_norm,
        accumulate=accumulate, name=name,
    )  # fmt: skip


def example(text: str) -> torch.Tensor:
    """`1,3,32,32` is a float tensor of that shape, `1,16:1000` one of ids below 1000."""
    import torch

    match = re.fullmatch(r"([1-9]\d*(?:,[1-9]\d*)*)(?::([1-9]\d*))?", text)
    if match is None:
        raise FrontendError(
            f"{text!r} is not an input shape", try_="--input 1,3,128,128 or --input 1,16:1000"
        )
    sizes = tuple(int(n) for n in match[1].split(","))
    if match[2] is None:
        return torch.randn(sizes)
    ids = torch.randint(0, int(match[2]), sizes)
    ids.view(-1)[0] = int(match[2]) - 1  # the largest id is part of the example
    return ids


def load_model(spec: str) -> torch.nn.Module:
    """What `pkg.module:name` or `file.py:name` names: a module, or a function that makes one."""
    import torch

    where, _, attribute = spec.partition(":")
    if not where or not attribute:
        raise FrontendError(f"{spec!r} does not name a model", try_="pkg.module:make_model")
    try:
        module = import_file(where) if where.endswith(".py") else import_name(where)
    except Exception as error:
        raise FrontendError(f"cannot import {where!r}", why=reason(error)) from error
    if not hasattr(module, attribute):
        raise FrontendError(f"{where!r} has no {attribute!r}")
    made = getattr(module, attribute)
    if callable(made) and not isinstance(made, torch.nn.Module):
        try:
            made = made()
        except Exception as error:
            raise FrontendError(f"{spec}() failed", why=reason(error)) from error
    if not isinstance(made, torch.nn.Module):
        raise FrontendError(f"{spec} gives a {type(made).__name__}, not a torch.nn.Module")
    return made


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def import_name(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def import_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    try:
        app()
    except WhetError as error:
        err.print(f"whet: {error}", markup=False)
        sys.exit(1)
