"""If, Loop and Scan: a known condition picks its branch, a known number of turns is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..rows import Call, Value, is_known, row, tensor
from ..sizes import MOST as MOST_ELEMENTS
from ..sizes import count, refuse_above

MOST = 1000  # turns that are unrolled


@row("If")
def branch(c: Call, env: Any, condition: Value) -> Sequence[Value]:
    if not is_known(condition):
        c.refuse("its condition depends on the values of an input or of a parameter")
    taken = c.attr("then_branch" if np.asarray(condition).all() else "else_branch")
    found: Sequence[Value] = c.run.graph(taken, (), env)
    return found


def stacked(c: Call, values: list[Value], axis: int = 0) -> Value:
    refuse_above(MOST_ELEMENTS, sum(map(count, values)), c.node, "makes a value")
    if all(map(is_known, values)):
        return np.stack(values, axis)
    return torch.stack([tensor(value) for value in values], axis)


@row("Loop")
def loop(
    c: Call, env: Any, turns: Value = None, condition: Value = None, *carried: Value
) -> Sequence[Value]:
    if not is_known(turns):
        c.refuse("the number of its turns depends on the values of an input or of a parameter")
    limit = None if turns is None else int(np.asarray(turns).reshape(-1)[0])
    state, on, body = list(carried), condition, c.attr("body")
    collected: list[list[Value]] = [[] for _ in range(len(body.outputs) - 1 - len(state))]
    turn = 0
    while limit is None or turn < limit:
        if not is_known(on):
            c.refuse("whether it goes on depends on the values of an input or of a parameter")
        if on is not None and not np.asarray(on).all():
            break
        if turn == MOST:
            c.refuse(f"more than {MOST} turns")
        first = [np.array(turn, np.int64), np.array(True) if on is None else on]
        going, *found = c.run.graph(body, [*first, *state], env)
        on = None if on is None else going  # without a condition, that of the body is ignored
        state, rows = found[: len(state)], found[len(state) :]
        for kept, value in zip(collected, rows, strict=True):
            kept.append(value)
        turn += 1
    if collected and not turn:
        c.refuse("no turns, and results of every turn")
    return [*state, *(stacked(c, rows) for rows in collected)]


@row("Scan")
def scan(c: Call, env: Any, *values: Value) -> Sequence[Value]:
    if c.version < 9:
        c.refuse("the batches of operator set 8")
    body, count = c.attr("body"), c.attr("num_scan_inputs")
    state, along = list(values[: len(values) - count]), values[len(values) - count :]
    results = len(body.outputs) - len(state)
    axes = c.attr("scan_input_axes") or [0] * count
    backwards = c.attr("scan_input_directions") or [0] * count
    turns = along[0].shape[axes[0]]
    if turns > MOST:
        c.refuse(f"more than {MOST} turns")
    collected: list[list[Value]] = [[] for _ in range(results)]
    for turn in range(turns):
        lines = [
            taken(value, axis, turns - 1 - turn if back else turn)
            for value, axis, back in zip(along, axes, backwards, strict=True)
        ]
        found = c.run.graph(body, [*state, *lines], env)
        state = found[: len(state)]
        for kept, value in zip(collected, found[len(state) :], strict=True):
            kept.append(value)
    out_axes = c.attr("scan_output_axes") or [0] * results
    turned = c.attr("scan_output_directions") or [0] * results
    rows = [
        stacked(c, kept[::-1] if back else kept, axis)
        for kept, axis, back in zip(collected, out_axes, turned, strict=True)
    ]
    return [*state, *rows]


def taken(value: Value, axis: int, i: int) -> Value:
    return value.take(i, axis) if is_known(value) else value.select(axis, i)
