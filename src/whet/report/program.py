"""Say what a program contains: memory by kind, entry points, and where the arena is fullest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import Call, Role
from ..text import print_node

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..plan import Buffer, Plan


def kib(n: int) -> str:
    return f"{n:,} B" if n < 10240 else f"{n / 1024:,.1f} KiB"


def gap(arena: int, bound: int) -> str:
    return f"{100 * (arena - bound) / bound:.1f} %" if bound else "0.0 %"


def program_report(program: Program) -> str:
    memory, store = program.memory, program.storage
    elements = sum(t.elements for t in store.params.values())
    frozen = sum(
        v.type.elements
        for v in {
            v.name: v for g in program.entries.values() for v in g.leaves_of(Role.PARAM)
        }.values()
        if v.name not in store.params
    )
    ram = memory["arena"] + memory["trained"] + memory["state"]
    image = sum(t.bytes for t in store.stored.values())
    lines = [
        f"{program.name}: {elements + frozen:,} parameters, {elements:,} of them trained "
        f"({len(store.params)} tensors)",
        "",
        f"  RAM                                 {kib(ram):>14}",
        f"    arena                             {kib(memory['arena']):>14}"
        f"    lower bound {kib(memory['lower_bound'])}, gap "
        f"{gap(memory['arena'], memory['lower_bound'])}",
        f"    trained parameters                {kib(memory['trained']):>14}",
        f"    optimizer and running state       {kib(memory['state']):>14}",
        f"  program image                       {kib(image):>14}",
        f"    frozen parameters and constants   {kib(memory['frozen']):>14}",
        f"    initial values                    {kib(image - memory['frozen']):>14}",
        "",
        f"  {'entry point':<12} {'calls':>6} {'kernels':>8} {'MMACs':>9}"
        f" {'arena':>14} {'bound':>14}",
    ]
    lines += [entry_line(name, plan) for name, plan in program.plans.items()]
    name, plan = max(program.plans.items(), key=lambda item: item[1].arena)
    return "\n".join([*lines, "", *peak_lines(name, plan)])


def kernel_calls(plan: Plan) -> list[Call]:
    return [c for n in plan.graph.nodes if (c := n.op.call(n)) is not None]


def macs(plan: Plan) -> int:
    return sum(n.op.macs(n) for n in plan.graph.nodes)


def live_at_peak(plan: Plan) -> list[Buffer]:
    """The buffers alive where the arena is fullest, the largest first."""
    live = (b for b in plan.buffers if b.first <= plan.peak <= b.last)
    return sorted(live, key=lambda b: -b.bytes)


def entry_line(name: str, plan: Plan) -> str:
    calls = kernel_calls(plan)
    kernels = len({c.kernel for c in calls})
    return (
        f"  {name:<12} {len(calls):>6} {kernels:>8} {macs(plan) / 1e6:>9,.1f}"
        f" {kib(plan.arena):>14} {kib(plan.lower_bound):>14}"
    )


def peak_lines(entry: str, plan: Plan) -> list[str]:
    """Where the arena is fullest, and the largest buffers alive there."""
    nodes = plan.graph.nodes
    if not plan.buffers:
        return []
    node = nodes[min(plan.peak, len(nodes) - 1)]
    live = live_at_peak(plan)
    rest = sum(b.bytes for b in live[5:])
    lines = [f"  peak of {entry}, call {plan.peak + 1} of {len(nodes)}", f"    {print_node(node)}"]
    lines += [
        f"    {kib(b.bytes):>12}  %{b.values[0].name}  alive for {b.last - b.first + 1} calls"
        for b in live[:5]
    ]
    return lines + ([f"    {kib(rest):>12}  in {len(live) - 5} others"] if rest else [])
