"""Convolutions on NHWC activations: grouped (weights OHWI) and depthwise (weights HWC)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from ..ir import (
    Arg,
    Array,
    Attributes,
    Builder,
    Call,
    Grads,
    Layer,
    Node,
    Op,
    Struct,
    Type,
    Value,
    Workspace,
)
from . import _exact
from ._common import d, require, require_f32
from .linear import sum_rows


class Window(Attributes):
    """How a kernel window moves: stride, zero padding (top, left, bottom, right), dilation."""

    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def reach(self, kernel: tuple[int, ...]) -> tuple[int, int]:
        return (
            self.dilation[0] * (kernel[0] - 1) + 1,
            self.dilation[1] * (kernel[1] - 1) + 1,
        )

    def output(self, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, int]:
        reach = self.reach(kernel)
        h = (size[0] + self.pad[0] + self.pad[2] - reach[0]) // self.stride[0] + 1
        w = (size[1] + self.pad[1] + self.pad[3] - reach[1]) // self.stride[1] + 1
        require(h > 0 and w > 0, f"a {kernel} window does not fit into {size}")
        return h, w


def conv_struct(x: Type, y: Type, kernel: tuple[int, ...], groups: int, a: Window) -> Struct:
    n, h, w, c = x.shape
    _, p, q, o = y.shape
    fields = (
        ("n", n), ("h", h), ("w", w), ("c", c), ("p", p), ("q", q), ("o", o),
        ("kh", kernel[0]), ("kw", kernel[1]), ("groups", groups),
        ("sh", a.stride[0]), ("sw", a.stride[1]), ("ph", a.pad[0]), ("pw", a.pad[1]),
        ("dh", a.dilation[0]), ("dw", a.dilation[1]), ("packed", 0),
    )  # fmt: skip
    return Struct("whet_conv2d_t", fields)


def taps(x: Array, a: Window, kernel: tuple[int, ...], out: tuple[int, int]) -> Array:
    """View of padded x as [n, p, q, kh, kw, c]: every window's input, without copying."""
    low_h, low_w, high_h, high_w = a.pad
    padded = np.pad(x, ((0, 0), (low_h, high_h), (low_w, high_w), (0, 0)))
    n, h, w, c = padded.strides
    shape = (x.shape[0], *out, *kernel, x.shape[3])
    step = (n, h * a.stride[0], w * a.stride[1], h * a.dilation[0], w * a.dilation[1], c)
    return np.lib.stride_tricks.as_strided(padded, shape, step, writeable=False)


def scatter_taps(dtaps: Array, a: Window, size: tuple[int, int]) -> Array:
    """The transpose of `taps`: add every window's contribution back to the pixels it read."""
    n, p, q, kh, kw, c = dtaps.shape
    low_h, low_w, high_h, high_w = a.pad
    dx = np.zeros((n, size[0] + low_h + high_h, size[1] + low_w + high_w, c), dtaps.dtype)
    for r in range(kh):
        for s in range(kw):
            top, left = r * a.dilation[0], s * a.dilation[1]
            rows = slice(top, top + a.stride[0] * (p - 1) + 1, a.stride[0])
            cols = slice(left, left + a.stride[1] * (q - 1) + 1, a.stride[1])
            dx[:, rows, cols] += dtaps[:, :, :, r, s]
    return dx[:, low_h : low_h + size[0], low_w : low_w + size[1]]


# How kernels/ref go through a convolution: one matrix product for every tap of the window.


def is_linear(
    a: Conv2d.Attrs, kernel: tuple[int, ...], out: tuple[int, ...], size: tuple[int, ...]
) -> bool:
    """Whether it is one matrix product over all pixels."""
    plain = a.groups == 1 and a.stride == (1, 1) and a.pad[:2] == (0, 0)
    return plain and tuple(kernel) == (1, 1) and tuple(out) == tuple(size)


def inner_taps(
    a: Window, kernel: tuple[int, ...], out: tuple[int, ...], size: tuple[int, ...]
) -> Iterator[tuple[int, int, tuple[slice, slice], tuple[slice, slice]]]:
    """Every tap (r, s), the outputs that have it inside the image, and where they find it."""
    for r in range(kernel[0]):
        for s in range(kernel[1]):
            offsets = (r * a.dilation[0] - a.pad[0], s * a.dilation[1] - a.pad[1])
            pairs = [inside(*numbers) for numbers in zip(offsets, size, a.stride, out, strict=True)]
            (top, above), (left, beside) = pairs
            yield r, s, (top, left), (above, beside)


def inside(offset: int, size: int, stride: int, outputs: int) -> tuple[slice, slice]:
    """The outputs whose tap, at output * stride + offset, is on an axis, and those taps."""
    first = max(0, -(offset // stride))
    end = max(first, min((size - 1 - offset) // stride + 1, outputs))
    taps = range(first * stride + offset, end * stride + offset, stride)
    return slice(first, end), slice(taps.start, taps.stop, stride) if taps else slice(0)


def channels(groups: int, outs: int, ins: int) -> Iterator[tuple[slice, slice]]:
    """Of every group those of the result and of the input; `ins` is how many a group has."""
    size = outs // groups
    for g in range(groups):
        yield slice(g * size, (g + 1) * size), slice(g * ins, (g + 1) * ins)


NO_EPILOGUE = (None, -math.inf, math.inf)  # nothing added, nothing clipped
TILES = 192  # of 2x2 pixels that Winograd's method handles at a time, as in winograd.c


def winograd(node: Node, kernel: str, *args: Arg) -> Call:
    return Call(kernel, (*args, Workspace(node.op.workspace(node))), "winograd")


def tiles_of(result: Type) -> int:
    """Tiles of 2x2 pixels that cover the result."""
    n, p, q, _ = result.shape
    return n * -(-p // 2) * -(-q // 2)


def winograd_floats(result: Type, c: int, o: int) -> int:
    """Workspace of Winograd's method for c and o channels; `result` is laid with tiles."""
    return 16 * (c * o + min(tiles_of(result), TILES) * (c + o))


def layer_args(node: Node, groups: int) -> tuple[tuple[Value | None, ...], Struct]:
    """The result and the operands of a layer, None for a bias that it has not; and its sizes."""
    x, w, *bias = node.ins
    struct = conv_struct(x.type, node.out.type, w.shape[-3:-1], groups, node.attrs)
    return (node.out, x, w, bias[0] if bias else None), struct


def layer_vjp(
    b: Builder,
    node: Node,
    douts: Grads,
    wants: tuple[bool, ...],
    dx_op: type[Op],
    dw_op: type[Op],
) -> Grads:
    """The gradients of x, w and the bias, if any; only that of w needs the zero point of x."""
    (dy,), (x, w, *bias) = douts, node.ins
    assert dy is not None
    attrs, kernel = asdict(node.attrs), w.shape[-3:-1]
    offset = {"zero": attrs.pop("zero")} if "zero" in attrs else {}
    dx = dw = None
    if wants[0]:
        dx = b.emit(dx_op, dy, w, name=d(x), size=x.shape[1:3], **attrs)
    if wants[1]:
        dw = b.emit(dw_op, dy, x, name=d(w), kernel=kernel, **offset, **attrs)
    return dx, dw, *(sum_rows(b, dy, v) if wants[2] else None for v in bias)


class Conv2d(Op):
    """y[n,p,q,o] = b[o] + sum_{r,s,i} x[n, p*stride+r*dilation-pad, ..., i] * w[o,r,s,i]

    With groups, output o reads the input channels of its own group only; the bias is optional.
    """

    name = "conv2d"
    layer = Layer(inputs=-1, outputs=0)

    class Attrs(Window):
        groups: int = 1
        winograd: bool = False  # the method; it changes nothing but time, workspace and rounding

    @staticmethod
    def infer(a: Attrs, x: Type, w: Type, b: Type | None = None) -> Type:
        require_f32(x, w)
        require(x.rank == w.rank == 4, "needs x[n,h,w,c] and w[o,kh,kw,c/groups]")
        o, kh, kw, i = w.shape
        require(o % a.groups == 0, f"{o} outputs do not divide into {a.groups} groups")
        require(x.shape[3] == i * a.groups, f"{x.shape[3]} channels, weights for {i * a.groups}")
        require(b is None or b.shape == (o,), "the bias must have one entry per output channel")
        return Type(x.dtype, (x.shape[0], *a.output(x.shape[1:3], (kh, kw)), o))

    @staticmethod
    def ref(a: Attrs, x: Array, w: Array, b: Array | None = None) -> Array:
        o, kh, kw, i = w.shape
        out = a.output(x.shape[1:3], (kh, kw))
        t = taps(x, a, (kh, kw), out).reshape(x.shape[0], *out, kh, kw, a.groups, i)
        grouped = w.reshape(a.groups, o // a.groups, kh, kw, i)
        y = np.einsum("npqrsgi,gorsi->npqgo", t, grouped, optimize=True)
        y = y.reshape(x.shape[0], *out, o)
        return y if b is None else y + b

    @staticmethod
    def exact(
        a: Attrs, x: Array, w: Array, b: Array | None = None, add: Array | None = None
    ) -> Array:
        o, kh, kw, i = w.shape
        out = a.output(x.shape[1:3], (kh, kw))
        y = _exact.start((x.shape[0], *out, o), b, add)
        if is_linear(a, (kh, kw), out, x.shape[1:3]):
            return _exact.matmul_nt(y, x, w.reshape(o, i))
        for r, s, to, at in inner_taps(a, (kh, kw), out, x.shape[1:3]):
            for outs, ins in channels(a.groups, o, i):
                y[:, *to, outs] = _exact.matmul(y[:, *to, outs], x[:, *at, ins], w[outs, r, s].T)
        return y

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        return layer_vjp(b, node, douts, wants, Conv2dDx, Conv2dDw)

    @staticmethod
    def call(node: Node) -> Call:
        args, struct = layer_args(node, node.attrs.groups)
        if node.attrs.winograd:
            return winograd(node, "whet_conv2d_winograd_f32", *args, *NO_EPILOGUE, struct)
        return Call("whet_conv2d_f32", (*args, struct), "conv2d")

    @staticmethod
    def packable(node: Node) -> Iterator[tuple[Value, tuple[int, int]]]:
        call = node.op.call(node)
        if call is not None and not node.attrs.winograd and node.attrs.groups == 1:
            (place,) = (i for i, arg in enumerate(call.args) if isinstance(arg, Struct))
            yield node.ins[1], (place, 0)

    @staticmethod
    def workspace(node: Node) -> int:
        o, _, _, c = node.ins[1].shape
        return winograd_floats(node.out.type, c, o) if node.attrs.winograd else 0

    @staticmethod
    def macs(node: Node) -> int:
        _, kh, kw, i = node.ins[1].shape
        return node.out.type.elements * kh * kw * i


class Conv2dDx(Op):
    """dx = the transpose of conv2d in x, applied to dy; a transposed convolution is this too"""

    name = "conv2d_dx"
    layer = Layer(inputs=0, outputs=-1, bias=False, inputs_of_all_groups=True)

    class Attrs(Conv2d.Attrs):
        size: tuple[int, int] = (0, 0)

    @staticmethod
    def infer(a: Attrs, dy: Type, w: Type) -> Type:
        require_f32(dy, w)
        o, kh, kw, i = w.shape
        require(dy.rank == 4 and dy.shape[3] == o, f"{dy} does not come from weights {w}")
        require(o % a.groups == 0, f"{o} channels do not divide into {a.groups} groups")
        expected = a.output(a.size, (kh, kw))
        require(dy.shape[1:3] == expected, f"a {a.size} input gives {expected}, not {dy}")
        return Type(dy.dtype, (dy.shape[0], *a.size, i * a.groups))

    @staticmethod
    def ref(a: Attrs, dy: Array, w: Array) -> Array:
        o, kh, kw, i = w.shape
        n, p, q, _ = dy.shape
        split = dy.reshape(n, p, q, a.groups, o // a.groups)
        grouped = w.reshape(a.groups, o // a.groups, kh, kw, i)
        dtaps = np.einsum("npqgo,gorsi->npqrsgi", split, grouped, optimize=True)
        return scatter_taps(dtaps.reshape(n, p, q, kh, kw, a.groups * i), a, a.size)

    @staticmethod
    def exact(a: Attrs, dy: Array, w: Array) -> Array:
        o, kh, kw, i = w.shape
        dx = np.zeros((dy.shape[0], *a.size, i * a.groups), np.float32)
        for r, s, to, at in inner_taps(a, (kh, kw), dy.shape[1:3], a.size):
            for outs, ins in channels(a.groups, o, i):
                dx[:, *at, ins] = _exact.matmul(dx[:, *at, ins], dy[:, *to, outs], w[outs, r, s])
        return dx

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (g,), (dy, w) = douts, node.ins
        assert g is not None
        attrs = asdict(node.attrs)
        del attrs["size"]
        ddy = b.emit(Conv2d, g, w, name=d(dy), **attrs) if wants[0] else None
        dw = None
        if wants[1]:
            dw = b.emit(Conv2dDw, dy, g, name=d(w), kernel=w.shape[1:3], **attrs)
        return ddy, dw

    @staticmethod
    def call(node: Node) -> Call:
        dy, w = node.ins
        struct = conv_struct(node.out.type, dy.type, w.shape[1:3], node.attrs.groups, node.attrs)
        if node.attrs.winograd:
            return winograd(node, "whet_conv2d_winograd_dx_f32", node.out, dy, w, struct)
        return Call("whet_conv2d_dx_f32", (node.out, dy, w, struct), "conv2d")

    workspace = staticmethod(Conv2d.workspace)

    @staticmethod
    def macs(node: Node) -> int:
        _, kh, kw, i = node.ins[1].shape
        return node.ins[0].type.elements * kh * kw * i


def check_dw(a: Window, kernel: tuple[int, int], dy: Type, x: Type) -> None:
    """dy must be as large as the result for x."""
    require_f32(dy, x)
    expected = a.output(x.shape[1:3], kernel)
    require(dy.shape[1:3] == expected, f"{x} gives {expected}, not {dy}")


class Conv2dDw(Op):
    """dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * x[n, p*stride+r*dilation-pad, ..., i]"""

    name = "conv2d_dw"

    class Attrs(Conv2d.Attrs):
        kernel: tuple[int, int] = (1, 1)

    @staticmethod
    def infer(a: Attrs, dy: Type, x: Type) -> Type:
        check_dw(a, a.kernel, dy, x)
        return Type(dy.dtype, (dy.shape[3], *a.kernel, x.shape[3] // a.groups))

    @staticmethod
    def ref(a: Attrs, dy: Array, x: Array) -> Array:
        n, p, q, o = dy.shape
        i = x.shape[3] // a.groups
        t = taps(x, a, a.kernel, (p, q)).reshape(n, p, q, *a.kernel, a.groups, i)
        split = dy.reshape(n, p, q, a.groups, o // a.groups)
        dw = np.einsum("npqgo,npqrsgi->gorsi", split, t, optimize=True)
        return dw.reshape(o, *a.kernel, i)

    @staticmethod
    def exact(a: Attrs, dy: Array, x: Array) -> Array:
        o, i = dy.shape[3], x.shape[3] // a.groups
        dw = np.zeros((o, *a.kernel, i), np.float32)
        if is_linear(a, a.kernel, dy.shape[1:3], x.shape[1:3]):
            return _exact.matmul(dw.reshape(o, i), dy.reshape(-1, o).T, x.reshape(-1, i)).reshape(
                dw.shape
            )
        for r, s, to, at in inner_taps(a, a.kernel, dy.shape[1:3], x.shape[1:3]):
            for outs, ins in channels(a.groups, o, i):
                lines = zip(dy[:, *to, outs], x[:, *at, ins], strict=True)
                for left, right in ((u, v) for image in lines for u, v in zip(*image, strict=True)):
                    dw[outs, r, s] = _exact.matmul(dw[outs, r, s], left.T, right)
        return dw

    @staticmethod
    def call(node: Node) -> Call:
        dy, x = node.ins
        struct = conv_struct(x.type, dy.type, node.attrs.kernel, node.attrs.groups, node.attrs)
        if node.attrs.winograd:
            return winograd(node, "whet_conv2d_winograd_dw_f32", node.out, dy, x, struct)
        return Call("whet_conv2d_dw_f32", (node.out, dy, x, struct), "conv2d")

    @staticmethod
    def workspace(node: Node) -> int:
        dy, x = (v.type for v in node.ins)
        return winograd_floats(dy, x.shape[3], dy.shape[3]) if node.attrs.winograd else 0

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * (node.ins[0].type.elements // node.ins[0].shape[3])


class Depthwise(Op):
    """y[n,p,q,c] = b[c] + sum_{r,s} x[n, p*stride+r*dilation-pad, ..., c] * w[r,s,c]"""

    name = "depthwise"
    layer = Layer(inputs=-1, outputs=-1)
    Attrs = Window

    @staticmethod
    def infer(a: Window, x: Type, w: Type, b: Type | None = None) -> Type:
        require_f32(x, w)
        require(x.rank == 4 and w.rank == 3, "needs x[n,h,w,c] and w[kh,kw,c]")
        kh, kw, c = w.shape
        require(x.shape[3] == c, f"{x.shape[3]} channels, weights for {c}")
        require(b is None or b.shape == (c,), "the bias must have one entry per channel")
        return Type(x.dtype, (x.shape[0], *a.output(x.shape[1:3], (kh, kw)), c))

    @staticmethod
    def ref(a: Window, x: Array, w: Array, b: Array | None = None) -> Array:
        kh, kw, _ = w.shape
        t = taps(x, a, (kh, kw), a.output(x.shape[1:3], (kh, kw)))
        y = np.einsum("npqrsc,rsc->npqc", t, w)
        return y if b is None else y + b

    @staticmethod
    def exact(
        a: Window, x: Array, w: Array, b: Array | None = None, add: Array | None = None
    ) -> Array:
        kernel, size = w.shape[:2], x.shape[1:3]
        y = _exact.start((x.shape[0], *a.output(size, kernel), x.shape[3]), b, add)
        total = np.zeros_like(y)
        for r, s, to, at in inner_taps(a, kernel, y.shape[1:3], size):
            total[:, *to] += x[:, *at] * w[r, s]
        return y + total

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        return layer_vjp(b, node, douts, wants, DepthwiseDx, DepthwiseDw)

    @staticmethod
    def call(node: Node) -> Call:
        args, struct = layer_args(node, node.ins[0].shape[3])
        return Call("whet_depthwise_f32", (*args, struct), "depthwise")

    @staticmethod
    def macs(node: Node) -> int:
        kh, kw, _ = node.ins[1].shape
        return node.out.type.elements * kh * kw


class DepthwiseDx(Op):
    """dx = the transpose of depthwise in x, applied to dy"""

    name = "depthwise_dx"
    reads_weights = True

    class Attrs(Window):
        size: tuple[int, int] = (0, 0)

    @staticmethod
    def infer(a: Attrs, dy: Type, w: Type) -> Type:
        require_f32(dy, w)
        require(dy.shape[3] == w.shape[2], f"{dy} does not come from weights {w}")
        expected = a.output(a.size, w.shape[:2])
        require(dy.shape[1:3] == expected, f"a {a.size} input gives {expected}, not {dy}")
        return Type(dy.dtype, (dy.shape[0], *a.size, w.shape[2]))

    @staticmethod
    def ref(a: Attrs, dy: Array, w: Array) -> Array:
        dtaps = dy[:, :, :, None, None, :] * w
        return scatter_taps(dtaps, a, a.size)

    @staticmethod
    def exact(a: Attrs, dy: Array, w: Array) -> Array:
        """The kernel goes from output to output: each pixel meets its taps from last to first."""
        dx = np.zeros((dy.shape[0], *a.size, w.shape[2]), np.float32)
        for r, s, to, at in reversed(list(inner_taps(a, w.shape[:2], dy.shape[1:3], a.size))):
            dx[:, *at] += dy[:, *to] * w[r, s]
        return dx

    @staticmethod
    def call(node: Node) -> Call:
        dy, w = node.ins
        struct = conv_struct(node.out.type, dy.type, w.shape[:2], w.shape[2], node.attrs)
        return Call("whet_depthwise_dx_f32", (node.out, dy, w, struct), "depthwise")

    @staticmethod
    def macs(node: Node) -> int:
        kh, kw, _ = node.ins[1].shape
        return node.ins[0].type.elements * kh * kw


class DepthwiseDw(Op):
    """dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * x[n, p*stride+r*dilation-pad, ..., c]"""

    name = "depthwise_dw"

    class Attrs(Window):
        kernel: tuple[int, int] = (1, 1)

    @staticmethod
    def infer(a: Attrs, dy: Type, x: Type) -> Type:
        check_dw(a, a.kernel, dy, x)
        return Type(dy.dtype, (*a.kernel, x.shape[3]))

    @staticmethod
    def ref(a: Attrs, dy: Array, x: Array) -> Array:
        return np.einsum("npqc,npqrsc->rsc", dy, taps(x, a, a.kernel, dy.shape[1:3]))

    @staticmethod
    def exact(a: Attrs, dy: Array, x: Array) -> Array:
        dw = np.empty((*a.kernel, x.shape[3]), np.float32)
        for r, s, to, at in inner_taps(a, a.kernel, dy.shape[1:3], x.shape[1:3]):
            rows = _exact.in_order((dy[:, *to] * x[:, *at]).transpose(2, 0, 1, 3))
            dw[r, s] = _exact.in_order(rows.reshape(-1, x.shape[3]))
        return dw

    @staticmethod
    def call(node: Node) -> Call:
        dy, x = node.ins
        struct = conv_struct(x.type, dy.type, node.attrs.kernel, x.shape[3], node.attrs)
        return Call("whet_depthwise_dw_f32", (node.out, dy, x, struct), "depthwise")

    @staticmethod
    def macs(node: Node) -> int:
        return node.ins[0].type.elements * node.attrs.kernel[0] * node.attrs.kernel[1]
