"""riscv: microcontrollers with a RISC-V core of 32 bits."""

from .target import RISCV, RiscV

__all__ = ["RISCV", "RiscV"]
