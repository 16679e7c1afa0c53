"""RNN, GRU and LSTM, step by step, with the gates, activations and options of the standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....ir import Array
from ..rows import Call, row

Function = Callable[[Tensor], Tensor]


def activations(c: Call, defaults: list[str], directions: int) -> list[Function]:
    names = c.attr("activations") or defaults * directions
    alphas, betas = list(c.attr("activation_alpha") or []), list(c.attr("activation_beta") or [])
    return [function(c, name.lower(), alphas, betas) for name in names]


def function(c: Call, name: str, alphas: list[float], betas: list[float]) -> Function:
    """Functions with numbers take theirs from the lists, one after the other."""
    if name in PLAIN:
        return PLAIN[name]
    if name not in WITH_NUMBERS:
        c.refuse(f"the activation {name}")
    compute, *defaults = WITH_NUMBERS[name]
    given = [
        source.pop(0) if source else d for source, d in zip((alphas, betas), defaults, strict=False)
    ]
    return lambda x: compute(x, *given)


PLAIN: dict[str, Function] = {
    "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softsign": F.softsign,
    "softplus": F.softplus,
}  # fmt: skip
WITH_NUMBERS: dict[str, tuple[Any, ...]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a: F.leaky_relu(x, a), 0.01),
    "thresholdedrelu": (lambda x, a: torch.where(x > a, x, torch.zeros_like(x)), 1.0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: torch.clamp(a * x + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a: F.elu(x, a), 1.0),
}


class Layer:
    """What the three have in common: directions, steps, lengths and the order of axes."""

    def __init__(self, c: Call, x: Tensor, w: Tensor, lengths: Array | None) -> None:
        self.c, self.batch_first = c, c.flag("layout")
        self.x = x.transpose(0, 1) if self.batch_first else x
        self.steps, self.batch = self.x.shape[:2]
        self.directions, self.hidden = w.shape[0], c.attr("hidden_size")
        self.lengths = None if lengths is None else [int(n) for n in lengths]
        self.clip = c.attr("clip")

    def limited(self, x: Tensor) -> Tensor:
        return x if self.clip is None else torch.clamp(x, -self.clip, self.clip)

    def start(self, given: Tensor | None, direction: int) -> Tensor:
        if given is None:
            return torch.zeros(self.batch, self.hidden, dtype=self.x.dtype)
        return given[:, direction] if self.batch_first else given[direction]

    def run(
        self, steps: list[Callable[..., tuple[Tensor, ...]]], starts: Sequence[tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """All outputs [time, direction, batch, hidden], and the last state of each kind."""
        names = ["forward", "reverse"] if self.directions == 2 else [self.c.attr("direction")]
        results, lasts = [], []
        for name, step, state in zip(names, steps, starts, strict=True):
            order = range(self.steps)[::-1] if name == "reverse" else range(self.steps)
            outputs: list[Any] = [None] * self.steps
            for t in order:
                state, outputs[t] = self.one(t, step, state)
            results.append(torch.stack(outputs))
            lasts.append(state)
        y = torch.stack(results, dim=1)
        ends = [torch.stack(parts) for parts in zip(*lasts, strict=True)]
        if self.batch_first:
            return y.permute(2, 0, 1, 3), *(end.transpose(0, 1) for end in ends)
        return y, *ends

    def one(
        self, t: int, step: Callable[..., tuple[Tensor, ...]], state: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Sequences that have ended keep their state, and put out zeros."""
        after = step(self.x[t], *state)
        if self.lengths is None or t < min(self.lengths):
            return after, after[0]
        on = torch.tensor([[float(t < n)] for n in self.lengths], dtype=self.x.dtype)
        kept = tuple(on * new + (1 - on) * old for new, old in zip(after, state, strict=True))
        return kept, on * after[0]


def halves(b: Tensor | None, direction: int) -> tuple[Tensor | None, Tensor | None]:
    if b is None:
        return None, None
    of_input, of_state = b[direction].chunk(2)
    return of_input, of_state


@row("RNN", known=(4,))
def rnn(
    c: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Array | None = None, first: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer = Layer(c, x, w, lengths)
    functions = activations(c, ["Tanh"], layer.directions)

    def step_of(d: int) -> Callable[..., tuple[Tensor, ...]]:
        of_input, of_state = halves(b, d)

        def step(x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
            total = F.linear(x, w[d], of_input) + F.linear(h, r[d], of_state)
            return (functions[d](layer.limited(total)),)

        return step

    every = range(layer.directions)
    return layer.run([step_of(d) for d in every], [(layer.start(first, d),) for d in every])


@row("GRU", known=(4,))
def gru(
    c: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Array | None = None, first: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer = Layer(c, x, w, lengths)
    functions = activations(c, ["Sigmoid", "Tanh"], layer.directions)
    reset_after = c.flag("linear_before_reset")

    def step_of(d: int) -> Callable[..., tuple[Tensor, ...]]:
        f, g = functions[2 * d : 2 * d + 2]
        of_input, of_state = halves(b, d)
        n = layer.hidden

        def step(x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
            z, reset, new = F.linear(x, w[d], of_input).split(n, dim=-1)
            bias = [None] * 3 if of_state is None else list(of_state.split(n))
            rows = r[d].split(n)
            z = f(layer.limited(z + F.linear(h, rows[0], bias[0])))
            reset = f(layer.limited(reset + F.linear(h, rows[1], bias[1])))
            if reset_after:
                new = new + reset * F.linear(h, rows[2], bias[2])
            else:
                new = new + F.linear(reset * h, rows[2], bias[2])
            return ((1 - z) * g(layer.limited(new)) + z * h,)

        return step

    every = range(layer.directions)
    return layer.run([step_of(d) for d in every], [(layer.start(first, d),) for d in every])


@row("LSTM", known=(4,))
def lstm(
    c: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Array | None = None, first: Tensor | None = None, cell: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer = Layer(c, x, w, lengths)
    functions = activations(c, ["Sigmoid", "Tanh", "Tanh"], layer.directions)
    coupled, n = c.flag("input_forget"), layer.hidden

    def step_of(d: int) -> Callable[..., tuple[Tensor, ...]]:
        f, g, h_of = functions[3 * d : 3 * d + 3]
        of_input, of_state = halves(b, d)
        p = [None] * 3 if peepholes is None else list(peepholes[d].split(n))

        def seen(gate: Tensor, peephole: Tensor | None, state: Tensor) -> Tensor:
            return layer.limited(gate if peephole is None else gate + peephole * state)

        def step(x: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, ...]:
            gates = F.linear(x, w[d], of_input) + F.linear(h, r[d], of_state)
            i, o, forget, new = gates.split(n, dim=-1)
            i = f(seen(i, p[0], state))
            forget = 1 - i if coupled else f(seen(forget, p[2], state))
            after = forget * state + i * g(layer.limited(new))
            return f(seen(o, p[1], after)) * h_of(after), after

        return step

    every = range(layer.directions)
    starts = [(layer.start(first, d), layer.start(cell, d)) for d in every]
    return layer.run([step_of(d) for d in every], starts)
