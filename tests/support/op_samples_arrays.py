"""Samples of reductions, pools, resampling, and operators that only move elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sampling import IMAGE, Samples, aten, halves, ids, normal, positive


def reductions(s: Samples) -> None:
    dims: list[Any] = [0, 1, -1, (2, 3), (0, 2, 3), (1, 3), (0, 1, 2, 3), (-1, -3)]
    for keepdim, dim in itertools.product((False, True), dims):
        how = dict(dim=dim, keepdim=keepdim)
        s.add("mean.dim", partial(torch.mean, **how), IMAGE)
        s.add("sum.dim_IntList", partial(torch.sum, **how), IMAGE)
        s.add("amax.default", partial(torch.amax, **how), halves(*IMAGE))
        s.add("amin.default", partial(torch.amin, **how), halves(*IMAGE))
        for name in ("var", "std", "var_mean", "std_mean"):
            s.add(f"{name}.dim", partial(getattr(torch, name), **how), IMAGE)
        s.add("logsumexp.default", partial(torch.logsumexp, **how), IMAGE)
        for order in (2, 1, math.inf):
            f = partial(torch.linalg.vector_norm, ord=order, **how)
            s.add("linalg_vector_norm.default", f, halves(*IMAGE) if order != 2 else IMAGE)
    for correction in (0, 1, 2.5):
        for name in ("var", "std", "var_mean", "std_mean"):
            f = partial(getattr(torch, name), dim=(1, 2), correction=correction)
            s.add(f"{name}.correction", f, IMAGE)
    for name in ("var", "std", "var_mean", "std_mean"):
        s.add(f"{name}.correction", getattr(torch, name), IMAGE)
        s.add(f"{name}.default", partial(getattr(torch, name), unbiased=False), IMAGE)
        s.add(f"{name}.dim", partial(getattr(torch, name), dim=1), torch.ones(3, 4))
    s.add("mean.default", torch.mean, IMAGE)
    s.add("sum.default", torch.sum, IMAGE)
    s.add("amax.default", torch.amax, halves(*IMAGE))
    s.add("linalg_vector_norm.default", torch.linalg.vector_norm, IMAGE)
    s.add("linalg_vector_norm.default", torch.linalg.vector_norm, torch.zeros(3, 4))
    s.add("linalg_vector_norm.default", partial(torch.norm, dim=1), torch.eye(3, 4)[:, 1:])
    s.add("sum.default", torch.sum, ())
    s.add("mean.default", torch.mean, ())
    s.add("mean.dim", partial(torch.mean, dim=1), (3, 1, 4))
    s.add("sum.dim_IntList", partial(torch.sum, dim=0), (700, 33))
    s.add("mean.default", torch.mean, (40_000,))
    s.add("amax.default", partial(torch.amax, dim=(0, 2)), (300, 3, 33))
    s.add("", lambda x: F.normalize(x, dim=1), IMAGE)


def softmaxes(s: Samples) -> None:
    for name, f, raw in [
        ("softmax", torch.softmax, aten._softmax.default),
        ("log_softmax", torch.log_softmax, aten._log_softmax.default),
    ]:
        for dim in (0, 1, 2, 3, -1, -3):
            s.add(f"{name}.int", partial(f, dim=dim), IMAGE)
            s.add(f"_{name}.default", lambda x, d=dim, g=raw: g(x, d, False), IMAGE)
        s.add(f"{name}.int", partial(f, dim=1), normal(4, 50) * 40)
        s.add(f"{name}.int", partial(f, dim=0), (1,))
        s.add(f"{name}.int", partial(f, dim=0), ())
        s.add(f"{name}.int", lambda x, g=f: g(x.permute(0, 2, 3, 1), -1), IMAGE)


def pools(s: Samples) -> None:
    x = halves(2, 3, 9, 8)
    for kw in [
        dict(kernel_size=2), dict(kernel_size=3, stride=2),
        dict(kernel_size=3, stride=1, padding=1),
        dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
        dict(kernel_size=(3, 2), stride=(2, 3), padding=(1, 0), ceil_mode=True),
        dict(kernel_size=(2, 5), stride=(1, 4), padding=(1, 2)),
        dict(kernel_size=2, stride=4, ceil_mode=True), dict(kernel_size=(9, 8)),
        dict(kernel_size=5, stride=4, padding=2, ceil_mode=True),
    ]:  # fmt: skip
        s.add("max_pool2d.default", partial(F.max_pool2d, **kw), x)
        s.add("avg_pool2d.default", partial(F.avg_pool2d, **kw), x)
        if "padding" in kw:
            f = partial(F.avg_pool2d, count_include_pad=False, **kw)
            s.add("avg_pool2d.default", f, x)
        s.add("avg_pool2d.default", partial(F.avg_pool2d, divisor_override=5, **kw), x)
        narrow = {k: v[-1] if isinstance(v, tuple) else v for k, v in kw.items()}
        s.add("max_pool1d.default", partial(F.max_pool1d, **narrow), halves(2, 3, 11))
        s.add("avg_pool1d.default", partial(F.avg_pool1d, **narrow), halves(2, 3, 11))
    for dilation in (2, (1, 3)):
        for ceil in (False, True):
            f = partial(F.max_pool2d, kernel_size=3, stride=2, padding=1, dilation=dilation,
                        ceil_mode=ceil)  # fmt: skip
            s.add("max_pool2d.default", f, x)
    s.add("max_pool1d.default", partial(F.max_pool1d, kernel_size=3, dilation=2), halves(2, 3, 11))
    s.add("avg_pool1d.default", partial(F.avg_pool1d, kernel_size=3, padding=1, stride=2,
                                        count_include_pad=False), halves(2, 3, 11))  # fmt: skip
    s.add("max_pool2d.default", partial(F.max_pool2d, kernel_size=2), halves(3, 9, 8))
    s.add("avg_pool2d.default", partial(F.avg_pool2d, kernel_size=2), halves(3, 9, 8))
    s.add("max_pool2d.default", partial(F.max_pool2d, kernel_size=17), (1, 2, 20, 19))
    s.add("max_pool2d.default", partial(F.max_pool2d, kernel_size=2), -positive(2, 3, 4, 4))
    s.add("max_pool2d.default", partial(F.max_pool2d, kernel_size=3, padding=1),
          -positive(2, 3, 4, 4))  # fmt: skip
    s.add(
        "max_pool2d_with_indices.default",
        lambda x: aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[0],
        x,
    )
    for size in (1, 2, 3, 5, (3, 4), (9, 8), (None, 2), (12, 11), (1, 4)):
        s.add("adaptive_avg_pool2d.default", partial(F.adaptive_avg_pool2d, output_size=size), x)
        s.add("adaptive_max_pool2d.default", partial(F.adaptive_max_pool2d, output_size=size), x)
    for size in (1, 2, 3, 11, 7):
        s.add("adaptive_avg_pool1d.default", partial(F.adaptive_avg_pool1d, output_size=size),
              halves(2, 3, 11))  # fmt: skip
        s.add("adaptive_max_pool1d.default", partial(F.adaptive_max_pool1d, output_size=size),
              halves(2, 3, 11))  # fmt: skip
    s.add("adaptive_avg_pool2d.default", partial(F.adaptive_avg_pool2d, output_size=2), (3, 9, 8))
    s.add("_adaptive_avg_pool2d.default", lambda x: aten._adaptive_avg_pool2d.default(x, [2, 3]), x)


def resampling(s: Samples) -> None:
    x = (2, 3, 5, 7)
    sizes: list[dict[str, Any]] = [
        dict(size=(10, 14)), dict(size=(3, 4)), dict(size=(5, 7)), dict(size=(1, 1)),
        dict(size=(8, 3)), dict(size=9), dict(scale_factor=2), dict(scale_factor=(2, 3)),
        dict(scale_factor=1.7), dict(scale_factor=0.5), dict(scale_factor=(0.6, 2.3)),
        dict(scale_factor=1.7, recompute_scale_factor=True),
        # sizes that stay or double although the factor says a little more
        dict(scale_factor=1.13), dict(scale_factor=(1.13, 1.7)), dict(scale_factor=(0.6, 1.13)),
        dict(scale_factor=(2.15, 2.1)), dict(scale_factor=(1.7, 2.1)),
    ]  # fmt: skip
    for kw in sizes:
        s.add("upsample_nearest2d.vec", partial(F.interpolate, mode="nearest", **kw), x)
        for align in (False, True):
            f = partial(F.interpolate, mode="bilinear", align_corners=align, **kw)
            s.add("upsample_bilinear2d.vec", f, x)
    for kw in (dict(size=13), dict(size=4), dict(scale_factor=2), dict(scale_factor=1.7)):
        s.add("upsample_nearest1d.vec", partial(F.interpolate, mode="nearest", **kw), x[1:])
        for align in (False, True):
            f = partial(F.interpolate, mode="linear", align_corners=align, **kw)
            s.add("upsample_linear1d.vec", f, x[1:])
    f = partial(F.interpolate, mode="linear", scale_factor=1.13)
    s.add("upsample_linear1d.vec", f, x[1:])
    s.add(
        "upsample_nearest2d.default",
        lambda x: aten.upsample_nearest2d.default(x, [8, 12], 1.7, 1.8),
        x,
    )
    s.add("upsample_nearest2d.default", lambda x: aten.upsample_nearest2d.default(x, [8, 3]), x)


# --- moving


def views(s: Samples) -> None:
    def plus(f: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        """So that the view is not all there is."""
        return lambda x: f(x * 2.0)

    for shape in [(2, 210), (420,), (2, 6, 35), (2, 2, 3, 5, 7), (12, 5, 7), (2, 6, 5, 7, 1),
                  (60, 7), (2, 3, 70), (7, 60), (2, 1, 6, 5, 7), (2, 30, 7)]:  # fmt: skip
        s.add("view.default", lambda x, n=shape: x.view(n), IMAGE)
        s.add("view.default", plus(lambda x, n=shape: x.view(n)), IMAGE)
        s.add("", lambda x, n=shape: x.permute(0, 2, 3, 1).reshape(n), IMAGE)
    s.add("view.default", lambda x: x.view(2, -1), IMAGE)
    s.add("view.default", lambda x: x.view(-1, 5, 7), IMAGE)
    s.add("_unsafe_view.default", lambda x: aten._unsafe_view.default(x * 1.0, [2, 30, 7]), IMAGE)
    s.add("view_copy.default", lambda x: aten.view_copy.default(x, [2, 30, 7]), IMAGE)
    s.add("clone.default", torch.clone, IMAGE)
    s.add("alias.default", lambda x: aten.alias.default(x) * 2.0, IMAGE)
    for start, end in ((0, -1), (1, -1), (1, 2), (0, 1), (2, 3)):
        s.add("", lambda x, a=start, b=end: x.flatten(a, b), IMAGE)
    for perm in itertools.permutations(range(4)):
        s.add("permute.default", lambda x, p=perm: x.permute(p), IMAGE)
        s.add("permute.default", lambda x, p=perm: (x * 2).permute(p).reshape(10, 42), IMAGE)
    for a, b in ((0, 1), (1, 3), (-1, -2), (2, 2)):
        s.add("transpose.int", lambda x, a=a, b=b: x.transpose(a, b), IMAGE)
        s.add("", lambda x, a=a, b=b: x.movedim(a, b) * 2.0, IMAGE)
    s.add("t.default", torch.t, (3, 5))
    s.add("t.default", torch.t, (5,))
    s.add("permute.default", lambda x: x.T, (3, 5))
    odd = (2, 1, 5, 1)
    s.add("squeeze.default", torch.squeeze, odd)
    s.add("squeeze.default", torch.squeeze, (1, 1))
    for dim in (1, -1, 0):
        s.add("squeeze.dim", lambda x, d=dim: x.squeeze(d), odd)
    s.add("squeeze.dims", lambda x: x.squeeze((1, 3)), odd)
    s.add("squeeze.dims", lambda x: x.squeeze((0, -1)), odd)
    for dim in (0, 2, 4, -1, -3):
        s.add("unsqueeze.default", lambda x, d=dim: x.unsqueeze(d), IMAGE)
    s.add("", lambda x: x.permute(0, 2, 3, 1).unsqueeze(1).squeeze(0).flatten(2), (1, 6, 5, 7))
    s.add("", lambda x: x.flatten(2).transpose(1, 2).reshape(2, 5, 7, 6).movedim(3, 1), IMAGE)
    s.add("", lambda x: x.view(2, 2, 3, 5, 7).transpose(1, 2).flatten(1, 2) * 2.0, IMAGE)
    s.add("", lambda x: x.mean((2, 3), keepdim=True).flatten(1).unsqueeze(-1), IMAGE)
    for sizes in ((2, 6, 5, 7), (3, 2, 6, 5, 7), (-1, -1, -1, 7), (2, 6, -1, 7)):
        s.add("expand.default", lambda x, n=sizes: x.expand(n), (2, 6, 5, 1))
    s.add("expand.default", lambda x: x.expand(3, 4), ())
    s.add("expand.default", lambda x: x.expand(2, 6, 5, 7), (6, 1, 1))
    s.add("expand.default", lambda x, y: x.expand_as(y) * y, (6, 1, 1), IMAGE)
    for repeats in ((1, 2, 1, 3), (2, 1, 1, 1), (2, 1, 2, 1, 1), (1, 1, 1, 1)):
        s.add("repeat.default", lambda x, r=repeats: x.repeat(r), IMAGE)
    s.add("repeat.default", lambda x: x.repeat(3), ())
    s.add("pixel_shuffle.default", lambda x: F.pixel_shuffle(x, 2), (2, 12, 3, 4))
    s.add("pixel_shuffle.default", lambda x: F.pixel_shuffle(x, 3), (9, 3, 4))
    s.add("pixel_unshuffle.default", lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 6))
    s.add("pixel_unshuffle.default", lambda x: F.pixel_unshuffle(x, 3), (3, 6, 9))
    s.add("channel_shuffle.default", lambda x: F.channel_shuffle(x, 3), IMAGE)
    s.add("channel_shuffle.default", lambda x: F.channel_shuffle(x, 2), (2, 6, 5))


def pieces(s: Samples) -> None:
    cuts: list[Callable[[Tensor], Tensor]] = [
        lambda x: x[1:], lambda x: x[:, 1:5], lambda x: x[:, ::2], lambda x: x[:, 1::3],
        lambda x: x[..., :-1], lambda x: x[:, :, 1:4, ::2], lambda x: x[..., -3:],
        lambda x: x[:, :, :, 2:6:3], lambda x: x[:, 2:3], lambda x: x[:, :99],
    ]  # fmt: skip
    for f in cuts:
        s.add("slice.Tensor", f, IMAGE)
    for dim, i in ((0, 1), (1, 0), (1, -1), (3, 2), (-2, 4)):
        s.add("select.int", lambda x, d=dim, i=i: x.select(d, i), IMAGE)
    s.add("select.int", lambda x: x[2], (5,))
    s.add("", lambda x: x[:, 1, None, 2:], IMAGE)
    s.add("", lambda x: x.narrow(1, 2, 3), IMAGE)
    s.add("", lambda x: x.narrow(-1, -3, 2), IMAGE)
    for size, dim in ((2, 1), (4, 1), (3, -1), (1, 0), (7, 3)):
        s.add("split.Tensor", lambda x, n=size, d=dim: x.split(n, d), IMAGE)
    s.add("split.Tensor", lambda x: x.chunk(4, 1), IMAGE)
    s.add("split.Tensor", lambda x: [y * (i + 1) for i, y in enumerate(x.chunk(3, -1))], IMAGE)
    s.add("split_with_sizes.default", lambda x: x.split([1, 2, 3], 1), IMAGE)
    s.add("split_with_sizes.default", lambda x: x.split([4, 3], -1)[1], IMAGE)
    for dim in (0, 1, -1):
        s.add("unbind.int", lambda x, d=dim: x.unbind(d), IMAGE)
    for dim in (0, 1, 2, -1):
        s.add("cat.default", lambda x, y, d=dim: torch.cat([x, y], d), IMAGE, IMAGE)
        s.add("cat.default", lambda x, y, d=dim: torch.cat([x, y, x], d), IMAGE, IMAGE)
        s.add("stack.default", lambda x, y, d=dim: torch.stack([x, y], d), IMAGE, IMAGE)
    s.add("cat.default", lambda x, y, z: torch.cat([x, y, z], 1), IMAGE, (2, 3, 5, 7), (2, 1, 5, 7))
    s.add("cat.default", lambda x, y: torch.cat([x.permute(0, 2, 3, 1), y], -1), IMAGE,
          (2, 5, 7, 4))  # fmt: skip
    s.add("cat.default", lambda x: torch.cat([x, torch.ones(2, 1, 5, 7, dtype=x.dtype)], 1), IMAGE)
    s.add("cat.default", lambda x: torch.cat([x]), IMAGE)
    s.add("stack.default", lambda x, y: torch.stack([x, y], -1), (), ())

    def write(x: Tensor, y: Tensor, where: Any) -> Tensor:
        x = x * 1.0
        x[where] = y
        return x

    place: list[tuple[Any, tuple[int, ...]]] = [
        ((slice(None), slice(1, 3)), (2, 2, 5, 7)), ((slice(None), slice(1, 3)), (7,)),
        ((Ellipsis, slice(0, 4)), (2, 6, 5, 4)), ((slice(1, None),), (1, 6, 5, 7)),
    ]  # fmt: skip
    for where, shape in place:
        s.add("slice_scatter.default", partial(write, where=where), IMAGE, shape)
    s.add("select_scatter.default", partial(write, where=1), IMAGE, (6, 5, 7))
    s.add("select_scatter.default", partial(write, where=(slice(None), -1)), IMAGE, (5, 7))
    s.add("copy.default", lambda x: torch.empty_like(x).copy_(x[0, 1]) * x, IMAGE)
    s.add("copy.default", lambda x, y: (x * 1.0).copy_(y) * 2.0, IMAGE, (5, 7))
    s.add("unfold.default", lambda x: x.unfold(2, 3, 1), IMAGE)
    s.add("unfold.default", lambda x: x.unfold(1, 2, 2).unfold(-2, 3, 2), IMAGE)
    for kw in (dict(kernel_size=2), dict(kernel_size=3, padding=1), dict(kernel_size=(2, 3),
               stride=2, padding=(0, 2), dilation=(2, 1))):  # fmt: skip
        s.add("im2col.default", partial(F.unfold, **kw), IMAGE)
    for shifts, dims in ((2, 1), (-1, 3), ((1, -2), (0, 2)), ((3, 2), (2, 3)), (5, None), (0, 1)):
        s.add("roll.default", lambda x, n=shifts, d=dims: x.roll(n, d), IMAGE)
    for axes in ((0,), (1,), (2, 3), (-1, 0)):
        s.add("flip.default", lambda x, d=axes: x.flip(d), IMAGE)


def padding(s: Samples) -> None:
    for widths in [(1, 2), (0, 3, 2, 0), (1, 1, 1, 1), (-1, 2), (-1, -2), (2, -1, -1, 3),
                   (0, 0, 0, 0, 1, 2), (1, 0, 0, 1, 2, 0, 0, 3)]:  # fmt: skip
        s.add("pad.default", lambda x, w=widths: F.pad(x, w), IMAGE)
        s.add("pad.default", lambda x, w=widths: F.pad(x, w, value=1.5), IMAGE)
        s.add(
            "constant_pad_nd.default",
            lambda x, w=widths: aten.constant_pad_nd.default(x, list(w), -2.0),
            IMAGE,
        )
    for mode in ("reflect", "replicate", "circular"):
        for widths in ((1, 2, 3, 0), (0, 1, 2, 2), (4, 4, 4, 4)):
            s.add("pad.default", lambda x, w=widths, m=mode: F.pad(x, w, mode=m), IMAGE)
        s.add("pad.default", lambda x, m=mode: F.pad(x, (2, 1), mode=m), (2, 3, 5))
    for mode in ("reflect", "replicate"):
        s.add("pad.default", lambda x, m=mode: F.pad(x, (-1, 2, 1, -2), mode=m), IMAGE)
    s.add("pad.default", lambda x: F.pad(x, (1, 1)), (5,))


def indexing(s: Samples) -> None:
    for kind in "dc":
        for dim in (0, 1, 2, -1):
            f = lambda i, x, d=dim: x.index_select(d, i)  # noqa: E731
            n = IMAGE[dim]
            s.add("index_select.default", f, ids(n, 9, seed=dim + 1), IMAGE, kinds=f"{kind}i")
        for shape in ((4,), (2, 3), ()):
            table = lambda i, w: F.embedding(i, w)  # noqa: E731
            s.add("embedding.default", table, ids(9, *shape), (9, 5), kinds=f"{kind}p")
        padded = lambda i, w: F.embedding(i, w, padding_idx=3)  # noqa: E731
        s.add("embedding.default", padded, torch.tensor([[3, 1, 3], [0, 8, 1]]), (9, 5),
              kinds=f"{kind}p")  # fmt: skip
        last = lambda i, w: F.embedding(i, w, padding_idx=-1)  # noqa: E731
        s.add("embedding.default", last, torch.tensor([8, 1, 8, 0]), (9, 5), kinds=f"{kind}p")
        s.add("index.Tensor", lambda i, x: x[:, i], ids(6, 2, 4), IMAGE, kinds=f"{kind}i")
        s.add("index.Tensor", lambda i, x: x[i], ids(2, 5), IMAGE, kinds=f"{kind}i")
    lists: list[Callable[[Tensor], Tensor]] = [
        lambda x: x[:, [0, 5, -1]], lambda x: x[[1, 0, 1]], lambda x: x[..., [2, -3]],
        lambda x: x[:, [0, 5, 2], [1, 1, 4]], lambda x: x[:, :, [[0], [4]], [1, 6]],
        lambda x: x[[0, 1], [5, -6]],
        lambda x: x[:, None, [3, 3, 3]],
    ]  # fmt: skip
    for g in lists:
        s.add("index.Tensor", g, IMAGE)
    for dim, shape in ((0, (1, 6, 5, 7)), (1, (2, 3, 5, 7)), (2, (2, 6, 9, 7)), (-1, (1, 2, 3, 4))):
        h = lambda i, x, d=dim: x.gather(d, i)  # noqa: E731
        s.add("gather.default", h, ids(IMAGE[dim], *shape), IMAGE, kinds="ci")
    s.add("gather.default", lambda i, x: x.gather(1, i), ids(5, 3, 2), (3, 5), kinds="ci")
