"""The head of a model, the blocks before it, and what lies behind those."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SchemeError
from .parameters import Parameter
from .structure import ATTENTION


def last_layer(parameters: Sequence[Parameter]) -> int:
    """The number of the last layer that has a weight."""
    layered = [p.layer for p in parameters if p.kind == "weight"]
    return max(layered, default=max((p.layer for p in parameters), default=-1))


def head(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters of the last layer.

    If its weight is an embedding as well, training it would take the whole backward pass. Then what
    lies behind the last block trains in its place or, where that is nothing, the last block.
    """
    found = own_head(parameters)
    if not any(p.tied for p in found):
        return found
    return behind(parameters, 0) or behind(parameters, 1) or found


def own_head(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters of the last layer, whatever else they are."""
    last = last_layer(parameters)
    found = [p for p in parameters if p.layer == last and p.kind in ("weight", "bias")]
    return found or [p for p in parameters if p.layer == last]


def blocks(parameters: Sequence[Parameter]) -> list[str]:
    """Paths of the blocks before the head, in order: those with more than norms and biases.

    The blocks of a transformer are those with attention.
    """
    found = [p.block for p in parameters if p.role in ATTENTION]
    if not found:
        own = {p.block for p in own_head(parameters)}
        layered = (p.block for p in parameters if p.kind in ("weight", "other"))
        found = [block for block in layered if block not in own]
    return list(dict.fromkeys(found))


def last_blocks(parameters: Sequence[Parameter], count: int, name: str = "") -> list[str]:
    """The last `count` of them; `name` is the scheme or rule that asks."""
    found = blocks(parameters)
    if not 0 < count <= len(found):
        raise SchemeError(
            f"the model has {len(found)} blocks before its head, so there is no "
            f"{name or f'last-{count}'}"
        )
    return found[-count:]


def behind(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """The last `count` blocks and all that is used behind them, embeddings aside that are tied."""
    found = blocks(parameters)
    if count > len(found) or not found:
        return []
    order = list(dict.fromkeys(p.block for p in parameters))
    start = order.index(found[-count]) if count else order.index(found[-1]) + 1
    return [p for p in parameters if p.block in order[start:] and not p.tied]


def last_blocks_and_head(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """The head, the last `count` blocks before it, and what lies between."""
    last_blocks(parameters, count)
    chosen = {p.name for p in (*behind(parameters, count), *head(parameters))}
    own = {p.block for p in own_head(parameters) if not p.tied}
    return [p for p in parameters if p.name in chosen or (p.block in own and not p.tied)]


def last_layers(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """Weights, biases and norms of the last layers, the head among them unless it is tied."""
    layers = sorted({p.layer for p in parameters if p.kind == "weight" and not p.tied})
    if not 0 < count <= len(layers):
        raise SchemeError(f"the model has {len(layers)} layers, so there is no layers-{count}")
    return [p for p in parameters if p.layer >= layers[-count] and not p.tied]
