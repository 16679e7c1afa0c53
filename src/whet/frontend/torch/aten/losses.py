"""Losses, in the forms that PyTorch exports."""

from __future__ import annotations

import math

import torch

from ....ir import DType, Op
from ....ops import unary as u
from ....ops.activation import Softplus
from ....ops.binary import Add, Mul, Ne, Sub
from ....ops.loss import Bce, CrossEntropy, NllLoss
from ....ops.reduce import Mean, Sum
from ...model import Tensor
from ..importer import Importer, Operand, aten
from ..tensor import channels_last
from .elementwise import binary, negated, where
from .moving import gather, take
from .reducing import log_softmax, reduced

NONE, MEAN, SUM = 0, 1, 2


def reduce_loss(m: Importer, x: Tensor, reduction: int) -> Tensor:
    if reduction == NONE:
        return x
    return reduced(m, Mean if reduction == MEAN else Sum, x, None, False)


def class_loss(
    m: Importer, op: type[Op], x: Operand, labels: Operand, weight: Operand | None,
    reduction: int, ignore_index: int, **attrs: float,
) -> Tensor:  # fmt: skip
    """Scores [n, classes, ...] and labels [n, ...]; the class axis is stored last."""
    scores, ids = m.tensor(x), m.tensor(labels)
    if reduction == NONE:
        smoothing = attrs.get("smoothing", 0.0)
        if op is CrossEntropy:
            scores = log_softmax(m, scores, class_axis(scores))
        return losses_of_rows(m, scores, ids, weight, ignore_index, smoothing)
    if scores.rank == 1:
        scores, ids = m.arranger.view(scores, (1, *scores.shape)), m.arranger.view(ids, (1,))
    operands = [m.arranger.arrange(scores, channels_last(scores.rank)), m.arranger.plain(ids)]
    if weight is not None:
        operands.append(m.plain(weight))
    mean = reduction == MEAN
    return m.emit(op, *operands, order=(), ignore_index=ignore_index, mean=mean, **attrs)


def class_axis(scores: Tensor) -> int:
    return 0 if scores.rank == 1 else 1


def losses_of_rows(
    m: Importer, log: Tensor, ids: Tensor, weight: Operand | None, ignore_index: int, s: float
) -> Tensor:
    """The loss of every label before summation, 0 where it is ignored."""
    axis = class_axis(log)
    counts = binary(m, Ne, ids, ignore_index)
    safe = where(m, counts, ids, 0)
    picked = gather(m, log, axis, m.arranger.view(safe, (*ids.shape[:axis], 1, *ids.shape[axis:])))
    rows = binary(m, Mul, m.arranger.view(picked, ids.shape), s - 1)
    spread = log
    if weight is not None:
        w = m.tensor(weight)
        rows = binary(m, Mul, rows, take(m, w, 0, safe))
        spread = binary(m, Mul, log, per_class(m, w, log))
    if s:
        even = binary(m, Mul, reduced(m, Sum, spread, axis, False), s / log.shape[axis])
        rows = binary(m, Sub, rows, even)
    return where(m, counts, rows, 0.0)


def per_class(m: Importer, weight: Tensor, scores: Tensor) -> Tensor:
    """Class weights in a shape that broadcasts over the scores."""
    after = scores.rank - 1 - class_axis(scores)
    return m.arranger.view(weight, (*weight.shape, *(1,) * after))


@aten("cross_entropy_loss.default")
def cross_entropy(
    m: Importer, x: Operand, target: Operand, weight: Operand | None = None, reduction: int = MEAN,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if m.tensor(target).dtype is DType.F32:
        return soft_cross_entropy(m, x, target, weight, reduction, label_smoothing)
    smoothing = float(label_smoothing)
    return class_loss(
        m, CrossEntropy, x, target, weight, reduction, ignore_index, smoothing=smoothing
    )


def soft_cross_entropy(
    m: Importer, x: Operand, target: Operand, weight: Operand | None, reduction: int, s: float
) -> Tensor:
    """Targets are class probabilities: minus the sum of target * log softmax(x) * weight."""
    scores = m.tensor(x)
    axis = class_axis(scores)
    if s:
        kept = binary(m, Mul, target, 1 - s)
        target = binary(m, Add, kept, s / scores.shape[axis])
    terms = binary(m, Mul, target, log_softmax(m, scores, axis))
    if weight is not None:
        terms = binary(m, Mul, terms, per_class(m, m.tensor(weight), scores))
    rows = negated(m, reduced(m, Sum, terms, axis, False))
    return reduce_loss(m, rows, reduction)


@aten("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(
    m: Importer, x: Operand, target: Operand, weight: Operand | None = None, reduction: int = MEAN,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    return class_loss(m, NllLoss, x, target, weight, reduction, ignore_index)


@aten("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(
    m: Importer, x: Operand, target: Operand, weight: Operand | None, reduction: int,
    ignore_index: int,
) -> tuple[Tensor]:  # fmt: skip
    return (nll_loss(m, x, target, weight, reduction, ignore_index),)


@aten("mse_loss.default")
def mse_loss(m: Importer, x: Operand, y: Operand, reduction: int = MEAN) -> Tensor:
    error = binary(m, Sub, x, y)
    return reduce_loss(m, binary(m, Mul, error, error), reduction)


def error_loss(
    m: Importer, op: type[Op], x: Operand, y: Operand, reduction: int, **attrs: float
) -> Tensor:
    error = binary(m, Sub, x, y)
    return reduce_loss(m, m.emit(op, error.value, order=error.order, **attrs), reduction)


@aten("l1_loss.default")
def l1_loss(m: Importer, x: Operand, y: Operand, reduction: int = MEAN) -> Tensor:
    return error_loss(m, u.Abs, x, y, reduction)


@aten("huber_loss.default")
def huber_loss(
    m: Importer, x: Operand, y: Operand, reduction: int = MEAN, delta: float = 1.0
) -> Tensor:
    return error_loss(m, u.Huber, x, y, reduction, delta=float(delta))


@aten("smooth_l1_loss.default")
def smooth_l1_loss(
    m: Importer, x: Operand, y: Operand, reduction: int = MEAN, beta: float = 1.0
) -> Tensor:
    if beta == 0:
        return l1_loss(m, x, y, reduction)
    loss = error_loss(m, u.Huber, x, y, reduction, delta=float(beta))
    return loss if beta == 1 else binary(m, Mul, loss, 1.0 / beta)


@aten("soft_margin_loss.default")
def soft_margin_loss(m: Importer, x: Operand, y: Operand, reduction: int = MEAN) -> Tensor:
    z = negated(m, binary(m, Mul, x, y))
    return reduce_loss(m, m.emit(Softplus, z.value, order=z.order), reduction)


@aten("binary_cross_entropy_with_logits.default")
def bce_with_logits(
    m: Importer, x: Operand, y: Operand, weight: Operand | None = None,
    pos_weight: Operand | None = None, reduction: int = MEAN,
) -> Tensor:  # fmt: skip
    """(1 - y) * x + (1 + (p - 1) * y) * log(1 + exp(-x))"""
    minus = negated(m, x)
    soft = m.emit(Softplus, minus.value, order=minus.order)
    if pos_weight is not None:
        factor = binary(m, Mul, binary(m, Sub, pos_weight, 1.0) if isinstance(pos_weight, Tensor)
                        else pos_weight - 1, y)  # fmt: skip
        soft = binary(m, Mul, soft, binary(m, Add, factor, 1.0))
    loss = binary(m, Add, binary(m, Mul, binary(m, Sub, 1.0, y), x), soft)
    if weight is not None:
        loss = binary(m, Mul, loss, weight)
    return reduce_loss(m, loss, reduction)


@aten("binary_cross_entropy.default")
def bce(
    m: Importer, x: Operand, y: Operand, weight: Operand | None = None, reduction: int = MEAN
) -> Tensor:
    loss = binary(m, Bce, x, y)
    if weight is not None:
        loss = binary(m, Mul, loss, weight)
    return reduce_loss(m, loss, reduction)


@aten("kl_div.default")
def kl_div(
    m: Importer, x: Operand, target: Operand, reduction: int = MEAN, *, log_target: bool = False
) -> Tensor:
    """target * (log target - x), where 0 * log 0 is 0"""
    t = m.tensor(target)
    if log_target:
        probability, log = m.emit(u.Exp, t.value, order=t.order), t
    else:
        tiny = float(torch.finfo(torch.float32).tiny)
        safe = m.emit(u.Clamp, t.value, order=t.order, low=tiny, high=math.inf)
        probability, log = t, m.emit(u.Log, safe.value, order=t.order)
    return reduce_loss(m, binary(m, Mul, probability, binary(m, Sub, log, x)), reduction)
