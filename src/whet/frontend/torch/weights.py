"""Parameters that are stored in another order than PyTorch's: as the kernels read them."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import Node as FxNode

from ..model import Order
from .tensor import channels_last


def stored_orders(nodes: Iterable[FxNode]) -> dict[FxNode, Order]:
    """Parameters with the axis order that the layers need which read them."""
    nodes = list(nodes)
    return matrix_weights(nodes) | conv_weights(nodes)


def conv_weights(nodes: Iterable[FxNode]) -> dict[FxNode, Order]:
    """Parameters that convolutions use, with the axis order of their kernels."""
    found: dict[FxNode, Order] = {}
    for node in nodes:
        name = str(node.target)
        if node.op != "call_function" or not name.startswith(("aten.conv", "aten._conv")):
            continue
        x, weight = node.args[0], node.args[1]
        if not isinstance(x, FxNode) or not isinstance(weight, FxNode):
            continue
        groups = int(node.args[6]) if len(node.args) > 6 else int(node.kwargs.get("groups", 1))  # type: ignore[arg-type]
        rank = weight.meta["val"].ndim
        found[weight] = weight_order(rank, is_depthwise(weight.meta["val"].shape, groups))
        if "transpose" in name:
            found[weight] = channels_last(rank)
    return found


def is_depthwise(weight: tuple[int, ...], groups: int) -> bool:
    """One filter per channel: weight [c, 1, kh, kw] with c groups."""
    return groups > 1 and weight[0] == groups and weight[1] == 1


def weight_order(rank: int, depthwise: bool) -> Order:
    """OHWI, or HWC for depthwise filters (the unit input axis last)."""
    return (*range(2, rank), 0, 1) if depthwise else channels_last(rank)


RIGHT = {"aten.mm.default": 1, "aten.matmul.default": 1, "aten.addmm.default": 2}


def matrix_weights(nodes: Iterable[FxNode]) -> dict[FxNode, Order]:
    """Matrices that do nothing but stand on the right of products: x w with w[in,out].

    GPT-2 writes its linear layers so. Stored as [out,in], the matrix is a linear layer's weight.
    """
    return {
        node: (1, 0)
        for node in nodes
        if node.users
        and getattr(node.meta.get("val"), "ndim", 0) == 2
        and all(is_right(node, user) for user in node.users)
    }


def is_right(weight: FxNode, user: FxNode) -> bool:
    place = RIGHT.get(str(user.target))
    return place is not None and [i for i, a in enumerate(user.args) if a is weight] == [place]
