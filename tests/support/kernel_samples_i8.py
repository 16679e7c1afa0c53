"""Inputs for the kernels of whole numbers: layers, narrowing, pools, and updates.

All must agree with their operators to the bit, floats included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_samples import WINDOWS, Collector, Numbers, Sample, rmsprop_cases
from whet.ir import Array, DType, Type, i8
from whet.ops._common import pack
from whet.ops.conv import Window
from whet.ops.fused_i8 import Conv2dI8Fused, DepthwiseI8Fused
from whet.ops.stream import stage_of

ZEROS = (0, -128, 127, 5)
RANGES = ((-128, 127), (-5, 127), (-128, 20), (0, 0))


def i8_samples() -> list[Sample]:
    s = Collector("whole-")
    for family in (layers, larger_layers, fused, parts, narrowing, adding, pools, movers):
        family(s)
    for family in (gradients, steps, fused_steps, settling, streams, widening, lookups):
        family(s)
    return s.samples


GROUPED = [(2, 6, 4), (3, 3, 51), (4, 4, 4), (2, 34, 10)]


def layers(s: Collector) -> None:
    for k, (n, h, w, c, o, kernel, window) in enumerate(WINDOWS):
        g, zero = s.numbers("conv2d_i8"), ZEROS[k % 4]
        x = g.i8(n, h, w, c)
        s.add("conv2d_i8", x, g.i8(o, *kernel, c), g.i32(o), zero=zero, **window)
        s.add("conv2d_i8", x, g.i8(o, *kernel, c), zero=ZEROS[(k + 1) % 4], **window)
        s.add("depthwise_i8", x, g.i8(*kernel, c), g.i32(c), zero=zero, **window)
        s.add("depthwise_i8", x, g.i8(*kernel, c), zero=ZEROS[(k + 1) % 4], **window)
    for groups, c, o in GROUPED:
        g = s.numbers("conv2d_i8")
        window = {"pad": (1, 1, 1, 1), "stride": (1, 2), "groups": groups, "zero": 3}
        s.add("conv2d_i8", g.i8(1, 5, 6, c), g.i8(o, 3, 3, c // groups), **window)
    bias = np.array([2**31 - 1, -(2**31), 0], np.int32)  # which wraps around
    s.add("conv2d_i8", g.i8(1, 3, 3, 2), g.i8(3, 1, 1, 2), bias, zero=1)
    s.add("depthwise_i8", g.i8(1, 3, 3, 3), g.i8(1, 1, 3), bias, zero=1)
    worst = np.full((1, 1, 1, 70_000), 127, np.int8)
    s.add("conv2d_i8", worst, np.full((1, 1, 1, 70_000), -128, np.int8), zero=-128)


AROUND: dict[str, Any] = {"pad": (1, 1, 1, 1)}
HALVED: dict[str, Any] = {"pad": (2, 2, 2, 2), "stride": (2, 2)}
WIDE: list[tuple[int, int, int, int, int, tuple[int, int], dict[str, Any]]] = [
    (1, 13, 10, 40, 72, (3, 3), AROUND),
    (1, 6, 7, 300, 20, (1, 1), {}),
    (2, 5, 9, 48, 100, (1, 1), {}),
    (1, 9, 9, 130, 12, (3, 3), HALVED),
    (2, 11, 12, 24, 40, (3, 3), {"stride": (2, 1)}),
    (1, 12, 13, 3, 16, (3, 3), {"pad": (1, 1, 1, 1), "stride": (2, 2)}),
    (1, 12, 5, 3, 4, (11, 7), {"pad": (2, 2, 2, 2)}),
]
DEEP: list[tuple[int, int, int, int, tuple[int, int], dict[str, Any]]] = [
    (2, 13, 11, 72, (3, 3), AROUND),
    (1, 20, 13, 24, (5, 5), HALVED),
    (1, 16, 16, 48, (7, 7), {"pad": (3, 3, 3, 3)}),
    (1, 15, 15, 40, (7, 7), {"pad": (3, 3, 3, 3), "stride": (2, 2)}),
    (1, 9, 8, 136, (3, 3), {"pad": (1, 0, 0, 1), "stride": (2, 2)}),
    (1, 13, 14, 20, (9, 7), {}),
    (1, 3, 20, 17, (2, 11), {"pad": (0, 5, 1, 5)}),
]


def larger_layers(s: Collector) -> None:
    """Enough pixels, channels, rows and taps for every way that kernels with vectors have."""
    for n, h, w, c, o, kernel, window in WIDE:
        g = s.numbers("conv2d_i8")
        s.add("conv2d_i8", g.i8(n, h, w, c), g.i8(o, *kernel, c), g.i32(o), zero=-7, **window)
    for n, h, w, c, kernel, window in DEEP:
        g = s.numbers("depthwise_i8")
        s.add("depthwise_i8", g.i8(n, h, w, c), g.i8(*kernel, c), zero=9, **window)


def fused(s: Collector) -> None:
    """Every window with and without bias, bits, and limits; scales that saturate some sums."""
    for k, (n, h, w, c, o, kernel, window) in enumerate(WINDOWS + WIDE):
        g = s.numbers("conv2d_i8_fused")
        x, weight = g.i8(n, h, w, c), g.i8(o, *kernel, c)
        add_fused(s, "conv2d_i8_fused", x, weight, k, **window)
        add_fused(s, "depthwise_i8_fused", x, g.i8(*kernel, c), k, **window)
    for k, (n, h, w, c, kernel, window) in enumerate(DEEP):
        g = s.numbers("depthwise_i8_fused")
        add_fused(s, "depthwise_i8_fused", g.i8(n, h, w, c), g.i8(*kernel, c), k, **window)
    for k, (groups, c, o) in enumerate(GROUPED):
        g = s.numbers("conv2d_i8_fused")
        window = {"pad": (1, 1, 1, 1), "stride": (1, 2), "groups": groups}
        add_fused(s, "conv2d_i8_fused", g.i8(1, 5, 6, c), g.i8(o, 3, 3, c // groups), k, **window)


def add_fused(s: Collector, op: str, x: Array, w: Array, k: int, **window: Any) -> None:
    for bias, mask in [(False, False), (True, False), (False, True), (True, True)]:
        g = s.numbers(op)
        low, high = RANGES[k % 4]
        o = w.shape[0] if op == "conv2d_i8_fused" else w.shape[2]
        scale = (g.positive(o) / (100 * w.size / o)).astype(np.float32)
        attrs = dict(x_zero=ZEROS[k % 4], zero=ZEROS[(k // 4) % 4], low=low, high=high)
        operands = [g.i32(o)] * bias + [scale]
        s.add(op, x, w, *operands, bias=bias, mask=mask, **attrs, **window)
        k += 1


def parts(s: Collector) -> None:
    """Some input channels apart from the others, as where a part of the weights trains."""
    for k, (c, part, o, groups, kernel) in enumerate(
        [(12, 4, 9, 1, 1), (17, 3, 33, 1, 3), (64, 16, 64, 1, 1), (6, 4, 4, 2, 3), (5, 70, 8, 1, 1)]
    ):
        g = s.numbers("conv2d_i8_fused")
        x, x2 = g.i8(2, 5, 6, c), g.i8(2, 5, 6, part)
        w, w2 = (g.i8(o, kernel, kernel, n // groups) for n in (c, part))
        window: dict[str, Any] = {"pad": (kernel // 2,) * 4, "groups": groups}
        scale = (g.positive(o) / (50 * w.size / o)).astype(np.float32)
        attrs = dict(x_zero=ZEROS[(k + 1) % 4], zero=ZEROS[k % 4], part=True, **window)
        s.add("conv2d_i8_fused", x, w, scale, x2, w2, **attrs)
        s.add("conv2d_i8_fused", x, w, g.i32(o), scale, x2, w2, bias=True, mask=True, **attrs)


def gradients(s: Collector) -> None:
    """From integers with a scale: every window, and sums as large as int32 holds."""
    for k, (n, h, w, c, o, kernel, window) in enumerate([*WINDOWS, *WIDE[:3]]):
        g = s.numbers("conv2d_i8_dx")
        out = Window(**window).output((h, w), kernel)
        images = [g.i8(n, h, w, c), g.i8(o, *kernel, c), g.i8(*kernel, c)]
        for dy, depth in zip(g.gradients(n, *out, o), g.gradients(n, *out, c), strict=True):
            add_gradients(s, dy, depth, *images, scale=2.0 ** (-k), zero=ZEROS[k % 4], **window)
    for groups, c, o in GROUPED:
        g = s.numbers("conv2d_i8_dw")
        attrs: dict[str, Any] = dict(pad=(1, 1, 1, 1), stride=(1, 2), groups=groups)
        x, weight, one = g.i8(1, 5, 6, c), g.i8(o, 3, 3, c // groups), np.float32([0.5])
        for dy in g.gradients(1, 5, 3, o):
            s.add("conv2d_i8_dx", dy, weight, one, size=(5, 6), **attrs)
            s.add("conv2d_i8_dw", dy, x, one, kernel=(3, 3), zero=-9, **attrs)
    for limit, kind in ((127, np.int8), (1000, np.int16)):
        most = np.full((1, 1, (2**31 - 1) // (255 * limit), 1), limit, kind)
        x, scale = np.full(most.shape, 127, np.int8), np.float32([2.0**-126])
        s.add("conv2d_i8_dw", most, x, scale, zero=-128)
        s.add("depthwise_i8_dw", most, x, scale, zero=-128)
    no_number = np.float32([np.nan])
    s.add("conv2d_i8_dx", np.zeros((1, 1, 1, 3), np.int16), np.ones((3, 1, 1, 2), np.int8),
          no_number, size=(1, 1))  # fmt: skip
    narrowed_gradients(s)


def add_gradients(
    s: Collector, dy: Array, depth: Array, x: Array, w: Array, v: Array, *, scale: float, zero: int,
    **window: Any,
) -> None:  # fmt: skip
    size, kernel, by = x.shape[1:3], v.shape[:2], np.float32([scale])
    s.add("conv2d_i8_dx", dy, w, by, size=size, **window)
    s.add("conv2d_i8_dw", dy, x, by, kernel=kernel, zero=zero, **window)
    s.add("depthwise_i8_dx", depth, v, by, size=size, **window)
    s.add("depthwise_i8_dw", depth, x, by, kernel=kernel, zero=zero, **window)


def narrowed_gradients(s: Collector) -> None:
    """Zeros, halves, the ends of float, and numbers that are none."""
    g = s.numbers("narrow_gradient")
    small, large = np.float32([1e-45, -1e-38, 0, 6e-39]), np.float32([3.4e38, -3.4e38, 1e-3, 1])
    edges = np.float32([127, -127, 0.5, 1.5, 2.5, -0.5, 63.5, 126.5])
    given = [g.normal(3, 5, 17), g.halves(4, 9), np.zeros((2, 3), np.float32), small, large, edges]
    given += [g.normal(1025, scale=1e-9), edges * np.float32(1 + 2**-23), ODD, ODD[1:2], ODD[3:]]
    for x in given:
        for kind, limit in (("int8", 127), ("int16", 127), ("int16", 1001), ("int16", 32767)):
            s.add("narrow_gradient", x, kind=kind, limit=limit)


ODD = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0, -0.0, 0.5, 1.5, -0.5, -1.5, 2.5, 127.5, 126.5, -128.5),
        *(-129.5, 128.5, 1e30, -1e30, 127.49999, -128.49998, 4194304.5, 1e-40, -1e-40),
    ],
    np.float32,
)


def narrowing(s: Collector) -> None:
    one = np.ones(1, np.float32)
    for k, zero in enumerate((0, -128, 127, 3, -1)):
        low, high = RANGES[k % 4]
        for mask in (False, True):
            attrs = dict(zero=zero, low=low, high=high, mask=mask)
            g = s.numbers("requantize")
            s.add("requantize", ODD + np.float32(-zero), one, **attrs)
            s.add("requantize", g.halves(3, 37) * np.float32(64), one, **attrs)
            s.add("requantize", g.normal(3, 5, 17, scale=100), g.positive(17), **attrs)
            s.add("requantize", g.i32(2, 64, size=2**31 - 1), np.float32([1e-7]), **attrs)
            s.add("requantize", g.i32(3, 4, 33), g.positive(33) / 9, **attrs)
            s.add("requantize", g.i8(3, 37), np.float32([0.5]), x_zero=-zero - 1, **attrs)
            s.add("requantize", g.i8(2, 19, 24), g.positive(24), x_zero=zero, **attrs)
    for size in ((), (1,), (7,), (8,), (1025,)):
        g = s.numbers("requantize")
        s.add("requantize", g.normal(*size, scale=90), np.float32([0.7]), mask=True)
    limits = np.array([2**31 - 1, -(2**31), 0, 2**24 + 1], np.int32)
    s.add("requantize", limits[:2], np.float32([np.inf]), mask=True)
    for x in (s.numbers("dequantize").i8(5, 31), s.numbers("dequantize").i32(70), limits):
        for zero in (0, -128, 127):
            s.add("dequantize", x, scale=0.037, zero=zero)


def adding(s: Collector) -> None:
    for k, size in enumerate(((), (9,), (4, 37), (3, 5, 16), (1025,))):
        for mask in (False, True):
            g = s.numbers("add_i8")
            low, high = RANGES[k % 3]
            zeros = dict(a_zero=ZEROS[k % 4], b_zero=ZEROS[(k + 1) % 4], zero=ZEROS[(k + 2) % 4])
            attrs = dict(low=low, high=high, mask=mask, **zeros)
            s.add("add_i8", g.i8(*size), g.i8(*size), a_scale=0.5, b_scale=1.0, **attrs)
            s.add("add_i8", g.i8(*size), g.i8(*size), a_scale=0.731, b_scale=-0.11, **attrs)


def pools(s: Collector) -> None:
    for k, (size, attrs) in enumerate([
        ((2, 7, 9, 19), dict(out=(3, 4), kernel=(2, 2), stride=(2, 2))),
        ((1, 6, 5, 16), dict(out=(6, 5), kernel=(3, 3), pad=(1, 1))),
        ((1, 7, 7, 40), dict(out=(1, 1), adaptive=True)),
        ((2, 5, 6, 3), dict(out=(3, 4), adaptive=True)),
    ]):  # fmt: skip
        g, more = s.numbers("avg_pool_i8"), dict(zero=ZEROS[k])
        extras: list[dict[str, Any]] = [{}, {"count_pad": False}, {"divisor": 3}]
        for extra in extras[: 1 if "adaptive" in attrs else 3]:
            s.add("avg_pool_i8", g.i8(*size), **attrs, **more, **extra)
        s.add("max_pool2d", g.i8(*size), **attrs)
    s.add("avg_pool_i8", np.full((1, 200, 130, 1), 127, np.int8), adaptive=True, zero=-128)
    for size, out, step, corners in [
        ((2, 3, 4, 5), (6, 8), (0.5, 0.5), False),
        ((1, 5, 7, 16), (3, 11), (4 / 2, 6 / 10), True),
        ((1, 4, 4, 3), (9, 3), (4 / 9, 4 / 3), False),
        ((1, 1, 1, 17), (2, 3), (0.5, 0.3333), False),
    ]:
        g = s.numbers("upsample_bilinear_i8")
        attrs = dict(out=out, step=step)
        s.add("upsample_bilinear_i8", g.i8(*size), align_corners=corners, **attrs)
        s.add("upsample_nearest", g.i8(*size), **attrs)


def movers(s: Collector) -> None:
    g = Numbers("whole movers")
    for x in (g.i8(2, 3, 4), g.i32(2, 3, 4)):
        s.add("pad", x, low=(0, 1, 2), high=(1, 0, 3), value=-128)
        s.add("take", x, g.ids(3, 5), axis=1)
        s.add("take", x, g.ids(4, 2, 2), axis=2)
        s.add("slice_dx", x, axis=1, start=1, step=2, size=7)
        s.add("slice", x, axis=2, start=1, stop=4)
        s.add("concat", x, x, axis=1)


def steps(s: Collector) -> None:
    lr = np.float32(0.05).reshape(())
    shapes: list[tuple[tuple[int, ...], int]] = [((5, 3, 2, 7), 0), ((3, 3, 33), 2), ((64,), 0)]
    for size, axis in [*shapes, ((), 0), ((4, 37), 1)]:
        g = s.numbers("sgd_step")
        each = g.positive(size[axis]) / 100 if size else g.positive(1)
        grad, m, v = g.normal(*size), g.normal(*size), g.positive(*size)
        for scale in (each, np.ones(1, np.float32)):
            s.add("real_squares", grad, scale, axis=axis, unit=0.03)
        for q in (g.i8(*size), g.i32(*size, size=2**30)):
            for scale in (each, np.ones(1, np.float32)):
                some = dict(axis=axis, lr_scale=0.5, weight_decay=0.01, unit=0.03)
                for attrs in (dict(axis=axis), some):
                    s.add("sgd_step", q, grad, scale, lr, **attrs)
                    for nesterov in (False, True):
                        more = dict(momentum=0.8, nesterov=nesterov)
                        s.add("momentum_step", q, grad, scale, m, lr, **attrs, **more)
                    for decoupled, t in [(False, 1), (True, 1), (False, 7), (True, 10_000)]:
                        step, more = np.float32(t).reshape(()), dict(decoupled=decoupled)
                        s.add("adam_step", q, grad, scale, m, v, step, lr, **attrs, **more)
                    for more, moments in rmsprop_cases(v, m):
                        s.add("rmsprop_step", q, grad, scale, *moments, lr, **attrs, **more)


def fused_steps(s: Collector) -> None:
    """Blocks of rows that divide the outputs, and that do not; one scale, and one for each.

    The last has more pixels, outputs and channels than a tile or a panel of the vector kernels.
    """
    lr = np.float32(0.05).reshape(())
    shapes = [((2, 5, 4, 6), (1, 1), 9, (0, 0, 0, 0)), ((1, 6, 7, 5), (3, 3), 6, (1, 1, 1, 1))]
    shapes.append(((1, 17, 18, 43), (1, 1), 37, (0, 0, 0, 0)))
    for (n, h, w, c), kernel, o, pad in shapes:
        g = s.numbers("dw_sgd_settle")
        x, dy, q = g.i8(n, h, w, c), g.normal(n, h, w, o), g.i8(o, *kernel, c)
        for scale in (g.positive(o) / 100, np.ones(1, np.float32)):
            for rows in (0, 1, 4):
                attrs = dict(kernel=kernel, pad=pad, zero=-7, rows=rows, unit=0.3)
                s.add("dw_sgd_settle", q, dy, x, scale, lr, **attrs)
                s.add("dw_sgd_settle", q, dy, x, scale, lr, g.i8(*q.shape), **attrs,
                      lr_scale=0.5, weight_decay=0.01)  # fmt: skip
                for whole in g.gradients(n, h, w, o):
                    operands = (q, whole, x, np.float32([2.0**-9]), scale, lr)
                    s.add("dw_sgd_settle", *operands, **attrs)
                    s.add("dw_sgd_settle", *operands, g.i8(*q.shape), **attrs)


def settling(s: Collector) -> None:
    rng = np.array([7, -9], np.int32)
    for size in ((), (3, 7), (257,)):
        g = s.numbers("settle")
        for q in (g.i8(*size), g.i32(*size)):
            for move in (g.normal(*size, scale=3), g.halves(*size), g.normal(*size, scale=1e-4)):
                s.add("settle", q, move)
                s.add("settle", q, move, rounding="truncate")
                s.add("settle", q, move, rng, rounding="stochastic", site=3)
                s.add("settle", q, move, g.i8(*size))
                s.add("settle", q, move, np.asarray(g.i32(*size, size=2**15 - 1), np.int16))
                s.add("settle_master", q, move, g.normal(*size, scale=100))
    extremes = np.array([2**31 - 1, -(2**31), 2**24 + 1, -1], np.int32)
    for q in (np.resize(extremes, ODD.shape), s.numbers("settle").i8(*ODD.shape)):
        for move in (ODD, -ODD, ODD * np.float32(1e8)):
            s.add("settle", q, move)
            s.add("settle", q, move, rounding="truncate")
            s.add("settle", q, move, rng, rounding="stochastic")
            s.add("settle", q, move, np.full(q.shape, -128, np.int8))
            s.add("settle", q, move, np.full(q.shape, 32767, np.int16))
            s.add("settle_master", q, move, q.astype(np.float32))


# Of every stream: the image, then kernel, outputs (0 if depthwise) and window of its layers.
STREAMS: list[tuple[tuple[int, ...], list[tuple[int, int, dict[str, Any]]]]] = [
    ((1, 9, 8, 6), [(1, 12, {}), (3, 0, AROUND), (1, 4, {})]),
    ((2, 7, 6, 5), [(1, 9, {}), (5, 0, {"pad": (2, 2, 2, 2)}), (1, 5, {})]),  # in place
    ((2, 13, 11, 3), [(3, 8, {"stride": (2, 2), "pad": (0, 0, 1, 1)}), (3, 0, AROUND), (1, 5, {})]),
    ((1, 16, 9, 4), [(3, 5, AROUND), (1, 6, {"stride": (3, 2)}), (3, 0, HALVED)]),
    ((1, 12, 5, 4), [(3, 4, {"pad": (2, 2, 2, 2), "dilation": (2, 2), "groups": 2})]),
]


def streams(s: Collector) -> None:
    for k, (shape, chain) in enumerate(STREAMS):
        g = s.numbers("stream_i8")
        now, stages, operands = i8(*shape), [], []
        for j, (kernel, outputs, window) in enumerate(chain):
            layer = Conv2dI8Fused if outputs else DepthwiseI8Fused
            low, high = RANGES[(j + k) % 3]
            ends = {"zero": ZEROS[j % 4], "x_zero": ZEROS[(j + 1) % 4], "low": low, "high": high}
            attrs = layer.Attrs(**ends, bias=j % 2 == 0, **window)
            c, o = now.shape[3], outputs or now.shape[3]
            inner = (kernel, kernel, c // window.get("groups", 1))
            own = [g.i8(outputs, *inner) if outputs else g.i8(kernel, kernel, c)]
            own += [g.i32(o)] * attrs.bias + [np.full(o, 2.0**-9, np.float32)]
            y = layer.infer(attrs, now, *(typed(v) for v in own))
            assert isinstance(y, Type)
            now = y
            stages.append(stage_of(layer, attrs))
            operands += own
        s.add("stream_i8", g.i8(*shape), *operands, stages=tuple(stages))


def typed(array: Array) -> Type:
    return Type(next(d for d in DType if d.numpy == array.dtype), array.shape)


def widening(s: Collector) -> None:
    g = s.numbers("widen")
    s.add("widen", g.i8(5, 3, 3, 4), g.positive(5))
    s.add("widen", g.i8(3, 3, 17), g.positive(17), last=True)
    s.add("widen", g.i8(1, 1), g.positive(1))


def lookups(s: Collector) -> None:
    """All widths of indices, sizes that end within a byte, and more than one chunk of a sum."""
    for bits in range(1, 9):
        for shape in ((5, 3, 3, 7), (1,), (2, 11), (3, 5, 200)):
            g = s.numbers("lookup")
            entries = max(1, 2**bits - bits // 3)
            index = pack(g.ids(entries, *shape), bits)
            attrs: dict[str, Any] = {"shape": shape, "bits": bits}
            s.add("lookup", g.i8(entries), index, **attrs)
            s.add("lookup", g.normal(entries), index, fixed=entries // 2 - 1, **attrs)
            s.add("lookup_scaled", g.normal(entries), index, g.positive(shape[0]), **attrs)
            scale = g.positive(shape[-1])
            s.add("lookup_scaled", g.normal(entries), index, scale, last=True, **attrs)
    for bits, rows, inputs, outputs in [(1, 1, 9, 3), (4, 1, 130, 33), (5, 3, 7, 5), (8, 2, 61, 9)]:
        g = s.numbers("linear_shared")
        entries = 2**bits - bits // 3
        index = pack(g.ids(entries, outputs, inputs), bits)
        own = (g.normal(rows, inputs), g.normal(entries), index)
        s.add("linear_shared", *own, g.normal(outputs), outputs=outputs, bits=bits)
        s.add("linear_shared", *own, outputs=outputs, bits=bits, fixed=1)
