"""Samples of layers and element-wise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sampling import IMAGE, Samples, aten, bits, halves, normal, positive, spread
from torch_oracle import EXACT

# --- convolutions and matrix products


def convolutions(s: Samples) -> None:
    x = (2, 6, 9, 8)
    for weight, bias, kw in [
        ((4, 6, 3, 3), True, {}),
        ((4, 6, 3, 3), False, dict(padding=1)),
        ((4, 6, 3, 3), True, dict(stride=2, padding=1)),
        ((4, 6, 3, 2), True, dict(stride=(3, 2), padding=(2, 1))),
        ((4, 6, 3, 3), True, dict(dilation=2, padding=2)),
        ((4, 6, 2, 3), True, dict(dilation=(3, 2), stride=(2, 1), padding=(0, 3))),
        ((4, 3, 3, 3), True, dict(groups=2, padding=1)),
        ((9, 2, 3, 3), False, dict(groups=3, stride=2)),
        ((6, 1, 3, 3), True, dict(groups=6, padding=1)),
        ((6, 1, 3, 3), False, dict(groups=6, padding=1, stride=2)),
        ((6, 1, 5, 3), True, dict(groups=6, padding=(4, 2), dilation=(2, 2))),
        ((12, 1, 3, 3), True, dict(groups=6, padding=1)),
        ((10, 6, 1, 1), True, {}),
        ((10, 6, 1, 1), False, dict(stride=2)),
        ((4, 6, 1, 1), True, dict(padding=1)),
        ((4, 6, 11, 10), True, dict(padding=2)),
        ((4, 6, 9, 8), True, {}),
        ((1, 6, 3, 3), True, dict(padding=5)),
        ((33, 6, 3, 3), True, dict(padding=1)),
    ]:
        f = partial(F.conv2d, **kw)
        s.add("conv2d.default", f, x, weight, *([weight[:1]] if bias else []))
    s.add("conv2d.default", F.conv2d, (6, 9, 8), (4, 6, 3, 3), (4,))
    s.add("conv2d.default", F.conv2d, (1, 1, 4, 4), (1, 1, 3, 3))
    s.add("conv2d.default", F.conv2d, (1, 1, 1, 1), (5, 1, 1, 1), (5,))
    s.add("conv2d.default", partial(F.conv2d, padding=1), (2, 40, 5, 5), (35, 40, 3, 3), (35,))
    for weight, kw in [
        ((4, 6, 3, 3), dict(padding="same")),
        ((4, 6, 2, 4), dict(padding="same")),
        ((4, 6, 4, 3), dict(padding="same", dilation=(1, 2))),
        ((6, 1, 4, 4), dict(padding="same", groups=6)),
        ((4, 6, 3, 3), dict(padding="valid", stride=2)),
    ]:
        s.add("conv2d.padding", partial(F.conv2d, **kw), x, weight, weight[:1])

    def asymmetric(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 2, 1)), w, stride=2)

    s.add("conv2d.default", asymmetric, x, (4, 6, 3, 3))

    def shared(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(torch.relu(F.conv2d(x, w, padding=1)), w, padding=1)

    s.add("conv2d.default", shared, x, (6, 6, 3, 3))

    def weight_also_used_elsewhere(x: Tensor, w: Tensor) -> Tensor:
        centred = w - w.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, centred / centred.norm()) + F.conv2d(x, w)

    s.add("conv2d.default", weight_also_used_elsewhere, x, (4, 6, 3, 3))
    for weight, kw in [
        ((4, 6, 3), {}),
        ((4, 6, 3), dict(stride=2, padding=1)),
        ((4, 6, 4), dict(dilation=3, padding=5)),
        ((6, 2, 3), dict(groups=3)),
        ((6, 1, 3), dict(groups=6, padding=1)),
        ((12, 1, 3), dict(groups=6)),
    ]:
        s.add("conv1d.default", partial(F.conv1d, **kw), (2, 6, 11), weight, weight[:1])
    s.add("conv1d.default", F.conv1d, (6, 11), (4, 6, 3))
    s.add("conv1d.padding", partial(F.conv1d, padding="same"), (2, 6, 11), (4, 6, 4), (4,))
    depthwise = partial(F.conv1d, padding="same", groups=6, dilation=2)
    s.add("conv1d.padding", depthwise, (2, 6, 11), (6, 1, 4))
    for weight, bias, kw in [
        ((6, 4, 3, 3), 4, {}),
        ((6, 4, 2, 2), 4, dict(stride=2)),
        ((6, 4, 3, 4), 0, dict(stride=(2, 3), padding=1, output_padding=(1, 2))),
        ((6, 4, 3, 3), 4, dict(dilation=2, padding=3)),
        ((6, 2, 3, 3), 4, dict(groups=2, stride=2, padding=1, output_padding=1)),
        ((6, 1, 4, 4), 6, dict(groups=6, stride=2, padding=1)),
        ((6, 1, 4, 4), 0, dict(groups=6, stride=2)),
    ]:
        f = partial(F.conv_transpose2d, **kw)
        s.add("conv_transpose2d.input", f, (2, 6, 4, 5), weight, *([(bias,)] if bias else []))
    s.add("conv_transpose2d.input", F.conv_transpose2d, (6, 4, 5), (6, 3, 2, 2), (3,))
    for weight, bias, kw in [
        ((6, 4, 3), 4, dict(stride=2, padding=1, output_padding=1)),
        ((6, 2, 4), 4, dict(groups=2, dilation=2)),
        ((6, 1, 3), 6, dict(groups=6)),
    ]:
        f = partial(F.conv_transpose1d, **kw)
        s.add("conv_transpose1d.default", f, (2, 6, 5), weight, (bias,))

    def raw(x: Tensor, w: Tensor, b: Tensor | None, transposed: bool, *more: Any) -> Tensor:
        stride, padding, dilation, extra, groups = more
        return aten.convolution.default(
            x, w, b, stride, padding, dilation, transposed, extra, groups
        )

    s.add(
        "convolution.default",
        lambda x, w, b: raw(x, w, b, False, [2, 1], [1, 0], [1, 2], [0, 0], 2),
        x, (4, 3, 3, 3), (4,),
    )  # fmt: skip
    s.add(
        "convolution.default",
        lambda x, w, b: raw(x, w, b, True, [2, 1], [1, 0], [1, 1], [1, 0], 1),
        x, (6, 4, 3, 3), (4,),
    )  # fmt: skip
    s.add(
        "convolution.default",
        lambda x, w: raw(x, w, None, False, [2], [1], [1], [0], 6), (2, 6, 9), (6, 1, 3),
    )  # fmt: skip


def products(s: Samples) -> None:
    s.add("linear.default", F.linear, (5, 7), (4, 7), (4,))
    s.add("linear.default", F.linear, (5, 7), (4, 7))
    s.add("linear.default", F.linear, (2, 3, 4, 7), (20, 7), (20,))
    s.add("linear.default", F.linear, (7,), (4, 7), (4,))
    s.add("linear.default", F.linear, (5, 7), (7,))
    s.add("linear.default", lambda x, w: F.linear(x.mT, w), (2, 7, 5), (4, 7))
    s.add("linear.default", lambda x, w: F.linear(x, w.t()), (5, 7), (7, 4))
    s.add("linear.default", F.linear, (1, 130), (70, 130), (70,))
    shapes = [
        ((5,), (5,)), ((5,), (5, 4)), ((3, 5), (5,)), ((3, 5), (5, 4)), ((2, 3, 5), (5,)),
        ((2, 3, 5), (5, 4)), ((5,), (2, 5, 4)), ((3, 5), (2, 5, 4)), ((2, 3, 5), (2, 5, 4)),
        ((1, 3, 5), (2, 5, 4)), ((2, 1, 3, 5), (4, 5, 6)), ((2, 4, 3, 5), (2, 4, 5, 6)),
        ((3, 2, 1, 5), (2, 5, 1)), ((2, 2, 3, 5), (5,)), ((5,), (2, 3, 5, 4)), ((1, 1), (1, 1)),
        ((2, 4, 3, 5), (1, 5, 6)), ((2, 2, 3, 5), (5, 6)),
    ]  # fmt: skip
    for a, b in shapes:
        s.add("matmul.default", torch.matmul, a, b)
        if len(a) > 1:
            s.add("matmul.default", lambda x, y: torch.matmul(x.mT, y), (*a[:-2], a[-1], a[-2]), b)
        if len(b) > 1:
            s.add("matmul.default", lambda x, y: torch.matmul(x, y.mT), a, (*b[:-2], b[-1], b[-2]))

    def heads(x: Tensor, y: Tensor) -> Tensor:
        q, k = (t.view(2, 5, 3, 4).transpose(1, 2) for t in (x, y))
        return (q @ k.mT) @ k

    s.add("matmul.default", heads, (2, 5, 12), (2, 5, 12))
    s.add("matmul.default", lambda x: x @ x.mT, (2, 3, 5))
    s.add("mm.default", torch.mm, (3, 5), (5, 4))
    s.add("mm.default", lambda x, y: torch.mm(x.t(), y.t()), (5, 3), (4, 5))
    s.add("bmm.default", torch.bmm, (2, 3, 5), (2, 5, 4))
    s.add("mv.default", torch.mv, (3, 5), (5,))
    s.add("dot.default", torch.dot, (5,), (5,))
    s.add("outer.default", torch.outer, (3,), (5,))
    for kw in ({}, dict(beta=0.5), dict(alpha=-2.0), dict(beta=0.0), dict(beta=2, alpha=3)):
        for bias in ((3, 4), (4,), (3, 1), (1, 1)):
            s.add("addmm.default", partial(torch.addmm, **kw), bias, (3, 5), (5, 4))
        f = partial(torch.baddbmm, **kw)
        s.add("baddbmm.default", f, (2, 3, 4), (2, 3, 5), (2, 5, 4))
        s.add("addmv.default", partial(torch.addmv, **kw), (3,), (3, 5), (5,))
    s.add("baddbmm.default", torch.baddbmm, (1, 4), (2, 3, 5), (2, 5, 4))
    for equation, *operands in [
        ("ij,jk->ik", (3, 5), (5, 4)),
        ("bij,bjk->bik", (2, 3, 5), (2, 5, 4)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("bchw,oc->bohw", IMAGE, (4, 6)),
        ("nchw,nc->nhw", IMAGE, (2, 6)),
        ("ij,ij->", (3, 5), (3, 5)),
        ("i,j->ij", (3,), (5,)),
        ("bij->bji", (2, 3, 5)),
        ("ij->j", (3, 5)),
        ("...ij,...jk->...ik", (2, 3, 5), (5, 4)),
        ("ij,jk,kl->il", (3, 5), (5, 4), (4, 2)),
    ]:
        s.add("", partial(torch.einsum, equation), *operands)


def attention(s: Samples) -> None:
    f, name = F.scaled_dot_product_attention, "scaled_dot_product_attention.default"
    q, k, v = (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)
    seen = torch.ones(5, 6, dtype=torch.bool).tril(1)
    s.add(name, f, q, k, v)
    s.add(name, partial(f, is_causal=True), q, k, v)
    s.add(name, partial(f, is_causal=True), q, q, q)
    s.add(name, partial(f, scale=0.3), q, k, v)
    s.add(name, f, q, k, v, seen, kinds="ippc")
    s.add(name, f, q, k, v, seen, kinds="ippd")
    s.add(name, f, q, k, v, normal(5, 6), kinds="ippc")
    s.add(name, f, q, k, v, normal(2, 1, 5, 6), stays=(3,))  # no input gets a gradient as a mask
    s.add(name, f, q, k, v, torch.ones(5, 6, dtype=torch.bool), kinds="ippc")
    s.add(name, partial(f, enable_gqa=True), (2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3))
    s.add(name, f, (5, 4), (6, 4), (6, 3))
    s.add(name, f, (2, 5, 4), (2, 6, 4), (2, 6, 3))

    s.add(name, partial(f, is_causal=True), (1, 2, 7, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    s.add(name, f, (2, 4, 5, 4), (2, 1, 6, 4), (2, 1, 6, 3))
    s.add(name, partial(f, is_causal=True, enable_gqa=True), (1, 6, 70, 8), *[(1, 2, 70, 8)] * 2)
    some = torch.rand(2, 3, 5, 6, generator=torch.Generator().manual_seed(0)) < 0.6
    some[1, :, 2] = False
    lowest = torch.zeros(some.shape).masked_fill(~some, torch.finfo(torch.float32).min)
    for mask in (some, lowest, torch.zeros(5, 6).masked_fill(~some[1, 0], -torch.inf)):
        for axes in ((), (0,), (1,), (2,), (0, 1, 2)):  # repeated along these
            one = mask[tuple(slice(1) if i in axes else slice(None) for i in range(mask.ndim))]
            s.add(name, f, q, k, v, one, kinds="ippc")
            s.add(name, f, q, k, v, one, kinds="ippd")
    s.add(name, f, q, k, v, some[:1, :1, :, :1], kinds="ippc")
    s.add(name, f, (2, 5, 4), (2, 6, 4), (2, 6, 3), some[0, :2], kinds="ippd")
    s.add(name, f, q, k, v, (2, 1, 5, 6), kinds="pppp", stays=(3,))

    def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t[:, :, None].expand(2, 2, 3, 5, 4).reshape(2, 6, 5, 4) for t in (k, v))
        return f(q, k, v)

    s.add(name, repeated, (2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))

    def projected(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = F.linear(x, w).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return f(q, k, v).transpose(1, 2).reshape(2, 5, 8)

    s.add(name, projected, (2, 5, 8), (24, 8))


# --- normalisation


def norms(s: Samples) -> None:
    mean, var = normal(6, seed=1), positive(6, seed=2)

    def frozen(x: Tensor, m: Tensor, v: Tensor, *wb: Tensor, eps: float = 1e-5) -> Tensor:
        return F.batch_norm(x, m, v, *wb, training=False, eps=eps)

    name = "_native_batch_norm_legit_no_training.default"
    for shape in (IMAGE, (2, 6, 5), (4, 6), (1, 6, 1, 1)):
        s.add(name, frozen, shape, mean, var, (6,), (6,), kinds="iccpp")
        s.add(name, frozen, shape, mean, var, kinds="icc")
    s.add(name, partial(frozen, eps=0.3), IMAGE, mean, var, (6,), kinds="iccp")

    def training(x: Tensor, m: Tensor, v: Tensor, *wb: Tensor, **kw: float) -> Tensor:
        return F.batch_norm(x, m, v, *wb, training=True, **kw)

    name = "_native_batch_norm_legit_functional.default"
    for shape in (IMAGE, (2, 6, 5), (4, 6), (1, 6, 3, 1)):
        s.add(name, training, shape, mean, var, (6,), (6,), kinds="isspp")
        s.add(name, training, shape, mean, var, kinds="iss")
    f = partial(training, momentum=0.35, eps=0.1)
    s.add(name, f, IMAGE, mean, var, (6,), (6,), kinds="isspp")

    def twice(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return training(torch.relu(training(x, m, v, w, b)), m, v, w, b)

    s.add(name, twice, IMAGE, mean, var, (6,), (6,), kinds="isspp")

    def without_running(x: Tensor, *wb: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, *wb, training=True)

    name = "_native_batch_norm_legit.no_stats"
    for shape in (IMAGE, (4, 6)):
        s.add(name, without_running, shape, (6,), (6,))
        s.add(name, without_running, shape)
    for groups in (1, 2, 3, 6):
        for shape in (IMAGE, (2, 6, 5), (3, 6)):
            s.add("group_norm.default", lambda x, w, b, g=groups: F.group_norm(x, g, w, b),
                  shape, (6,), (6,))  # fmt: skip
    s.add("group_norm.default", lambda x: F.group_norm(x, 2, eps=0.1), IMAGE)
    s.add("group_norm.default", lambda x, w: F.group_norm(x, 3, w), IMAGE, (6,))
    for shape in (IMAGE, (2, 6, 5)):
        s.add("instance_norm.default", lambda x, w, b: F.instance_norm(x, None, None, w, b),
              shape, (6,), (6,))  # fmt: skip
        s.add("instance_norm.default", F.instance_norm, shape)
    s.add(
        "instance_norm.default",
        lambda x, m, v, w, b: F.instance_norm(x, m, v, w, b, use_input_stats=False),
        IMAGE, mean, var, (6,), (6,), kinds="iccpp",
    )  # fmt: skip
    for shape, inner in [((3, 8), (8,)), ((2, 3, 8), (8,)), ((2, 3, 4, 8), (4, 8)),
                         (IMAGE, (6, 5, 7)), ((5,), (5,))]:  # fmt: skip
        f = lambda x, *wb, n=inner: F.layer_norm(x, n, *wb)  # noqa: E731
        s.add("layer_norm.default", f, shape, inner, inner)
        s.add("layer_norm.default", f, shape, inner)
        s.add("layer_norm.default", f, shape)
        g = lambda x, *w, n=inner: F.rms_norm(x, n, *w, eps=1e-5)  # noqa: E731
        s.add("rms_norm.default", g, shape, inner)
        s.add("rms_norm.default", g, shape)
    default = lambda x, w: F.rms_norm(x, (8,), w)  # noqa: E731
    s.add("rms_norm.default", default, (3, 8), (8,), exact=1e-6)  # eps of float, not of double
    s.add("rms_norm.default", lambda x, w: F.rms_norm(x.mT, (6,), w, eps=1e-5), (2, 6, 5), (6,))

    def channels_last_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), (6,), w, b).permute(0, 3, 1, 2)

    s.add("layer_norm.default", channels_last_norm, IMAGE, (6,), (6,))


# --- element by element


def activations(s: Samples) -> None:
    x = spread(41)
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu, "relu6": F.relu6, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
        "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu, "exp": torch.exp,
        "abs": torch.abs, "sin": torch.sin, "cos": torch.cos, "erf": torch.erf, "neg": torch.neg,
        "selu": F.selu, "mish": F.mish, "log_sigmoid": F.logsigmoid, "square": torch.square,
        "softplus": F.softplus, "gelu": F.gelu, "elu": F.elu, "celu": F.celu,
        "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh,
    }  # fmt: skip
    for name, f in plain.items():
        exact = 1e-7 if name == "hardsigmoid" else EXACT  # PyTorch's slope is 1.0f / 6.0f
        s.add(f"{name}.default", f, x, exact=exact)
        s.add(f"{name}.default", f, halves(*IMAGE), exact=exact)
        s.add(f"{name}.default", f, (), exact=exact)
    for name, g in {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}.items():
        s.add(f"{name}.default", g, positive(3, 40))
        s.add(f"{name}.default", g, positive(*IMAGE))
    s.add("log.default", torch.log, torch.tensor([0.0, 1e-30, 1.0, 3e38]))
    s.add("sqrt.default", torch.sqrt, torch.tensor([0.0, 1e-30, 1.0, 3e38]))
    s.add("reciprocal.default", torch.reciprocal, positive(3, 40))
    s.add("gelu.default", partial(F.gelu, approximate="tanh"), x)
    s.add("elu.default", partial(F.elu, alpha=0.7), x)
    s.add("celu.default", partial(F.celu, alpha=0.75), x)
    s.add("celu.default", partial(F.celu, alpha=2.5), x)
    s.add("leaky_relu.default", partial(F.leaky_relu, negative_slope=0.2), x)
    s.add("leaky_relu.default", partial(F.leaky_relu, negative_slope=0.0), x)
    s.add("softplus.default", partial(F.softplus, beta=2.0, threshold=3.0), x)
    s.add("softplus.default", partial(F.softplus, beta=0.5), x)
    s.add("hardtanh.default", partial(F.hardtanh, min_val=-3.0, max_val=6.0), x)
    s.add("hardtanh.default", partial(F.hardtanh, min_val=0.5, max_val=0.5), x)
    for weight in (1, 6):
        for shape in (IMAGE, (3, 6), (2, 6, 4)):
            s.add("prelu.default", F.prelu, halves(*shape), (weight,))
    s.add("prelu.default", F.prelu, halves(7), (1,))
    for low, high in ((-1.0, 3.0), (None, 3.0), (-3.0, None), (0, 6), (2.0, -2.0)):
        s.add("clamp.default", lambda x, a=low, b=high: torch.clamp(x, a, b), x)
        s.add("clip.default", lambda x, a=low, b=high: torch.clip(x, a, b), x)
    s.add("clamp_min.default", lambda x: torch.clamp_min(x, 0.5), x)
    s.add("clamp_max.default", lambda x: torch.clamp_max(x, 0.5), x)
    for exponent in (2, 2.0, 3, 1, 0, 4.0, 0.5):
        base = positive(3, 17) if exponent == 0.5 else halves(3, 17)
        s.add("pow.Tensor_Scalar", lambda x, e=exponent: x**e, base)
    for exponent in (-1, -0.5, 1.5, 2.7, -2):
        s.add("pow.Tensor_Scalar", lambda x, e=exponent: x**e, positive(3, 17))
    for dim in (-1, 0, 1, 3):
        s.add("glu.default", partial(F.glu, dim=dim), (2, 6, 4, 8))
    s.add("glu.default", F.glu, (8,))


BROADCASTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    (IMAGE, IMAGE), (IMAGE, (6, 1, 1)), (IMAGE, (2, 1, 1, 7)), (IMAGE, (7,)), (IMAGE, ()),
    (IMAGE, (1, 6, 1, 1)), ((2, 6, 1, 1), IMAGE), ((5, 7), IMAGE), ((2, 1, 5, 1), (1, 6, 1, 7)),
    ((3, 5), (5,)), ((3, 5), (3, 1)), ((5,), (3, 1)), ((), (3, 4)), ((1,), (4,)), ((), ()),
    ((2, 1, 3, 1, 2), (4, 1, 5, 1)),
]  # fmt: skip


def arithmetic(s: Samples) -> None:
    both: dict[str, Callable[..., Tensor]] = {
        "add.Tensor": torch.add, "sub.Tensor": torch.sub, "mul.Tensor": torch.mul,
        "maximum.default": torch.maximum, "minimum.default": torch.minimum,
        "div.Tensor": torch.div, "rsub.Tensor": torch.rsub, "gt.Tensor": torch.gt,
        "lt.Tensor": torch.lt, "ge.Tensor": torch.ge, "le.Tensor": torch.le,
        "eq.Tensor": torch.eq, "ne.Tensor": torch.ne,
    }  # fmt: skip
    for name, f in both.items():
        for a, b in BROADCASTS:
            second = positive(*b) if name == "div.Tensor" else halves(*b, seed=1)
            s.add(name, f, halves(*a), second)
    for name, g in both.items():
        if name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor"):
            s.add(name, lambda x, g=g: g(x, 0.5), halves(*IMAGE))
            s.add(name, lambda x, g=g: g(x, 2), halves(3, 5))
        count, mask = torch.arange(1, 8), bits(5, 7)
        s.add(name, lambda x, y, g=g: g(x, y), halves(*IMAGE), count, kinds="ic")
        if name not in ("sub.Tensor", "rsub.Tensor"):  # which refuse booleans
            s.add(name, lambda x, y, g=g: g(y, x), positive(*IMAGE), mask, kinds="ic")
            s.add(name, lambda x, g=g: g(x > 1, x), positive(*IMAGE))
    for alpha in (2, -0.5):
        for name in ("add.Tensor", "sub.Tensor", "rsub.Tensor"):
            for a, b in ((IMAGE, (6, 1, 1)), ((3, 5), (3, 5))):
                s.add(name, partial(both[name], alpha=alpha), a, b)
            f = lambda x, f=both[name], k=alpha: f(x, 1.5, alpha=k)  # noqa: E731
            s.add(name.replace("rsub.Tensor", "rsub.Scalar"), f, (3, 5))
    scalars: dict[str, Callable[[Tensor], Tensor]] = {
        "add.Scalar": lambda x: aten.add.Scalar(x, 0.5, 3),
        "sub.Scalar": lambda x: aten.sub.Scalar(x, 0.5, 3),
        "rsub.Scalar": lambda x: aten.rsub.Scalar(x, 0.5, 3),
        "mul.Scalar": lambda x: aten.mul.Scalar(x, 1.5),
        "div.Scalar": lambda x: aten.div.Scalar(x, 1.5),
        "gt.Scalar": lambda x: x > 0.5, "lt.Scalar": lambda x: x < 0.5,
        "ge.Scalar": lambda x: x >= 0.5, "le.Scalar": lambda x: x <= 0.5,
        "eq.Scalar": lambda x: x == 0.5, "ne.Scalar": lambda x: x != 0.5,
    }  # fmt: skip
    for name, h in scalars.items():
        s.add(name, h, halves(*IMAGE))
    s.add("rsub.Scalar", lambda x: 1.5 - x, (3, 5))
    s.add("reciprocal.default", lambda x: 2 / x, positive(3, 5))
    s.add("div.Tensor", lambda x: x / torch.tensor(4.0), (3, 5))
    s.add("true_divide.Tensor", torch.true_divide, (3, 5), positive(5))
    s.add("max.other", torch.max, halves(3, 5), halves(5, seed=1))
    s.add("min.other", torch.min, halves(3, 5), halves(5, seed=1))
    for value in (1, 0.3):
        operands = ((3, 5), (3, 1), positive(5))
        s.add("addcmul.default", partial(torch.addcmul, value=value), *operands)
        s.add("addcdiv.default", partial(torch.addcdiv, value=value), *operands)
    s.add("lerp.Scalar", lambda a, b: torch.lerp(a, b, 0.3), (3, 5), (3, 5))
    s.add("lerp.Tensor", torch.lerp, (3, 5), (3, 5), (5,))
    s.add("mul.Tensor", lambda x: x * x + x, IMAGE)
    s.add("mul.Tensor", lambda x, y: x.permute(0, 2, 3, 1) * y, IMAGE, (2, 5, 7, 6))
    s.add("add.Tensor", lambda x, y: x.transpose(1, 2) + y, IMAGE, (5, 1, 7))


def choices(s: Samples) -> None:
    for c, a, b in [(IMAGE, IMAGE, IMAGE), ((6, 1, 1), IMAGE, (7,)), ((5, 7), (6, 1, 1), IMAGE),
                    ((3, 1), (3, 5), ()), ((5,), (2, 1, 5), (3, 1)), ((), (7,), (7,))]:  # fmt: skip
        for kind in "dc":
            s.add("where.self", torch.where, bits(*c), a, b, kinds=f"{kind}ip")
    s.add("where.self", lambda x, y: torch.where(x > y, x, y), halves(*IMAGE), halves(6, 1, 1))
    s.add("where.self", lambda x: torch.where(x > 0, x, 0.5), IMAGE)
    s.add("where.self", lambda x: torch.where(x > 0, 2.0, x), IMAGE)
    s.add("where.ScalarOther", lambda x: aten.where.ScalarOther(x > 0, x, 0.5), IMAGE)
    s.add("where.ScalarSelf", lambda x: aten.where.ScalarSelf(x > 0, 0.5, x), IMAGE)
    for shape, mask in [(IMAGE, IMAGE), (IMAGE, (5, 7)), ((3, 5), (3, 1)), ((5,), (3, 5))]:
        for kind in "dc":
            f = lambda m, x: x.masked_fill(m, -1.5)  # noqa: E731
            s.add("masked_fill.Scalar", f, bits(*mask), shape, kinds=f"{kind}i")
    f = lambda m, x, v: x.masked_fill(m, v)  # noqa: E731
    s.add("masked_fill.Tensor", f, bits(5, 7), IMAGE, (), kinds="cip")
    fill = lambda m, x: torch.softmax(x.masked_fill(m, -math.inf), -1)  # noqa: E731
    s.add("masked_fill.Scalar", fill, torch.ones(5, 5).triu(1).bool(), (2, 5, 5), kinds="di")
    for dtype in (torch.float32, torch.float64):
        s.add("_to_copy.default", lambda x, t=dtype: (x > 0).to(t) * x, halves(3, 5))
    s.add("_to_copy.default", lambda x: (x > 0).float() * x, halves(3, 5))
    s.add("type_as.default", lambda x: aten.type_as.default(x > 0, x) * x, halves(3, 5))
    s.add("zeros_like.default", lambda x: torch.zeros_like(x) + x, IMAGE)
    s.add("ones_like.default", lambda x: torch.ones_like(x) * x, IMAGE)
    s.add("full_like.default", lambda x: torch.full_like(x, 0.3) * x, IMAGE)
    never = partial(torch.zeros_like, dtype=torch.bool)
    s.add("zeros_like.default", lambda x: torch.where(never(x), x, 2 * x), IMAGE)
    s.add("empty_like.default", lambda x: torch.empty_like(x).fill_(0.3) * x, IMAGE)
    s.add("new_empty.default", lambda x: x.new_empty(5, 7).fill_(0.3) * x, IMAGE)
    s.add("new_zeros.default", lambda x: x.new_zeros(5, 7) + x, IMAGE)
    s.add("new_ones.default", lambda x: x.new_ones(5, 7) * x, IMAGE)
    s.add("new_full.default", lambda x: x.new_full((5, 7), 0.3) * x, IMAGE)
    s.add("detach.default", lambda x: x * x.detach(), IMAGE)
