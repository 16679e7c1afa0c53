"""Convolutions one after the other, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..ir import Array, Attributes, Call, Node, Op, Struct, Type, Value, Workspace
from ._common import require
from .conv import Window, conv_struct
from .fused import Conv2dFused, DepthwiseFused
from .fused_i8 import Conv2dI8Fused, DepthwiseI8Fused
from .quantized import narrow_struct

MOST = 16  # stages of one stream, as the kernel has it

Stage = tuple[Any, ...]  # literals: depthwise?, stride, pad, dilation, groups, bias?, and the rest


def stage_of(layer: type[Op], attrs: Attributes) -> Stage:
    """A fused convolution as literals: depthwise?, then its attributes in order."""
    a: dict[str, Any] = asdict(attrs)
    depthwise = layer in (DepthwiseFused, DepthwiseI8Fused)
    window = (a["stride"], a["pad"], a["dilation"], 1 if depthwise else a["groups"])
    rest = ("x_zero", "zero", "low", "high") if "x_zero" in a else ("add", "low", "high")
    return (depthwise, *window, a["bias"], *(a[name] for name in rest))


class StreamOp(Op):
    """What streams share: `layers` are those they are made of, depthwise last."""

    layers: tuple[type[Any], type[Any]]
    rest: tuple[str, ...]  # the attributes at the end of a stage

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for layer in cls.layers:
            layer.streamed = cls

    class Attrs(Attributes):
        stages: tuple[Stage, ...] = ()
        modules: tuple[str, ...] = ()  # whose layers they are, for those who read the program

    @classmethod
    def layer_of(cls, stage: Stage) -> tuple[type[Any], Any]:
        depthwise, stride, pad, dilation, groups, bias, *rest = stage
        attrs: dict[str, Any] = dict(stride=stride, pad=pad, dilation=dilation, bias=bias)
        attrs |= dict(zip(cls.rest, rest, strict=True))
        layer = cls.layers[depthwise]
        return layer, layer.Attrs(**attrs, **({} if depthwise else {"groups": groups}))

    @classmethod
    def split(
        cls, stages: Sequence[Stage], operands: Sequence[Any]
    ) -> Iterator[tuple[type[Any], Any, Sequence[Any]]]:
        """Each layer with its attributes and its own operands behind x."""
        for stage in stages:
            layer, attrs = cls.layer_of(stage)
            count = attrs.operands - 1
            yield layer, attrs, operands[:count]
            operands = operands[count:]

    @classmethod
    def infer(cls, a: Attrs, x: Type, *operands: Type) -> Type:
        require(1 <= len(a.stages) <= MOST, f"needs 1 to {MOST} layers")
        for layer, attrs, own in cls.split(a.stages, operands):
            x = layer.infer(attrs, x, *own)
        return x

    @classmethod
    def ref(cls, a: Attrs, x: Array, *operands: Array) -> Array:
        for layer, attrs, own in cls.split(a.stages, operands):
            x = layer.ref(attrs, x, *own)
        return x

    @staticmethod
    def macs(node: Node) -> int:
        return sum(stage_macs(node))

    @staticmethod
    def workspace(node: Node) -> int:
        layers = zip(parts(node), steps(node), strict=True)
        rows = [bytes_at_hand(attrs, x, own[0]) for (_, attrs, own), (x, _) in layers]
        return -(-sum(rows[1:]) // 4)  # the first layer reads x itself

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        types = [node.ins[0].type, node.ins[1].type, *(y for _, y in steps(node))]
        fits = replaces_operand(node.attrs.stages, types)
        return tuple((0, k) for k, v in enumerate(node.ins) if v is node.ins[0] and fits)


def structs_of(node: Node) -> tuple[Struct, ...]:
    """The window of each layer."""
    return tuple(
        conv_struct(x, y, window_of(own[0]), getattr(attrs, "groups", x.shape[3]), attrs)
        for (_, attrs, own), (x, y) in zip(parts(node), steps(node), strict=True)
    )


def pointers_of(node: Node, has: Callable[[Any], tuple[bool, ...]]) -> tuple[Value | None, ...]:
    """The operands of all layers; a kernel takes NULL for what a layer does not have."""
    operands = iter(node.ins[1:])
    every = [own for _, attrs, _ in parts(node) for own in has(attrs)]
    return tuple(next(operands) if own else None for own in every)


def room(node: Node) -> Workspace | None:
    return Workspace(floats) if (floats := node.op.workspace(node)) else None


class Stream(StreamOp):
    """y = layer_k(... layer_2(layer_1(x)))

    Rows of y are made one after the other, each from the few rows of the layer before that it
    reads, so that what lies between the layers never exists as a whole. Operands: x, then of each
    layer its weight, bias and addend, the last two where `stages` says so.
    """

    name = "stream"
    reads_weights = True
    layers = (Conv2dFused, DepthwiseFused)
    rest = ("add", "low", "high")

    @classmethod
    def exact(cls, a: StreamOp.Attrs, x: Array, *operands: Array) -> Array:
        """Layer by layer, but each row as an image of its own: narrow ones are summed in lanes."""
        for layer, attrs, own in cls.split(a.stages, operands):
            rows = range(layer_height(attrs, x, own[0]))
            images = [
                [row_of(layer, attrs, x[n : n + 1], own, n, p) for p in rows] for n in range(len(x))
            ]
            x = np.concatenate([np.concatenate(image, axis=1) for image in images])
        return x

    @staticmethod
    def call(node: Node) -> Call:
        pointers = pointers_of(node, lambda attrs: (True, attrs.bias, attrs.add))
        stages = node.attrs.stages
        limits = tuple(limit for stage in stages for limit in stage[-2:])
        depthwise = tuple(int(stage[0]) for stage in stages)
        args = (node.out, node.ins[0], pointers, structs_of(node), depthwise, limits, len(stages),
                room(node))  # fmt: skip
        return Call("whet_stream_f32", args, "stream", needs=("conv2d", "depthwise"))

    @staticmethod
    def packable(node: Node) -> Iterator[tuple[Value, tuple[int, int]]]:
        for i, (_, attrs, own) in enumerate(Stream.split(node.attrs.stages, node.ins[1:])):
            if getattr(attrs, "groups", 0) == 1:  # a depthwise layer has no such attribute
                yield own[0], (3, i)


def layer_height(a: Any, x: Array, weight: Array) -> int:
    return int(a.output(x.shape[1:3], window_of(weight))[0])


def row_of(layer: type[Any], a: Any, image: Array, own: Sequence[Array], n: int, p: int) -> Array:
    """Row p of what the layer gives for image n, from the rows under its window alone."""
    reach = a.reach(window_of(own[0]))[0]
    top, size = p * a.stride[0] - a.pad[0], image.shape[1]
    first, end = min(max(top, 0), size), min(max(top + reach, 0), size)
    above = first - top
    below = reach - above - max(end - first, 0)
    attrs = replace(a, pad=(above, a.pad[1], below, a.pad[3]))
    rest = [*own[:-1], own[-1][n : n + 1, p : p + 1]] if a.add else own
    return layer.exact(attrs, image[:, first:end], *rest)


class StreamI8(StreamOp):
    """y = layer_k(... layer_2(layer_1(x))), of int8

    Like `stream`. Operands: x, then of each layer its weight, its bias where `stages` says so, and
    its scale.
    """

    name = "stream_i8"
    same_bits = True
    reads_weights = True
    layers = (Conv2dI8Fused, DepthwiseI8Fused)
    rest = ("x_zero", "zero", "low", "high")

    @staticmethod
    def call(node: Node) -> Call:
        pointers = pointers_of(node, lambda attrs: (True, attrs.bias, True))
        stages = node.attrs.stages
        narrow = tuple(narrow_struct(attrs, attrs.x_zero) for _, attrs, _ in parts(node))
        depthwise = tuple(int(stage[0]) for stage in stages)
        args = (node.out, node.ins[0], pointers, structs_of(node), narrow, depthwise, len(stages),
                room(node))  # fmt: skip
        return Call("whet_stream_i8", args, "stream_i8", needs=("conv2d_i8", "depthwise_i8"))


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


def window_of(weight: Type | Array) -> tuple[int, ...]:
    """Rows and columns of a weight [o,kh,kw,c], or of a depthwise one, [kh,kw,c]."""
    return weight.shape[:2] if len(weight.shape) == 3 else weight.shape[1:3]


def bytes_at_hand(window: Window, x: Type, weight: Type) -> int:
    """Of the rows of x that one row of a layer's result is made from."""
    rows = min(window.reach(window_of(weight))[0], x.shape[1])
    return rows * x.shape[2] * x.shape[3] * x.dtype.size


def parts(node: Node) -> Iterator[tuple[type[Any], Any, Sequence[Type]]]:
    assert issubclass(node.op, StreamOp)
    return node.op.split(node.attrs.stages, [v.type for v in node.ins[1:]])


def steps(node: Node) -> Iterator[tuple[Type, Type]]:
    """Operand and result of each layer."""
    x = node.ins[0].type
    for layer, attrs, own in parts(node):
        y = layer.infer(attrs, x, *own)
        assert isinstance(y, Type)
        yield x, y
        x = y
