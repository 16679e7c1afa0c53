"""Choose faster kernels where the memory for them is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace

from ..ir import Builder, Graph, Node, Role, Type, Value, verify
from ..memory.plan import ALIGN, aligned, lifetimes, lives, plan
from ..ops.attention import AttentionDx
from ..ops.bits import WithinBits
from ..ops.conv import Conv2d, Conv2dDw, Conv2dDx, tiles_of, winograd_floats
from ..ops.fused import Conv2dFused, DepthwiseFused
from ..ops.fused_update import FusedUpdate
from .machine import Machine
from .rewriting import rewrite

FAST_BLOCK = 1 << 17  # floats of gradient computed at a time, if there is memory for them
FAST_ROWS = 48
UNITS = 12  # of work in a gradient, for threads to share
QUERIES = 32  # that a unit has at least
LARGE = 16 << 20  # bytes of RAM; no microcontroller has as much


def choose_kernels(
    entries: Mapping[str, Graph], machine: Machine, inplace: bool = True, grow: bool = False
) -> dict[str, Graph]:
    """The entry points with faster kernels; the arena may become slightly larger if it may `grow`.

    Workspaces leave gaps in the arena that are hard to predict. If it grows too much, a smaller
    limit is tried.
    """
    growth = growth_of(entries) if grow else 0
    arena = max(plan(g, inplace).arena for g in entries.values()) + growth
    for limit in (arena, arena * 15 // 16, arena * 7 // 8):
        tight = min(limit, arena - growth)
        chosen = {name: faster(g, machine, limit, tight) for name, g in entries.items()}
        for graph in chosen.values():
            verify(graph)
        if max(plan(g, inplace).arena for g in chosen.values()) <= arena:
            return chosen
    return dict(entries)


def growth_of(entries: Mapping[str, Graph]) -> int:
    """Bytes that the arena may grow by: none for a program that may be for a microcontroller."""
    peak = max(lifetimes(graph).peak[0] for graph in entries.values())
    leaves = entries["train_step"].leaves_of(Role.PARAM, Role.STATE)
    ram = peak + sum(leaf.type.bytes for leaf in leaves)
    return ram // 10 if ram >= LARGE else 0


def faster(graph: Graph, machine: Machine, limit: int, tight: int) -> Graph:
    """Use Winograd's method for convolutions that it makes faster, larger blocks of gradients,
    parts of gradients for several threads, and layers that also output the bits of their result.

    All need memory. They get it where the values live at that node leave enough within `limit`
    bytes, so that the arena does not grow beyond it; for bits, which save little, within `tight`.
    """
    loads = [*map(int, lives(lifetimes(graph).buffers).loads)]
    loads += [0] * (len(graph.nodes) - len(loads))  # nodes after the last live value
    less = limit - tight
    limit -= ALIGN  # so that reported peaks are those that cannot be avoided
    room = {node: limit - load for node, load in zip(graph.nodes, loads, strict=False)}
    old = iter(graph.nodes)
    asked = bits_asked(graph)
    bits: dict[Value, Value] = {}  # by the result of the node that they replace

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        free = room[now := next(old)] + aligned(4 * node.op.workspace(node))
        if now.out in bits:
            return (bits[now.out],)
        if node.op in (Conv2d, Conv2dFused, Conv2dDx, Conv2dDw):
            if found := faster_conv(b, node, machine, free):
                return found
        if now.out in asked and aligned(asked[now.out].type.bytes) <= free - less:
            attrs = asdict(node.attrs) | {"mask": True}
            y, mask = b.emit_all(node.op, *node.ins, name=now.out.name, **attrs)
            bits[asked[now.out]] = mask
            return (y,)
        if issubclass(node.op, FusedUpdate):
            return faster_update(b, node, machine, free)
        return faster_attention(b, node, free) if node.op is AttentionDx else None

    return rewrite(graph, rule)


def bits_asked(graph: Graph) -> dict[Value, Value]:
    """Results of layers, and the bits of them that the layer itself can output."""
    layers = {n.out: n for n in graph.nodes if n.op in (Conv2dFused, DepthwiseFused)}
    asked = {}
    for node in graph.nodes:
        layer = layers.get(node.ins[0]) if node.op is WithinBits else None
        if layer is not None and not node.attrs.closed:
            a = layer.attrs
            if a.clamps and (a.low, a.high) == (node.attrs.low, node.attrs.high):
                asked[layer.out] = node.out
    return asked


def faster_conv(b: Builder, node: Node, machine: Machine, free: int) -> tuple[Value, ...] | None:
    if node.op is Conv2dDw:
        dy, x = (v.type for v in node.ins)
        faster = winograd_pays(node.attrs, node.attrs.kernel, dy, x.shape[3], dy.shape[3], machine)
        floats = winograd_floats(dy, x.shape[3], dy.shape[3])
    else:
        o, *kernel, c = node.ins[1].shape
        faster = winograd_pays(node.attrs, kernel, node.out.type, c, o, machine)
        floats = winograd_floats(node.out.type, c, o)
    if not faster or aligned(4 * floats) > free:
        return None
    return b.emit_all(node.op, *node.ins, **asdict(node.attrs) | {"winograd": True})


def winograd_pays(
    a: Conv2d.Attrs, kernel: Sequence[int], result: Type, c: int, o: int, machine: Machine
) -> bool:
    """Whether Winograd's method is applicable and faster; `result` is the shape that is tiled."""
    plain = a.stride == a.dilation == (1, 1) and a.groups == 1 and max(a.pad) <= 2
    if not plain or tuple(kernel) != (3, 3) or 16 * c * o >= 1 << 31:
        return False
    macs = 9 * c * o * (result.elements // result.shape[3])
    return machine.winograd(tiles_of(result), c, o) < machine.direct(macs)


def faster_attention(b: Builder, node: Node, free: int) -> tuple[Value, ...] | None:
    """More parts than heads of keys, if there are too few of those."""
    _, q, k, *_ = (value.shape for value in node.ins)
    groups = k[0] * k[2]
    parts = min(-(-UNITS // groups), q[2] // k[2] * -(-q[1] // QUERIES))
    own = node.op.workspace(replace(node, attrs=replace(node.attrs, parts=2)))
    parts = min(parts, 1 + free // aligned(4 * own)) if own else parts
    if parts <= node.attrs.parts:
        return None
    return b.emit_all(node.op, *node.ins, **asdict(node.attrs) | {"parts": parts})


def faster_update(b: Builder, node: Node, machine: Machine, free: int) -> tuple[Value, ...] | None:
    """The whole gradient with Winograd's method, or larger blocks of it."""
    assert issubclass(node.op, FusedUpdate)
    (w, dy, x, *rest), a = node.ins, node.attrs
    if w.type.rank == 4:
        o, _, _, c = w.shape
        need = aligned(w.type.bytes) + aligned(4 * winograd_floats(dy.type, c, o))
        if need <= free and winograd_pays(a, a.kernel, dy.type, c, o, machine):
            own = {f.name: getattr(a, f.name) for f in fields(Conv2dDw.Attrs)}
            dw = b.emit(Conv2dDw, dy, x, name=f"d.{w.name}", **own | {"winograd": True})
            return b.emit_all(node.op.update, w, dw, *rest, **asdict(node.op.inner(a)))
    row = w.type.elements // w.shape[0]
    rows = min(w.shape[0], max(FAST_ROWS, FAST_BLOCK // row), free // (4 * row))
    if rows <= node.op.workspace(node) // row:
        return None
    return b.emit_all(node.op, *node.ins, **asdict(a) | {"rows": rows})
