"""int8 operators: kernels on random sizes to the bit, and gradients against PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from integer_samples import EXAMPLES, agrees, seeds, sizes, windows, zeros
from kernel_samples import QUANTIZED, Numbers, Sample, reference
from kernel_samples_i8 import i8_samples
from whet.ir import Array, Op
from whet.ops.conv import Window
from whet.ops.settle import MOST

FEW, MANY = 40, 500


scales = st.floats(-12, 6).map(lambda e: 2.0**e)


@st.composite
def ranges(draw: Any) -> dict[str, int]:
    low = draw(st.integers(-128, 127))
    return dict(zero=draw(zeros), low=low, high=draw(st.integers(low, 127)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(windows(), ranges(), zeros, st.integers(1, 3), st.data())
def test_convolutions_of_any_size(
    window: Any, to: dict[str, int], x_zero: int, groups: int, data: Any
) -> None:
    image, kernel, attrs = window
    g = data.draw(seeds)
    c, o = (groups * data.draw(st.integers(1, n)) for n in (40, 70))
    part = groups * data.draw(st.integers(0, 20))
    x, w = g.i8(*image, c), g.i8(o, *kernel, c // groups)
    bias = [g.i32(o)] * data.draw(st.integers(0, 1))
    attrs |= dict(groups=groups)
    agrees("conv2d_i8", x, w, *bias, zero=x_zero, **attrs)
    scale = (g.positive(o) * data.draw(scales) / 100).astype(np.float32)
    more = [g.i8(*image, part), g.i8(o, *kernel, part // groups)] if part else []
    attrs |= dict(x_zero=x_zero, bias=bool(bias), part=bool(part), mask=data.draw(st.booleans()))
    agrees("conv2d_i8_fused", x, w, *bias, scale, *more, **attrs, **to)


@settings(max_examples=EXAMPLES, deadline=None)
@given(windows(), ranges(), zeros, st.data())
def test_depthwise_layers_of_any_size(
    window: Any, to: dict[str, int], x_zero: int, data: Any
) -> None:
    image, kernel, attrs = window
    g, c = data.draw(seeds), data.draw(st.integers(1, 150))
    x, w = g.i8(*image, c), g.i8(*kernel, c)
    bias = [g.i32(c)] * data.draw(st.integers(0, 1))
    agrees("depthwise_i8", x, w, *bias, zero=x_zero, **attrs)
    scale = (g.positive(c) * data.draw(scales) / 100).astype(np.float32)
    attrs |= dict(x_zero=x_zero, bias=bool(bias), mask=data.draw(st.booleans()))
    agrees("depthwise_i8_fused", x, w, *bias, scale, **attrs, **to)


@settings(max_examples=EXAMPLES, deadline=None)
@given(ranges(), st.integers(1, 200), st.integers(1, 9), scales, st.booleans(), st.data())
def test_narrowing_of_any_size(
    to: dict[str, int], c: int, rows: int, size: float, mask: bool, data: Any
) -> None:
    g = data.draw(seeds)
    each = (g.positive(data.draw(st.sampled_from([1, c]))) * size).astype(np.float32)
    first, second = data.draw(zeros), data.draw(zeros)
    agrees("requantize", g.normal(rows, c, scale=50), each, mask=mask, **to)
    agrees("requantize", g.i32(rows, c), each, mask=mask, **to)
    agrees("requantize", g.i8(rows, c), each, mask=mask, x_zero=first, **to)
    both = dict(a_zero=first, b_zero=second, a_scale=size, b_scale=float(each[0]))
    agrees("add_i8", g.i8(rows, c), g.i8(rows, c), mask=mask, **both, **to)
    halves = (g.i32(rows, c) / 2).astype(np.float32)
    agrees("requantize", halves, np.ones(1, np.float32), mask=mask, **to)


Test = Callable[..., None]


def few_or_many(*strategies: Any) -> Callable[[Test], Test]:
    """`given` few examples in every run, and many in those that may take long."""

    def decorate(function: Test) -> Test:
        @pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
        def test(count: int) -> None:
            settings(max_examples=count)(given(*strategies)(function))()

        test.__name__ = function.__name__
        return test

    return decorate


@st.composite
def pools(draw: Any) -> tuple[tuple[int, int], dict[str, Any]]:
    """The size of an image, and windows on it: some reach past the end, none is all padding."""
    size = draw(st.tuples(st.integers(1, 11), st.integers(1, 11)))
    if draw(st.booleans()):
        return size, dict(out=draw(st.tuples(*[st.integers(1, 5)] * 2)), adaptive=True)
    kernel, stride = (draw(st.tuples(*[st.integers(1, 4)] * 2)) for _ in range(2))
    pad, out = [], []
    for n, k, s in zip(size, kernel, stride, strict=True):
        pad.append(draw(st.integers(0, k // 2)))
        most = (n + pad[-1] - 1) // s + 1  # the last window that begins inside
        out.append(draw(st.integers(1, most)))
    return size, dict(kernel=kernel, stride=stride, pad=tuple(pad), out=tuple(out))


@few_or_many(pools(), zeros, st.integers(1, 40), st.data())
def test_pools_of_any_size(pool: Any, zero: int, c: int, data: Any) -> None:
    size, attrs = pool
    x = data.draw(seeds).i8(data.draw(st.integers(1, 2)), *size, c)
    agrees("max_pool2d", x, **attrs)
    count, divisor = data.draw(st.booleans()), data.draw(st.sampled_from([0, 0, 1, 7]))
    agrees("avg_pool_i8", x, zero=zero, count_pad=count, divisor=divisor, **attrs)


@few_or_many(st.tuples(*[st.integers(1, 9)] * 4), st.booleans(), st.integers(1, 40), st.data())
def test_resampling_of_any_size(sizes: tuple[int, ...], corners: bool, c: int, data: Any) -> None:
    """By the step that PyTorch has for these sizes, or by one that was asked for."""
    (h, w), out = sizes[:2], sizes[2:]
    x = data.draw(seeds).i8(data.draw(st.integers(1, 2)), h, w, c)
    step = tuple(a / b for a, b in zip((h, w), out, strict=True))
    if corners:
        step = tuple((a - 1) / max(b - 1, 1) for a, b in zip((h, w), out, strict=True))
    elif data.draw(st.booleans()):
        step = data.draw(st.tuples(*[st.floats(0.1, 4)] * 2))
    agrees("upsample_bilinear_i8", x, out=out, step=step, align_corners=corners)
    agrees("upsample_nearest", x, out=out, step=step)


@st.composite
def moves(draw: Any, q: Array) -> Array:
    """Halves, small ones, such as saturate, and now and then one that is no number."""
    g = draw(seeds)
    move = draw(st.sampled_from([g.halves(*q.shape), g.normal(*q.shape, scale=draw(sizes))]))
    if q.size and draw(st.booleans()):
        odd = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 127.5, 2.0**31, 1e-40]))
        move.flat[draw(st.integers(0, q.size - 1))] = odd
    return move


@few_or_many(
    st.sampled_from([(), (1,), (7,), (3, 5), (130,), (2, 3, 3, 9)]), st.booleans(), st.data()
)
def test_settling_of_any_size(shape: tuple[int, ...], bias: bool, data: Any) -> None:
    """Weights and biases, by every rounding."""
    g = data.draw(seeds)
    q = g.i32(*shape, size=data.draw(st.sampled_from([1000, MOST]))) if bias else g.i8(*shape)
    move = data.draw(moves(q))
    agrees("settle", q, move)
    agrees("settle", q, move, rounding="truncate")
    counter = g.i32(2, size=2**31 - 1)
    agrees("settle", q, move, counter, rounding="stochastic", site=data.draw(st.integers(0, 99)))
    for carry in g.gradients(*shape):
        agrees("settle", q, move, carry)
    agrees("settle_master", q, move, (q + g.normal(*shape)).astype(np.float32))


@few_or_many(windows(), zeros, scales, st.data())
def test_steps_of_any_size(window: Any, zero: int, unit: float, data: Any) -> None:
    """A gradient of floats or of integers, settled at once, in blocks of any number of rows."""
    (n, *size), kernel, attrs = window
    g = data.draw(seeds)
    c, o = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 40))
    out = Window(**attrs).output((size[0], size[1]), kernel)
    x, q = g.i8(n, *size, c), g.i8(o, *kernel, c)
    scale = g.positive(data.draw(st.sampled_from([1, o]))) / 100
    lr = np.float32(data.draw(st.floats(1e-6, 0.1))).reshape(())
    carry = [g.i8(*q.shape)] * data.draw(st.integers(0, 1))
    attrs |= dict(kernel=kernel, zero=zero, rows=data.draw(st.integers(0, o)), unit=unit)
    attrs |= dict(lr_scale=data.draw(scales), weight_decay=data.draw(st.sampled_from([0.0, 0.01])))
    agrees("dw_sgd_settle", q, g.normal(n, *out, o), x, scale, lr, *carry, **attrs)
    for dy in g.gradients(n, *out, o):
        agrees("dw_sgd_settle", q, dy, x, np.float32([unit]), scale, lr, *carry, **attrs)


@few_or_many(ranges(), st.lists(st.integers(1, 20), min_size=2, max_size=4), st.data())
def test_operands_of_a_concatenation_take_its_scale(
    to: dict[str, int], widths: list[int], data: Any
) -> None:
    """Each has a scale and a zero point of its own; what comes out is put side by side."""
    g, rows = data.draw(seeds), data.draw(st.integers(1, 6))
    parts = []
    for width in widths:
        x, by = g.i8(rows, width), np.float32([data.draw(scales)])
        attrs = dict(x_zero=data.draw(zeros), mask=data.draw(st.booleans()), **to)
        agrees("requantize", x, by, **attrs)
        ((node, arrays), *_) = Sample(Op.registry["requantize"], (x, by), attrs, "fuzz").nodes()
        parts.append(reference(node, arrays)[0])
    agrees("concat", *parts, axis=1)
    agrees("concat", *(part.T.copy() for part in parts), axis=0)


# ---- Gradients: what PyTorch's autograd gives if rounding counts as the identity.


def straight(v: torch.Tensor, low: int, high: int, zero: int) -> torch.Tensor:
    """round(v) + zero, held between low and high; the slope is 1 inside and 0 outside."""
    rounded = torch.round(v.detach())
    inside = (rounded + zero >= low) & (rounded + zero <= high)
    held = torch.clamp(rounded + zero, low, high)
    return torch.where(inside, held + (v - v.detach()), held)


def image(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def padded(x: torch.Tensor, a: Any) -> torch.Tensor:
    top, left, bottom, right = a.pad
    return F.pad(image(x - a.zero), (left, right, top, bottom))


def conv2d_i8(a: Any, x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
    moves = dict(stride=a.stride, dilation=a.dilation, groups=a.groups)
    y = F.conv2d(padded(x, a), image(w), b, **moves)
    return y.permute(0, 2, 3, 1)


def depthwise_i8(a: Any, x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
    moves = dict(stride=a.stride, dilation=a.dilation, groups=x.shape[3])
    y = F.conv2d(padded(x, a), w.permute(2, 0, 1)[:, None], b, **moves)
    return y.permute(0, 2, 3, 1)


def requantize(a: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return straight(((x - a.x_zero) * scale.detach()).reshape(x.shape), a.low, a.high, a.zero)


def add_i8(a: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left, right = (x - a.a_zero) * np.float32(a.a_scale), (y - a.b_zero) * np.float32(a.b_scale)
    return straight(left + right, a.low, a.high, a.zero)


def dequantize(a: Any, x: torch.Tensor) -> torch.Tensor:
    return (x - a.zero) * a.scale


def avg_pool_i8(a: Any, x: torch.Tensor) -> torch.Tensor:
    if a.adaptive:
        mean = F.adaptive_avg_pool2d(image(x - a.zero), a.out)
    else:
        rest = dict(count_include_pad=a.count_pad, divisor_override=a.divisor or None)
        mean = F.avg_pool2d(image(x - a.zero), a.kernel, a.stride, a.pad, **rest)
    held = straight(mean.permute(0, 2, 3, 1), -(10**6), 10**6, a.zero)
    return held + (held.clamp(-128, 127) - held).detach()  # an average is never out of range


def upsample_bilinear_i8(a: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.interpolate(image(x), a.out, mode="bilinear", align_corners=a.align_corners)
    return straight(y.permute(0, 2, 3, 1), -128, 127, 0)


MEANING: dict[str, Callable[..., torch.Tensor]] = {
    f.__name__: f
    for f in (
        conv2d_i8,
        depthwise_i8,
        requantize,
        add_i8,
        dequantize,
        avg_pool_i8,
        upsample_bilinear_i8,
    )
}
TRAINED = [s for s in i8_samples() if s.op.name in QUANTIZED and s.attrs.get("mask", True)]


def test_every_quantized_operator_has_a_gradient_to_compare() -> None:
    assert {s.op.name for s in TRAINED} == set(MEANING) == QUANTIZED


@pytest.mark.parametrize("sample", TRAINED, ids=lambda s: s.name)
def test_gradients_are_those_of_pytorch(sample: Sample) -> None:
    if not all(np.isfinite(a).all() for a in sample.ins) or sample.ins[0].size > 50_000:
        return
    (first, arrays), *rest = sample.nodes()
    made = {
        v: g for node, ins in rest for v, g in zip(node.outs, reference(node, ins), strict=True)
    }
    (y,) = reference(first, arrays)[:1]
    leaves = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    right = MEANING[sample.op.name](first.attrs, *leaves)
    dy = Numbers(sample.name + ".dy").normal(*first.outs[0].shape)
    right.backward(torch.tensor(dy.astype(np.float64)))
    if arrays[0].dtype == y.dtype == np.int8:  # int32 may wrap around
        assert np.abs(right.detach().numpy() - y).max() <= 1
    for i, leaf in enumerate(leaves):
        grad = made_for(made, first.ins[i].name)
        if grad is None:
            assert sample.op.name == "requantize" and i == 1
            continue
        assert leaf.grad is not None
        np.testing.assert_allclose(grad, leaf.grad.numpy(), rtol=1e-6, atol=1e-6)


def made_for(made: dict[Any, Array], name: str) -> Array | None:
    """The last result that is the gradient of this operand."""
    found = [a for v, a in made.items() if v.name.split("#")[0].startswith(f"d.{name}")]
    return found[-1] if found else None
