"""Convolutions one after the other, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..ir import Array, Attributes, Call, Node, Op, Type, Workspace
from ._common import require
from .conv import Depthwise, Window, conv_struct
from .fused import Conv2dFused, DepthwiseFused, FusedLayer

MOST = 16  # stages of one stream, as the kernel has it

Stage = tuple[
    bool, tuple[int, int], tuple[int, ...], tuple[int, int], int, bool, bool, float, float
]


def stage_of(layer: type[Op], attrs: Attributes) -> Stage:
    """A fused convolution as literals: depthwise?, then its attributes in order."""
    a: dict[str, Any] = asdict(attrs)
    depthwise = layer is DepthwiseFused
    window = (a["stride"], a["pad"], a["dilation"], 1 if depthwise else a["groups"])
    return (depthwise, *window, a["bias"], a["add"], a["low"], a["high"])


def layer_of(stage: Stage) -> tuple[type[FusedLayer], Any]:
    depthwise, stride, pad, dilation, groups, bias, add, low, high = stage
    attrs: dict[str, Any] = dict(stride=stride, pad=pad, dilation=dilation)
    attrs |= dict(bias=bias, add=add, low=low, high=high)
    if depthwise:
        return DepthwiseFused, DepthwiseFused.Attrs(**attrs)
    return Conv2dFused, Conv2dFused.Attrs(groups=groups, **attrs)


class Stream(Op):
    """y = layer_k(... layer_2(layer_1(x)))

    Rows of y are made one after the other, each from the few rows of the layer before that it
    reads, so that what lies between the layers never exists as a whole. Operands: x, then of each
    layer its weight, bias and addend, the last two where `stages` says so.
    """

    name = "stream"

    @dataclass(frozen=True)
    class Attrs(Attributes):
        stages: tuple[Stage, ...] = ()
        modules: tuple[str, ...] = ()  # whose layers they are, for those who read the program

    @staticmethod
    def infer(a: Attrs, x: Type, *operands: Type) -> Type:
        require(1 <= len(a.stages) <= MOST, f"needs 1 to {MOST} layers")
        for layer, attrs, own in split(a.stages, operands):
            y = layer.infer(attrs, x, *own)
            assert isinstance(y, Type)
            x = y
        return x

    @staticmethod
    def ref(a: Attrs, x: Array, *operands: Array) -> Array:
        for layer, attrs, own in split(a.stages, operands):
            x = layer.ref(attrs, x, *own)
        return x

    @staticmethod
    def macs(node: Node) -> int:
        return sum(stage_macs(node))

    @staticmethod
    def workspace(node: Node) -> int:
        layers = zip(parts(node), steps(node), strict=True)
        rows = [floats_at_hand(layer, a, x, own[0]) for (layer, a, own), (x, _) in layers]
        return sum(rows[1:])  # the first layer reads x itself

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        types = [node.ins[0].type, node.ins[1].type, *(y for _, y in steps(node))]
        fits = replaces_operand(node.attrs.stages, types)
        return tuple((0, k) for k, v in enumerate(node.ins) if v is node.ins[0] and fits)

    @staticmethod
    def call(node: Node) -> Call:
        structs, pointers = [], []
        operands = iter(node.ins[1:])
        for (layer, attrs, own), (x, y) in zip(parts(node), steps(node), strict=True):
            kernel = window_of(layer, own[0])
            groups = x.shape[3] if layer is DepthwiseFused else attrs.groups
            structs.append(conv_struct(x, y, kernel, groups, attrs))
            pointers += [next(operands) if has else None for has in (True, attrs.bias, attrs.add)]
        stages = node.attrs.stages
        limits = tuple(limit for stage in stages for limit in stage[-2:])
        depthwise = tuple(int(stage[0]) for stage in stages)
        args = (
            node.out, node.ins[0], tuple(pointers), tuple(structs), depthwise, limits, len(stages),
            Workspace(floats) if (floats := Stream.workspace(node)) else None,
        )  # fmt: skip
        return Call("whet_stream_f32", args, "stream", needs=("conv2d", "depthwise"))


def stage_macs(node: Node) -> list[int]:
    """Multiply-accumulates of each layer."""
    return [
        own[0].elements * math.prod(y.shape[:3])
        for (_, _, own), (_, y) in zip(parts(node), steps(node), strict=True)
    ]


def replaces_operand(stages: Sequence[Stage], types: Sequence[Type]) -> bool:
    """Whether y may lie where x lies: if each row of x is read once, before its place is taken.

    `types` are those of x, of the first weight, and of every layer's result. A layer alone writes
    its row while it reads x. Without strides, equal heights mean that row i of y needs row i of x.
    """
    x, weight, *results = types
    once = len(stages) > 1 and not stages[0][0] and weight.shape[1] == 1
    steady = all(stride[0] == 1 for _, stride, *_ in stages)
    return once and steady and results[-1] == x and all(y.shape[1] == x.shape[1] for y in results)


def window_of(layer: type[Op], weight: Type) -> tuple[int, ...]:
    return weight.shape[:2] if layer in (Depthwise, DepthwiseFused) else weight.shape[1:3]


def floats_at_hand(layer: type[Op], window: Window, x: Type, weight: Type) -> int:
    """Of the rows of x that one row of a layer's result is made from."""
    rows = min(window.reach(window_of(layer, weight))[0], x.shape[1])
    return rows * x.shape[2] * x.shape[3]


def split(
    stages: Sequence[Stage], operands: Sequence[Any]
) -> Iterator[tuple[type[FusedLayer], Any, Sequence[Any]]]:
    """Each layer with its attributes and its own operands behind x."""
    for stage in stages:
        layer, attrs = layer_of(stage)
        count = attrs.operands - 1
        yield layer, attrs, operands[:count]
        operands = operands[count:]


def parts(node: Node) -> Iterator[tuple[type[FusedLayer], Any, Sequence[Type]]]:
    return split(node.attrs.stages, [v.type for v in node.ins[1:]])


def steps(node: Node) -> Iterator[tuple[Type, Type]]:
    """Operand and result of each layer."""
    x = node.ins[0].type
    for layer, attrs, own in parts(node):
        y = layer.infer(attrs, x, *own)
        assert isinstance(y, Type)
        yield x, y
        x = y
