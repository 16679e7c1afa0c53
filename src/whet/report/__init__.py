"""Say what a program contains, what each layer costs, and how well it agrees with PyTorch."""

from .check import CheckReport
from .layers import layer_table, to_json
from .picture import arena_svg, layers_svg
from .program import gap, kib, program_report

__all__ = [
    "CheckReport",
    "arena_svg",
    "gap",
    "kib",
    "layer_table",
    "layers_svg",
    "program_report",
    "to_json",
]
