"""Losses of Keras in PyTorch's words; only those that mean the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .backend import keras
from .refused import kind_of, not_translated

Loss = Callable[[Any, Any], Tensor]


def loss_of(given: Any) -> Loss:
    """The same loss of outputs and labels in PyTorch; `given` as in `model.compile`."""
    losses = keras().losses
    if isinstance(given, str):
        given = losses.get(given)
    by_function = {losses.get(snake): kind for snake, kind in kinds(losses).items()}
    if not isinstance(given, losses.Loss) and given in by_function:
        given = by_function[given]()
    row = {getattr(losses, name): row for name, row in LOSSES.items()}.get(type(given))
    if row is None:
        raise not_translated(f"the loss {kind_of(given)}")
    options = given.get_config() | getattr(given, "_fn_kwargs", {})  # Huber leaves out delta
    if given.reduction not in ("sum_over_batch_size", "mean"):
        raise not_translated(f"reduction={given.reduction!r}")
    if options.get("axis", -1) != -1:
        raise not_translated(f"axis={options['axis']}")
    return row(options)


def kinds(losses: Any) -> dict[str, Any]:
    names = {
        "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
        "categorical_crossentropy": "CategoricalCrossentropy",
        "binary_crossentropy": "BinaryCrossentropy",
        "mean_squared_error": "MeanSquaredError",
        "mean_absolute_error": "MeanAbsoluteError",
        "huber": "Huber",
    }
    return {name: getattr(losses, kind) for name, kind in names.items()}


def classes_second(output: Tensor) -> Tensor:
    """PyTorch has the classes on the second axis, Keras on the last."""
    return output.movedim(-1, 1) if output.ndim > 2 else output


def log_of(probabilities: Tensor) -> Tensor:
    """As Keras takes logarithms of what a softmax made."""
    low = keras().config.epsilon()
    return (probabilities / probabilities.sum(-1, keepdim=True)).clamp(low, 1 - low).log()


class Sparse:
    """Cross-entropy of classes by their numbers."""

    of_classes = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options.get("ignore_class") is not None:
            what = f"ignore_class={options['ignore_class']}"
            raise not_translated(what, "labels of -100 where none counts")
        self.of_logits = bool(options["from_logits"])

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if self.of_logits:
            return F.cross_entropy(classes_second(output), target)
        return F.nll_loss(classes_second(log_of(output)), target)


def categorical(options: Mapping[str, Any]) -> Loss:
    smoothing = float(options.get("label_smoothing") or 0.0)

    def of_logits(output: Tensor, target: Tensor) -> Tensor:
        return of_logarithms(F.log_softmax(output, -1), target)

    def of_probabilities(output: Tensor, target: Tensor) -> Tensor:
        return of_logarithms(log_of(output), target)

    def of_logarithms(logarithms: Tensor, target: Tensor) -> Tensor:
        if smoothing:
            target = target * (1 - smoothing) + smoothing / logarithms.shape[-1]
        return -(target * logarithms).sum(-1).mean()

    return of_logits if options["from_logits"] else of_probabilities


def binary(options: Mapping[str, Any]) -> Loss:
    smoothing = float(options.get("label_smoothing") or 0.0)

    def smooth(target: Tensor) -> Tensor:
        return target * (1 - smoothing) + smoothing / 2 if smoothing else target

    def of_logits(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, smooth(target))

    def of_probabilities(output: Tensor, target: Tensor) -> Tensor:
        low, target = keras().config.epsilon(), smooth(target)
        kept = output.clamp(low, 1 - low)
        return -(target * kept.log() + (1 - target) * (1 - kept).log()).mean()

    return of_logits if options["from_logits"] else of_probabilities


LOSSES: dict[str, Callable[[Mapping[str, Any]], Loss]] = {
    "SparseCategoricalCrossentropy": Sparse,
    "CategoricalCrossentropy": categorical,
    "BinaryCrossentropy": binary,
    "MeanSquaredError": lambda options: nn.MSELoss(),
    "MeanAbsoluteError": lambda options: nn.L1Loss(),
    "Huber": lambda options: nn.HuberLoss(delta=float(options["delta"])),
}
