"""Callbacks of `Trainer.fit` under their public name; see fit/callbacks.py."""

from .fit.callbacks import *  # noqa: F403
from .fit.callbacks import __all__ as __all__
