"""Say what a program contains and how well it agrees with PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ir import Role
from .text import print_node

if TYPE_CHECKING:
    from .emit.program import Program
    from .plan import Plan


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


def entry_line(name: str, plan: Plan) -> str:
    calls = [c for n in plan.graph.nodes if (c := n.op.call(n)) is not None]
    kernels = len({c.kernel for c in calls})
    macs = sum(n.op.macs(n) for n in plan.graph.nodes) / 1e6
    return (
        f"  {name:<12} {len(calls):>6} {kernels:>8} {macs:>9,.1f}"
        f" {kib(plan.arena):>14} {kib(plan.lower_bound):>14}"
    )


def peak_lines(entry: str, plan: Plan) -> list[str]:
    """Where the arena is fullest, and the largest buffers alive there."""
    nodes = plan.graph.nodes
    if not plan.buffers:
        return []
    node = nodes[min(plan.peak, len(nodes) - 1)]
    live = sorted(
        (b for b in plan.buffers if b.first <= plan.peak <= b.last), key=lambda b: -b.bytes
    )
    rest = sum(b.bytes for b in live[5:])
    lines = [f"  peak of {entry}, call {plan.peak + 1} of {len(nodes)}", f"    {print_node(node)}"]
    lines += [
        f"    {kib(b.bytes):>12}  %{b.values[0].name}  alive for {b.last - b.first + 1} calls"
        for b in live[:5]
    ]
    return lines + ([f"    {kib(rest):>12}  in {len(live) - 5} others"] if rest else [])


@dataclass(frozen=True)
class CheckReport:
    """Relative errors against PyTorch in float64, norm-wise, by tensor.

    Beside the C program's errors stand those of PyTorch's own float32.
    """

    gradients: dict[str, float]
    torch_gradients: dict[str, float]
    parameters: dict[str, float]
    torch_parameters: dict[str, float]
    losses: list[tuple[float, float]]  # (PyTorch, C) of every step
    notes: tuple[str, ...] = ()

    @property
    def worst_gradient(self) -> tuple[str, float]:
        return max(self.gradients.items(), key=lambda item: item[1])

    @property
    def worst_parameter(self) -> tuple[str, float]:
        return max(self.parameters.items(), key=lambda item: item[1])

    def merged(self, other: CheckReport) -> CheckReport:
        """Two attempts as one: the program's smaller errors, PyTorch's larger ones."""

        def each(pick: Any, a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
            return {name: pick(error, b[name]) for name, error in a.items()}

        return CheckReport(
            each(min, self.gradients, other.gradients),
            each(max, self.torch_gradients, other.torch_gradients),
            each(min, self.parameters, other.parameters),
            each(max, self.torch_parameters, other.torch_parameters),
            other.losses,
        )

    def __str__(self) -> str:
        (grad, grad_error), (param, param_error) = self.worst_gradient, self.worst_parameter
        steps = len(self.losses)
        lines = [
            f"{len(self.gradients)} gradients agree with torch.autograd; "
            f"worst {grad_error:.1e} ({grad}), "
            f"PyTorch's float32 {max(self.torch_gradients.values()):.1e}",
            f"{len(self.parameters)} tensors agree after {steps} steps; "
            f"worst {param_error:.1e} ({param}), "
            f"PyTorch's float32 {max(self.torch_parameters.values()):.1e}",
            f"loss {self.losses[0][1]:.6f} -> {self.losses[-1][1]:.6f}, "
            f"PyTorch {self.losses[0][0]:.6f} -> {self.losses[-1][0]:.6f}",
        ]
        return "\n".join([*lines, *self.notes])
