"""How weights lie in the program image: those that never change lie as the kernels read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..ir import Arg, Array, Call, Graph, Node, Role, Struct, Value
from ..ops.conv import Conv2d
from ..ops.fused import Conv2dFused
from ..ops.stream import Stream


def packed_weights(entries: Mapping[str, Graph], updated: Iterable[str]) -> frozenset[str]:
    """Names of frozen weights that convolutions alone read, and only on the way forward.

    They are stored as [kh,kw,c,o], a row of outputs for every product: what the kernels would
    otherwise make of them piece by piece, every time.
    """
    wanted: set[str] = set()
    others: set[str] = set(updated)
    for graph in entries.values():
        for node in graph.nodes:
            mine = [v for v, struct in weights_of(node) if dict(struct.fields)["groups"] == 1]
            wanted.update(v.name for v in mine if v.role in (Role.PARAM, Role.CONST))
            others.update(v.name for v in node.ins if v not in mine)
        others.update(v.name for v in graph.outputs)
    return frozenset(wanted - others)


def weights_of(node: Node) -> Iterator[tuple[Value, Struct]]:
    """Each weight of a convolution that can read it packed, with the arguments it goes with."""
    call = node.op.call(node) if node.op in (Conv2d, Conv2dFused, Stream) else None
    if call is None or call.source == "winograd":
        return
    if node.op is not Stream:
        (struct,) = (arg for arg in call.args if isinstance(arg, Struct))
        yield node.ins[1], struct
        return
    _, _, pointers, structs, depthwise, *_ = call.args
    assert isinstance(pointers, tuple) and isinstance(structs, tuple)
    assert isinstance(depthwise, tuple)
    for weight, arg, skip in zip(pointers[::3], structs, depthwise, strict=True):
        assert isinstance(weight, Value) and isinstance(arg, Struct)
        if not skip:
            yield weight, arg


def pack_call(node: Node, call: Call, packed: frozenset[str]) -> Call:
    """The call, telling its kernel which weights are packed."""
    weights = [(struct, v.name in packed) for v, struct in weights_of(node)]
    if not any(is_packed for _, is_packed in weights):
        return call
    turn = iter(weights)

    def told(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(told(a) for a in arg)  # type: ignore[return-value]
        if not isinstance(arg, Struct) or dict(arg.fields)["groups"] != 1:
            return arg
        _, is_packed = next(turn)
        return replace(arg, fields=(*arg.fields[:-1], ("packed", int(is_packed))))

    return replace(call, args=tuple(told(arg) for arg in call.args))


def pack(weight: Array) -> Array:
    return np.ascontiguousarray(weight.transpose(1, 2, 3, 0))
