"""Inputs for every kernel: odd sizes, every attribute, corners, and a few long sums.

A sample is a node to build. Gradient operators are reached through the `vjp` of a sample, so only
operators that no gradient emits are listed. Sizes that are not multiples of a vector's width, one
that is, and one larger than a tile appear in every family.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet import ops
from whet.ir import Array, Builder, DType, Node, Op, Role, Type, Value
from whet.ops._bf16 import nearest

DTYPES = {d.numpy: d for d in DType}
REAL = (DType.F32, DType.I8, DType.I32)  # what may stand for real numbers
# operators on integers that stand for such
QUANTIZED = {"conv2d_i8", "depthwise_i8", "requantize", "add_i8", "dequantize", "avg_pool_i8"}
QUANTIZED |= {"upsample_bilinear_i8"}
REFUSED = {"attention": 3}  # the operand whose gradient an operator refuses


@dataclass(frozen=True)
class Sample:
    op: type[Op]
    ins: tuple[Array, ...]
    attrs: dict[str, Any]
    name: str

    @property
    def long(self) -> bool:
        return any(a.size > 10_000 for a in self.ins)

    def trains(self, y: Value) -> bool:
        """Whether y has a gradient: integers have one if an operator of theirs says so."""
        if self.op.name in QUANTIZED:
            return self.attrs.get("mask", True)
        return y.type.dtype is DType.F32

    def nodes(self) -> list[tuple[Node, list[Array]]]:
        """The node, then those of its gradient, each with its operands."""
        b = Builder(self.name)
        leaves: dict[int, Value] = {}  # an array that is given twice is one value
        for i, a in enumerate(self.ins):
            if id(a) not in leaves:
                kind = Type(DTYPES[a.dtype.type], a.shape)
                leaves[id(a)] = b.leaf(f"x{i}", kind, Role.INPUT)
        values = [leaves[id(a)] for a in self.ins]
        env: dict[Value, Array] = dict(zip(values, self.ins, strict=True))
        outs = b.emit_all(self.op, *values, **self.attrs)
        if self.op.vjp is not Op.vjp and self.trains(outs[0]):
            dy = b.leaf("dy", Type(DType.F32, outs[0].shape), Role.INPUT)
            env[dy] = Numbers(self.name + ".dy").normal(*dy.shape)
            refused = REFUSED.get(self.op.name)
            wants = tuple(v.type.dtype in REAL and i != refused for i, v in enumerate(values))
            self.op.vjp(b, b.nodes[0], (dy, *(None for _ in outs[1:])), wants)
        env |= {
            v: np.asarray(b.data[v.name], v.type.dtype.numpy) for v in b.leaves if v.name in b.data
        }
        found = []
        for node in b.nodes:
            arrays = [env[v] for v in node.ins]
            found.append((node, arrays))
            for value, array in zip(node.outs, reference(node, arrays), strict=True):
                env[value] = np.asarray(array, value.type.dtype.numpy, order="C")
        return found


def reference(node: Node, arrays: list[Array], real: type = np.float64) -> tuple[Array, ...]:
    """The operator's meaning, in double precision."""
    exact = [a.astype(real) if a.dtype == np.float32 else a for a in arrays]
    outs = node.op.ref(node.attrs, *exact)
    return outs if isinstance(outs, tuple) else (outs,)


class Numbers:
    """Arrays that depend on a name only."""

    def __init__(self, name: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Array:
        return (self.rng.standard_normal(shape) * scale + shift).astype(np.float32)

    def positive(self, *shape: int) -> Array:
        return self.rng.uniform(0.1, 3, shape).astype(np.float32)

    def halves(self, *shape: int) -> Array:
        """Multiples of 1/2 in [-4, 4]: many are equal, and many are corners."""
        return (self.rng.integers(-8, 9, shape) / 2).astype(np.float32)

    def ids(self, n: int, *shape: int) -> Array:
        return self.rng.integers(0, n, shape).astype(np.int32)

    def i8(self, *shape: int) -> Array:
        """All of the range, its ends more often."""
        x = np.clip(self.rng.integers(-140, 140, shape), -128, 127)
        return np.asarray(x, np.int8)

    def i32(self, *shape: int, size: int = 1000) -> Array:
        return np.asarray(self.rng.integers(-size, size + 1, shape), np.int32)

    def gradients(self, *shape: int) -> tuple[Array, Array]:
        """One of i8 and one of i16."""
        return self.i8(*shape), np.asarray(self.i32(*shape, size=2**15 - 1), np.int16)

    def bits(self, *shape: int) -> Array:
        return self.rng.integers(0, 2, shape).astype(np.uint8)


class Collector:
    """Samples, numbered by operator; `kind` tells them from those of another collector."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.samples: list[Sample] = []
        self.counts: dict[str, int] = {}

    def numbers(self, op: str) -> Numbers:
        return Numbers(f"{op}-{self.counts.get(op, 0)}")

    def add(self, op: str, *ins: Array, **attrs: Any) -> None:
        count = self.counts[op] = self.counts.get(op, 0) + 1
        self.samples.append(Sample(ops.by_name(op), ins, attrs, f"{op}-{self.kind}{count}"))


def all_samples() -> list[Sample]:
    s = Collector()
    for family in (unary, binary, reduce, linear, conv, pool, resize, norm, softmax, loss):
        family(s)
    for family in (bits, largest, live, shape, put, integer, random, update):
        family(s)
    return s.samples


def unary(s: Collector) -> None:
    attrs: dict[str, list[dict[str, float]]] = {
        "leaky_relu": [{"negative_slope": 0.2}],
        "hardtanh": [{"low": 0.0, "high": 6.0}, {"low": -1.5, "high": 0.5}],
        "clamp": [{"low": -1.0, "high": 2.5}, {"low": 0.0}, {"high": 1.0}],
        "elu": [{}, {"alpha": 1.67, "scale": 1.05}, {"alpha": 0.5, "input_scale": 2.0}],
        "softplus": [{}, {"beta": 2.0, "threshold": 3.0}],
        "huber": [{"delta": 1.5}],
        "pow": [{"exponent": e} for e in (2.0, 3.0, 0.0, -1.0)],
    }
    names = [n for n, op in Op.registry.items() if issubclass(op, ops.unary.Unary)]
    for name in names:
        for a in attrs.get(name, [{}]):
            g = s.numbers(name)
            if name in ("log", "sqrt", "rsqrt") or a.get("exponent", 0) < 0:
                s.add(name, g.positive(5, 31), **a)
            else:
                s.add(name, g.halves(7, 11), **a)
                s.add(name, g.normal(3, 97, scale=4), **a)
    s.add("pow", Numbers("pow").positive(33), exponent=0.5)


def largest(s: Collector) -> None:
    """Equals, zeros and what is not finite among the numbers."""
    g = s.numbers("pick_largest")
    odd = np.array([[np.nan, np.inf, -np.inf, 0, -0.0, 0.1, 6, -1.5, 1e-42]], np.float32)
    for x in (g.normal(3, 37), g.halves(2, 5, 4, 3), odd, np.zeros((2, 9), np.float32)):
        each = x.size // len(x)
        for keep in sorted({1, 2, each // 2, each}):
            s.add("pick_largest", x, keep=keep)
    for n, each, keep in ((1, 8, 3), (3, 37, 20), (2, 60, 60)):
        g = s.numbers("pick")
        kept = np.argsort(g.normal(n, each), axis=1)[:, :keep]
        mask = np.zeros((n, each), np.uint8)
        np.put_along_axis(mask, kept, 1, axis=1)
        bits = np.packbits(mask.reshape(-1), bitorder="little")
        s.add("pick", g.normal(n, each), bits, keep=keep)
        s.add("spread", g.normal(n, keep), bits, shape=(n, each))


def live(s: Collector) -> None:
    """Few and many live weights, none in a row, all of them, and rows that end within a byte."""
    for shape, i, o, share in (
        ((1, 3), 3, 2, 0.5), ((2, 2, 37), 37, 5, 0.1), ((8, 64), 64, 20, 0.5),
        ((5, 17), 17, 33, 1.0), ((1, 1), 1, 1, 1.0), ((3, 2100), 2100, 2, 0.9),
    ):  # fmt: skip
        g = s.numbers("linear_live")
        mask = g.rng.random((o, i)) < share
        mask[o // 2], mask[0, -1] = False, True
        mask = mask | (share == 1)
        v, bits = g.normal(int(mask.sum())), np.packbits(mask.ravel(), bitorder="little")
        s.add("linear_live", g.normal(*shape), v, bits, outputs=o)
        s.add("linear_live", g.normal(*shape), v, bits, g.normal(o), outputs=o)


def bits(s: Collector) -> None:
    """The limits occur among the numbers, and so does one that float cannot hold exactly."""
    odd = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 0.1, 6, -1.5], np.float32)
    limits = [(0.0, np.inf), (-np.inf, 0.1), (0.0, 6.0), (-1.5, 0.1), (-np.inf, np.inf)]
    for size in ((), (7,), (8,), (5, 13), (3, 97)):
        for low, high in limits:
            g = s.numbers("within_bits")
            x = g.halves(*size)
            for closed in (False, True):
                s.add("within_bits", x, low=low, high=high, closed=closed)
        dy = g.normal(*size)
        mask = np.packbits(g.bits(dy.size), bitorder="little")
        for attrs in ({}, {"inside": 1 / 6}, {"inside": 1.0, "outside": 0.01}):
            s.add("bits_dx", dy, mask, **attrs)
    for low, high in limits:
        for closed in (False, True):
            s.add("within_bits", odd, low=low, high=high, closed=closed)


def binary(s: Collector) -> None:
    shapes: list[tuple[tuple[int, ...], ...]] = [
        ((4, 37), (4, 37)),
        ((2, 3, 5, 17), (17,)),
        ((2, 3, 5, 16), (2, 1, 1, 16)),
        ((6, 1), (1, 35)),
        ((3, 1, 5), (2, 1)),
        ((), (3, 4)),
        ((1, 1), ()),
        ((2, 3, 2, 3, 2, 3, 2, 3), (2, 1, 2, 1, 2, 1, 2, 1)),
    ]
    for name in ("add", "sub", "mul", "div", "maximum", "gt", "ge", "eq", "ne"):
        for a, b in shapes:
            g = s.numbers(name)
            second = g.positive(*b) if name == "div" else g.halves(*b)
            s.add(name, g.halves(*a), second)
    for c, a, b in [
        ((4, 37), (4, 37), (4, 37)),
        ((3, 1), (3, 19), ()),
        ((5,), (2, 1, 5), (3, 1)),
        ((), (7,), (7,)),
    ]:
        g = s.numbers("where")
        s.add("where", g.bits(*c), g.normal(*a), g.normal(*b))


def reduce(s: Collector) -> None:
    cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 5, 7, 19), (0, 1, 2)),
        ((3, 5, 7, 16), (1, 2)),
        ((3, 5, 7, 21), (3,)),
        ((3, 5, 7, 4), (0, 3)),
        ((3, 5, 7, 4), (1, 3)),
        ((3, 5, 7, 4), (0, 2)),
        ((3, 5, 7, 4), (0, 1, 2, 3)),
        ((6, 1, 9), (1,)),
        ((6, 9), ()),
        ((1, 1), (0,)),
        ((13,), (0,)),
        ((300, 33), (0,)),
        ((2, 3, 2, 3, 2, 3, 2, 3), (0, 2, 4, 6)),
    ]
    for name in ("sum", "mean", "amax", "norm"):
        for size, axes in cases:
            g = s.numbers(name)
            s.add(name, g.halves(*size) if name == "amax" else g.normal(*size), axes=axes)
    for size, axes in [((100_003,), (0,)), ((50_001, 3), (0,)), ((3, 50_001), (1,))]:
        for name in ("sum", "mean", "norm"):
            s.add(name, s.numbers(name).positive(*size), axes=axes)
    s.add("sum", np.full(2**20, 0.1, np.float32), axes=(0,))
    s.add("norm", np.zeros((4, 3), np.float32), axes=(1,))
    for small, large in [
        ((1, 5), (4, 5)),
        ((4, 1), (4, 33)),
        ((1,), (2, 3)),
        ((2, 1, 3), (2, 4, 3)),
    ]:
        s.add("expand", s.numbers("expand").normal(*small), shape=large, scale=0.25)


def linear(s: Collector) -> None:
    for rows, i, o in [(1, 130, 33), (3, 7, 5), (4, 16, 16), (9, 65, 24), (150, 12, 37), (2, 1, 1)]:
        g = s.numbers("linear")
        s.add("linear", g.normal(rows, i), g.normal(o, i), g.normal(o))
    for rows, i, o in [(6, 40, 9), (13, 300, 21), (16, 16, 8), (17, 33, 40), (24, 48, 64)]:
        g = s.numbers("linear")  # few rows, of which each number has its way
        s.add("linear", g.normal(rows, i), g.normal(o, i))
    g = s.numbers("linear")
    s.add("linear", g.normal(2, 3, 5), g.normal(4, 5))
    s.add("linear", g.normal(5), g.normal(4, 5))
    s.add("linear", g.positive(50_001, 3), g.normal(2, 3), g.normal(2))
    for ta in (False, True):
        for tb in (False, True):
            for m, k, n in [(5, 70, 18), (1, 3, 2)]:
                g = s.numbers("bmm")
                a = g.normal(3, k, m) if ta else g.normal(3, m, k)
                b = g.normal(3, n, k) if tb else g.normal(3, k, n)
                s.add("bmm", a, b, ta=ta, tb=tb)


# n, h, w, c, o, kernel, then the window
WINDOWS: list[tuple[int, int, int, int, int, tuple[int, int], dict[str, Any]]] = [
    (2, 5, 6, 3, 8, (3, 3), {"pad": (1, 1, 1, 1)}),
    (1, 7, 7, 16, 24, (1, 1), {}),
    (2, 7, 9, 5, 7, (1, 1), {"stride": (2, 2)}),
    (1, 4, 5, 2, 3, (1, 1), {"pad": (1, 0, 0, 1)}),
    (1, 9, 8, 17, 19, (3, 2), {"stride": (2, 3), "pad": (0, 1, 2, 0)}),
    (2, 9, 9, 4, 6, (3, 3), {"dilation": (2, 3), "pad": (2, 3, 2, 3)}),
    (1, 2, 3, 3, 4, (5, 5), {"pad": (3, 4, 3, 4)}),
    (1, 1, 11, 70, 33, (1, 4), {"stride": (1, 2)}),
    (1, 3, 3, 2, 2, (2, 2), {"stride": (3, 3), "pad": (2, 2, 2, 2), "dilation": (3, 3)}),
]

# For Winograd's method: sizes that tiles of 2x2 divide and do not, more tiles than it handles at a
# time; n, h, w, c, o, padding.
TILED = [(1, 8, 8, 16, 16, 1), (2, 7, 5, 3, 20, 1), (1, 6, 6, 24, 40, 0), (1, 5, 9, 17, 8, 2),
         (1, 29, 30, 18, 17, 1)]  # fmt: skip


def conv(s: Collector) -> None:
    for n, h, w, c, o, kernel, window in WINDOWS:
        g = s.numbers("conv2d")
        s.add("conv2d", g.normal(n, h, w, c), g.normal(o, *kernel, c), g.normal(o), **window)
        g = s.numbers("depthwise")
        s.add("depthwise", g.normal(n, h, w, c), g.normal(*kernel, c), g.normal(c), **window)
        s.add("conv2d_dx", *_transposed(n, h, w, c, o, kernel, window), size=(h, w), **window)
    for groups, c, o in [(2, 6, 4), (3, 3, 51), (4, 4, 4)]:
        g = s.numbers("conv2d")
        window = {"pad": (1, 1, 1, 1), "stride": (1, 2), "groups": groups}
        s.add("conv2d", g.normal(1, 5, 6, c), g.normal(o, 3, 3, c // groups), **window)
    s.add("depthwise", g.normal(1, 4, 4, 32), g.normal(3, 3, 32), pad=(1, 1, 1, 1))
    larger_windows(s)
    for n, h, w, c, o, pad in TILED:
        g = s.numbers("conv2d")
        s.add("conv2d", g.normal(n, h, w, c), g.normal(o, 3, 3, c), pad=(pad,) * 4, winograd=True)


def larger_windows(s: Collector) -> None:
    """Enough pixels, channels, rows and taps for every way that kernels with vectors have."""
    around: dict[str, Any] = {"pad": (1, 1, 1, 1)}
    halved: dict[str, Any] = {"pad": (2, 2, 2, 2), "stride": (2, 2)}
    for n, h, w, c, o, kernel, window in [
        (1, 21, 20, 40, 72, (3, 3), around),  # more rows than share a panel
        (1, 6, 7, 300, 20, (1, 1), {}),  # more products than are summed at a time
        (1, 9, 9, 280, 12, (3, 3), halved),
        (2, 11, 12, 24, 40, (3, 3), {"stride": (2, 1)}),  # taps of a row side by side
        (1, 36, 37, 3, 4, (33, 33), {"pad": (2, 2, 2, 2)}),  # more taps than are summed at once
        (1, 2, 1030, 2, 3, (2, 1027), {"pad": (1, 3, 1, 3)}),  # and than that in one row
    ]:
        g = s.numbers("conv2d")
        s.add("conv2d", g.normal(n, h, w, c), g.normal(o, *kernel, c), g.normal(o), **window)
    for n, h, w, c, kernel, window in [
        (2, 33, 20, 72, (3, 3), around),  # so many rows that sums are made part by part
        (1, 20, 30, 24, (5, 5), halved),
        (1, 16, 16, 48, (7, 7), {"pad": (3, 3, 3, 3)}),
        (1, 66, 13, 88, (3, 3), halved),
        (1, 13, 14, 20, (9, 7), {}),  # more taps than weights are kept at hand
        (1, 3, 20, 9, (1, 9), {}),
        (1, 3, 20, 17, (2, 11), {"pad": (0, 5, 1, 5)}),
    ]:
        g = s.numbers("depthwise")
        s.add("depthwise", g.normal(n, h, w, c), g.normal(*kernel, c), **window)


def _transposed(
    n: int, h: int, w: int, c: int, o: int, kernel: tuple[int, int], window: dict[str, Any]
) -> tuple[Array, Array]:
    """Operands of conv2d_dx used on its own, as a transposed convolution."""
    out = ops.conv.Window(**window).output((h, w), kernel)
    g = Numbers(f"transposed-{n}{h}{w}{c}{o}")
    return g.normal(n, *out, o), g.normal(o, *kernel, c)


def pool(s: Collector) -> None:
    windows: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 6, 7, 5), dict(out=(3, 3), kernel=(2, 2), stride=(2, 2))),
        ((1, 7, 7, 17), dict(out=(4, 4), kernel=(3, 3), stride=(2, 2), pad=(1, 1))),
        # the last windows hang over the far edge: ceil_mode
        ((1, 6, 7, 3), dict(out=(3, 4), kernel=(3, 3), stride=(2, 2), pad=(0, 1))),
        ((1, 8, 8, 16), dict(out=(4, 4), kernel=(5, 3), stride=(2, 2), pad=(1, 1))),
        ((2, 7, 5, 3), dict(out=(3, 2), adaptive=True)),
        ((1, 3, 4, 2), dict(out=(5, 6), adaptive=True)),
        ((1, 20, 21, 3), dict(out=(1, 1), adaptive=True)),
        ((1, 18, 19, 2), dict(out=(2, 2), kernel=(17, 17), stride=(1, 2))),
    ]
    windows += [  # whole vectors of channels, and indices of which they fill whole bytes
        ((2, 6, 8, 32), dict(out=(3, 4), kernel=(2, 2), stride=(2, 2))),
        ((2, 9, 8, 16), dict(out=(5, 4), kernel=(3, 3), stride=(2, 2), pad=(1, 1))),
        ((1, 7, 5, 48), dict(out=(3, 2), adaptive=True)),
    ]
    for size, window in windows:
        g = s.numbers("max_pool2d")
        s.add("max_pool2d", g.halves(*size), **window)
        for more in ({}, {"count_pad": False}, {"divisor": 3}):
            g = s.numbers("avg_pool2d")
            s.add("avg_pool2d", g.normal(*size), **window, **more)
    dilated = dict(out=(2, 3), kernel=(3, 2), stride=(2, 2), pad=(1, 1), dilation=(2, 3))
    for channels in (5, 16):
        x = s.numbers("max_pool2d").halves(2, 7, 8, channels)
        s.add("max_pool2d", x, **dilated)
        x[0, 2:5, 3, ::2] = np.nan
        s.add("max_pool2d", x, **dilated)
    # indices of 1 bit, of 5 and of 9, which straddle bytes
    for kernel in ((1, 1), (2, 1), (5, 5), (13, 23)):
        x = s.numbers("max_pool2d").normal(3, 14, 25, 3)
        s.add("max_pool2d", x, out=(2, 2), kernel=kernel)


def resize(s: Collector) -> None:
    for (h, w), (p, q) in [((3, 4), (6, 8)), ((5, 3), (7, 7)), ((6, 7), (4, 3)), ((1, 2), (5, 1))]:
        g = s.numbers("upsample_nearest")
        s.add("upsample_nearest", g.normal(2, h, w, 5), out=(p, q), step=(h / p, w / q))
        corners = tuple((i - 1) / (k - 1) if k > 1 else 0.0 for i, k in ((h, p), (w, q)))
        for align, step in ((False, (h / p, w / q)), (True, corners)):
            g = s.numbers("upsample_bilinear")
            attrs = dict(out=(p, q), step=step, align_corners=align)
            s.add("upsample_bilinear", g.normal(2, h, w, 5), **attrs)


def norm(s: Collector) -> None:
    for size in [(2, 3, 5, 16), (4, 5), (1, 7, 35), (500, 3)]:
        c = size[-1]
        g = s.numbers("batch_norm")
        x, w, b = g.normal(*size, shift=3), g.normal(c), g.normal(c)
        s.add("batch_norm", x, w, b, g.normal(c), g.positive(c), eps=1e-3)
        s.add("batch_norm_train", x, w, b)
        s.add("batch_norm_train", x, w, b, low=-0.5, high=0.75)
        s.add("batch_norm_clipped", x, w, b, g.normal(c), g.positive(c), low=-0.5, high=0.75)
        for groups in (1, 2, 5, c):
            if c % groups == 0 and x.size > x.shape[0] * groups:  # one element has no variance
                s.add("group_norm", x, w, b, groups=groups)
    g = s.numbers("batch_norm_train")
    # Parts of rows, rows that are folded, blocks and kinds of columns, and much data.
    for rows, c in [(700, 40), (33, 280), (4096, 8), (2001, 12), (2050, 130)]:
        s.add("batch_norm_train", g.normal(rows, c, shift=2), g.normal(c), g.normal(c), low=0.0)
    s.add("batch_norm_train", g.normal(100_003, 2, shift=5), g.normal(2), g.normal(2))
    s.add("group_norm", g.normal(1, 25_001, 4, shift=5), g.normal(4), g.normal(4), groups=2)
    s.add("group_norm", g.normal(3, 770, shift=5), g.normal(770), g.normal(770))


def softmax(s: Collector) -> None:
    for name in ("softmax", "log_softmax"):
        for size, axis in [((3, 7), 1), ((2, 5, 6), 1), ((4, 3), 0), ((2, 1), 1), ((2, 20_001), 1)]:
            s.add(name, s.numbers(name).normal(*size, scale=3), axis=axis)
        s.add(name, np.array([[1e4, -1e4, 1e4], [-3e38, -3e38, -2e38]], np.float32), axis=1)


def loss(s: Collector) -> None:
    for size in [(5, 7), (2, 3, 11), (1, 2), (4099, 3)]:
        for weighted in (False, True):
            for mean in (False, True):
                g = Numbers(f"loss{size}{weighted}{mean}")
                x, labels = g.normal(*size, scale=3), g.ids(size[-1], *size[:-1])
                labels[g.rng.random(labels.shape) < 0.2] = -7
                weight = (g.positive(size[-1]),) if weighted else ()
                attrs = dict(ignore_index=-7, mean=mean)
                s.add("nll_loss", x, labels, *weight, **attrs)
                s.add("cross_entropy", x, labels, *weight, **attrs)
                s.add("cross_entropy", x, labels, *weight, **attrs, smoothing=0.1)
    g = Numbers("bce")
    s.add("bce", g.rng.random((7, 11), np.float32), g.rng.random((7, 11), np.float32))
    g = Numbers("nobody counts")
    ignored = np.full(3, -100, np.int32)
    s.add("nll_loss", g.normal(3, 4), ignored)
    s.add("cross_entropy", g.normal(3, 4), ignored, smoothing=0.1)


def shape(s: Collector) -> None:
    g = Numbers("shape")
    s.add("reshape", g.normal(2, 3, 4), shape=(6, 4))
    s.add("detach", g.normal(2, 3))
    for perm in [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 1, 2, 3), (1, 0, 2, 3)]:
        s.add("transpose", g.normal(2, 3, 5, 4), perm=perm)
    s.add("transpose", g.normal(1, 6, 1, 5), perm=(3, 0, 1, 2))
    s.add("transpose", g.ids(9, 4, 5), perm=(1, 0))
    s.add("transpose", g.bits(4, 5), perm=(1, 0))
    for axis, start, stop, step in [(0, 1, 3, 1), (1, 0, 5, 2), (2, 3, 19, 5), (2, 0, 19, 1)]:
        s.add("slice", g.normal(4, 6, 19), axis=axis, start=start, stop=stop, step=step)
    s.add("slice", g.bits(3, 8), axis=1, start=2, stop=7, step=2)
    for axis in (0, 1, 2):
        parts = [tuple(n if i == axis else k for i, k in enumerate((2, 3, 5))) for n in (1, 4, 2)]
        s.add("concat", *(g.normal(*p) for p in parts), axis=axis)
    s.add("concat", g.bits(3, 2), g.bits(3, 5), axis=1)
    s.add("pad", g.normal(2, 3, 4), low=(0, 1, 2), high=(1, 0, 3), value=-1.5)
    s.add("pad", g.normal(2, 3, 1), low=(0, 0, 1), high=(0, 0, 2))
    s.add("pad", g.normal(4), low=(0,), high=(0,))
    for axis, index in [(0, (4,)), (1, (2, 3)), (2, ()), (0, (30,))]:
        size = (5, 6, 7)
        s.add("take", g.normal(*size), g.ids(size[axis], *index), axis=axis, skip=1)
    # gradients that a model may contain as operators of their own, with gradients in turn
    s.add("take_dx", g.normal(2, 3, 4, 7), g.ids(5, 3, 4), axis=1, size=5)
    s.add("take_dx", g.i32(2, 3, 4), g.ids(5, 3), axis=1, size=5, skip=1)
    s.add("slice_dx", g.normal(2, 3, 7), axis=1, start=1, step=2, size=7)


def put(s: Collector) -> None:
    """More indices than places, so that some repeat; ranges at either end, of all and of one."""
    size = (5, 6, 7)
    for axis, index in [(0, (4,)), (1, (2, 3)), (2, ()), (0, (30,)), (2, (9,))]:
        part = (*size[:axis], *index, *size[axis + 1 :])
        g = s.numbers("put_add")
        s.add("put_add", g.normal(*size), g.normal(*part), g.ids(size[axis], *index), axis=axis)
    for axis, start, count in [(0, 0, 2), (0, 4, 1), (1, 2, 3), (1, 0, 6), (2, 3, 4), (2, 6, 1)]:
        part = (*size[:axis], count, *size[axis + 1 :])
        g = s.numbers("slice_add")
        s.add("slice_add", g.normal(*size), g.normal(*part), axis=axis, start=start)
    s.add("slice_add", g.normal(1), g.normal(1))


def integer(s: Collector) -> None:
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((4, 37), (4, 37)),
        ((2, 3, 5), (5,)),
        ((6, 1), (1, 35)),
        ((), (3, 4)),
    ]
    for a, b in pairs:
        g = s.numbers(f"integer{a}")
        for name in ("add", "sub", "mul", "gt", "ge", "eq", "ne"):
            s.add(name, g.ids(5, *a) - np.int32(2), g.ids(5, *b) - np.int32(2))
        s.add("where", g.bits(*a), g.ids(9, *b), g.ids(9))
        s.add("and", g.bits(*a), g.bits(*b))
        s.add("or", g.bits(*a), g.bits(*b))
        s.add("not", g.bits(*a))
    far = np.array([2**31 - 1, -(2**31), 65536, -7], np.int32)
    for name in ("add", "sub", "mul"):
        s.add(name, far, far[::-1].copy())
    g = Numbers("integer")
    s.add("cast", g.bits(3, 7), to="i32")
    s.add("cast", g.ids(2**24, 33), to="f32")
    odd = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.0**31, -(2.0**31), 1.9], np.float32)
    s.add("cast", np.concatenate([odd, g.normal(25, scale=9)]), to="i32")
    for name in ("argmax", "cumsum"):
        for axis in (0, 1, 2):
            s.add(name, g.halves(4, 5, 19), axis=axis)
    s.add("argmax", np.array([1, np.nan, 5, np.nan], np.float32))
    s.add("cumsum", g.normal(3, 33), axis=1, reverse=True)
    for axis, count in [(0, 2), (1, 9), (2, 1)]:
        size = [4, 5, 7]
        index = [*size[:axis], count, *size[axis + 1 :]]
        s.add("take_along", g.normal(*size), g.ids(size[axis], *index), axis=axis)
    for of in (g.ids(9, 3, 1, 5), g.bits(1, 4, 1)):
        s.add("expand", of, shape=(3, 4, 5))


def random(s: Collector) -> None:
    for size, p, site, rng in [
        ((3, 7), 0.5, 0, (1, 0)),
        ((1001,), 0.1, 5, (-3, 2**31 - 1)),
        ((16,), 0.0, 1, (7, 8)),
        ((9,), 1.0, 2, (7, 8)),
    ]:
        state = np.array(rng, np.int32)
        s.add("dropout", s.numbers("dropout").normal(*size), state, p=p, site=site)
        s.add("uniform", state, shape=size, site=site)
    s.add("rng_next", np.array([-5, 41], np.int32))


def rmsprop_cases(v: Array, m: Array) -> list[tuple[dict[str, Any], list[Array]]]:
    """Attributes, and the moments they need; m^2 is above v in places, as rounding can make it."""
    plain, centered = dict(alpha=0.9), dict(alpha=0.9, centered=True)
    return [
        (plain, [v]), (plain | dict(momentum=0.8), [v, m]), (centered, [v, m]),
        (centered | dict(momentum=0.8, eps=1e-3), [v, m, m / 2]),
    ]  # fmt: skip


def update(s: Collector) -> None:
    lr = np.float32(0.05).reshape(())
    for size in ((3, 7), (64,), ()):
        g = Numbers(f"update{size}")
        w, grad, m, v = g.normal(*size), g.normal(*size), g.normal(*size), g.positive(*size)
        some = dict(lr_scale=0.5, weight_decay=0.01)
        for attrs in ({}, some):
            s.add("sgd", w, grad, lr, **attrs)
            for nesterov in (False, True):
                s.add("sgd_momentum", w, grad, m, lr, **attrs, momentum=0.8, nesterov=nesterov)
            for decoupled in (False, True):
                for t in (1, 7, 10_000):
                    step = np.float32(t).reshape(())
                    s.add("adam", w, grad, m, v, step, lr, **attrs, decoupled=decoupled)
                    halves = nearest(m), nearest(v)
                    own = attrs | dict(decoupled=decoupled, narrow=True)
                    s.add("adam", w, grad, *halves, step, lr, **own)
            for more, moments in rmsprop_cases(v, m):
                s.add("rmsprop", w, grad, *moments, lr, **attrs, **more)
        s.add("ema", v, grad, momentum=0.1, correction=1.25)
        s.add("sum_squares", w)
        s.add("clip_scale", np.asarray(g.positive()), limit=0.7)
        s.add("clip_scale", np.float32(0).reshape(()), limit=0.7)
    s.add("count_step", np.float32(3).reshape(()))
    s.add("sum_squares", Numbers("long").normal(100_003))
    s.add("fill", shape=(3, 5), value=-0.75)
    s.add("fill", shape=(), value=2.0)
