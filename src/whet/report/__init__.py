"""Say what a program contains, what each layer costs, and how well it agrees with PyTorch."""

from .check import CheckReport
from .program import gap, kib, program_report

__all__ = ["CheckReport", "gap", "kib", "program_report"]
