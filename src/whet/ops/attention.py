"""Scaled dot-product attention: softmax(q k') v, without ever holding all of the weights."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Node, Op, Struct, Type, Value, Workspace
from . import _exact
from ._common import require, require_f32

WIDEST = 256  # numbers of a head: kernels with vectors keep some of its rows on the stack


class Scores(Attributes):
    scale: float = 1.0
    causal: bool = False  # query i sees key j only if j <= i


def check_operands(q: Type, k: Type, v: Type, mask: Type | None) -> None:
    require_f32(q, k, v, *(() if mask is None else (mask,)))
    require(q.rank == k.rank == v.rank == 4, "needs q[b,l,h,d], k[b,s,g,d] and v[b,s,g,e]")
    require(q.shape[0] == k.shape[0] == v.shape[0], f"batches of {q}, {k} and {v} differ")
    require(k.shape[1:3] == v.shape[1:3], f"{k} and {v} differ in keys or heads")
    require(q.shape[2] % k.shape[2] == 0, f"{k.shape[2]} heads of keys do not divide {q.shape[2]}")
    require(q.shape[3] == k.shape[3], f"heads of {q} and {k} differ in width")
    require(max(q.shape[3], v.shape[3]) <= WIDEST, f"a head is wider than {WIDEST}")
    if mask is not None:
        b, n, h, _ = q.shape
        wide = (b, h, n, k.shape[1])
        fits = mask.rank == 4 and mask.shape[3] == wide[3]
        fits = fits and all(n in (1, m) for n, m in zip(mask.shape, wide, strict=True))
        require(fits, f"the mask {mask} does not expand to {wide}")


def sizes(node: Node, q: Type, v: Type, mask: Value | None, parts: int = 1) -> Struct:
    """`whet_attention_t`"""
    (b, n, h, d), (_, s, g, e) = q.shape, v.shape
    steps = [0, 0, 0]  # of the mask, along b, h and l
    if mask is not None:
        full = [mask.shape[1] * mask.shape[2] * s, mask.shape[2] * s, s]
        steps = [step if size > 1 else 0 for step, size in zip(full, mask.shape, strict=False)]
    names = ("b", "l", "s", "h", "g", "d", "e", "mask_b", "mask_h", "mask_l", "causal", "parts")
    numbers = (b, n, s, h, g, d, e, *steps, int(node.attrs.causal), parts)
    return Struct("whet_attention_t", tuple(zip(names, numbers, strict=True)))


def seen(q: Type, k: Type, a: Scores) -> int:
    """Pairs of a query and a key that it sees, in all heads."""
    (b, n, h, _), s = q.shape, k.shape[1]
    if not a.causal:
        return b * h * n * s
    short = min(n, s)
    return b * h * (short * (short + 1) // 2 + (n - short) * s)


def by_head(x: Array, heads: int) -> Array:
    """[b,h,rows,width] of [b,rows,g,width]; each of the g serves as many heads."""
    return np.repeat(x.transpose(0, 2, 1, 3), heads // x.shape[2], axis=1)


def scores(a: Scores, q: Array, k: Array, mask: Array | None) -> Array:
    x = by_head(q, q.shape[2]) @ by_head(k, q.shape[2]).swapaxes(2, 3) * q.dtype.type(a.scale)
    return hide(x if mask is None else x + mask, a)


def hide(x: Array, a: Scores) -> Array:
    earlier = np.tri(*x.shape[2:]) == 1
    return np.where(earlier, x, x.dtype.type(-np.inf)) if a.causal else x


def exact_scores(a: Scores, q: Array, k: Array, mask: Array | None) -> Array:
    h = q.shape[2]
    products = _exact.dot(by_head(q, h)[:, :, :, None], by_head(k, h)[:, :, None])
    x = products * np.float32(a.scale)
    return hide(x if mask is None else x + mask, a)


class Attention(Op):
    """y[b, i, h] = sum over j of w[b, h, i, j] * v[b, j, g], where w is the softmax over j of
    scale * q[b, i, h] . k[b, j, g] + mask[b, h, i, j]

    q is [b,l,h,d], k is [b,s,g,d], v is [b,s,g,e]: each head of keys and values serves h / g heads
    of queries. The mask is optional and expands to [b,h,l,s]; -inf hides a key, and a query that
    sees no key gives 0. If `causal`, query i sees keys j <= i.

    Results: y[b,l,h,e], and top[b,h,l] and share[b,h,l], from which the gradient computes the
    weights again: w = exp(score - top) * share. One number, the logarithm of the sum, would be
    enough in theory; but it rounds to the top itself if all scores of a query are as low as
    padding masks make them.
    """

    name = "attention"
    attends = True
    Attrs = Scores

    @staticmethod
    def infer(
        a: Scores, q: Type, k: Type, v: Type, mask: Type | None = None
    ) -> tuple[Type, Type, Type]:
        check_operands(q, k, v, mask)
        b, n, h, _ = q.shape
        row = Type(q.dtype, (b, h, n))
        return Type(q.dtype, (b, n, h, v.shape[3])), row, row

    @staticmethod
    def ref(
        a: Scores, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        x = scores(a, q, k, mask)
        top = x.max(axis=3)
        top = np.where(top == -np.inf, x.dtype.type(0), top)
        weights = np.exp(x - top[..., None])
        total = weights.sum(axis=3)
        share = np.where(total == 0, x.dtype.type(0), 1 / np.where(total == 0, 1, total))
        y = (weights * share[..., None]) @ by_head(v, q.shape[2])
        return y.transpose(0, 2, 1, 3), top, share

    @staticmethod
    def exact(
        a: Scores, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        x, values = exact_scores(a, q, k, mask), by_head(v, q.shape[2])
        top = np.full(x.shape[:3], -np.inf, np.float32)
        total = np.zeros(x.shape[:3], np.float32)
        y = np.zeros((*x.shape[:3], v.shape[3]), np.float32)
        for j in range(x.shape[3]):
            now = x[..., j]
            visible, higher = now != -np.inf, now > top
            with np.errstate(invalid="ignore"):  # -inf - -inf, where it is not used
                fade = np.where(higher, _exact.exp(top - now), np.float32(1))
                top = np.where(higher, now, top)
                weight = np.where(visible, _exact.exp(now - top), np.float32(0))
            total = total * fade + weight
            y = y * fade[..., None] + weight[..., None] * values[:, :, j, None]
        one, none = np.float32(1), total == 0
        share = np.where(none, np.float32(0), one / np.where(none, one, total))
        y = (y * share[..., None]).transpose(0, 2, 1, 3)
        return y, np.where(none, np.float32(0), top), share

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        """The mask has no gradient: the front end gives this operator none made of parameters."""
        (dy, *_), (q, k, v, *mask) = douts, node.ins
        require(not any(wants[3:]), f"{node.out.name}: the mask of this operator has no gradient")
        assert dy is not None
        found: Grads = ()
        if any(wants[:3]):
            attrs = asdict(node.attrs) | dict(zip(("dq", "dk", "dv"), wants, strict=False))
            found = b.emit_all(AttentionDx, dy, q, k, v, *node.outs, *mask, **attrs)
        grads = iter(found)
        return *(next(grads) if want else None for want in wants[:3]), *(None for _ in mask)

    @staticmethod
    def call(node: Node) -> Call:
        q, k, v, *mask = node.ins
        hidden = mask[0] if mask else None
        struct = sizes(node, q.type, v.type, hidden)
        args = (*node.outs, q, k, v, hidden, node.attrs.scale, struct)
        return Call("whet_attention_f32", args, "attention")

    @staticmethod
    def macs(node: Node) -> int:
        q, k, v, *_ = (value.type for value in node.ins)
        return seen(q, k, node.attrs) * (q.shape[3] + v.shape[3])


class AttentionDx(Op):
    """dq = scale * sum over keys of ds * k; dk = scale * sum over queries of ds * q; dv = sum over
    queries of w * dy, where ds = w * (dy . v - dy . y) and w are the weights of attention

    Results: those of dq, dk and dv that are wanted.
    """

    name = "attention_dx"

    class Attrs(Scores):
        dq: bool = True
        dk: bool = True
        dv: bool = True
        # Kernels with vectors share queries out in so many parts, each with its own dk and dv, if
        # there are too few heads for several threads.
        parts: int = 1

    @staticmethod
    def infer(
        a: Attrs, dy: Type, q: Type, k: Type, v: Type, y: Type, top: Type, share: Type,
        mask: Type | None = None,
    ) -> tuple[Type, ...]:  # fmt: skip
        forward = Attention.infer(a, q, k, v, mask)
        require((y, top, share) == forward, f"{y}, {top} and {share} are not results for {q}")
        require(dy == y, f"{dy} and {y} differ")
        require(a.dq or a.dk or a.dv, "no result is wanted")
        return tuple(t for t, wanted in ((q, a.dq), (k, a.dk), (v, a.dv)) if wanted)

    @staticmethod
    def ref(
        a: Attrs, dy: Array, q: Array, k: Array, v: Array, y: Array, top: Array, share: Array,
        mask: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        h, g = q.shape[2], k.shape[2]
        weights = np.exp(scores(a, q, k, mask) - top[..., None]) * share[..., None]
        slope = (dy * y).sum(axis=3).transpose(0, 2, 1)
        rows = by_head(dy, h)
        ds = weights * (rows @ by_head(v, h).swapaxes(2, 3) - slope[..., None])
        ds = ds * q.dtype.type(a.scale)

        def in_groups(x: Array) -> Array:
            """The sum over the heads that share keys, [b,s,g,width]."""
            parts = x.reshape(x.shape[0], g, h // g, *x.shape[2:])
            return parts.sum(axis=2).transpose(0, 2, 1, 3)

        dq = (ds @ by_head(k, h)).transpose(0, 2, 1, 3)
        dk = in_groups(ds.swapaxes(2, 3) @ by_head(q, h))
        dv = in_groups(weights.swapaxes(2, 3) @ rows)
        return wanted(a, dq, dk, dv)

    @staticmethod
    def exact(
        a: Attrs, dy: Array, q: Array, k: Array, v: Array, y: Array, top: Array, share: Array,
        mask: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        h, g = q.shape[2], k.shape[2]
        x = exact_scores(a, q, k, mask)
        weights = _exact.exp(x - top[..., None]) * share[..., None]
        slope = _exact.dot(dy, y).transpose(0, 2, 1)
        rows, queries, keys = by_head(dy, h), by_head(q, h), by_head(k, h)
        ds = _exact.dot(rows[:, :, :, None], by_head(v, h)[:, :, None])
        ds = weights * (ds - slope[..., None]) * np.float32(a.scale)
        dq = np.zeros_like(queries)
        for j in range(x.shape[3]):
            dq = dq + ds[..., j, None] * keys[:, :, j, None]
        dk, dv = (np.zeros(t.transpose(0, 2, 1, 3).shape, np.float32) for t in (k, v))
        for r in range(h // g):
            heads = slice(r, None, h // g)  # one of each group
            for i in range(x.shape[2]):
                dk = dk + ds[:, heads, i, :, None] * queries[:, heads, i, None]
                dv = dv + weights[:, heads, i, :, None] * rows[:, heads, i, None]
        return wanted(a, *(t.transpose(0, 2, 1, 3) for t in (dq, dk, dv)))

    @staticmethod
    def call(node: Node) -> Call:
        dy, q, k, v, y, top, share, *mask = node.ins
        a, hidden = node.attrs, mask[0] if mask else None
        outs = iter(node.outs)
        results = tuple(next(outs) if want else None for want in (a.dq, a.dk, a.dv))
        struct = sizes(node, q.type, v.type, hidden, a.parts)
        floats = node.op.workspace(node)
        work = Workspace(floats) if floats else None
        args = (*results, dy, q, k, v, y, top, share, hidden, a.scale, struct, work)
        return Call("whet_attention_dx_f32", args, "attention")

    @staticmethod
    def macs(node: Node) -> int:
        _, q, k, v, *_ = (value.type for value in node.ins)
        (d, e), a = (q.shape[3], v.shape[3]), node.attrs
        slopes = d + e if a.dq or a.dk else d
        return seen(q, k, a) * (slopes + d * (a.dq + a.dk) + e * a.dv)

    @staticmethod
    def workspace(node: Node) -> int:
        _, _, k, v, *_ = (value.type.elements for value in node.ins)
        return (node.attrs.parts - 1) * (k * node.attrs.dk + v * node.attrs.dv)


def wanted(a: AttentionDx.Attrs, *results: Array) -> tuple[Array, ...]:
    return tuple(x for x, want in zip(results, (a.dq, a.dk, a.dv), strict=True) if want)
