"""Choose faster kernels, as far as the memory for them is there anyway."""

from __future__ import annotations

from dataclasses import asdict, fields

from ..ir import Builder, Graph, Node, Value
from ..machine import Machine
from ..ops.conv import Conv2d, Conv2dDw, Conv2dDx, tiles_and_floats
from ..ops.fused import Conv2dFused
from ..ops.fused_update import FusedUpdate
from ..plan import aligned, lifetimes, lives
from ._rewrite import rewrite

FAST_BLOCK = 1 << 17  # floats of gradient that are made at a time, if there is room for them
FAST_ROWS = 48


def choose_kernels(graph: Graph, machine: Machine, limit: int) -> Graph:
    """Winograd's method for convolutions that it makes faster, and larger blocks of gradients.

    Both want workspace. They get it where what is alive at that node leaves room within `limit`
    bytes, so that the arena does not grow.
    """
    loads = lives(lifetimes(graph).buffers).loads
    room = {node: limit - int(loads[i]) for i, node in enumerate(graph.nodes)}
    old = iter(graph.nodes)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        free = room[next(old)] + aligned(4 * node.op.workspace(node))
        if node.op in (Conv2d, Conv2dFused, Conv2dDx, Conv2dDw):
            return faster_conv(b, node, machine, free)
        if issubclass(node.op, FusedUpdate):
            return faster_update(b, node, machine, free)
        return None

    return rewrite(graph, rule)


def faster_conv(b: Builder, node: Node, machine: Machine, free: int) -> tuple[Value, ...] | None:
    result = node.ins[0].type if node.op is Conv2dDw else node.out.type
    kernel = node.attrs.kernel if node.op is Conv2dDw else node.ins[1].shape[1:3]
    if not suits_winograd(node.attrs, kernel):
        return None
    floats = tiles_and_floats(node, result)[1]
    if aligned(4 * floats) > free or machine.winograd(node, result) >= machine.direct(node):
        return None
    return b.emit_all(node.op, *node.ins, **asdict(node.attrs) | {"winograd": True})


def suits_winograd(a: Conv2d.Attrs, kernel: tuple[int, ...]) -> bool:
    plain = a.stride == a.dilation == (1, 1) and a.groups == 1 and not a.winograd
    return plain and tuple(kernel) == (3, 3) and max(a.pad) <= 2


def faster_update(b: Builder, node: Node, machine: Machine, free: int) -> tuple[Value, ...] | None:
    """The gradient as a whole by Winograd's method, or larger blocks of it."""
    assert issubclass(node.op, FusedUpdate)
    (w, dy, x, *rest), a = node.ins, node.attrs
    whole = aligned(w.type.bytes)
    if w.type.rank == 4 and suits_winograd(a, a.kernel):
        before = len(b.nodes)
        own = {f.name: getattr(a, f.name) for f in fields(Conv2dDw.Attrs)}
        dw = b.emit(Conv2dDw, dy, x, name=f"d.{w.name}", **own)
        faster = faster_conv(b, b.nodes.pop(), machine, free - whole)
        if faster is not None:
            return b.emit_all(node.op.update, w, *faster, *rest, **asdict(node.op.inner(a)))
        assert len(b.nodes) == before, dw
    row = w.type.elements // w.shape[0]
    rows = min(w.shape[0], max(FAST_ROWS, FAST_BLOCK // row), free // (4 * row))
    if rows <= node.op.workspace(node) // row:
        return None
    return b.emit_all(node.op, *node.ins, **asdict(a) | {"rows": rows})
