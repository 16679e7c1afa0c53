"""Optimizers of Keras in PyTorch's words.

Only what means the same is translated. Adam's epsilon is the one exception: Keras adds it before
the correction of the second moment, PyTorch after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import FrontendError, either
from .backend import keras
from .refused import kind_of, not_translated


def optimizer_of(model: Any, parameters: Mapping[int, Tensor]) -> torch.optim.Optimizer:
    given = model.optimizer
    known = {getattr(keras().optimizers, name): make for name, make in OPTIMIZERS.items()}
    make = known.get(kind_in_keras(given))
    if make is None:
        raise unknown(given)
    if not model.trainable_variables:
        raise FrontendError(
            "no variable of the Keras model is trainable",
            why="trainable is False for all of its layers that have weights",
            try_=(
                "layer.trainable = True for what is to train",
                either("optimizer= and update= of whet.compile", "--optimizer and --update"),
            ),
        )
    options = given.get_config()
    refuse_options(options)
    return make(groups(model, parameters, options), options)


def kind_in_keras(given: Any) -> type:
    """The class; where Keras made one for its backend, the one that it is for."""
    backends = "keras.src.backend."
    return next(k for k in type(given).__mro__ if not k.__module__.startswith(backends))


def unknown(given: Any) -> FrontendError:
    known = f"SGD, Adam or AdamW of Keras, or {either('optimizer= of whet.compile', '--optimizer')}"
    if type(given) is keras().optimizers.LossScaleOptimizer:
        known = 'a float32 model, as keras.config.set_dtype_policy("float32") makes, compiled with '
        known += "auto_scale_loss=False and the optimizer inside: optimizer.inner_optimizer"
    return not_translated(f"the optimizer {kind_of(given)}", known)


def refuse_options(options: Mapping[str, Any]) -> None:
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
