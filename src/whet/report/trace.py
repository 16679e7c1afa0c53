"""A run of some training steps as a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..ir import Node
from ..ir.printing import summary
from ..memory.plan import Plan
from ..names import quoted
from .phases import phases_of

PROCESS, THREAD = 1, 1


@dataclass(frozen=True)
class Slice:
    """One kernel call: when it began and how long it took, in the unit of its timeline."""

    node: Node
    begin: float
    took: float


@dataclass(frozen=True)
class Timeline:
    """Steps one after the other; `unit` is "nanoseconds" or "instructions"."""

    steps: tuple[tuple[Slice, ...], ...]
    unit: str


def chrome_trace(plan: Plan, timeline: Timeline, name: str) -> dict[str, Any]:
    """The Trace Event Format: a slice for every call, and the bytes in use as a counter.

    Times are microseconds there; an instruction is shown as a nanosecond, and `otherData` says so.
    """
    start = timeline.steps[0][0].begin if timeline.steps and timeline.steps[0] else 0.0
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": quoted(name)}},
        {"ph": "M", "pid": PROCESS, "tid": THREAD, "name": "thread_name",
         "args": {"name": plan.graph.name}},
    ]  # fmt: skip
    places = {node: i for i, node in enumerate(plan.graph.nodes)}
    phases, used = phases_of(plan.graph), bytes_in_use(plan)
    for number, step in enumerate(timeline.steps):
        events += step_events(number, step, start, plan.graph.name)
        for call in step:
            at = places[call.node]
            events.append(call_event(call, start, phases[call.node]))
            events.append(counter(call.begin - start, used[at]))
        if step:
            events.append(counter(step[-1].begin + step[-1].took - start, 0))
    unit = {"unit": timeline.unit, "one nanosecond": f"1 {timeline.unit.removesuffix('s')}"}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": unit}


def step_events(
    number: int, step: tuple[Slice, ...], start: float, name: str
) -> Iterator[dict[str, Any]]:
    """The whole step, below which its calls are shown."""
    if step:
        begin, end = step[0].begin, step[-1].begin + step[-1].took
        yield slice_event(f"{name} {number + 1}", "step", begin - start, end - begin, {})


def call_event(call: Slice, start: float, phase: str) -> dict[str, Any]:
    node, layer = call.node, quoted(call.node.loc.module)
    kernel = node.op.call(node)
    args = {"layer": layer, "kernel": kernel.kernel if kernel else "", "node": summary(node)}
    name = f"{node.op.name} {layer}".strip()
    return slice_event(name, phase, call.begin - start, call.took, args)


def slice_event(
    name: str, kind: str, begin: float, took: float, args: dict[str, str]
) -> dict[str, Any]:
    times = {"ts": begin / 1000, "dur": took / 1000}
    return {"ph": "X", "pid": PROCESS, "tid": THREAD, "name": name, "cat": kind, **times,
            "args": args}  # fmt: skip


def counter(at: float, count: int) -> dict[str, Any]:
    return {"ph": "C", "pid": PROCESS, "name": "arena", "ts": at / 1000,
            "args": {"bytes in use": count}}  # fmt: skip


def bytes_in_use(plan: Plan) -> list[int]:
    """Of the arena, at each node."""
    used = [0] * len(plan.graph.nodes)
    for b in plan.buffers:
        for i in range(b.first, min(b.last + 1, len(used))):
            used[i] += b.bytes
    return used
