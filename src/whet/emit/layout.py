"""How weights lie in the program image: those that never change lie as the kernels read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from ..ir import Arg, Array, Call, Graph, Node, Role, Struct, is_meta


def packed_weights(entries: Mapping[str, Graph], updated: Iterable[str]) -> frozenset[str]:
    """Names of frozen weights that convolutions alone read, and only on the way forward.

    They are stored as [kh,kw,c,o], a row of outputs for every product: what the kernels would
    otherwise make of them piece by piece, every time.
    """
    wanted: set[str] = set()
    others: set[str] = set(updated)
    for graph in entries.values():
        for node in graph.nodes:
            mine = [v for v, _ in node.op.packable(node)]
            wanted.update(v.name for v in mine if v.role in (Role.PARAM, Role.CONST))
            others.update(v.name for v in node.ins if v not in mine)
        others.update(v.name for v in graph.outputs)
    return frozenset(wanted - others)


def pack_call(node: Node, call: Call, packed: frozenset[str]) -> Call:
    """The call, telling its kernel which weights are packed."""
    told = {place for v, place in node.op.packable(node) if v.name in packed}

    def tell(arg: Arg, argument: int) -> Arg:
        if isinstance(arg, Struct) and (argument, 0) in told:
            return with_packed(arg)
        if isinstance(arg, tuple) and any(place == argument for place, _ in told):
            parts = [p for p in arg if isinstance(p, Struct)]
            return tuple(
                with_packed(p) if (argument, i) in told else p for i, p in enumerate(parts)
            )
        return arg

    return replace(call, args=tuple(tell(arg, i) for i, arg in enumerate(call.args)))


def with_packed(struct: Struct) -> Struct:
    return replace(struct, fields=(*struct.fields[:-1], ("packed", 1)))


def pack(weight: Array) -> Array:
    packed = weight.transpose(1, 2, 3, 0)
    return packed if is_meta(packed) else np.ascontiguousarray(packed)
