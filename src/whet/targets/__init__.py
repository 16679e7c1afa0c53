"""Where programs run: one module for each target, or family of targets."""

from ..emit.target import Target
from ..errors import TargetError, option
from .cortex_m import CORTEX_M
from .cross import CROSS
from .host import HOST
from .portable import PORTABLE
from .riscv import RISCV
from .wasm import WASM

__all__ = ["HOST", "PORTABLE", "TARGETS", "WASM", "Target", "target_named"]

TARGETS: dict[str, Target] = {t.name: t for t in (HOST, PORTABLE, *CORTEX_M, *RISCV, *CROSS, WASM)}


def target_named(name: str) -> Target:
    if not isinstance(name, str) or name not in TARGETS:
        raise TargetError(
            f"there is no target {name!r}", try_=[option("target", known) for known in TARGETS]
        )
    return TARGETS[name]
