"""Models in files of other formats: `model.onnx`, or `model.onnx:output` for one of its outputs;
`model.keras` and `model.tflite`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import FrontendError

if TYPE_CHECKING:
    import torch

    from ..frontend.torch.interpreted import Interpreted


def read_onnx(path: str, output: str) -> Interpreted:
    from ..models import from_onnx

    return from_onnx(path, outputs=(output,) if output else ())


def read_keras(path: str, output: str) -> Interpreted:
    from ..models import from_keras

    refuse_output(path, output)
    return from_keras(path)


def read_tflite(path: str, output: str) -> Interpreted:
    from ..models import from_tflite

    refuse_output(path, output)
    return from_tflite(path)


def refuse_output(path: str, output: str) -> None:
    if output:
        raise FrontendError(
            f"{path}:{output} names an output", why="that is for ONNX files", try_=path
        )


READERS: dict[str, Callable[[str, str], Interpreted]] = {
    ".onnx": read_onnx, ".keras": read_keras, ".tflite": read_tflite,
}  # fmt: skip


def file_and_output(spec: str) -> tuple[str, str] | None:
    """The file that a model's name says, and the output of it, if one is named."""
    path, _, output = spec.partition(":") if Path(spec).suffix not in READERS else (spec, "", "")
    return (path, output) if Path(path).suffix in READERS else None


def read_file(spec: str) -> Interpreted | None:
    """The model, if the name is that of a file that is no program."""
    found = file_and_output(spec)
    return None if found is None else READERS[Path(found[0]).suffix](*found)


def loss_in(
    spec: str, model: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> tuple[dict[str, Any], str]:
    """The loss that a file was compiled with and labels for it, and the loss in words."""
    if not is_keras(spec):
        return {}, ""
    from ..frontend.keras import KerasModel, compiled

    assert isinstance(model, KerasModel)
    if not compiled.has_loss(model):
        return {}, ""
    return compiled.loss_arguments(model, len(inputs[0]), inputs), compiled.loss_in_words(model)


def optimizer_in(spec: str, model: torch.nn.Module) -> tuple[dict[str, Any], str]:
    """The optimizer that a file was compiled with, its clipping, and the optimizer in words."""
    if not is_keras(spec):
        return {}, ""
    from ..frontend.keras import KerasModel, compiled

    assert isinstance(model, KerasModel)
    if not compiled.has_optimizer(model):
        return {}, ""
    return compiled.optimizer_arguments(model), compiled.optimizer_in_words(model)


def is_keras(spec: str) -> bool:
    found = file_and_output(spec)
    return found is not None and Path(found[0]).suffix == ".keras"


def inputs_of(context: typer.Context, value: list[str] | None) -> list[str]:
    """The shapes that were given, or those that a file has; a size that it leaves open is 1."""
    model = context.params.get("model")
    if value or context.resilient_parsing or not isinstance(model, str):
        return list(value or [])
    if file_and_output(model) is None:
        raise typer.BadParameter("missing; for example --input 4,1,28,28")
    found = read_file(model)
    assert found is not None
    pairs = zip(found.example(), found.declared, strict=True)
    return [text_of(x, declared.count) for x, declared in pairs]


def text_of(x: torch.Tensor, count: int | None) -> str:
    """As `--input` says it: ids with the number of ids."""
    text = ",".join(map(str, x.shape))
    return text if x.is_floating_point() else f"{text}:{count or 2}"
