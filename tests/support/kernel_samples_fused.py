"""Inputs for the kernels that do the work of several: fused layers, fused updates, streams."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from kernel_samples import TILED, WINDOWS, Collector, Numbers, Sample, rmsprop_cases
from whet.ir import Array, Type, f32
from whet.ops._bf16 import nearest
from whet.ops.conv import Conv2d
from whet.ops.fused import Conv2dFused, DepthwiseFused, FusedLayer, LinearFused
from whet.ops.stream import stage_of

LIMITS = ((-math.inf, math.inf), (0.0, math.inf), (-math.inf, 0.5), (-1.0, 1.5))


def fused_samples() -> list[Sample]:
    s = Collector()
    for family in (layers, winograd, updates, heads, streams):
        family(s)
    return s.samples


def result_type(op: type[FusedLayer], a: Any, x: Type, w: Type) -> Type:
    y = op.fuses.infer(op.inner(a), x, w)
    assert isinstance(y, Type)
    return y


def layers(s: Collector) -> None:
    """Every window with and without bias and addend, and every pair of limits in turn."""
    g = Numbers("fused layers")
    for n, h, w, c, o, kernel, window in WINDOWS:
        x = g.normal(n, h, w, c)
        add_layer(s, Conv2dFused, x, g.normal(o, *kernel, c), **window)
        add_layer(s, DepthwiseFused, x, g.normal(*kernel, c), **window)
    for rows, i, o in [(20, 19, 24), (400, 9, 16), (5, 33, 40), (2, 5, 72)]:  # bits by chunk or all
        add_layer(s, Conv2dFused, g.normal(1, 1, rows, i), g.normal(o, 1, 1, i))
    for groups, c, o in [(2, 6, 4), (3, 3, 51)]:
        window = {"pad": (1, 1, 1, 1), "stride": (1, 2), "groups": groups}
        add_layer(s, Conv2dFused, g.normal(1, 5, 6, c), g.normal(o, 3, 3, c // groups), **window)
    for rows, i, o in [((1,), 130, 33), ((3,), 7, 5), ((2, 5), 65, 24), ((), 5, 4)]:
        add_layer(s, LinearFused, g.normal(*rows, i), g.normal(o, i))


def add_layer(s: Collector, op: type[FusedLayer], x: Array, w: Array, **window: Any) -> None:
    for k, (bias, add) in enumerate([(False, False), (False, True), (True, False), (True, True)]):
        for low, high in (LIMITS[k], LIMITS[(k + s.counts.get(op.name, 0)) % 4]):
            g = s.numbers(op.name)
            a: Any = op.Attrs(bias=bias, add=add, low=low, high=high, **window)
            y = result_type(op, a, f32(*x.shape), f32(*w.shape))
            extras = [g.normal(y.shape[-1])] * bias + [g.normal(*y.shape)] * add
            s.add(op.name, x, w, *extras, **asdict(a))
            if op is not LinearFused and not window.get("winograd") and bias == add:
                s.add(op.name, x, w, *extras, **asdict(a) | {"mask": True})


def winograd(s: Collector) -> None:
    g = Numbers("winograd")
    for n, h, w, c, o, pad in TILED:
        window: dict[str, Any] = {"pad": (pad,) * 4, "winograd": True}
        add_layer(s, Conv2dFused, g.normal(n, h, w, c), g.normal(o, 3, 3, c), **window)


def updates(s: Collector) -> None:
    """Weights of one block of gradient and of several, a block being at most 2048 floats."""
    g = Numbers("fused updates")
    for n, h, w, c, o, kernel, window in [
        (2, 5, 6, 3, 8, (3, 3), {"pad": (1, 1, 1, 1)}),
        (1, 9, 8, 17, 19, (3, 2), {"stride": (2, 3), "pad": (0, 1, 2, 0)}),
        (1, 7, 7, 8, 25, (3, 3), {"dilation": (2, 2)}),
        (1, 5, 5, 10, 25, (3, 3), {}),  # blocks of 22 and 3 outputs
        (2, 4, 3, 48, 96, (1, 1), {}),  # of 42, 42 and 12, as one matrix product each
        (1, 4, 4, 38, 60, (3, 3), {"pad": (1, 1, 1, 1), "groups": 2}),  # of 11, groups of 30
        (1, 5, 3, 24, 60, (3, 3), {"stride": (2, 1), "groups": 4}),  # of 37, groups of 15
        (1, 3, 3, 256, 3, (3, 3), {"pad": (1, 1, 1, 1)}),  # a single output is a larger block
    ]:
        out = Conv2d.Attrs(**window).output((h, w), kernel)
        weight = g.normal(o, *kernel, c // window.get("groups", 1))
        add_updates(s, weight, g.normal(n, *out, o), g.normal(n, h, w, c), kernel=kernel, **window)
    for rows, i, o in [((3,), 7, 5), ((1,), 70, 64), ((2, 5), 130, 33), ((), 5, 4)]:
        add_updates(s, g.normal(o, i), g.normal(*rows, o), g.normal(*rows, i))
    for n, width, ids, skip in [
        (7, 5, [3], -1),
        (70, 33, [[0, 69, 5], [5, 5, 1]], 1),
        (2100, 1, [7, 2099, 7], -1),
    ]:
        add_take_updates(s, n, width, np.array(ids, np.int32), skip)
    for rows, i, o, share in [((3,), 7, 5, 0.5), ((2, 5), 130, 33, 0.6), ((1,), 64, 64, 1.0)]:
        live = g.rng.random(o * i) < share  # none, one, or two blocks
        ins = g.normal(*rows, o), g.normal(*rows, i), np.packbits(live, bitorder="little")
        add_live_updates(s, g.normal(int(live.sum())), *ins)


def add_updates(s: Collector, w: Array, dy: Array, x: Array, **window: Any) -> None:
    g = s.numbers("dw_adam")
    lr, t = np.float32(0.05).reshape(()), np.float32(7).reshape(())
    m, v = g.normal(*w.shape), g.positive(*w.shape)
    attrs = dict(lr_scale=0.5, weight_decay=0.01) | window
    s.add("dw_sgd", w, dy, x, lr, **attrs)
    s.add("dw_sgd_momentum", w, dy, x, m, lr, **attrs, momentum=0.8, nesterov=True)
    s.add("dw_adam", w, dy, x, m, v, t, lr, **attrs, decoupled=True)
    halves = nearest(m), nearest(v)
    for decoupled in (False, True):
        s.add("dw_adam", w, dy, x, *halves, t, lr, **attrs, decoupled=decoupled, narrow=True)
    for more, moments in rmsprop_cases(v, m):
        s.add("dw_rmsprop", w, dy, x, *moments, lr, **attrs, **more)


def add_take_updates(s: Collector, n: int, width: int, ids: Array, skip: int) -> None:
    g = s.numbers("take_adam")
    lr, t = np.float32(0.05).reshape(()), np.float32(7).reshape(())
    m, v = g.normal(n, width), g.positive(n, width)
    ins = g.normal(n, width), g.normal(*ids.shape, width), ids
    attrs = dict(axis=0, size=n, skip=skip, lr_scale=0.5, weight_decay=0.01)
    s.add("take_adam", *ins, m, v, t, lr, **attrs, decoupled=True)
    halves = nearest(m), nearest(v)
    for decoupled in (False, True):
        s.add("take_adam", *ins, *halves, t, lr, **attrs, decoupled=decoupled, narrow=True)


def add_live_updates(s: Collector, w: Array, *ins: Array) -> None:
    g = s.numbers("live_adam")
    lr, t = np.float32(0.05).reshape(()), np.float32(7).reshape(())
    m, v = g.normal(*w.shape), g.positive(*w.shape)
    attrs = dict(lr_scale=0.5, weight_decay=0.01)
    s.add("live_sgd", w, *ins, lr, **attrs)
    s.add("live_sgd_momentum", w, *ins, m, lr, **attrs, momentum=0.8, nesterov=True)
    s.add("live_adam", w, *ins, m, v, t, lr, **attrs, decoupled=True)
    for more, moments in rmsprop_cases(v, m):
        s.add("live_rmsprop", w, *ins, *moments, lr, **attrs, **more)


def heads(s: Collector) -> None:
    """Blocks of rows and classes that fit and that do not, and every choice of gradients."""
    wanted: list[dict[str, bool]] = [
        {"dx": True},
        {},
        {"dx": True, "dw": True},
        {"dw": True},
        {"dx": True, "bias": True},
        {"dx": True, "dw": True, "db": True, "bias": True},
        {"db": True, "bias": True},
    ]
    blocks = [(0, 0), (3, 7), (4, 16), (5, 64), (1, 1), (0, 33)]
    for k, (n, i, o) in enumerate([((9,), 7, 21), ((2, 6), 65, 70), ((1,), 33, 40), ((), 5, 4)]):
        for j, choice in enumerate(wanted):
            rows, classes = blocks[(j + k) % len(blocks)]
            share = (0.4, 0.0, 0.9)[(j + k) % 3]
            add_head(s, n, i, o, share, mean=(j + k) % 2 == 0, rows=rows, classes=classes, **choice)
    add_head(s, (6,), 5, 40, 1.0, dx=True, dw=True, db=True, bias=True)  # nobody counts
    add_head(s, (6,), 5, 40, 1.0, dx=True, mean=False)
    add_head(s, (40,), 24, 300, 0.2, scale=3, dx=True, dw=True, classes=32)  # sure of themselves
    add_head(s, (300,), 9, 70, 0.02, dx=True)  # more rows than are taken at a time
    add_head(s, (3,), 5, 270, 0.3, dx=True, dw=True)  # and classes


def add_head(
    s: Collector, n: tuple[int, ...], i: int, o: int, ignored: float, scale: float = 0.3,
    **attrs: Any,
) -> None:  # fmt: skip
    g = s.numbers("linear_cross_entropy")
    labels = g.ids(o, *n)
    labels[...] = np.where(g.rng.random(n) < ignored, -7, labels)
    bias = g.normal(o)
    bias[: o // 3] = -np.inf  # classes that are ruled out, more than a block of them
    labels[...] = np.where((labels >= 0) & (labels < o // 3), o - 1, labels)
    own = [bias] * attrs.get("bias", False)
    x, w = g.normal(*n, i, scale=scale), g.normal(o, i)
    s.add("linear_cross_entropy", x, w, *own, labels, ignore_index=-7, **attrs)


Layer = tuple[int | None, tuple[int, int], int, dict[str, Any]]


def full(o: int, k: int = 1, limits: int = 0, **attrs: Any) -> Layer:
    return o, (k, k), limits, attrs


def depthwise(k: int, limits: int = 0, **attrs: Any) -> Layer:
    return None, (k, k), limits, attrs


def same(k: int, dilation: int = 1) -> dict[str, Any]:
    """The padding that keeps the size of an image."""
    return {"pad": (dilation * (k - 1) // 2,) * 4, "dilation": (dilation, dilation)}


# Of every stream: the image, then its layers. Images are at least 4 pixels wide, see the kernel.
STREAMS: list[tuple[tuple[int, int, int, int], list[Layer]]] = [
    # a bottleneck, and with the residual that lets it be made in place
    ((1, 9, 8, 6), [full(12, limits=3, bias=True), depthwise(3, **same(3)), full(4, bias=True)]),
    ((3, 7, 6, 5), [full(9, limits=1), depthwise(3, limits=1, **same(3)), full(5, add=True)]),
    (
        (2, 7, 6, 5),
        [
            full(9),
            depthwise(5, bias=True, **same(5)),
            depthwise(7, limits=2, **same(7)),
            full(5, add=True, bias=True, limits=1),
        ],
    ),
    ((2, 7, 6, 3), [full(3, add=True), full(3, 3, add=True, **same(3, 2))]),
    ((1, 5, 4, 3), [full(7), full(3, 3, pad=(2, 1, 0, 1))]),
    ((1, 5, 4, 3), [full(7), full(3, 3, pad=(0, 1, 2, 1))]),
    # strides, asymmetric padding, a window that moves further than it is high
    (
        (2, 13, 11, 3),
        [full(8, 3, stride=(2, 2), pad=(0, 0, 1, 1)), depthwise(3, **same(3)), full(5)],
    ),
    ((1, 16, 9, 4), [full(5, 3, **same(3)), full(6, 1, stride=(3, 2)), depthwise(3, **same(3))]),
    ((3, 11, 9, 4), [full(5, 2, pad=(1, 0, 0, 1)), full(4, 2, stride=(4, 1)), depthwise(2)]),
    ((1, 9, 7, 4), [full(6, 3, add=True, **same(3, 2)), depthwise(3, add=True, **same(3, 2))]),
    # images with fewer rows than the window, and windows that see no row of the image
    (
        (3, 2, 5, 4),
        [full(4, 7, **same(7)), depthwise(5, add=True, **same(5)), full(4, 3, **same(3))],
    ),
    ((2, 1, 6, 3), [full(4, 3, **same(3)), full(5, pad=(2, 0, 2, 0)), depthwise(3, **same(3, 2))]),
    ((1, 3, 5, 4), [full(4), full(5, 2, pad=(4, 4, 4, 4), stride=(2, 2)), depthwise(3, **same(3))]),
    ((2, 5, 4, 2), [full(3), depthwise(2, pad=(4, 0, 4, 0), stride=(3, 1)), full(2, 3, **same(3))]),
    # as high as its operand, but its first row is made before that of the operand is read
    ((1, 4, 4, 3), [full(6), full(3, 2, stride=(2, 2), pad=(2, 2, 2, 2))]),
    # groups; sums longer than a tile; six layers; one layer
    ((1, 8, 6, 6), [full(8, 3, groups=2, bias=True, **same(3)), full(12, 3, groups=4)]),
    ((1, 6, 5, 70), [full(33, 3, **same(3)), full(20), full(70, add=True)]),
    (
        (2, 15, 8, 3),
        [
            full(16, 3, limits=3, bias=True, stride=(2, 2), pad=(1, 1, 1, 1)),
            depthwise(3, limits=3, bias=True, **same(3)),
            full(20, bias=True),
            full(40, limits=3),
            depthwise(5, limits=3, stride=(2, 1), pad=(2, 2, 2, 2)),
            full(18, add=True),
        ],
    ),
    ((2, 5, 6, 3), [full(8, 3, bias=True, add=True, limits=1, **same(3))]),
    ((1, 6, 5, 20), [full(20, add=True)]),
]


def streams(s: Collector) -> None:
    for shape, chain in STREAMS:
        add_stream(s, shape, chain)
    # 1x1 layers of narrow images, which round as a row of them does
    add_stream(s, (2, 6, 3, 5), [full(7), depthwise(3, **same(3)), full(5, add=True)])
    add_stream(s, (1, 6, 1, 5), [full(7, pad=(1, 0, 0, 0)), full(4, 3, **same(3))])


def add_stream(s: Collector, shape: tuple[int, ...], chain: list[Layer]) -> None:
    """An addend that can be the first operand is: the block is a residual one."""
    g = s.numbers("stream")
    x = g.normal(*shape)
    now, stages, operands = f32(*shape), [], []
    for outputs, kernel, limits, attrs in chain:
        low, high = LIMITS[limits]
        op = DepthwiseFused if outputs is None else Conv2dFused
        a: Any = op.Attrs(low=low, high=high, **attrs)
        c = now.shape[3]
        w = g.normal(*kernel, c) if outputs is None else g.normal(outputs, *kernel, c // a.groups)
        now = result_type(op, a, now, f32(*w.shape))
        operands += [w] + [g.normal(now.shape[3])] * a.bias
        operands += [x if now.shape == shape else g.normal(*now.shape)] * a.add
        stages.append(stage_of(op, a))
    s.add("stream", x, *operands, stages=tuple(stages))
