"""Say what a program contains, what each layer costs, and how well it agrees with PyTorch."""

from .check import CheckReport
from .layers import layer_table, to_json
from .program import gap, kib, program_report

__all__ = ["CheckReport", "gap", "kib", "layer_table", "program_report", "to_json"]
