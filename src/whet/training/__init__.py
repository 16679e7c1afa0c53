"""From a forward graph with a loss to entry points that train: gradients, then updates."""

from .send import Send, begin
from .steps import IntegerRules, Training, Unit, UpdateRule, apply, gradients, predict, train_step

__all__ = [
    "IntegerRules",
    "Send",
    "Training",
    "Unit",
    "UpdateRule",
    "apply",
    "begin",
    "gradients",
    "predict",
    "train_step",
]
