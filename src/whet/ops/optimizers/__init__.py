"""Every optimizer whet has: one file each, with its operators and its record."""

from __future__ import annotations

from ...ir import Op
from ..fused_update import FusedUpdate
from ..live_update import LiveUpdate
from ..take_update import TakeUpdate
from .adam import ADAM
from .record import Named, Optimizer
from .rmsprop import RMSPROP
from .sgd import SGD
from .sgd_momentum import SGD_MOMENTUM

OPTIMIZERS: tuple[Optimizer, ...] = (SGD, SGD_MOMENTUM, ADAM, RMSPROP)

NAMES: dict[str, Named] = {named.name: named for o in OPTIMIZERS for named in o.names}
FUSED: dict[type[Op], type[FusedUpdate]] = {o.update: o.fused for o in OPTIMIZERS}
FUSED_LIVE: dict[type[Op], type[LiveUpdate]] = {o.update: o.live for o in OPTIMIZERS}
FUSED_TAKES: dict[type[Op], type[TakeUpdate]] = {
    o.update: o.take for o in OPTIMIZERS if o.take is not None
}
FUSED_STEPS: dict[type[Op], type[Op]] = {
    o.step: o.fused_step for o in OPTIMIZERS if o.fused_step is not None
}

__all__ = [
    "ADAM", "FUSED", "FUSED_LIVE", "FUSED_STEPS", "FUSED_TAKES", "NAMES", "OPTIMIZERS", "RMSPROP",
    "SGD", "SGD_MOMENTUM", "Named", "Optimizer",
]  # fmt: skip
