"""Pruning, weight sharing, storage and distillation under their public name; see labs/compress."""

from .labs.compress import *  # noqa: F403
from .labs.compress import __all__ as __all__
