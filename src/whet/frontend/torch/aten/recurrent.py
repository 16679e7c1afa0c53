"""Recurrent layers, unrolled: every shape is fixed, so the number of steps is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ops import unary as u
from ....ops.binary import Add, Mul, Sub
from ...model import Tensor
from ..importer import Importer, Operand, Unsupported, aten
from .convolution import linear
from .elementwise import binary
from .moving import cat, select, split, stack, transpose
from .reducing import dropout

State = tuple[Tensor, ...]
Cell = Callable[[Importer, Tensor, Tensor, State], State]


def apply(m: Importer, op: Any, x: Tensor) -> Tensor:
    return m.emit(op, x.value, order=x.order)


def lstm_cell(m: Importer, x: Tensor, h: Tensor, state: State) -> State:
    """c' = f * c + i * g, h' = o * tanh(c'), where i, f, g, o are slices of x + h"""
    total = binary(m, Add, x, h)
    i, f, g, o = split(m, total, total.shape[1] // 4, 1)
    kept = binary(m, Mul, apply(m, u.Sigmoid, f), state[1])
    new = binary(m, Mul, apply(m, u.Sigmoid, i), apply(m, u.Tanh, g))
    c = binary(m, Add, kept, new)
    return binary(m, Mul, apply(m, u.Sigmoid, o), apply(m, u.Tanh, c)), c


def gru_cell(m: Importer, x: Tensor, h: Tensor, state: State) -> State:
    """h' = n + z * (h - n), n = tanh(x_n + r * h_n), where r, z, n are slices of x and of h"""
    width = x.shape[1] // 3
    (xr, xz, xn), (hr, hz, hn) = split(m, x, width, 1), split(m, h, width, 1)
    r, z = (apply(m, u.Sigmoid, binary(m, Add, a, b)) for a, b in ((xr, hr), (xz, hz)))
    n = apply(m, u.Tanh, binary(m, Add, xn, binary(m, Mul, r, hn)))
    return (binary(m, Add, n, binary(m, Mul, z, binary(m, Sub, state[0], n))),)


def simple_cell(op: Any) -> Cell:
    def cell(m: Importer, x: Tensor, h: Tensor, state: State) -> State:
        return (apply(m, op, binary(m, Add, x, h)),)

    return cell


def direction(
    m: Importer, cell: Cell, x: Tensor, state: State, weights: tuple[Operand, ...], backward: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over x [time, batch, features]; the product with w_ih is computed
    once."""
    w_ih, w_hh, *biases = weights
    b_ih, b_hh = biases or (None, None)
    inputs = linear(m, x, w_ih, b_ih)
    steps = range(x.shape[0])
    results: list[Tensor] = []
    for t in reversed(steps) if backward else steps:
        state = cell(m, select(m, inputs, 0, t), linear(m, state[0], w_hh, b_hh), state)
        results.append(state[0])
    return stack(m, results[::-1] if backward else results), state


def run(
    m: Importer, cell: Cell, x: Operand, states: tuple[Operand, ...], params: tuple[Operand, ...],
    has_biases: bool, layers: int, p: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The results of the last layer, and the last state of every layer and direction."""
    y = m.tensor(x)
    if y.rank != 3:
        raise Unsupported("a recurrent layer without a batch axis")
    y = transpose(m, y, 0, 1) if batch_first else y
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    if len(params) != layers * directions * each:
        raise Unsupported("a recurrent layer with projections")
    ends: list[State] = []
    for layer in range(layers):
        outs = []
        for way in range(directions):
            k = layer * directions + way
            start = tuple(select(m, m.tensor(s), 0, k) for s in states)
            weights = params[k * each : (k + 1) * each]
            out, end = direction(m, cell, y, start, weights, backward=way == 1)
            outs.append(out)
            ends.append(end)
        y = cat(m, outs, 2)
        if train and layer < layers - 1:
            y = dropout(m, y, p)
    y = transpose(m, y, 0, 1) if batch_first else y
    return (y, *(stack(m, list(part)) for part in zip(*ends, strict=True)))


@aten("lstm.input")
def lstm(m: Importer, x: Operand, states: tuple[Operand, ...], *rest: Any) -> tuple[Tensor, ...]:
    return run(m, lstm_cell, x, states, *rest)


@aten("gru.input")
def gru(m: Importer, x: Operand, state: Operand, *rest: Any) -> tuple[Tensor, ...]:
    return run(m, gru_cell, x, (state,), *rest)


@aten("rnn_tanh.input")
def rnn_tanh(m: Importer, x: Operand, state: Operand, *rest: Any) -> tuple[Tensor, ...]:
    return run(m, simple_cell(u.Tanh), x, (state,), *rest)


@aten("rnn_relu.input")
def rnn_relu(m: Importer, x: Operand, state: Operand, *rest: Any) -> tuple[Tensor, ...]:
    return run(m, simple_cell(u.Relu), x, (state,), *rest)
