"""PyTorch's autograd through an integer graph, in float64: the truth for integer gradients.

Values are those of the integer program, to the bit; derivatives are autograd's own, through the
same straight-through rules: rounding counts as the identity, saturation stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..ir import Array, Builder, DType, Graph, Node, Op, Role, Type, Value
from ..ir.interp import interpret, run_exact
from ..ops._common import unpack
from ..ops.binary import Add
from ..ops.conv_i8 import Conv2dI8, DepthwiseI8
from ..ops.linear import Linear
from ..ops.loss import CrossEntropy
from ..ops.pool_i8 import AvgPoolI8
from ..ops.quantized import AddI8, Dequantize, Requantize
from ..ops.shape import Reshape

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
    if rule := RULES.get(node.op):
        return rule(node, ins, known)
    return [Reference.apply(node, *ins)]  # type: ignore[no-untyped-call]


def numbers(array: Array, t: Type) -> Tensor:
    """Real numbers, and integers that stand for them, in float64; indices and masks as they are."""
    dtype = np.float64 if t.dtype in REAL else np.int64
    return torch.from_numpy(np.asarray(array, dtype, order="C"))


def through(real: Tensor, exact: Array, inside: Array | None = None) -> Tensor:
    """The exact value, with the derivative of `real` where nothing saturated."""
    if inside is not None:
        real = torch.where(torch.from_numpy(inside), real, real.detach())
    return real + (torch.from_numpy(exact.astype(np.float64)) - real).detach()


def bits(node: Node, known: Mapping[Value, Array]) -> Array:
    return unpack(known[node.outs[1]], 1, node.out.shape) != 0


def convolution(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    x, w, *bias = ins
    a = node.attrs
    x = (x - a.zero).permute(0, 3, 1, 2)
    top, left, bottom, right = a.pad
    x = F.pad(x, (left, right, top, bottom))
    if node.op is DepthwiseI8:
        w, groups = w.permute(2, 0, 1).unsqueeze(1), x.shape[1]
    else:
        w, groups = w.permute(0, 3, 1, 2), a.groups
    b = bias[0] if bias else None
    y = F.conv2d(x, w, b, stride=a.stride, dilation=a.dilation, groups=groups)
    return [y.permute(0, 2, 3, 1)]


def requantize(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    x, scale = ins
    return [through((x - node.attrs.x_zero) * scale, known[node.out], bits(node, known))]


def add(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    (left, right), a = ins, node.attrs
    real = (left - a.a_zero) * a.a_scale + (right - a.b_zero) * a.b_scale
    return [through(real, known[node.out], bits(node, known))]


def average(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    (x,), a = ins, node.attrs
    x = x.permute(0, 3, 1, 2)
    if a.adaptive:
        y = F.adaptive_avg_pool2d(x, a.out)
    else:
        divisor = a.divisor or None
        y = F.avg_pool2d(x, a.kernel, a.stride, a.pad, rounds_up(node), a.count_pad, divisor)
    return [through(y.permute(0, 2, 3, 1), known[node.out])]


def rounds_up(node: Node) -> bool:
    """Whether the last windows of a pool begin inside and end beyond what it reads."""
    a, size = node.attrs, node.ins[0].shape[1:3]
    steps = zip(a.out, a.stride, a.kernel, size, a.pad, strict=True)
    return any((out - 1) * stride + k > n + 2 * pad for out, stride, k, n, pad in steps)


def dequantize(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    return [(ins[0] - node.attrs.zero) * node.attrs.scale]


def cross_entropy(node: Node, ins: list[Tensor], known: Mapping[Value, Array]) -> list[Tensor]:
    (x, labels, *weight), a = ins, node.attrs
    loss = F.cross_entropy(
        x.reshape(-1, x.shape[-1]),
        labels.reshape(-1),
        weight=weight[0] if weight else None,
        ignore_index=a.ignore_index,
        reduction="mean" if a.mean else "sum",
        label_smoothing=a.smoothing,
    )
    return [loss]


Rule = Callable[[Node, list[Tensor], Mapping[Value, Array]], list[Tensor]]
RULES: dict[type[Op], Rule] = {
    Conv2dI8: convolution,
    DepthwiseI8: convolution,
    Requantize: requantize,
    AddI8: add,
    AvgPoolI8: average,
    Dequantize: dequantize,
    CrossEntropy: cross_entropy,
    Linear: lambda node, ins, known: [F.linear(*ins)],
    Reshape: lambda node, ins, known: [ins[0].reshape(node.attrs.shape)],
    Add: lambda node, ins, known: [ins[0] + ins[1]],
}


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
