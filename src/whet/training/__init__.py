"""From a forward graph with a loss to entry points that train: gradients, then updates."""

from .steps import Rule, Training, Unit, Whole, apply, gradients, predict, train_step

__all__ = ["Rule", "Training", "Unit", "Whole", "apply", "gradients", "predict", "train_step"]
