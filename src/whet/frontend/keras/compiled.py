"""What `model.compile` of Keras was told, in PyTorch's words.

Only what means the same is translated. Adam's epsilon is the one exception: Keras adds it before
the correction of the second moment, PyTorch after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import FrontendError
from .backend import keras

Loss = Callable[[Any, Any], Tensor]


def compiled(model: Any, parameters: Mapping[int, Tensor], batch: int) -> dict[str, Any]:
    """Arguments for `whet.compile`; parameters by id of the variable."""
    if getattr(model, "optimizer", None) is None or model.loss is None:
        raise FrontendError(
            "the Keras model has no loss or no optimizer", try_="model.compile(optimizer, loss)"
        )
    if getattr(model._compile_loss, "_user_loss_weights", None) is not None:
        raise not_translated("loss_weights")
    loss = loss_of(model.loss)
    return {
        "loss": loss,
        "labels": labels_of(model, loss, batch),
        "optimizer": optimizer_of(model, parameters),
        "clip_norm": model.optimizer.global_clipnorm,
    }


def labels_of(model: Any, loss: Loss, batch: int) -> Tensor:
    """An example of them: classes, or numbers like the outputs."""
    shape = model.output_shape
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape[1:]):
        raise FrontendError(
            f"the Keras model has outputs of shape {shape}",
            why="a loss of model.compile is translated for one output of fixed shape",
            try_="loss= and labels= of whet.compile",
        )
    if getattr(loss, "of_classes", False):
        return torch.zeros((batch, *shape[1:-1]), dtype=torch.int64)
    return torch.zeros((batch, *shape[1:]))


def not_translated(what: str, try_: str = "") -> FrontendError:
    return FrontendError(
        f"{what} of model.compile has no equivalent in whet",
        try_=try_ or "loss= and optimizer= of whet.compile",
    )


# --- losses


def loss_of(given: Any) -> Loss:
    losses = keras().losses
    if isinstance(given, (list, tuple, dict)):
        raise not_translated("more than one loss")
    if isinstance(given, str):
        given = losses.get(given)
    by_function = {losses.get(snake): kind for snake, kind in kinds(losses).items()}
    if not isinstance(given, losses.Loss) and given in by_function:
        given = by_function[given]()
    row = LOSSES.get(type(given).__name__) if isinstance(given, losses.Loss) else None
    if row is None:
        raise not_translated(f"the loss {getattr(given, '__name__', type(given).__name__)}")
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


# --- optimizers


def optimizer_of(model: Any, parameters: Mapping[int, Tensor]) -> torch.optim.Optimizer:
    given = model.optimizer
    options = given.get_config()
    for name in ("clipnorm", "clipvalue", "gradient_accumulation_steps", "loss_scale_factor"):
        if options.get(name) is not None:
            raise not_translated(f"{name}={options[name]}")
    for name in ("use_ema", "amsgrad", "centered"):
        if options.get(name):
            raise not_translated(f"{name}=True")
    if not isinstance(options["learning_rate"], (int, float)):
        raise not_translated(
            "a learning rate schedule", "the rate of each step: trainer.step(x, y, lr=...)"
        )
    make = OPTIMIZERS.get(type(given).__name__)
    if make is None:
        what = f"the optimizer {type(given).__name__}"
        raise not_translated(what, "SGD, Adam or AdamW of Keras, or optimizer= of whet.compile")
    return make(groups(model, parameters, options), options)


def groups(
    model: Any, parameters: Mapping[int, Tensor], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The parameters whose weights decay, and those that the optimizer excludes from that."""
    decay = float(options.get("weight_decay") or 0.0)
    found: dict[float, list[Tensor]] = {}
    for variable in model.trainable_variables:
        held = parameters[id(variable)]
        rate = decay if decay and model.optimizer._use_weight_decay(variable) else 0.0
        found.setdefault(rate, []).append(held)
    return [{"params": held, "weight_decay": rate} for rate, held in found.items()]


def sgd(groups: list[dict[str, Any]], options: Mapping[str, Any]) -> torch.optim.Optimizer:
    momentum, rate = float(options["momentum"]), float(options["learning_rate"])
    if momentum and any(group["weight_decay"] for group in groups):
        raise not_translated(
            "SGD with momentum and weight_decay", "weight_decay without momentum, or AdamW"
        )
    nesterov = bool(options["nesterov"]) and momentum > 0
    return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=nesterov)


def adam(groups: list[dict[str, Any]], options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Keras subtracts decay from the weights, as AdamW does, whatever the optimizer is called."""
    decays = any(group["weight_decay"] for group in groups)
    kind = torch.optim.AdamW if decays else torch.optim.Adam
    return kind(
        groups,
        lr=float(options["learning_rate"]),
        betas=(float(options["beta_1"]), float(options["beta_2"])),
        eps=float(options["epsilon"]),
    )


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], Mapping[str, Any]], torch.optim.Optimizer]]
OPTIMIZERS = {"SGD": sgd, "Adam": adam, "AdamW": adam}
