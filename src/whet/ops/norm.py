"""Normalisations. Channels are the last axis; mean and variance are outputs, kept for backward."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Node, Op, Type, Value
from . import _exact
from ._common import d, over_first, require, require_f32, row_of_channels
from .linear import rows, sum_rows


class Eps(Attributes):
    eps: float = 1e-5


def check_channels(x: Type, *per_channel: Type) -> None:
    require_f32(x, *per_channel)
    for t in per_channel:
        require(t.shape == x.shape[-1:], f"{t} does not have one entry per channel of {x}")


class FixedNorm(Op):
    """A batch norm with given statistics, and its gradients."""

    Attrs = Eps

    @staticmethod
    def call(node: Node) -> Call:
        x = node.ins[0]
        args = (node.out, *node.ins, rows(x.shape), x.shape[-1], node.attrs.eps)
        return Call(f"whet_{node.op.name}_f32", args, "batch_norm")


class BatchNorm(FixedNorm):
    """y = (x - mean) / sqrt(var + eps) * w + b, with given statistics"""

    name = "batch_norm"
    norm = True

    @staticmethod
    def infer(a: Eps, x: Type, w: Type, b: Type, mean: Type, var: Type) -> Type:
        check_channels(x, w, b, mean, var)
        return x

    @staticmethod
    def ref(a: Eps, x: Array, w: Array, b: Array, mean: Array, var: Array) -> Array:
        return (x - mean) / np.sqrt(var + a.eps) * w + b

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy, *_), (x, w, bias, mean, var), eps = douts, node.ins, node.attrs.eps
        assert dy is not None
        dx = b.emit(BatchNormDx, dy, w, var, name=d(x), eps=eps) if wants[0] else None
        dw = b.emit(BatchNormDw, dy, x, mean, var, name=d(w), eps=eps) if wants[1] else None
        db = sum_rows(b, dy, bias) if wants[2] else None
        return dx, dw, db, None, None

    inplace = staticmethod(over_first)


class BatchNormDx(FixedNorm):
    """dx = dy * w / sqrt(var + eps)"""

    name = "batch_norm_dx"

    @staticmethod
    def infer(a: Eps, dy: Type, w: Type, var: Type) -> Type:
        check_channels(dy, w, var)
        return dy

    @staticmethod
    def ref(a: Eps, dy: Array, w: Array, var: Array) -> Array:
        return dy * (w / np.sqrt(var + a.eps))

    inplace = staticmethod(over_first)


class BatchNormDw(FixedNorm):
    """dw[c] = sum over rows of dy * (x - mean) / sqrt(var + eps)"""

    name = "batch_norm_dw"

    @staticmethod
    def infer(a: Eps, dy: Type, x: Type, mean: Type, var: Type) -> Type:
        check_channels(dy, mean, var)
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        return mean

    @staticmethod
    def ref(a: Eps, dy: Array, x: Array, mean: Array, var: Array) -> Array:
        normal = (x - mean) / np.sqrt(var + a.eps)
        return (dy * normal).reshape(-1, dy.shape[-1]).sum(axis=0)


class Clipped(Eps):
    """The result is clipped to [low, high], as a ReLU behind the normalisation would."""

    low: float = -math.inf
    high: float = math.inf


def clipped(x: Array, a: Clipped) -> Array:
    return np.minimum(np.maximum(x, x.dtype.type(a.low)), x.dtype.type(a.high))


class BatchNormTrain(Op):
    """batch_norm with the mean and (biased) variance of x itself over all but the last axis

    Results: y (clipped), mean, var.
    """

    name = "batch_norm_train"
    norm = True
    Attrs = Clipped

    @staticmethod
    def infer(a: Clipped, x: Type, w: Type, b: Type) -> tuple[Type, Type, Type]:
        check_channels(x, w, b)
        return x, w, w

    @staticmethod
    def ref(a: Clipped, x: Array, w: Array, b: Array) -> tuple[Array, Array, Array]:
        flat = x.reshape(-1, x.shape[-1])
        mean, var = flat.mean(axis=0), flat.var(axis=0)
        return clipped((x - mean) / np.sqrt(var + a.eps) * w + b, a), mean, var

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy, *_), (x, w, bias), (_, mean, var) = douts, node.ins, node.outs
        assert dy is not None
        attrs = asdict(node.attrs)
        dw, db = b.emit_all(BatchNormTrainDw, dy, x, w, bias, mean, var, name=d(w), **attrs)
        dx = None
        if wants[0]:
            operands = (dy, x, w, bias, mean, var, dw, db)
            dx = b.emit(BatchNormTrainDx, *operands, name=d(x), **attrs)
        return dx, dw, db

    @staticmethod
    def call(node: Node) -> Call:
        return batch_norm_call(node, node.ins[0])


def batch_norm_call(node: Node, x: Value) -> Call:
    a = node.attrs
    args = (*node.outs, *node.ins, rows(x.shape), x.shape[-1], a.eps, a.low, a.high)
    return Call(f"whet_{node.op.name}_f32", args, "batch_norm")


class BatchNormClipped(Op):
    """y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)

    What batch_norm_train gives, computed again from its mean and var.
    """

    name = "batch_norm_clipped"
    Attrs = Clipped

    infer = staticmethod(BatchNorm.infer)

    @staticmethod
    def ref(a: Clipped, x: Array, w: Array, b: Array, mean: Array, var: Array) -> Array:
        return clipped((x - mean) / np.sqrt(var + a.eps) * w + b, a)

    @staticmethod
    def call(node: Node) -> Call:
        return batch_norm_call(node, node.ins[0])

    inplace = staticmethod(over_first)


def not_clipped(
    a: Clipped, dy: Array, x: Array, w: Array, b: Array, mean: Array, var: Array
) -> Array:
    y = (x - mean) / np.sqrt(var + a.eps) * w + b
    return np.where((y > a.low) & (y < a.high), dy, y.dtype.type(0))


class BatchNormTrainDw(Op):
    """dw = sum over rows of g * (x - mean) / sqrt(var + eps); db = sum over rows of g

    g is dy where y was not clipped, else 0.
    """

    name = "batch_norm_train_dw"
    Attrs = Clipped

    @staticmethod
    def infer(
        a: Clipped, dy: Type, x: Type, w: Type, b: Type, mean: Type, var: Type
    ) -> tuple[Type, Type]:
        check_channels(dy, w, b, mean, var)
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        return w, b

    @staticmethod
    def ref(
        a: Clipped, dy: Array, x: Array, w: Array, b: Array, mean: Array, var: Array
    ) -> tuple[Array, Array]:
        g = not_clipped(a, dy, x, w, b, mean, var).reshape(-1, dy.shape[-1])
        normal = ((x - mean) / np.sqrt(var + a.eps)).reshape(g.shape)
        return (g * normal).sum(axis=0), g.sum(axis=0)

    @staticmethod
    def call(node: Node) -> Call:
        return batch_norm_call(node, node.ins[0])


class BatchNormTrainDx(Op):
    """dx = w / sqrt(var + eps) * (g - db / rows - (x - mean) / sqrt(var + eps) * dw / rows)

    g is dy where y was not clipped, else 0.
    """

    name = "batch_norm_train_dx"
    Attrs = Clipped

    @staticmethod
    def infer(a: Clipped, dy: Type, x: Type, *per_channel: Type) -> Type:
        require(len(per_channel) == 6, "w, b, mean, var, dw and db are needed")
        check_channels(dy, *per_channel)
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        return dy

    @staticmethod
    def ref(
        a: Clipped,
        dy: Array,
        x: Array,
        w: Array,
        b: Array,
        mean: Array,
        var: Array,
        dw: Array,
        db: Array,
    ) -> Array:
        n = rows(dy.shape)
        scale = 1 / np.sqrt(var + a.eps)
        g = not_clipped(a, dy, x, w, b, mean, var)
        return w * scale * (g - db / n - (x - mean) * scale * dw / n)

    @staticmethod
    def call(node: Node) -> Call:
        return batch_norm_call(node, node.ins[0])

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))


class GroupNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * w + b, statistics of each image and group of channels

    x is [n, ..., c]; results: y, mean[n, groups], var[n, groups]. One group over x[n, c] is a
    layer norm; as many groups as channels is an instance norm.
    """

    name = "group_norm"
    norm = True

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        return 0 if operand == axis == 0 else None

    class Attrs(Eps):
        groups: int = 1

    @staticmethod
    def infer(a: Attrs, x: Type, w: Type, b: Type) -> tuple[Type, Type, Type]:
        check_channels(x, w, b)
        require(x.shape[-1] % a.groups == 0, f"{a.groups} groups do not divide {x}")
        stats = Type(x.dtype, (x.shape[0], a.groups))
        return x, stats, stats

    @staticmethod
    def ref(a: Attrs, x: Array, w: Array, b: Array) -> tuple[Array, Array, Array]:
        split = x.reshape(x.shape[0], -1, a.groups, x.shape[-1] // a.groups)
        mean, var = split.mean(axis=(1, 3)), split.var(axis=(1, 3))
        normal = (split - mean[:, None, :, None]) / np.sqrt(var + a.eps)[:, None, :, None]
        return normal.reshape(x.shape) * w + b, mean, var

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy, *_), (x, w, bias), (_, mean, var) = douts, node.ins, node.outs
        assert dy is not None
        attrs = dict(eps=node.attrs.eps, groups=node.attrs.groups)
        dx = b.emit(GroupNormDx, dy, x, w, mean, var, name=d(x), **attrs) if wants[0] else None
        dw = b.emit(GroupNormDw, dy, x, mean, var, name=d(w), **attrs) if wants[1] else None
        db = sum_rows(b, dy, bias) if wants[2] else None
        return dx, dw, db

    @staticmethod
    def call(node: Node) -> Call:
        args = (*node.outs, *node.ins, *group_sizes(node.ins[0].type, node.attrs), node.attrs.eps)
        return Call("whet_group_norm_f32", args, "group_norm")


def group_sizes(x: Type, a: GroupNorm.Attrs) -> tuple[int, int, int, int]:
    """images, pixels per image, channels, groups"""
    n, c = x.shape[0], x.shape[-1]
    return n, x.elements // (n * c), c, a.groups


class GroupNormDx(Op):
    """dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps), where g = dy * w"""

    name = "group_norm_dx"
    Attrs = GroupNorm.Attrs

    @staticmethod
    def infer(a: GroupNorm.Attrs, dy: Type, x: Type, w: Type, mean: Type, var: Type) -> Type:
        check_channels(dy, w)
        require(dy.shape == x.shape and mean.shape == var.shape, f"{dy} and {x} differ")
        return dy

    @staticmethod
    def ref(a: GroupNorm.Attrs, dy: Array, x: Array, w: Array, mean: Array, var: Array) -> Array:
        shape = (x.shape[0], -1, a.groups, x.shape[-1] // a.groups)
        scale = 1 / np.sqrt(var + a.eps)[:, None, :, None]
        normal = (x.reshape(shape) - mean[:, None, :, None]) * scale
        g = (dy * w).reshape(shape)
        g1 = g.mean(axis=(1, 3), keepdims=True)
        g2 = (g * normal).mean(axis=(1, 3), keepdims=True)
        return ((g - g1 - normal * g2) * scale).reshape(x.shape)

    @staticmethod
    def call(node: Node) -> Call:
        sizes = group_sizes(node.ins[0].type, node.attrs)
        args = (node.out, *node.ins, *sizes, node.attrs.eps)
        return Call("whet_group_norm_dx_f32", args, "group_norm")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))


class GroupNormDw(Op):
    """dw[c] = sum over images and pixels of dy * xhat"""

    name = "group_norm_dw"
    Attrs = GroupNorm.Attrs

    @staticmethod
    def infer(a: GroupNorm.Attrs, dy: Type, x: Type, mean: Type, var: Type) -> Type:
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        return Type(dy.dtype, dy.shape[-1:])

    @staticmethod
    def ref(a: GroupNorm.Attrs, dy: Array, x: Array, mean: Array, var: Array) -> Array:
        shape = (x.shape[0], -1, a.groups, x.shape[-1] // a.groups)
        scale = 1 / np.sqrt(var + a.eps)[:, None, :, None]
        normal = (x.reshape(shape) - mean[:, None, :, None]) * scale
        return (dy.reshape(shape) * normal).sum(axis=(0, 1)).reshape(-1)

    @staticmethod
    def call(node: Node) -> Call:
        sizes = group_sizes(node.ins[0].type, node.attrs)
        args = (node.out, *node.ins, *sizes, node.attrs.eps)
        return Call("whet_group_norm_dw_f32", args, "group_norm")


class RmsNorm(Op):
    """y = x * scale * w, where scale = 1 / sqrt(mean(x^2) + eps) of each row

    x is [rows, c]; results: y, scale[rows].
    """

    name = "rms_norm"
    norm = True
    Attrs = Eps
    row_axis = staticmethod(row_of_channels)

    @staticmethod
    def infer(a: Eps, x: Type, w: Type) -> tuple[Type, Type]:
        check_channels(x, w)
        require(x.rank == 2, f"needs x[rows,c], got {x}")
        return x, Type(x.dtype, x.shape[:1])

    @staticmethod
    def ref(a: Eps, x: Array, w: Array) -> tuple[Array, Array]:
        scale = 1 / np.sqrt((x * x).mean(axis=1) + a.eps)
        return x * scale[:, None] * w, scale

    @staticmethod
    def exact(a: Eps, x: Array, w: Array) -> tuple[Array, Array]:
        mean = _exact.line_sum(x * x) / np.float32(x.shape[1])
        scale = np.float32(1) / np.sqrt(mean + np.float32(a.eps))
        return x * scale[:, None] * w, scale

    @staticmethod
    def vjp(
        b: Builder, node: Node, douts: tuple[Value | None, ...], wants: tuple[bool, ...]
    ) -> tuple[Value | None, ...]:
        (dy, *_), (x, w), (_, scale) = douts, node.ins, node.outs
        assert dy is not None
        dx = b.emit(RmsNormDx, dy, x, w, scale, name=d(x)) if wants[0] else None
        dw = b.emit(RmsNormDw, dy, x, scale, name=d(w)) if wants[1] else None
        return dx, dw

    @staticmethod
    def call(node: Node) -> Call:
        rows, c = node.ins[0].shape
        return Call(
            "whet_rms_norm_f32", (*node.outs, *node.ins, rows, c, node.attrs.eps), "rms_norm"
        )


class RmsNormDx(Op):
    """dx = (g - x * scale^2 * mean(g * x)) * scale, where g = dy * w"""

    name = "rms_norm_dx"

    @staticmethod
    def infer(a: Attributes, dy: Type, x: Type, w: Type, scale: Type) -> Type:
        check_channels(dy, w)
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        require(scale.shape == x.shape[:1], f"{scale} does not have one entry per row of {x}")
        return dy

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array, w: Array, scale: Array) -> Array:
        g, s = dy * w, scale[:, None]
        return (g - x * s * s * (g * x).mean(axis=1, keepdims=True)) * s

    @staticmethod
    def exact(a: Attributes, dy: Array, x: Array, w: Array, scale: Array) -> Array:
        g = dy * w
        slope = _exact.line_sum(g * x) / np.float32(x.shape[1]) * scale * scale
        return (g - x * slope[:, None]) * scale[:, None]

    @staticmethod
    def call(node: Node) -> Call:
        rows, c = node.ins[0].shape
        return Call("whet_rms_norm_dx_f32", (node.out, *node.ins, rows, c), "rms_norm")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))


class RmsNormDw(Op):
    """dw[c] = sum over rows of dy * x * scale"""

    name = "rms_norm_dw"

    @staticmethod
    def infer(a: Attributes, dy: Type, x: Type, scale: Type) -> Type:
        require(dy.shape == x.shape, f"{dy} and {x} differ")
        require(scale.shape == x.shape[:1], f"{scale} does not have one entry per row of {x}")
        return Type(dy.dtype, dy.shape[-1:])

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array, scale: Array) -> Array:
        return (dy * x * scale[:, None]).sum(axis=0)

    @staticmethod
    def exact(a: Attributes, dy: Array, x: Array, scale: Array) -> Array:
        return _exact.row_sum(dy * x * scale[:, None])

    @staticmethod
    def call(node: Node) -> Call:
        rows, c = node.ins[0].shape
        return Call("whet_rms_norm_dw_f32", (node.out, *node.ins, rows, c), "rms_norm")
