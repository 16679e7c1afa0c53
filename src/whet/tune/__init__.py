"""Measure this machine, for the cost model that chooses kernels."""

from .kept import forget, keep, this_machine
from .measure import QUIET, tune
from .predict import Cost, Prediction, predict

__all__ = ["QUIET", "Cost", "Prediction", "forget", "keep", "predict", "this_machine", "tune"]
