"""What a Keras model was told that would be lost in a translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import FrontendError, either
from .backend import keras


def by_hand() -> str:
    return either("loss= and optimizer= of whet.compile", "--loss and --optimizer")


def not_translated(what: str, try_: str | Sequence[str] = "") -> FrontendError:
    return FrontendError(
        f"{what} of model.compile has no equivalent in whet", try_=try_ or by_hand()
    )


def kind_of(given: Any) -> str:
    """The name of a function or of an object's class, with its module if that is not Keras'."""
    kind = given if hasattr(given, "__name__") else type(given)
    module = str(getattr(kind, "__module__", ""))
    return str(kind.__name__) + ("" if module.startswith("keras.") else f" of {module}")


def lost(what: str, why: str, try_: str) -> FrontendError:
    return FrontendError(
        f"whet has no {what}", why=why, try_=(try_, f"{by_hand()}, which train without it")
    )


def refuse_other_losses(model: Any) -> None:
    """Penalties that Keras adds to the loss of `model.compile`, and methods that replace it."""
    base = keras().Model
    for method in ("train_step", "compute_loss"):
        if getattr(type(model), method) is not getattr(base, method):
            raise lost(
                f"{method} of Keras models",
                f"{type(model).__name__} has one of its own",
                "the loss as a function of PyTorch: loss= of whet.compile",
            )
    for variable in model.trainable_variables:
        if variable.regularizer is not None:
            raise lost(
                f"regularizers: {variable.path} has {kind_of(variable.regularizer)}",
                "Keras adds a penalty to the loss",
                "weight_decay of SGD or AdamW instead of L2",
            )
    for layer in model._flatten_layers():
        if layer.activity_regularizer is not None:
            raise lost(
                f"activity regularizers: {layer.name} has {kind_of(layer.activity_regularizer)}",
                "Keras adds a penalty on the outputs of the layer to the loss",
                "the layer without activity_regularizer",
            )


def refuse_constraints(model: Any) -> None:
    for variable in model.trainable_variables:
        if variable.constraint is not None:
            raise lost(
                f"constraints: {variable.path} has {kind_of(variable.constraint)}",
                "Keras projects the variable after each step",
                "the layer without it, or with weight_decay of the optimizer",
            )


def refuse_added_losses(model: Any, found: Sequence[Any]) -> None:
    """`found` is what was added to the loss during a call."""
    if found or any(layer._losses for layer in model._flatten_layers()):
        raise lost(
            "add_loss of Keras layers",
            "Keras adds what a layer gives to it to the loss",
            "a model whose loss depends on its outputs and labels only",
        )
