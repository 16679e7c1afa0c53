"""From a forward graph with a loss to entry points that train: gradients, then updates."""

from .steps import IntegerRules, Training, Unit, UpdateRule, apply, gradients, predict, train_step

__all__ = [
    "IntegerRules",
    "Training",
    "Unit",
    "UpdateRule",
    "apply",
    "gradients",
    "predict",
    "train_step",
]
