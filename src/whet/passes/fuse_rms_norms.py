"""Recognise RMS norms that a model spells out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir import Builder, Graph, Node, Value
from ..ops.binary import Add, Div, Mul
from ..ops.norm import RmsNorm
from ..ops.reduce import Mean
from ..ops.shape import Reshape
from ..ops.unary import Rsqrt, Sqrt
from .rewriting import rewrite
from .spelling import Spelling, sides


@dataclass(frozen=True)
class Found:
    x: Value
    eps: float
    gain: Value | None = None


def fuse_rms_norms(graph: Graph) -> Graph:
    """x * rsqrt(mean(x * x) + eps), over the last axis, becomes rms_norm, with the gain behind it.

    Transformers spell it so. The operator keeps x and a number for each row for the backward pass,
    where the single operators keep three values as large as x.
    """
    norms = find(graph)
    now: dict[Value, Value] = {}
    ones: dict[int, Value] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.outs[0] not in norms:
            return None
        found = norms[node.outs[0]]
        x = now.get(found.x, found.x)
        width = x.shape[-1]
        if found.gain is not None:
            gain = shaped(b, now.get(found.gain, found.gain), (width,))
        elif width in ones:
            gain = ones[width]
        else:
            gain = ones[width] = b.const(np.ones(width), "ones")
        rows = shaped(b, x, (x.type.elements // width, width))
        y = b.emit(RmsNorm, rows, gain, name=node.out.name, eps=found.eps)
        now[node.out] = shaped(b, y, node.out.shape)
        return (now[node.out],)

    return rewrite(graph, rule)


def shaped(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    if value.shape == shape:
        return value
    return b.emit(Reshape, value, name=f"{value.name}.view", shape=shape)


def find(graph: Graph) -> dict[Value, Found]:
    """Results of norms, with their gain if nothing else reads the result without it."""
    spelling = Spelling(graph)
    plain: dict[Value, Found] = {}
    norms: dict[Value, Found] = {}
    for node in graph.nodes:
        if node.op not in (Mul, Div):
            continue
        found = normalised(spelling, node)
        if found is not None:
            plain[node.out] = norms[node.out] = found
        elif node.op is Mul:
            for y, gain in sides(node):
                alone = spelling.uses.only_reader(y) is node
                if y in plain and alone and per_channel(gain, y) and y.shape == node.out.shape:
                    own = norms.pop(y)
                    norms[node.out] = Found(own.x, own.eps, source(spelling, gain))
                    break
    return norms


def normalised(spelling: Spelling, node: Node) -> Found | None:
    """x * rsqrt(mean + eps) or x / sqrt(mean + eps), where mean is that of x * x."""
    root, pairs = (Rsqrt, sides(node)) if node.op is Mul else (Sqrt, iter([node.ins[:2]]))
    for x, scale in pairs:
        made = spelling.inner(scale, root)
        total = made and spelling.inner(made.ins[0], Add)
        for mean, eps in sides(total) if total else ():
            number, of = spelling.number(eps), spelling.inner(mean, Mean)
            square = of and spelling.inner(of.ins[0], Mul)
            if number is None or of is None or square is None:
                continue
            if square.ins == (x, x) and of.attrs.axes == (x.type.rank - 1,):
                return Found(x, number)
    return None


def per_channel(gain: Value, y: Value) -> bool:
    """Whether a factor has one number for each place on the last axis."""
    return gain.shape[-1:] == y.shape[-1:] and gain.type.elements == y.shape[-1]


def source(spelling: Spelling, gain: Value) -> Value:
    """The value that a view of it is of, if that is per channel already."""
    root = spelling.uses.root(gain)
    return root if root.shape == gain.shape[-1:] else gain
