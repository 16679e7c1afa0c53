"""Import a PyTorch model with torch.export: the non-decomposed aten graph, functionalised."""

from __future__ import annotations

import functools
import keyword
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.export import ExportedProgram

from ...errors import FrontendError, either
from ...ir import Array, Graph, Role, is_meta
from ..model import Model, without_loss
from . import aten as _register_handlers  # noqa: F401
from .halves import HALVES, tell_widened
from .importer import HANDLERS, Importer
from .locations import location_of
from .masks import sharing
from .meta import check_read, integer_buffers, meta_names, output_of
from .optim import trainable, training_of

Loss = Callable[[Any, Any], torch.Tensor]
Target = torch.Tensor | tuple[torch.Tensor, ...]


class Outputs(NamedTuple):
    """What a model returns whose loss takes more than its prediction: the loss gets all of it."""

    prediction: torch.Tensor
    others: tuple[torch.Tensor, ...]


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs: tuple[torch.Tensor, ...], target: Target) -> Any:
        before = dict(self.model.named_buffers())
        output = self.model(*inputs)
        keep_assigned(before, dict(self.model.named_buffers()))
        return self.loss(for_loss(output), target), main_output(output)


def keep_assigned(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    """Turn `self.buffer = value` into an in-place update, which torch.export records."""
    pairs = [(old, after.get(name, old)) for name, old in before.items()]
    changed = [(old, new) for old, new in pairs if new is not old and new.shape == old.shape]
    for old, new in [
        (old, new.clone()) for old, new in changed
    ]:  # a buffer that changes its shape is a cache
        old.copy_(new)


class Alone(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        return main_output(self.model(*inputs))


def for_loss(output: Any) -> Any:
    """What the loss takes: all of `Outputs`, otherwise what the model predicts."""
    return output if isinstance(output, Outputs) else main_output(output)


def main_output(output: Any) -> torch.Tensor:
    """What the model predicts: its output, the `logits` of it, or the only item of a tuple."""
    if isinstance(output, Outputs):
        output = output.prediction
    elif hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, dict) and "logits" in output:
        output = output["logits"]
    elif isinstance(output, (tuple, list)) and len(output) == 1:
        output = output[0]
    if not isinstance(output, torch.Tensor):
        raise FrontendError(
            f"the model returns a {type(output).__name__}, not a tensor",
            try_="wrap it in a module that returns only the tensor that the loss takes",
        )
    return output


def export(module: nn.Module, args: tuple[Any, ...]) -> ExportedProgram:
    try:
        with quietly(), patch.object(torch, "rand", chance(torch.rand)):
            program = torch.export.export(module, args, strict=False)
            return program.run_decompositions(decompositions())
    except FrontendError:
        raise
    except Exception as error:
        raise export_error(error) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress PyTorch's messages about tracing: our errors say what matters."""
    logs = [logging.getLogger(name) for name in ("torch.export", "torch.fx")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


class Chance:
    """Replaces `torch.rand([])`, which models use to decide in Python whether to skip a layer."""

    def __lt__(self, probability: float) -> bool:
        if probability > 0:
            raise FrontendError(
                f"the model skips layers at random (with probability {probability:g})",
                why="a compiled program makes the same calls in every step",
                try_="set layerdrop to 0",
            )
        return False


def chance(rand: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*size: Any, **kwargs: Any) -> Any:
        return rand(*size, **kwargs) if any(size) or kwargs else Chance()

    return draw


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions for operators that have no handler."""
    table = torch.export.default_decompositions()
    return {op: table[op] for op in table if str(op).removeprefix("aten.") not in HANDLERS}


def export_error(error: Exception) -> FrontendError:
    text = str(error).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    words = ("data-dependent", "GuardOnDataDependent", "Could not guard", "unbacked")
    kind, place = type(error).__name__, location_of(error)
    if kind.startswith("GuardOnDataDependent") or any(w in text for w in words):
        return FrontendError(
            "the model's control flow or shapes depend on the values of its input",
            at=place,
            why=first,
            try_=("use torch.where instead of `if` on tensors,", "and operators with fixed shapes"),
        )
    return FrontendError(
        f"torch.export could not trace the model ({kind})",
        at=place,
        why=first,
        try_="make `torch.export.export(model, inputs)` work first",
    )


def canonical_names(model: nn.Module) -> dict[str, str]:
    """Every name of a shared tensor -> the first one, so that it becomes one leaf."""
    first: dict[int, str] = {}
    tensors: list[tuple[str, torch.Tensor]] = list(model.named_parameters(remove_duplicate=False))
    tensors += model.named_buffers(remove_duplicate=False)
    return {f"model.{name}": first.setdefault(id(t), name) for name, t in tensors}


def example_output(model: nn.Module, inputs: tuple[torch.Tensor, ...], meta: bool) -> torch.Tensor:
    """The model's output for the example, in eval mode; without values if the model has none."""
    try:
        with torch.no_grad():
            output = output_of(model.eval(), inputs) if meta else model.eval()(*inputs)
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise FrontendError(
            f"the model itself fails on the example input of shape {shapes}",
            at=location_of(error),
            why=str(error).splitlines()[:3],
        ) from error
    return main_output(output)


def independent(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether a sample has the same result alone as in a batch, tested on random numbers.

    If so, the first axis of inputs and output is the batch axis, and neither the batch size nor the
    other samples matter.
    """
    if any(x.ndim == 0 or len(x) != len(inputs[0]) for x in inputs):
        return False
    count, generator = max(2, len(inputs[0])), torch.Generator().manual_seed(0)

    def drawn(x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return torch.randn((count, *x.shape[1:]), generator=generator)
        return x[torch.arange(count) % len(x)]

    def predicted(rows: slice) -> torch.Tensor:
        return main_output(alone(*(x[rows] for x in batch)))

    batch, alone = [drawn(x) for x in inputs], sharing(model).eval()
    try:
        with torch.no_grad():
            together = predicted(slice(count))
            for i in (0, count - 1):
                ours, theirs = predicted(slice(i, i + 1)), together[i : i + 1]
                if ours.shape != theirs.shape:
                    return False
                if not torch.allclose(ours, theirs, 1e-3, 1e-4, equal_nan=True):
                    return False
    except Exception:  # the model accepts only its own batch size
        return False
    return True


def example_target(loss: Loss, output: torch.Tensor) -> torch.Tensor:
    """An example target for the usual losses and an output of this shape."""
    if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
        shape = (output.shape[0], *output.shape[2:]) if output.ndim > 1 else ()
        return torch.zeros(shape, dtype=torch.int64)
    known = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss)
    if isinstance(loss, (*known, nn.BCELoss, nn.KLDivLoss, nn.SoftMarginLoss)):
        return torch.zeros(tuple(output.shape))
    raise FrontendError(
        "the targets that this loss takes are unknown",
        why=f"the loss is {loss!r}",
        try_="pass an example: compile(..., labels=torch.zeros(...))",
    )


def import_model(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    target: Target | None,
    clip_norm: float | None,
) -> Model:
    """Import `model`, using copies only, since some models cache what they computed."""
    names, meta = canonical_names(model), meta_names(model)
    output = example_output(sharing(model), inputs, bool(meta))
    target = target if target is not None else example_target(loss, output)
    inputs, target = distinct(inputs, target)
    wrapper = WithLoss(sharing(model), loss)
    wrapper.training = model.training
    labels = len(target) if isinstance(target, tuple) else 1
    exported = export(wrapper, (inputs, target))
    check_read(exported, integer_buffers(model))
    importer = Importer(exported, names, labels, meta=meta)
    training = importer.run()
    tell_widened(importer.folded.items())
    if any(module.training for module in model.modules()):
        alone = export(Alone(sharing(model).eval()), (inputs,))
        changing = {leaf.name for leaf, _ in training.graph.state}
        prediction = Importer(alone, names, 0, changing, training.orders, meta).run()
    else:
        prediction = without_loss(training)
    by_id = {id(p): names[f"model.{name}"] for name, p in model.named_parameters()}
    rules, lr = training_of(optimizer, by_id, training.orders, clip_norm)
    ids = trainable(model, optimizer)
    requested = dict.fromkeys(name for i, name in by_id.items() if i in ids)
    alike = not meta and independent(model, inputs)
    masks = {name: mask for name, mask in training.masks.items() if not mask.all()}
    return Model(
        training, prediction, rules, lr, tuple(requested), alike,
        live=live_of(training.graph) | masks, masked=frozenset(masks), blocks=blocks_of(model),
        meta=bool(meta),
    )  # fmt: skip


def blocks_of(model: nn.Module) -> dict[str, Callable[[], tuple[str, Array]]]:
    """What `from_gguf` keeps of the file."""

    def read(own: Any) -> tuple[str, Array]:
        return own.format.lower(), own.data

    stored = getattr(model, "whet_blocks", {})
    return {name: functools.partial(read, own) for name, own in stored.items()}


def distinct(inputs: tuple[torch.Tensor, ...], target: Target) -> tuple[Any, Any]:
    """Copies of an example: torch.export takes a tensor that is given twice for a single one."""
    return tuple(x.detach().clone() for x in inputs), each(target, torch.clone)


def live_of(graph: Graph) -> dict[str, Array]:
    """Which elements are not zero, of every parameter that has zeros."""
    leaves = (leaf.name for leaf in graph.leaves_of(Role.PARAM))
    known = [name for name in leaves if not is_meta(graph.data[name])]
    return {name: graph.data[name] != 0 for name in known if not graph.data[name].all()}


UNTRACED = re.compile(r'["\\\n\r\0\ud800-\udfff]')


def check_names(model: nn.Module) -> None:
    """torch.export writes names unescaped into Python code, and runs it."""
    tensors = [("parameter", name) for name, _ in model.named_parameters()]
    for kind, whole in (*tensors, *(("buffer", name) for name, _ in model.named_buffers())):
        *modules, last = whole.split(".")
        for part in (*modules, last):
            if keyword.iskeyword(part) or UNTRACED.search(part):
                kind = kind if part is last else "module"
                other = UNTRACED.sub("_", part)
                raise FrontendError(
                    f"a {kind} is called {part!r}, which torch.export cannot trace",
                    at=whole,
                    why="it writes names unescaped into Python code",
                    try_=f"rename it, to {other if other != part else f'{part}_'!r} for example",
                )


def check_inputs(model: nn.Module, inputs: Any) -> None:
    if not isinstance(model, nn.Module):
        raise FrontendError(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    if not isinstance(inputs, tuple) or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise FrontendError(
            "example inputs must be a tuple of tensors",
            why=f"got {type(inputs).__name__}",
            try_="compile(model, (torch.randn(1, 3, 128, 128),), ...)",
        )
    check_names(model)
    for name, module in model.named_modules():
        cumulative = getattr(module, "momentum", 0.1) is None and module.training
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and cumulative:
            raise FrontendError(
                f"batch norm {name!r} averages its statistics over all steps (momentum=None)",
                try_="set a momentum such as 0.1, or put it in eval mode"
                + either("", " with --eval"),
            )
    for name, p in model.named_parameters():
        if p.dtype not in (torch.float32, *HALVES):
            raise FrontendError(
                f"parameter {name!r} has dtype {p.dtype}; whet trains models in float32, and those "
                "in float16 and bfloat16 as if they were",
                try_="model.float()",
            )


def each(labels: Target | None, change: Callable[[torch.Tensor], torch.Tensor]) -> Target | None:
    """The same change of every label."""
    if labels is None:
        return None
    return tuple(map(change, labels)) if isinstance(labels, tuple) else change(labels)


def check_labels(labels: Any) -> None:
    several = labels if isinstance(labels, tuple) else (labels,)
    if labels is not None and not (several and all(isinstance(x, torch.Tensor) for x in several)):
        raise FrontendError(
            "example labels must be a tensor, or a tuple of tensors if the loss takes several",
            why=f"got {type(labels).__name__}",
            try_="compile(..., labels=torch.zeros(...))",
        )
