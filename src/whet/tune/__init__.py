"""Measure this machine, for the cost model that chooses kernels."""

from .kept import forget, keep, this_machine
from .measure import QUIET, tune

__all__ = ["QUIET", "forget", "keep", "this_machine", "tune"]
