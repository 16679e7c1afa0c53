"""Keep a memory budget, or propose changes that were compiled within it."""

from .fit import check_flash, fit

__all__ = ["check_flash", "fit"]
