"""Losses over class ids, and over probabilities that may be 0 or 1. Other losses are made of
element-wise operators and reductions.

Labels equal to `ignore_index` do not count; any other label outside 0..classes-1 is an error that
the program reports before it computes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Type, Value, f32
from . import _exact
from ._common import d, infer_pair, require, require_f32, require_same
from .binary import Mul, Sub
from .linear import rows
from .unary import Log


class ClassLoss(Attributes):
    ignore_index: int = -100
    mean: bool = True  # divide by the total weight of the labels that count, else just add


def check_loss(x: Type, labels: Type, weight: Type | None) -> None:
    require_f32(x)
    require(labels.dtype is DType.I32, f"labels must be i32, not {labels}")
    require(x.shape[:-1] == labels.shape, f"{labels} is not one label per row of {x}")
    require(weight is None or weight.shape == x.shape[-1:], "needs one weight per class")


def label_weights(a: ClassLoss, labels: Array, weight: Array | None, like: Array) -> Array:
    """The weight of every row: its class weight, or 0 if the row is ignored."""
    counts = labels.ravel() != a.ignore_index
    w = np.ones(like.shape[-1], like.dtype) if weight is None else weight
    return np.where(counts, w[np.where(counts, labels.ravel(), 0)], 0)


def divisor(a: ClassLoss, wr: Array) -> Array:
    """What the loss is divided by, as `whet_loss_divisor` adds it up."""
    return _exact.compensated(wr) if a.mean else np.ones((), np.float32)


class NllLoss(Op):
    """loss = - sum_r w[label_r] * x[r, label_r], divided by sum_r w[label_r] if mean"""

    name = "nll_loss"
    Attrs = ClassLoss

    @staticmethod
    def infer(a: ClassLoss, x: Type, labels: Type, weight: Type | None = None) -> Type:
        check_loss(x, labels, weight)
        return f32()

    @staticmethod
    def ref(a: ClassLoss, x: Array, labels: Array, weight: Array | None = None) -> Array:
        wr = label_weights(a, labels, weight, x)
        flat = x.reshape(-1, x.shape[-1])
        safe = np.where(labels.ravel() == a.ignore_index, 0, labels.ravel())
        picked = np.where(wr == 0, 0, flat[np.arange(len(flat)), safe])
        total = -(wr * picked).sum()
        with np.errstate(invalid="ignore"):
            return np.asarray(total / wr.sum() if a.mean else total)

    @staticmethod
    def exact(a: ClassLoss, x: Array, labels: Array, weight: Array | None = None) -> Array:
        wr = label_weights(a, labels, weight, x)
        counts = np.flatnonzero(wr)
        picked = x.reshape(-1, x.shape[-1])[counts, labels.ravel()[counts]]
        with np.errstate(invalid="ignore"):
            return _exact.compensated(-wr[counts] * picked) / divisor(a, wr)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        x, labels, *weight = node.ins
        attrs = asdict(node.attrs) | {"classes": x.shape[-1]}
        dx = b.emit(NllLossDx, douts[0], labels, *weight, name=d(x), **attrs)
        return (dx, *(None for _ in node.ins[1:]))

    @staticmethod
    def call(node: Node) -> Call:
        x, labels, *weight = node.ins
        a = node.attrs
        sizes = (rows(x.shape), x.shape[-1], a.ignore_index, int(a.mean))
        args = (node.out, x, labels, weight[0] if weight else None, *sizes)
        return Call("whet_nll_loss_f32", args, "nll_loss")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {1: (node.ins[0].shape[-1], node.attrs.ignore_index)}


class NllLossDx(Op):
    """dx = 0, except dx[r, label_r] = -dloss * w[label_r], divided by the total weight if mean"""

    name = "nll_loss_dx"

    class Attrs(ClassLoss):
        classes: int = 1

    @staticmethod
    def infer(a: Attrs, dloss: Type, labels: Type, weight: Type | None = None) -> Type:
        return Type(dloss.dtype, (*labels.shape, a.classes))

    @staticmethod
    def ref(a: Attrs, dloss: Array, labels: Array, weight: Array | None = None) -> Array:
        dx = np.zeros((labels.size, a.classes), dloss.dtype)
        wr = label_weights(a, labels, weight, dx)
        safe = np.where(labels.ravel() == a.ignore_index, 0, labels.ravel())
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = dloss / wr.sum() if a.mean else dloss
            dx[np.arange(labels.size), safe] = np.where(wr == 0, 0, -wr * scale)
        return dx.reshape(*labels.shape, a.classes)

    @staticmethod
    def exact(a: Attrs, dloss: Array, labels: Array, weight: Array | None = None) -> Array:
        dx = np.zeros((labels.size, a.classes), np.float32)
        wr = label_weights(a, labels, weight, dx)
        counts = np.flatnonzero(wr)
        with np.errstate(invalid="ignore", divide="ignore"):
            dx[counts, labels.ravel()[counts]] = -wr[counts] * (dloss / divisor(a, wr))
        return dx.reshape(*labels.shape, a.classes)

    @staticmethod
    def call(node: Node) -> Call:
        dloss, labels, *weight = node.ins
        a = node.attrs
        sizes = (labels.type.elements, a.classes, a.ignore_index, int(a.mean))
        args = (node.out, dloss, labels, weight[0] if weight else None, *sizes)
        return Call("whet_nll_loss_dx_f32", args, "nll_loss")


class CrossEntropy(Op):
    """loss = sum_r w[label_r] * -log softmax(x_r)[label_r], divided by sum_r w[label_r] if mean

    With smoothing s the row's loss is (1 - s) of that plus s / classes of sum_c w[c] * -log
    softmax(x_r)[c]; ignored rows give none of either.
    """

    name = "cross_entropy"

    class Attrs(ClassLoss):
        smoothing: float = 0.0

    infer = staticmethod(NllLoss.infer)

    @staticmethod
    def ref(a: Attrs, x: Array, labels: Array, weight: Array | None = None) -> Array:
        flat = x.reshape(-1, x.shape[-1])
        z = flat - flat.max(axis=1, keepdims=True)
        logp = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        wr = label_weights(a, labels, weight, x)
        counts = labels.ravel() != a.ignore_index
        safe = np.where(counts, labels.ravel(), 0)
        total = -(wr * logp[np.arange(len(flat)), safe]).sum() * (1 - a.smoothing)
        if a.smoothing:
            w = np.ones(x.shape[-1], x.dtype) if weight is None else weight
            smooth = np.where(counts, -(logp * w).sum(axis=1), 0).sum()
            total = total + a.smoothing / x.shape[-1] * smooth
        with np.errstate(invalid="ignore"):
            return np.asarray(total / wr.sum() if a.mean else total)

    @staticmethod
    def exact(a: Attrs, x: Array, labels: Array, weight: Array | None = None) -> Array:
        """Row by row the term of its label, then with smoothing those of all classes."""
        wr = label_weights(a, labels, weight, x)
        counts = np.flatnonzero(labels.ravel() != a.ignore_index)
        flat, label = x.reshape(-1, x.shape[-1])[counts], labels.ravel()[counts]
        z = flat - flat.max(axis=1, keepdims=True)
        e = _exact.log(_exact.line_sum(_exact.exp(z)))[:, None] - z
        first, spread = split_smoothing(a, x.shape[-1])
        terms = (first * wr[counts] * e[np.arange(len(e)), label])[:, None]
        if spread > 0:
            w = np.float32(1) if weight is None else weight
            terms = np.concatenate([terms, spread * w * e], axis=1)
        with np.errstate(invalid="ignore"):
            return _exact.compensated(terms.reshape(-1)) / divisor(a, wr)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        x = node.ins[0]
        dx = b.emit(CrossEntropyDx, douts[0], *node.ins, name=d(x), **asdict(node.attrs))
        return (dx, *(None for _ in node.ins[1:]))

    @staticmethod
    def call(node: Node) -> Call:
        x, labels, *weight = node.ins
        args = (node.out, x, labels, weight[0] if weight else None, *_numbers(node, x))
        return Call("whet_cross_entropy_f32", args, "cross_entropy")

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        (x, labels, *weight), a = ins, node.attrs
        return torch.nn.functional.cross_entropy(
            x.reshape(-1, x.shape[-1]),
            labels.reshape(-1),
            weight=weight[0] if weight else None,
            ignore_index=a.ignore_index,
            reduction="mean" if a.mean else "sum",
            label_smoothing=a.smoothing,
        )

    bounds = staticmethod(NllLoss.bounds)


def split_smoothing(a: CrossEntropy.Attrs, classes: int) -> tuple[np.float32, np.float32]:
    """The share of the label, and that of every class on top."""
    smoothing = np.float32(a.smoothing)
    return np.float32(1) - smoothing, smoothing / np.float32(classes)


def _numbers(node: Node, x: Value) -> tuple[int, int, int, int, float]:
    a = node.attrs
    return rows(x.shape), x.shape[-1], a.ignore_index, int(a.mean), float(a.smoothing)


class CrossEntropyDx(Op):
    """dx[r] = k * ((1 - s) * w[label_r] * (p - onehot) + s / classes * (p * sum w - w))

    with p = softmax(x_r), k = dloss, divided by the total weight if mean; 0 for ignored rows.
    """

    name = "cross_entropy_dx"
    Attrs = CrossEntropy.Attrs

    @staticmethod
    def infer(
        a: CrossEntropy.Attrs, dloss: Type, x: Type, labels: Type, weight: Type | None = None
    ) -> Type:
        check_loss(x, labels, weight)
        return x

    @staticmethod
    def ref(
        a: CrossEntropy.Attrs, dloss: Array, x: Array, labels: Array, weight: Array | None = None
    ) -> Array:
        classes = x.shape[-1]
        flat = x.reshape(-1, classes)
        e = np.exp(flat - flat.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        wr = label_weights(a, labels, weight, x)
        counts = labels.ravel() != a.ignore_index
        onehot = np.zeros_like(p)
        onehot[np.arange(len(p)), np.where(counts, labels.ravel(), 0)] = 1
        dx = (1 - a.smoothing) * wr[:, None] * (p - onehot)
        if a.smoothing:
            w = np.ones(classes, x.dtype) if weight is None else weight
            dx = dx + a.smoothing / classes * counts[:, None] * (p * w.sum() - w)
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = dloss / wr.sum() if a.mean else dloss
            return np.where(counts[:, None], dx * scale, 0).reshape(x.shape)

    @staticmethod
    def exact(
        a: CrossEntropy.Attrs, dloss: Array, x: Array, labels: Array, weight: Array | None = None
    ) -> Array:
        flat = x.reshape(-1, x.shape[-1])
        w = np.ones(x.shape[-1], np.float32) if weight is None else weight
        wr = label_weights(a, labels, weight, x)
        counts = (labels.ravel() != a.ignore_index)[:, None]
        e = _exact.exp(flat - flat.max(axis=1, keepdims=True))
        p = e * (np.float32(1) / _exact.line_sum(e))[:, None]
        target = (np.arange(x.shape[-1]) == labels.reshape(-1, 1)).astype(np.float32)
        first, spread = split_smoothing(a, x.shape[-1])
        dx = (first * wr)[:, None] * (p - target) + spread * (p * _exact.compensated(w) - w)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(counts, dloss / divisor(a, wr) * dx, np.float32(0)).reshape(x.shape)

    @staticmethod
    def call(node: Node) -> Call:
        dloss, x, labels, *weight = node.ins
        args = (node.out, dloss, x, labels, weight[0] if weight else None, *_numbers(node, x))
        return Call("whet_cross_entropy_dx_f32", args, "cross_entropy")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 1),)


class Bce(Op):
    """y = -(t * log x + (1 - t) * log(1 - x)), the logarithms no less than -100"""

    name = "bce"

    infer = staticmethod(infer_pair)

    @staticmethod
    def ref(a: Attributes, x: Array, t: Array) -> Array:
        with np.errstate(divide="ignore"):
            low, high = np.maximum(np.log1p(-x), -100), np.maximum(np.log(x), -100)
        return (t - 1) * low - t * high

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (x, t) = douts, node.ins
        assert dy is not None
        dx = b.emit(BceDx, dy, x, t, name=d(x)) if wants[0] else None
        if not wants[1]:
            return dx, None
        rest = b.emit(Sub, b.const(np.float32(1), name="one"), x)
        odds = b.emit(Sub, b.emit(Log, rest), b.emit(Log, x))
        return dx, b.emit(Mul, dy, odds, name=d(t))

    @staticmethod
    def call(node: Node) -> Call:
        n = node.out.type.elements
        return Call(f"whet_{node.op.name}_f32", (node.out, *node.ins, n), "bce")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return tuple((0, i) for i in range(len(node.ins)))


class BceDx(Op):
    """dx = dy * (x - t) / max(x * (1 - x), 1e-12): finite where x is 0 or 1"""

    name = "bce_dx"

    @staticmethod
    def infer(a: Attributes, dy: Type, x: Type, t: Type) -> Type:
        require_f32(dy, x, t)
        require_same(dy, x, t)
        return dy

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array, t: Array) -> Array:
        return dy * (x - t) / np.maximum(x * (1 - x), 1e-12)

    call = staticmethod(Bce.call)
    inplace = staticmethod(Bce.inplace)
