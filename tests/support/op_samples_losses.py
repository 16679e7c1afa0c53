"""Samples of losses, and of classes of targets they take."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sampling import Samples, aten, halves, ids, normal, positive

SHAPES: list[tuple[int, ...]] = [(4, 6), (1, 6), (6,), (2, 6, 5), (2, 6, 3, 4)]
REDUCTIONS = ("mean", "sum", "none")


def labels(shape: tuple[int, ...]) -> Tensor:
    """One class id per row of scores of this shape; the first row has class 2."""
    found = ids(6, *(shape[:1] + shape[2:] if len(shape) > 1 else ()), seed=3)
    found.view(-1)[0] = 2
    return found


def class_losses(s: Samples) -> None:
    weight = positive(6, seed=4)
    name = "cross_entropy_loss.default"
    for shape in SHAPES:
        for reduction in REDUCTIONS:
            variants: list[dict[str, Any]] = [
                {}, dict(label_smoothing=0.1), dict(ignore_index=2),
                dict(label_smoothing=0.3, ignore_index=2),
            ]  # fmt: skip
            for kw in variants:
                f = partial(F.cross_entropy, reduction=reduction, **kw)
                if shape == (6,) and reduction == "mean" and "ignore_index" in kw:
                    continue  # the only label is ignored: 0 / 0
                s.add(name, f, shape, labels(shape))
                g = lambda x, y, w, f=f: f(x, y, weight=w)  # noqa: E731
                s.add(name, g, shape, labels(shape), weight, kinds="idc")
            soft = partial(F.cross_entropy, reduction=reduction)
            target = torch.softmax(normal(*shape, seed=5), 0 if len(shape) == 1 else 1)
            s.add(name, soft, shape, target, kinds="id")
            s.add(name, partial(soft, label_smoothing=0.2), shape, target, kinds="id")
            h = lambda x, y, w, f=soft: f(x, y, weight=w)  # noqa: E731
            s.add(name, h, shape, target, weight, kinds="idc")
    s.add(name, lambda x, y, w: F.cross_entropy(x, y, weight=w), (4, 6), labels((4, 6)), weight,
          kinds="idd")  # fmt: skip
    s.add(name, F.cross_entropy, normal(3, 300) * 30, ids(300, 3))
    s.add(name, F.cross_entropy, (200, 10), ids(10, 200))
    s.add(name, F.cross_entropy, (4, 6), torch.softmax(normal(4, 6, seed=5), 1), kinds="ip")
    for shape in SHAPES:
        for reduction in REDUCTIONS:
            scores = torch.log_softmax(normal(*shape, seed=6), 0 if len(shape) == 1 else 1)
            nll = partial(F.nll_loss, reduction=reduction)
            s.add("nll_loss_nd.default", nll, scores, labels(shape))
            s.add("nll_loss_nd.default", lambda x, y, w, f=nll: f(x, y, weight=w), scores,
                  labels(shape), weight, kinds="idc")  # fmt: skip
            if shape != (6,):
                s.add("nll_loss_nd.default", partial(nll, ignore_index=2), scores, labels(shape))
    s.add("nll_loss.default", lambda x, y: aten.nll_loss.default(x, y), (4, 6), labels((4, 6)))
    image = (2, 6, 3, 4)
    s.add("nll_loss2d.default", lambda x, y: aten.nll_loss2d.default(x, y), image, labels(image))
    s.add("nll_loss_forward.default", lambda x, y: aten.nll_loss_forward.default(
        x, y, None, 1, -100)[0], (4, 6), labels((4, 6)))  # fmt: skip
    s.add("nll_loss2d_forward.default", lambda x, y: aten.nll_loss2d_forward.default(
        x, y, None, 2, -100)[0], image, labels(image))  # fmt: skip


def regression_losses(s: Samples) -> None:
    for reduction in REDUCTIONS:
        kw: dict[str, Any] = dict(reduction=reduction)
        for shape in ((3, 5), (2, 3, 4, 5), ()):
            x, y = halves(*shape), halves(*shape, seed=1)
            for kinds in ("id", "ip"):
                s.add("mse_loss.default", partial(F.mse_loss, **kw), x, y, kinds=kinds)
                s.add("l1_loss.default", partial(F.l1_loss, **kw), x, y, kinds=kinds)
                for beta in (1.0, 0.5, 2.0, 0.0):
                    f = partial(F.smooth_l1_loss, beta=beta, **kw)
                    name = "smooth_l1_loss.default" if beta else "l1_loss.default"
                    s.add(name, f, x, y, kinds=kinds)
                for delta in (1.0, 0.5, 2.0):
                    s.add("huber_loss.default", partial(F.huber_loss, delta=delta, **kw), x, y,
                          kinds=kinds)  # fmt: skip
        sides = torch.sign(normal(3, 5, seed=2))
        s.add("soft_margin_loss.default", partial(F.soft_margin_loss, **kw), (3, 5), sides,
              kinds="id")  # fmt: skip
    s.add("mse_loss.default", F.mse_loss, (3, 5), (3, 5))


def probability_losses(s: Samples) -> None:
    for reduction in REDUCTIONS:
        kw: dict[str, Any] = dict(reduction=reduction)
        for shape in ((3, 5), (2, 3, 4, 5)):
            y = torch.sigmoid(normal(*shape, seed=1) * 3)
            hard = (y > 0.5).float()
            p = torch.sigmoid(normal(*shape, seed=2))
            f = partial(F.binary_cross_entropy_with_logits, **kw)
            name = "binary_cross_entropy_with_logits.default"
            for target in (y, hard):
                s.add(name, f, shape, target, kinds="id")
                s.add(name, f, normal(*shape) * 30, target, kinds="id")
                for weight in (positive(shape[-1]), positive(*shape)):
                    g = lambda x, y, w, f=f: f(x, y, pos_weight=w)  # noqa: E731
                    h = lambda x, y, w, f=f: f(x, y, weight=w)  # noqa: E731
                    for kind in "cd":
                        s.add(name, g, shape, target, weight, kinds=f"id{kind}")
                        s.add(name, h, shape, target, weight, kinds=f"id{kind}")
                bce = partial(F.binary_cross_entropy, **kw)
                s.add("binary_cross_entropy.default", bce, p, target, kinds="id")
                s.add("binary_cross_entropy.default", lambda x, y, w, f=bce: f(x, y, weight=w), p,
                      target, positive(shape[-1]), kinds="idc")  # fmt: skip
            zeros = torch.where(y > 0.4, y, 0.0)
            for log_target in (False, True):
                kl = partial(F.kl_div, log_target=log_target, **kw)
                for kinds in ("id", "ip"):
                    target = y.log() if log_target else y
                    s.add("kl_div.default", kl, shape, target, kinds=kinds)
            s.add("kl_div.default", partial(F.kl_div, **kw), shape, zeros, kinds="id")
        s.add("binary_cross_entropy_with_logits.default",
              partial(F.binary_cross_entropy_with_logits, **kw), (3, 5),
              torch.sigmoid(normal(3, 5, seed=1)))  # fmt: skip
    s.add("", partial(F.kl_div, reduction="batchmean"), (3, 5), positive(3, 5), kinds="id")
    certain = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    target = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.5])
    s.add("binary_cross_entropy.default", F.binary_cross_entropy, certain, target, kinds="id",
          exact=1e-7)  # PyTorch divides by 1e-12f  # fmt: skip
