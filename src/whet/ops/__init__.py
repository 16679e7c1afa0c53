"""Every operator whet has. What exists is what is imported here."""

from __future__ import annotations

from ..errors import InternalError
from ..ir import Op
from . import (
    amax,
    binary,
    bits,
    conv,
    conv_i8,
    fused,
    fused_i8,
    fused_update,
    fused_update_i8,
    gradient_i8,
    integer,
    largest,
    linear,
    loss,
    norm,
    pool,
    pool_i8,
    put,
    quantized,
    random,
    reduce,
    resize,
    settle,
    shape,
    softmax,
    stream,
    unary,
    update,
    widen,
)

__all__ = [
    "amax",
    "binary",
    "bits",
    "by_name",
    "conv",
    "conv_i8",
    "fused",
    "fused_i8",
    "fused_update",
    "fused_update_i8",
    "gradient_i8",
    "integer",
    "largest",
    "linear",
    "loss",
    "norm",
    "pool",
    "pool_i8",
    "put",
    "quantized",
    "random",
    "reduce",
    "resize",
    "settle",
    "shape",
    "softmax",
    "stream",
    "unary",
    "update",
    "widen",
]


def by_name(name: str) -> type[Op]:
    if name not in Op.registry:
        raise InternalError(f"there is no operator {name!r}", try_=", ".join(sorted(Op.registry)))
    return Op.registry[name]
