"""What `model.compile` of Keras was told, as arguments for `whet.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import FrontendError, either
from .losses import Loss, loss_of
from .optimizers import optimizer_of
from .refused import not_translated, refuse_added_losses, refuse_constraints, refuse_other_losses
from .walk import name_of

if TYPE_CHECKING:
    from .load import KerasModel


def compiled(module: KerasModel, batch: int) -> dict[str, Any]:
    """The loss with an example of labels, the optimizer, and the limit of the gradients' norm."""
    if not has_loss(module) or not has_optimizer(module):
        raise FrontendError(
            "the Keras model has no loss or no optimizer", try_="model.compile(optimizer, loss)"
        )
    return loss_arguments(module, batch) | optimizer_arguments(module)


def has_loss(module: KerasModel) -> bool:
    return getattr(module.walk.model, "loss", None) is not None


def has_optimizer(module: KerasModel) -> bool:
    return getattr(module.walk.model, "optimizer", None) is not None


# --- the loss


def loss_arguments(module: KerasModel, batch: int, inputs: Sequence[Tensor] = ()) -> dict[str, Any]:
    """`loss` and `labels`; the labels are like the outputs for `inputs`, if these are given."""
    model = module.walk.model
    refuse_other_losses(model)
    outputs, added = called(module, inputs)
    refuse_added_losses(model, added)
    if getattr(model._compile_loss, "_user_loss_weights", None) is not None:
        raise not_translated("loss_weights")
    loss = loss_of(only_loss(model))
    return {"loss": loss, "labels": labels_of(outputs, loss, batch)}


def only_loss(model: Any) -> Any:
    """The loss, which may be given in a list or by the name of the output."""
    given = model.loss
    if isinstance(given, dict):
        names = getattr(model, "output_names", None)
        if names is not None and len(given) == 1 and list(given) != list(names):
            raise FrontendError(
                f"the loss of model.compile is for an output {next(iter(given))!r}",
                why=f"the Keras model has the outputs {', '.join(map(repr, names))}",
            )
        given = list(given.values())
    if isinstance(given, (list, tuple)):
        if len(given) != 1 or isinstance(given[0], (list, tuple, dict)) or given[0] is None:
            raise not_translated("more than one loss")
        given = given[0]
    return given


Shape = tuple[int | None, ...]


def called(module: KerasModel, inputs: Sequence[Tensor]) -> tuple[list[Shape], list[Any]]:
    """The shapes of the outputs, and what the layers add to the loss when they are called.

    Where a size of the inputs is open, the outputs are as Keras declares them.
    """
    declared = [tuple(t.shape) for t in getattr(module.walk.model, "outputs", None) or ()]
    try:
        given = inputs or module.example()
    except FrontendError:
        if declared:
            return declared, []
        raise
    try:
        outputs, added = module.walk.with_losses(module, given)
    except Exception as error:  # of a layer, which may do anything
        raise FrontendError(
            "the Keras model cannot be called", why=f"{type(error).__name__}: {error}"[:300]
        ) from error
    return [tuple(t.shape) for t in outputs], added


def labels_of(outputs: Sequence[Shape], loss: Loss, batch: int) -> Tensor:
    """An example of them: classes, or numbers like the outputs."""
    if len(outputs) != 1 or not all(isinstance(size, int) for size in outputs[0][1:]):
        raise FrontendError(
            f"the Keras model has outputs of shape {', '.join(map(str, outputs))}",
            why="a loss of model.compile is translated for one output of fixed shape",
            try_=either("loss= and labels= of whet.compile", "--loss"),
        )
    sizes = [size for size in outputs[0][1:] if size is not None]
    if getattr(loss, "of_classes", False):
        return torch.zeros((batch, *sizes[:-1]), dtype=torch.int64)
    return torch.zeros((batch, *sizes))


# --- the optimizer


def optimizer_arguments(module: KerasModel) -> dict[str, Any]:
    """`optimizer` and `clip_norm`."""
    model = module.walk.model
    refuse_constraints(model)
    parameters = {id(v): module.tensor(name_of(v)) for v in model.trainable_variables}
    optimizer = optimizer_of(model, parameters)
    return {"optimizer": optimizer, "clip_norm": model.optimizer.global_clipnorm}


# --- in words


def loss_in_words(module: KerasModel) -> str:
    """`SparseCategoricalCrossentropy of probabilities`, say."""
    given = only_loss(module.walk.model)
    if not hasattr(given, "get_config"):
        return str(getattr(given, "__name__", given))
    options = given.get_config()
    words = {True: " of logits", False: " of probabilities"}.get(options.get("from_logits"), "")
    return f"{type(given).__name__}{words}"


def optimizer_in_words(module: KerasModel) -> str:
    """`SGD(learning_rate=0.1, momentum=0.9)`, say."""
    given = module.walk.model.optimizer
    shown = ("learning_rate", "momentum", "nesterov", "weight_decay", "global_clipnorm")
    options = given.get_config()
    words = [f"{name}={options[name]:g}" for name in shown if options.get(name)]
    return f"{type(given).__name__}({', '.join(words)})"
