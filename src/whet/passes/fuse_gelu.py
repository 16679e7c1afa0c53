"""Recognise GELU that a model spells out with tanh or erf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..ir import Builder, Graph, Node, Op, Value
from ..ops.activation import Gelu, GeluTanh
from ..ops.binary import Add, Div, Mul, Sub
from ..ops.unary import Erf, Neg, Pow, Tanh
from .rewriting import rewrite
from .spelling import Spelling

# A polynomial in x and in t = tanh(z) or erf(z): coefficients by the powers of both.
Polynomial = dict[tuple[int, int], float]

SCALE = math.sqrt(2 / math.pi)
RESULT: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}  # x/2 (1 + t)
OF_TANH: Polynomial = {(1, 0): SCALE, (3, 0): SCALE * 0.044715}  # z
OF_ERF: Polynomial = {(1, 0): math.sqrt(0.5)}
MOST = 8  # nodes between x and z, or between t and the result


def fuse_gelu(graph: Graph) -> Graph:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), in any order of operations, becomes gelu_tanh,
    and the same with erf(x / sqrt(2)) gelu.

    GPT-2 spells it in eight operators, each of which keeps an operand or its result.
    """
    found = find(graph)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.outs[0] not in found:
            return None
        op, x = found[node.outs[0]]
        return (b.emit(op, x, name=node.out.name),)

    return rewrite(graph, rule)


def find(graph: Graph) -> dict[Value, tuple[type[Op], Value]]:
    """Results, each with the operator that gives them at once, and its operand."""
    spelling = Spelling(graph)
    found: dict[Value, tuple[type[Op], Value]] = {}
    for node in graph.nodes:
        if node.op in (Tanh, Erf):
            op, inside = (GeluTanh, OF_TANH) if node.op is Tanh else (Gelu, OF_ERF)
            x = operand(spelling, node.ins[0], inside)
            y = None if x is None else result(spelling, node.out, x)
            if x is not None and y is not None:
                found[y] = op, x
    return found


def operand(spelling: Spelling, z: Value, inside: Polynomial) -> Value | None:
    """The value that z is this polynomial of."""
    for x in below(spelling, z):
        if same(polynomial(spelling, z, {x: (1, 0)}), inside):
            return x
    return None


def result(spelling: Spelling, t: Value, x: Value) -> Value | None:
    for y in above(spelling, t):
        if same(polynomial(spelling, y, {x: (1, 0), t: (0, 1)}), RESULT):
            return y
    return None


def below(spelling: Spelling, value: Value) -> Iterator[Value]:
    """What the value is computed from, by arithmetic, the nearest first."""
    waiting = [value]
    for one in waiting:
        yield one
        node = spelling.made(one, Add, Sub, Mul, Div, Pow, Neg)
        if node is not None and len(waiting) < 2 * MOST:
            waiting += [v for v in node.ins if v.shape == value.shape and v not in waiting]


def above(spelling: Spelling, value: Value) -> Iterator[Value]:
    """What is computed from the value alone, the nearest first."""
    for _ in range(MOST):
        reader = spelling.uses.only_reader(value)
        if reader is None:
            return
        value = reader.out
        yield value


def polynomial(
    spelling: Spelling, value: Value, variables: Mapping[Value, tuple[int, int]], most: int = MOST
) -> Polynomial | None:
    """The value as a polynomial in variables, if it is one of few nodes."""
    if value in variables:
        return {variables[value]: 1.0}
    if (number := spelling.number(value)) is not None:
        return {(0, 0): number}
    node = spelling.made(value, Add, Sub, Mul, Div, Pow, Neg)
    if node is None or most == 0:
        return None
    given = [polynomial(spelling, v, variables, most - 1) for v in node.ins]
    parts = [p for p in given if p is not None]
    return combined(node, parts) if len(parts) == len(given) else None


def combined(node: Node, parts: list[Polynomial]) -> Polynomial | None:
    if node.op in (Add, Sub):
        a, b = parts
        sign = 1 if node.op is Add else -1
        return {k: a.get(k, 0) + sign * b.get(k, 0) for k in {**a, **b}}
    if node.op is Mul:
        return product(*parts)
    if node.op is Neg:
        return {k: -v for k, v in parts[0].items()}
    if node.op is Div:
        a, b = parts
        by = b.get((0, 0), 0)
        return {k: v / by for k, v in a.items()} if b.keys() == {(0, 0)} and by else None
    exponent = node.attrs.exponent
    if exponent not in (1, 2, 3):
        return None
    power: Polynomial = {(0, 0): 1.0}
    for _ in range(int(exponent)):
        power = product(power, parts[0])
    return power


def product(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for (i, j), u in a.items():
        for (k, m), v in b.items():
            found[i + k, j + m] = found.get((i + k, j + m), 0) + u * v
    return found


def same(given: Polynomial | None, right: Polynomial) -> bool:
    """Up to the rounding of the constants that models are written with."""
    if given is None:
        return False
    given = {k: v for k, v in given.items() if v}
    close = (math.isclose(given.get(k, 0), v, rel_tol=1e-5) for k, v in right.items())
    return given.keys() == right.keys() and all(close)
