"""Build programs with a C compiler and run them from Python."""

from .trainer import Trainer

__all__ = ["Trainer"]
