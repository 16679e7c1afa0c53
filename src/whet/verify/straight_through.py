"""PyTorch's autograd through an integer graph, in float64: the truth for integer gradients.

Values are those of the integer program, to the bit; derivatives are autograd's own, through the
same straight-through rules: rounding counts as the identity, saturation stops. The rule of an
operator is its trait `straight_through`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..ir import Array, Builder, DType, Graph, Node, Role, Type, Value
from ..ir.interp import interpret, run_exact

Tensor = torch.Tensor
REAL = (DType.F32, DType.I8)  # numbers, where no rule of its own says what an operand is


def gradients(
    graph: Graph, feed: Mapping[str, Array], trained: list[str]
) -> tuple[float, dict[str, Array]]:
    """The loss, and its derivative for each of the leaves `trained`, as stored."""
    known: dict[Value, Array] = {}

    def watch(node: Node, arrays: list[Array]) -> tuple[Array, ...]:
        outs = run_exact(node, arrays)
        known.update(zip(node.outs, outs, strict=True))
        return outs

    interpret(graph, feed, execute=watch)
    env: dict[Value, Tensor] = {}
    for leaf in graph.leaves:
        array = np.asarray(feed.get(leaf.name, graph.data.get(leaf.name)))
        if leaf.type.dtype is DType.I32 and leaf.role in (Role.INPUT, Role.LABEL):
            env[leaf] = torch.from_numpy(array.astype(np.int64))
        else:
            stored = array.astype(leaf.type.dtype.numpy).astype(np.float64)
            env[leaf] = torch.from_numpy(stored).requires_grad_(leaf.name in trained)
    for node in graph.nodes:
        ins = [env[v] for v in node.ins]
        for value, tensor in zip(node.outs, results(node, ins, known), strict=False):
            env[value] = tensor
    loss = env[graph.outputs[0]]
    loss.backward()
    leaves = {leaf.name: env[leaf] for leaf in graph.leaves if leaf.name in trained}
    found = {n: t.grad.numpy() for n, t in leaves.items() if t.grad is not None}
    return loss.item(), found


def results(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    """What passes no gradient is a constant here: what the program decided."""
    if not node.op.differentiable:
        return [numbers(known[value], value.type) for value in node.outs]
    if rule := node.op.straight_through:
        return [rule(torch, node, ins, [known[value] for value in node.outs])]
    return [Reference.apply(node, *ins)]  # type: ignore[no-untyped-call]


def numbers(array: Array, t: Type) -> Tensor:
    """Real numbers, and integers that stand for them, in float64; indices and masks as they are."""
    dtype = np.float64 if t.dtype in REAL else np.int64
    return torch.from_numpy(np.asarray(array, dtype, order="C"))


class Reference(torch.autograd.Function):
    """Any other operator: its reference, and its own gradient, each tested on its own."""

    @staticmethod
    def forward(ctx: Any, node: Node, *ins: Tensor) -> Any:
        arrays = [stored(t.numpy(), v.type) for t, v in zip(ins, node.ins, strict=True)]
        ctx.node, ctx.arrays = node, arrays
        ctx.outs = node.op.ref(node.attrs, *arrays)
        first = ctx.outs[0] if isinstance(ctx.outs, tuple) else ctx.outs
        return numbers(first, node.out.type)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        node: Node = ctx.node
        b = Builder("gradient")
        outs = ctx.outs if isinstance(ctx.outs, tuple) else (ctx.outs,)
        feed = [*zip(node.ins, ctx.arrays, strict=True), *zip(node.outs, outs, strict=True)]
        leaves = [b.leaf(v.name, real(v.type), Role.INPUT, np.asarray(array)) for v, array in feed]
        again = Node(node.op, tuple(leaves[: len(node.ins)]), tuple(leaves[len(node.ins) :]),
                     node.attrs)  # fmt: skip
        seed = b.leaf("dy", real(node.out.type), Role.INPUT, dy.numpy())
        douts = (seed, *(None for _ in node.outs[1:]))
        found = node.op.vjp(b, again, douts, ctx.needs_input_grad[1:])
        graph = b.finish([v for v in found if v is not None])
        values = iter(interpret(graph, {}, real=np.float64)[0])
        grads = [None if v is None else torch.from_numpy(next(values)) for v in found]
        return (None, *grads)


def stored(array: Array, t: Type) -> Array:
    """What is an index or a mask, as the graph has it."""
    return array if t.dtype in REAL else array.astype(t.dtype.numpy)


def real(t: Type) -> Type:
    """Integers that stand for numbers take part as floats."""
    return Type(DType.F32, t.shape) if t.dtype is DType.I8 else t
