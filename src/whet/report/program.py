"""Say what a program contains: memory by kind, entry points, and where the arena is fullest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..ir import Call, Codebook, DType, Live
from ..ir.printing import summary
from ..names import printable, quoted
from ..scheme import DEFAULT
from .kept import kept_buffers

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..memory.plan import Buffer, Plan


def kib(n: int) -> str:
    return f"{n:,} B" if n < 10240 else f"{n / 1024:,.1f} KiB"


def exactly(n: int) -> str:
    return f"{n:>14,} B"


def gap(arena: int, bound: int) -> str:
    return f"{100 * (arena - bound) / bound:.1f} %" if bound else "0.0 %"


def program_report(program: Program, measured: Mapping[str, int] | None = None) -> str:
    """With what was measured beside what was planned, if it has been."""
    memory, store, seen = program.memory, program.storage, measured or {}
    elements = sum(t.elements for t in store.params.values())
    parts = ("arena", "trained", "state", "io", "stack")
    padding = memory["ram"] - sum(memory[part] for part in parts)
    width = max(12, *map(len, program.plans))
    lines = [
        f"{program.name}: {program.parameters:,} parameters, {elements:,} of them trained "
        f"({len(store.params)} tensors)",
        *scheme_lines(program),
        "",
        f"  RAM                                 {exactly(memory['ram'])}"
        f"{beside(seen, 'built ram', 'measured, in the built program')}",
        f"    arena                             {exactly(memory['arena'])}"
        f"    lower bound {memory['lower_bound']:,}, gap "
        f"{gap(memory['arena'], memory['lower_bound'])}",
        f"    trained parameters                {exactly(memory['trained'])}",
        f"    optimizer and running state       {exactly(memory['state'])}",
        *moment_lines(program),
        *base_lines(program),
        f"    {program.target.io_words:<33} {exactly(memory['io'])}",
        *stack_lines(program, seen),
        f"    alignment                         {exactly(padding)}",
        f"  flash, code aside                   {exactly(memory['flash'])}"
        f"{beside(seen, 'built flash', 'measured, with the code')}",
        *(["    mapped from weights.bin"] if store.mapped else []),
        f"    frozen parameters and constants   {exactly(memory['frozen'])}",
        *narrow_lines(program),
        f"    initial values                    {exactly(memory['flash'] - memory['frozen'])}",
        "",
        f"  {'entry point':<{width}} {'calls':>6} {'kernels':>8} {'MMACs':>9}"
        f" {'arena':>14} {'bound':>14}",
    ]
    lines += [entry_line(name, plan, width) for name, plan in program.plans.items()]
    name, plan = max(program.plans.items(), key=lambda item: item[1].arena)
    return "\n".join([*lines, "", *training_against_inference(program), *peak_lines(name, plan)])


def beside(measured: Mapping[str, int], name: str, words: str) -> str:
    return f"{exactly(measured[name])} {words}" if name in measured else ""


def narrow_lines(program: Program) -> list[str]:
    """Frozen weights in fewer bits, those that are not, and what that changed."""
    if program.options.frozen is None:
        return []
    words = {"int8": "weights in 8 bits"}
    words["codebook"] = f"weights by {program.options.frozen.removeprefix('kmeans')}-bit codebooks"
    forms = program.narrow_forms or {"int8": 0}
    lines = [
        f"      {words.get(form, f'weights in {form} blocks'):<32}{exactly(size)}"
        for form, size in forms.items()
    ]
    if program.not_narrow:
        lines.append(f"      weights as they are used        {exactly(program.not_narrow)}")
    if program.rounded:
        name, error = max(program.rounded.items(), key=lambda item: item[1])
        count, how = len(program.rounded), "rounded"
        if program.options.frozen.startswith("kmeans"):
            how = "shared by k-means"
        were = "weight was" if count == 1 else "weights were"
        lines.append(
            f"      {count} {were} {how}; the largest error is "
            f"{100 * error:.1f} % of the norm of {quoted(name)}"
        )
    return lines


def product_lines(program: Program) -> list[str]:
    """Linear layers of a step whose products are rounded."""
    if not program.options.products:
        return []
    counts = {word: len(nodes) for word, nodes in program.rounded_products.items()}
    words = [f"{count} multiply {word}" for word, count in counts.items() if count]
    return [f"linear layers and their gradients: {', '.join(words) or 'none is rounded'}"]


def stack_lines(program: Program, measured: Mapping[str, int]) -> list[str]:
    """Only if the target reserves a stack; elsewhere the operating system provides it."""
    if not program.target.stack:
        return []
    line = f"    stack                             {exactly(program.memory['stack'])}"
    return [line + beside(measured, "stack", "used, measured in a run")]


def moment_lines(program: Program) -> list[str]:
    """Only if moments of an optimizer are in fewer bits."""
    size = sum(t.bytes for t in program.storage.state.values() if t.dtype is DType.BF16)
    return [f"      moments in bf16                 {exactly(size)}"] if size else []


def others(count: int) -> str:
    return f"{count} others" if count > 1 else "1 other"


def base_lines(program: Program) -> list[str]:
    """What an update to send takes."""
    if program.delta is None:
        return []
    return [f"      copy from the start of a round  {exactly(program.delta.base_bytes)}"]


def scheme_lines(program: Program) -> list[str]:
    lines = program.target.report_lines(program)
    if program.delta is not None:
        lines.append(f"update to send: {program.delta.words}; {program.delta.bytes:,} B at most")
    if program.scheme is not None and program.scheme.name:
        name = " ".join(printable(program.scheme.name).split())
        default = ", the default" if name == DEFAULT else ""
        lines.append(f"update scheme: {name}{default}")
    idle = [name for name in program.chosen if name not in program.trained]
    if idle:
        lines.append(f"chosen, but the loss does not depend on it: {', '.join(map(quoted, idle))}")
    lines += [sparse_line(part) for part in program.parts.values()
              if isinstance(part, Live)]  # fmt: skip
    lines += [
        f"shared: {quoted(part.parameter)} trains {part.entries} values of {part.elements:,} "
        "elements"
        for part in program.parts.values()
        if isinstance(part, Codebook)
    ]
    lines += factor_lines(program) + cache_lines(program) + product_lines(program)
    if program.options.without:
        lines.append(f"compiled without: {', '.join(sorted(program.options.without))}")
    return lines


def factor_lines(program: Program) -> list[str]:
    """Which weights are adapted by LoRA."""
    kinds: dict[tuple[int, float], list[str]] = {}
    for name, own in program.factors.items():
        kinds.setdefault((own.rank, own.scale), []).append(name)
    return [
        f"LoRA: factors of rank {rank}, times {scale:g}, train beside "
        + (f"{len(names)} weights, {quoted(names[0])} first" if names[1:] else quoted(names[0]))
        for (rank, scale), names in kinds.items()
    ]


def cache_lines(program: Program) -> list[str]:
    """What is kept of a sample, and what a step from it saves."""
    if not program.kept:
        return []
    whole, rest = (macs(program.plans[name]) for name in ("train_step", "train_step_kept"))
    size, share = kib(program.kept_bytes), 100 * (1 - rest / whole)
    return [
        f"kept of a sample: {size}; a step from it takes {share:.1f} % fewer multiply-accumulates"
    ]


def sparse_line(part: Live) -> str:
    how = "stored whole" if part.whole else "the others are not stored"
    count = f"{part.count:,} of {part.elements:,} elements"
    return f"pruned: {quoted(part.parameter)} trains {count}, {how}"


def training_against_inference(program: Program) -> list[str]:
    arena = {name: plan.arena for name, plan in program.plans.items()}
    step, predict = arena["train_step"], arena["predict"]
    if not predict:
        return []
    kept = sum(b.bytes for b in kept_buffers(program.plans["train_step"]))
    return [
        f"  a training step needs {step / predict:.2f} times the arena of a prediction; "
        f"{kib(kept)} are kept for the backward pass",
        "",
    ]


def kernel_calls(plan: Plan) -> list[Call]:
    return [c for n in plan.graph.nodes if (c := n.op.call(n)) is not None]


def macs(plan: Plan) -> int:
    return sum(n.op.macs(n) for n in plan.graph.nodes)


def live_at_peak(plan: Plan) -> list[Buffer]:
    """The buffers alive where the arena is fullest, the largest first."""
    live = (b for b in plan.buffers if b.first <= plan.peak <= b.last)
    return sorted(live, key=lambda b: -b.bytes)


def entry_line(name: str, plan: Plan, width: int) -> str:
    calls = kernel_calls(plan)
    kernels = len({c.kernel for c in calls})
    return (
        f"  {name:<{width}} {len(calls):>6} {kernels:>8} {macs(plan) / 1e6:>9,.1f}"
        f" {kib(plan.arena):>14} {kib(plan.lower_bound):>14}"
    )


def lifetime(plan: Plan, b: Buffer) -> str:
    nodes = plan.graph.nodes[b.first : b.last + 1]
    calls = max(1, sum(n.op.call(n) is not None for n in nodes))  # a view is none
    return f"alive for {calls} call{'s' if calls > 1 else ''}"


def peak_lines(entry: str, plan: Plan) -> list[str]:
    """Where the arena is fullest, and the largest buffers alive there."""
    nodes = plan.graph.nodes
    if not plan.buffers:
        return []
    node = nodes[min(plan.peak, len(nodes) - 1)]
    live = live_at_peak(plan)
    rest = sum(b.bytes for b in live[5:])
    calls = [n.op.call(n) is not None for n in nodes]
    at = f"call {sum(calls[: plan.peak + 1])} of {sum(calls)}"
    lines = [f"  peak of {entry}, {at}", f"    {summary(node)}"]
    lines += [f"    {kib(b.bytes):>12}  {b.values[0]}  {lifetime(plan, b)}" for b in live[:5]]
    return lines + ([f"    {kib(rest):>12}  in {others(len(live) - 5)}"] if rest else [])
