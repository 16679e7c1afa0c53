"""Give attention less to read: keys and values that are not repeated, masks that are not needed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from ..ir import Array, Builder, Graph, Node, Role, Value
from ..ops.attention import Attention
from ..ops.binary import Where
from ..ops.reduce import Expand
from ..ops.shape import Reshape
from .moves import Makers, in_order
from .rewriting import rewrite

LOWEST = np.finfo(np.float32).min  # hides a key as -inf does, if another is seen


def trim_attention(graph: Graph) -> Graph:
    """Attention reads the heads of keys and values before they are repeated for queries, and masks
    before they are repeated. Constant masks that hide nothing are dropped, and `causal` takes the
    place of those that hide what is later."""
    makers = Makers()
    masks: dict[bytes, Value] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        makers.see(b)
        if node.op is not Attention:
            return None
        q, k, v, *mask = node.ins
        k, v = with_fewest_heads(b, makers, k, v)
        causal = node.attrs.causal
        mask = [narrow(b, makers, m) for m in mask]
        if mask and mask[0].role is Role.CONST:
            data = without_repeats(b.data[mask[0].name].astype(np.float32))
            lower = not causal and is_causal(data)
            causal, mask = causal or lower, [shared(b, masks, mask[0], data)]
            mask = [] if lower or not data.any() else mask
        if (q, k, v, *mask) == node.ins:
            return None
        attrs = asdict(node.attrs) | {"causal": causal}
        return b.emit_all(Attention, q, k, v, *mask, name=node.out.name, **attrs)

    return rewrite(graph, rule)


def with_fewest_heads(b: Builder, makers: Makers, k: Value, v: Value) -> tuple[Value, Value]:
    """Keys and values before each of their heads was repeated for several heads of queries."""
    keys, values = ungrouped(makers, k), ungrouped(makers, v)
    for heads in sorted(keys.keys() & values.keys()):
        found = []
        for x, source in ((k, keys[heads]), (v, values[heads])):
            shape = (*x.shape[:2], heads, x.shape[3])
            found.append(source if source.shape == shape else view(b, source, shape))
        return found[0], found[1]
    return k, v


def view(b: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    return b.emit(Reshape, x, name=f"{x.name}.heads", shape=shape)


def ungrouped(makers: Makers, x: Value) -> dict[int, Value]:
    """[b,s,h,d] with fewer heads, by their number, where each is repeated h / heads times."""
    found: dict[int, Value] = {}
    heads = x.shape[2]
    for source, places in makers.sources(x):
        repeats, rest = divmod(x.type.elements, source.type.elements)
        if rest or heads % repeats or heads // repeats in found:
            continue
        once = places[:, :, ::repeats]
        if in_order(once) and np.array_equal(np.repeat(once, repeats, axis=2), places):
            found[heads // repeats] = source
    return found


def narrow(b: Builder, makers: Makers, mask: Value) -> Value:
    """The mask before it was repeated for every query."""
    node = makers.of.get(mask)
    if node is None or (node.op is not Where and node.op is not Expand):
        return mask
    if node.op is Where:
        condition, *either = node.ins
        before = narrow(b, makers, condition)
        single = all(v.type.elements == 1 for v in either)
        return b.emit(Where, before, *either) if before is not condition and single else mask
    x = node.ins[0]
    same = node.attrs.scale == 1 and (x.type.rank, x.shape[-1:]) == (4, mask.shape[-1:])
    return x if same else mask


def is_causal(mask: Array) -> bool:
    """Whether query i sees keys j <= i, each of them alike, for every sample and head."""
    seen = np.tri(*mask.shape[2:]) == 1
    return bool((mask[..., seen] == 0).all() and (mask[..., ~seen] <= LOWEST).all())


def without_repeats(mask: Array) -> Array:
    """Once along each axis but the last along which it does not change."""
    for axis in range(mask.ndim - 1):
        once = mask.take([0], axis)
        mask = once if (mask == once).all() else mask
    return mask


def shared(b: Builder, masks: dict[bytes, Value], mask: Value, data: Array) -> Value:
    """One constant for all masks that are equal."""
    key = repr(data.shape).encode() + data.tobytes()
    if key not in masks:
        same = data.shape == mask.shape
        masks[key] = mask if same else b.const(data, name=f"{mask.name}.once")
    return masks[key]
