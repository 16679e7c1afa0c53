"""Samples of truth values, integers, places of maxima, and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sampling import IMAGE, Samples, aten, bits, halves, ids, positive
from whet.frontend.torch.aten.largest import keep_largest


def truths(s: Samples) -> None:
    x, y, pattern = halves(*IMAGE), halves(5, 7, seed=1), bits(6, 1, 1)
    pairs: dict[str, Callable[..., Tensor]] = {
        "logical_and.default": torch.logical_and, "logical_or.default": torch.logical_or,
        "logical_xor.default": torch.logical_xor, "bitwise_and.Tensor": torch.bitwise_and,
        "bitwise_or.Tensor": torch.bitwise_or, "bitwise_xor.Tensor": torch.bitwise_xor,
        "__and__.Tensor": aten.__and__.Tensor, "__or__.Tensor": aten.__or__.Tensor,
        "__xor__.Tensor": aten.__xor__.Tensor,
    }  # fmt: skip
    for name, f in pairs.items():
        s.add(name, lambda x, y, f=f: f(x > 0, y > 1), x, y)
        for kind in "dc":
            s.add(name, lambda x, m, f=f: f(x > 0, m), x, pattern, kinds=f"i{kind}")
        if name.startswith("logical"):
            s.add(name, f, x, y)
            s.add(name, lambda x, n, f=f: f(n, x), x, ids(3, 5, 7), kinds="id")
    s.add("bitwise_and.Scalar", lambda x: aten.bitwise_and.Scalar(x > 0, True), x)
    s.add("bitwise_or.Scalar", lambda x: aten.bitwise_or.Scalar(x > 0, False), x)
    s.add("bitwise_xor.Scalar", lambda x: aten.bitwise_xor.Scalar(x > 0, True), x)
    s.add("logical_not.default", lambda x: torch.logical_not(x > 0), x)
    s.add("logical_not.default", torch.logical_not, x)
    s.add("bitwise_not.default", lambda x: ~(x > 0), x)
    s.add("bitwise_not.default", lambda x: torch.where(~(x > 0), x, x * x), x)
    s.add("bitwise_not.default", lambda n: ~n, ids(9, 3, 5) - 4)
    for name, g in {"any": torch.any, "all": torch.all}.items():
        s.add(f"{name}.default", lambda x, g=g: g(x > 3), x)
        s.add(f"{name}.default", lambda x, g=g: g(x), x)
        for dim, keepdim in ((1, False), (-1, True), (0, False)):
            s.add(f"{name}.dim", lambda x, g=g, d=dim, k=keepdim: g(x > -1, d, k), x)
        s.add(f"{name}.dims", lambda x, g=g: g(x > 1, (1, 3)), x)
        s.add(f"{name}.dims", lambda x, g=g: g(x > -3.5, (2, 3), True), x)
    s.add("_assert_tensor_metadata.default", lambda x: x.double() * 2, x)


def integers(s: Samples) -> None:
    n, k = ids(9, 3, 5) - 4, ids(9, 5, seed=1)
    pairs: dict[str, Callable[..., Tensor]] = {
        "add.Tensor": torch.add, "sub.Tensor": torch.sub, "mul.Tensor": torch.mul,
        "gt.Tensor": torch.gt, "lt.Tensor": torch.lt, "ge.Tensor": torch.ge, "le.Tensor": torch.le,
        "eq.Tensor": torch.eq, "ne.Tensor": torch.ne, "rsub.Tensor": torch.rsub,
    }  # fmt: skip
    for name, f in pairs.items():
        s.add(name, f, n, k, kinds="dd")
        s.add(name, f, n, k, kinds="cd")
        s.add(name, f, n, halves(5), kinds="di")
    for name, f in pairs.items():
        scalar = name.replace("Tensor", "Scalar") if "sub" in name or "t." in name else name
        if name in ("add.Tensor", "sub.Tensor", "mul.Tensor"):
            s.add(name, lambda n, f=f: f(n, 2), n, kinds="d")
            s.add(name, lambda n, f=f: f(n, 0.5), n, kinds="d")
        elif name != "rsub.Tensor":
            s.add(scalar.replace("Tensor", "Scalar"), lambda n, f=f: f(n, 2), n, kinds="d")
    s.add("div.Tensor", torch.div, n, k + 1, kinds="dd", exact=1e-7)  # PyTorch's result is float32
    s.add("add.Tensor", lambda n, k: torch.add(n, k, alpha=3), n, k, kinds="dd")
    s.add("mul.Tensor", lambda x: (x > 0) * (x > 1), halves(3, 5))
    s.add("add.Tensor", lambda x: (x > 0) + (x > 1), halves(3, 5))
    s.add("where.self", lambda n, k: torch.where(n > k, n, k), n, k, kinds="dd")
    s.add("where.self", lambda n, x: torch.where(n > 2, x, n), n, halves(5), kinds="di")
    s.add("masked_fill.Scalar", lambda n: n.masked_fill(n < 0, 0), n, kinds="d")
    wide = torch.tensor([-2.7, -0.5, 0.0, 0.5, 2.5, 100.9])
    for dtype in (torch.int64, torch.int32, torch.bool):
        s.add("_to_copy.default", lambda x, t=dtype: x.to(t), wide)
    s.add("_to_copy.default", lambda n: n.double() * 0.5, n, kinds="d")
    s.add("_to_copy.default", lambda n: n.bool(), n, kinds="d")
    s.add("_to_copy.default", lambda x: (x > 0).long() + 1, halves(3, 5))
    s.add("sum.dim_IntList", lambda n: n.sum(1), n, kinds="d")
    s.add("sum.dim_IntList", lambda x: (x > 0).sum((0, 1)), halves(3, 5))
    s.add("mean.dim", lambda x: (x > 0).double().mean(0), halves(3, 5))
    s.add("view.default", lambda n: n.view(5, 3).t() * 2, n, kinds="d")
    s.add("slice.Tensor", lambda n: n[:, ::2] * 2, n, kinds="d")
    s.add("cat.default", lambda n: torch.cat([n, n + 1]), n, kinds="d")
    s.add("expand.default", lambda n: n[:, :1].expand(3, 4) * 2, n, kinds="d")
    s.add("floor.default", torch.floor, halves(3, 5) * 0.7)
    s.add("floor.default", lambda x: (x - x.floor()) * x, halves(3, 5) * 0.7)
    for shape in ((4,), (2, 3), ()):
        s.add("one_hot.default", lambda n: F.one_hot(n, 6), ids(6, *shape), kinds="d")
    s.add("one_hot.default", lambda n, x: F.one_hot(n, 6).double() @ x, ids(6, 4), (6, 3),
          kinds="di")  # fmt: skip


def places(s: Samples) -> None:
    x = halves(*IMAGE)
    for name, f in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
        for dim in (0, 1, 2, -1):
            s.add(f"{name}.default", partial(f, dim=dim), x)
            s.add(f"{name}.default", partial(f, dim=dim, keepdim=True), x)
        s.add(f"{name}.default", f, x)
        s.add(f"{name}.default", lambda x, f=f: f(x.permute(0, 2, 3, 1)), x)
    for name, g in {"max": torch.max, "min": torch.min}.items():
        for dim in (0, 1, -1):
            s.add(f"{name}.dim", lambda x, g=g, d=dim: g(x, d), x)
            s.add(f"{name}.dim", lambda x, g=g, d=dim: g(x, d, keepdim=True)[0], x)
        s.add(f"{name}.default", g, x)
    for keep in (1, 7, 120):
        s.add("whet.keep_largest.default", lambda x, k=keep: keep_largest(x, k)[0], IMAGE)
    s.add("whet.keep_largest.default", lambda x: keep_largest(x, 3)[0] * x, (5, 4))
    s.add("whet.keep_largest.default", lambda x: keep_largest(x, 9)[0], halves(*IMAGE))
    s.add("whet.keep_largest.default", lambda x: keep_largest(x.permute(1, 0, 2), 2)[0], (3, 4, 5))
    for dim in (0, 1, 2, -1):
        s.add("cumsum.default", partial(torch.cumsum, dim=dim), IMAGE)
    s.add("cumsum.default", lambda n: n.cumsum(1) * n, ids(5, 3, 7), kinds="d")
    s.add("gather.default", lambda n, x: x.gather(1, n), ids(6, 2, 3, 5, 7), IMAGE, kinds="di")
    s.add("gather.default", lambda n, x: x.gather(0, n), ids(2, 2, 4, 5, 6), IMAGE, kinds="di")
    s.add("gather.default", lambda n, x: x.gather(-1, n), ids(5, 3, 2), (3, 5), kinds="di")
    s.add("index.Tensor", lambda n, k, x: x[n, k], ids(3, 4), ids(5, 4, seed=1), (3, 5, 2),
          kinds="ddi")  # fmt: skip
    s.add("index.Tensor", lambda n, k, x: x[n, :, k], ids(3, 4), ids(2, 4, seed=1), (3, 5, 2),
          kinds="dci")  # fmt: skip
    s.add("index.Tensor", lambda n, x: x[torch.arange(3), n], ids(5, 3), (3, 5), kinds="di")
    s.add("index.Tensor", lambda n, x: x[:, n - 2], ids(5, 3), (3, 5), kinds="di")
    s.add(
        "max_pool1d_with_indices.default",
        lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True)[0],
        halves(2, 3, 11),
    )
    s.add("fill.Scalar", lambda x: (x * 1.0).fill_(0.3) * x, IMAGE)
    s.add("fill.Tensor", lambda x: (x * 1.0).fill_(x.mean()) * x, IMAGE)
    s.add(
        "broadcast_tensors.default",
        lambda x, y: [a * 2.0 for a in torch.broadcast_tensors(x, y)],
        IMAGE,
        (6, 1, 1),
    )
    for kw in (
        dict(kernel_size=2, stride=2),
        dict(kernel_size=3, padding=1),
        dict(kernel_size=(2, 3), dilation=(2, 1), padding=(0, 1), stride=(1, 2)),
    ):
        unfolded = F.unfold(torch.randn(2, 3, 6, 8), **kw).shape
        s.add("col2im.default", partial(F.fold, output_size=(6, 8), **kw), tuple(unfolded))
    for dim in (0, 1, -1):
        g_shape = {0: (4, 1, 1, 1), 1: (1, 6, 1, 1), -1: ()}[dim]
        s.add("_weight_norm.default", lambda v, g, d=dim: torch._weight_norm(v, g, d),
              (4, 6, 3, 3), g_shape)  # fmt: skip
    for size in ((10, 14), (3, 4), (8, 3)):
        for mode, antialias in (("bicubic", False), ("bicubic", True), ("bilinear", True)):
            stem = f"upsample_{mode}2d"
            name = f"_{stem}_aa.vec" if antialias else f"{stem}.vec"
            f = partial(F.interpolate, size=size, mode=mode, antialias=antialias)
            s.add(name, f, (2, 3, 5, 7))
    s.add(
        "upsample_bicubic2d.vec",
        partial(F.interpolate, scale_factor=1.7, mode="bicubic", align_corners=True),
        (2, 3, 5, 7),
    )
    # A size that stays although the factor says more. Not with antialias: there PyTorch's gradient
    # goes by the factor and its value by the size.
    f = partial(F.interpolate, scale_factor=(1.13, 1.7), mode="bicubic")
    s.add("upsample_bicubic2d.vec", f, (2, 3, 5, 7))


def recurrent(s: Samples) -> None:
    """Input of width 4, state of width 3, a batch of 2, 5 steps."""
    kinds = {"lstm": (torch.lstm, 4, 2), "gru": (torch.gru, 3, 1),
             "rnn_tanh": (torch.rnn_tanh, 1, 1), "rnn_relu": (torch.rnn_relu, 1, 1)}  # fmt: skip
    options = [(1, True, False, False), (1, False, False, True), (2, True, True, True),
               (2, True, False, False)]  # fmt: skip
    for name, (cell, gates, states) in kinds.items():
        for layers, biased, both_ways, batch_first in options:
            ways = 2 if both_ways else 1
            weights: list[tuple[int, ...]] = []
            for layer in range(layers):
                width = 4 if layer == 0 else 3 * ways
                each: list[tuple[int, ...]] = [(3 * gates, width), (3 * gates, 3)]
                weights += (each + [(3 * gates,)] * 2 * biased) * ways

            def f(
                x: Tensor, *rest: Tensor, cell: Any = cell, states: int = states,
                how: tuple[Any, ...] = (biased, layers, 0.0, False, both_ways, batch_first),
            ) -> Any:  # fmt: skip
                start = rest[:states] if states > 1 else rest[0]
                return cell(x, start, list(rest[states:]), *how)

            x = (2, 5, 4) if batch_first else (5, 2, 4)
            s.add(f"{name}.input", f, x, *[(layers * ways, 2, 3)] * states, *weights)
    s.add("", lambda x, w: F.linear(x, w).cumsum(0).relu(), (5, 4), positive(3, 4))
