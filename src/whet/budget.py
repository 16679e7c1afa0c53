"""A memory budget: keep it, or say by how much it is missed and what would keep it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .emit.program import Program
from .errors import BudgetError, FrontendError, SchemeError
from .frontend.torch import Model
from .ops.update import Sgd
from .passes import Recompute
from .pipeline import Options, assemble
from .report import kib
from .report.program import arrays_word, lifetime, live_at_peak
from .scheme import Chosen, Rule, Scheme, blocks, parameters_of, preset
from .text import summary
from .training import Rule as UpdateRule

UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
SHOWN = 5  # alternatives
GAPS = 1024  # bytes that an arena whose parts begin with lines of the cache may need on top


def parse_bytes(text: int | str) -> int:
    """262144, "256K", "256 KiB" and "0.25M" are the same."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", str(text).strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise FrontendError(f"{text!r} is not a number of bytes", try_='262144, "256K" or "1M"')
    return int(float(match[1]) * UNITS[match[2].upper()])


def fit(model: Model, scheme: Scheme, options: Options, ram: int, source: Any) -> Program:
    """A program within the budget; computing things twice is tried before giving up."""
    options = replace(options, grow=False)
    program = assemble(model, scheme, options, source)
    least = program
    for layers in (False, True):
        if least.memory["ram"] <= ram:
            return least
        rest = program.memory["ram"] - program.memory["arena"]
        gaps = GAPS if program.in_lines else 0
        recompute = Recompute(layers, max(0, ram - rest - gaps))
        again = assemble(model, scheme, replace(options, recompute=recompute), source)
        least = min(least, again, key=lambda p: p.memory["ram"])
    if least.memory["ram"] <= ram:
        return least
    raise over_budget(model, scheme, options, ram, least)


def over_budget(
    model: Model, scheme: Scheme, options: Options, ram: int, program: Program
) -> BudgetError:
    memory = program.memory
    entry, plan = max(program.plans.items(), key=lambda item: item[1].arena)
    node = plan.graph.nodes[min(plan.peak, len(plan.graph.nodes) - 1)]
    parts = {"arena": "arena", "trained": "trained parameters", "state": "optimizer state",
             "io": arrays_word(program), "stack": "stack"}  # fmt: skip
    live = live_at_peak(plan)
    rest = sum(b.bytes for b in live[3:])
    why = [", ".join(f"{kib(memory[key])} {word}" for key, word in parts.items() if memory[key])]
    why += [f"{kib(b.bytes):>10}  %{b.values[0].name}, {lifetime(b)}" for b in live[:3]]
    why += [f"{kib(rest):>10}  in {len(live) - 3} others"] if rest else []
    found = {need: what for what, need in alternatives(model, scheme, options, ram)}
    fitting = sorted((need for need in found if need <= ram), reverse=True)[:SHOWN]
    tries = [f"{kib(need):>10}  {found[need]}" for need in fitting]
    if not tries:
        least = min(found)
        tries = [f"none of this fits; the least is {kib(least)}, {found[least]}"]
    return BudgetError(
        f"{kib(memory['ram'])} of RAM exceed the budget of {kib(ram)} by "
        f"{kib(memory['ram'] - ram)}",
        at=(summary(node), f"{entry}, {node.loc}"),
        why=why,
        try_=tries,
    )


def alternatives(
    model: Model, scheme: Scheme, options: Options, ram: int
) -> Iterator[tuple[str, int]]:
    """Changes to the scheme that lower the memory, each with the bytes it then needs."""
    parameters = parameters_of(model.training.graph)
    chosen = scheme.resolve(parameters)

    def need(changed: Scheme, rules: Model = model) -> int:
        return assemble(rules, changed, options).memory["ram"]

    layers = sorted({p.layer for p in parameters if p.name in chosen})
    by_layer = {
        n: [p.name for p in parameters if p.layer == n and p.name in chosen] for n in layers
    }

    def behind(first: int) -> Scheme:
        kept = {n for layer in layers[first:] for n in by_layer[layer]}
        return scheme_of({n: c for n, c in chosen.items() if n in kept})

    if len(layers) > 1:
        first = smallest(lambda i: need(behind(i)) <= ram, range(1, len(layers)))
        yield f"the same from {by_layer[layers[first]][0]} on", need(behind(first))
    sliced = {p.name for p in parameters if p.channels > 1 and p.name in chosen}
    channels = {p.name: p.channels for p in parameters}
    for share, word in ((2, "half"), (4, "a quarter"), (8, "an eighth")) if sliced else ():
        fewer = scheme_of(thinned(chosen, channels, sliced, share))
        with suppress(SchemeError):  # of a weight with another use, which needs it whole
            yield f"{word} of the input channels of every weight", need(fewer)
    if any(rule.moments for rule in model.rules.rules.values()):
        yield "the same with plain SGD, which has no state", need(scheme, stateless(model))
    count = len(blocks(parameters))
    if count:
        k = largest(lambda k: need(preset(f"last-{k}", parameters)) <= ram, range(1, count + 1))
        yield f'update="last-{k}"', need(preset(f"last-{k}", parameters))
    for name in ("bias+last", "last"):
        yield f'update="{name}"', need(preset(name, parameters))


def scheme_of(chosen: Chosen) -> Scheme:
    exact = Scheme.of(chosen)
    return Scheme([Rule(r.params, c) for r, c in zip(exact.rules, chosen.values(), strict=True)])


def thinned(chosen: Chosen, channels: dict[str, int], sliced: set[str], share: int) -> Chosen:
    """The first of the channels that train already, fewer by a factor; at least one."""
    found: Chosen = {}
    for name, own in chosen.items():
        have = tuple(range(channels[name])) if own is None else own
        found[name] = have[: max(1, len(have) // share)] if name in sliced else own
    return found


def stateless(model: Model) -> Model:
    def plain(rule: UpdateRule) -> UpdateRule:
        kept = ("lr_scale", "weight_decay")
        return UpdateRule(Sgd, {k: v for k, v in rule.attrs.items() if k in kept})

    rules = {name: plain(rule) for name, rule in model.rules.rules.items()}
    return replace(model, rules=replace(model.rules, rules=rules))


def smallest(fits: Callable[[int], bool], numbers: Sequence[int]) -> int:
    """The first number that fits, if larger ones fit too; else the last."""
    low, high = 0, len(numbers) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(numbers[middle]) else (middle + 1, high)
    return numbers[low]


def largest(fits: Callable[[int], bool], numbers: Sequence[int]) -> int:
    """The last number that fits, if smaller ones fit too; else the first."""
    return smallest(fits, list(reversed(numbers)))
