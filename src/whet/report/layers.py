"""What each layer of a model costs to train: memory, multiply-accumulates, and what of it trains.

A layer is a module of the model by its path. Everything is read off the entry point `train_step`
and counted once, so that the layers add up to the program: a buffer belongs to the layer that
first fills it, and a parameter to the first layer that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..ir import Graph, Node, Relation, Role, Value
from ..ir.printing import print_node
from ..memory.plan import Buffer
from ..names import quoted
from ..ops.fused_update import FusedUpdate
from ..ops.live_update import LiveUpdate
from ..ops.stream import StreamOp, stage_macs
from ..ops.take_update import TakeUpdate
from .kept import kept_buffers, loss_step
from .program import kernel_calls, kib, live_at_peak, macs

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..memory.plan import Plan

NUMBERS = (
    "kept_bytes",
    "trained_bytes",
    "frozen_bytes",
    "gradient_bytes",
    "forward_macs",
    "backward_macs",
)


@dataclass(frozen=True)
class Layer:
    """One layer; the caller's input lies outside the arena and is in no layer's bytes."""

    name: str  # the module's path; empty for what the model's own forward does
    kept_bytes: int  # of activations that wait in the arena for the backward pass
    trained_bytes: int  # of parameters
    frozen_bytes: int  # of parameters, and of constants such as folded weights
    gradient_bytes: int  # of the arena, for gradients; those of other layers may lie there too
    forward_macs: int
    backward_macs: int
    trained: str  # "all", "part" or "no" of its parameters; empty if it has none
    kinds: tuple[str, ...]  # of the trained ones: "weight", "bias"

    @property
    def label(self) -> str:
        return quoted(self.name) or "(forward)"

    @property
    def says_something(self) -> bool:
        return any(getattr(self, number) for number in NUMBERS)


def gradient_buffers(plan: Plan) -> dict[Buffer, Value]:
    """The buffers that hold a gradient, each with the leaf it is for.

    Whether a gradient changes its parameter or is added to a sum of gradients, the operator's
    first two operands are what changes and the gradient. A fused update makes the gradient in
    blocks, in its workspace.
    """
    graph = plan.graph
    makers = {v: node for node in graph.nodes for v in node.outs}
    found: dict[Buffer, Value] = {}
    for leaf, following in graph.state:
        node = makers.get(following)
        is_target = leaf.role is Role.PARAM or leaf.is_a(Relation.GRADIENT_SUM)
        if is_target and node is not None and len(node.ins) > 1:
            home = plan.home[plan.workspace[node] if updates_at_once(node) else node.ins[1]]
            if isinstance(home, Buffer):
                found.setdefault(home, leaf)
    return found


def updates_at_once(node: Node) -> bool:
    """Whether one call makes a gradient and spends it."""
    return issubclass(node.op, (FusedUpdate, LiveUpdate, TakeUpdate))


def weight_owners(graph: Graph) -> dict[Value, str]:
    """Parameters, and constants of more than one element, each with the layer that has it."""
    owners: dict[Value, str] = {}
    for node in graph.nodes:
        for module, _, operands in shares(node):
            for v in operands:
                if v.role is Role.PARAM or (v.role is Role.CONST and v.type.elements > 1):
                    owners.setdefault(v, module)
    return owners


def shares(node: Node) -> list[tuple[str, int, Sequence[Value]]]:
    """A node's layers, each with its multiply-accumulates and operands: one, or a stream's."""
    if not issubclass(node.op, StreamOp):
        return [(node.loc.module, node.op.macs(node), node.ins)]
    own = [operands for _, _, operands in node.op.split(node.attrs.stages, node.ins[1:])]
    modules = node.attrs.modules or [node.loc.module] * len(own)
    return list(zip(modules, stage_macs(node), own, strict=True))


def layers(program: Program) -> list[Layer]:
    """Every layer in forward order; a module that is called twice stands where it is first."""
    plan = program.plans["train_step"]
    graph, loss, owners = plan.graph, loss_step(plan.graph), weight_owners(plan.graph)
    # An update is emitted wherever its gradient is complete, so its own location says little.
    updates = {following: leaf for leaf, following in graph.state if leaf in owners}
    sums: dict[str, Counter[str]] = {}
    for i, node in enumerate(graph.nodes):
        leaf = next((updates[v] for v in node.outs if v in updates), None)
        number = "forward_macs" if i <= loss else "backward_macs"
        for module, count, _ in shares(node):
            name = module if leaf is None else owners[leaf]
            sums.setdefault(name, Counter())[number] += count
    for b in kept_buffers(plan):
        sums[graph.nodes[b.first].loc.module]["kept_bytes"] += b.bytes
    for b, leaf in gradient_buffers(plan).items():
        sums[owners[leaf]]["gradient_bytes"] += b.bytes
    trained = set(updates.values())
    for leaf, name in owners.items():
        sums[name]["trained_bytes" if leaf in trained else "frozen_bytes"] += leaf.type.bytes
    found = []
    for name, own in sums.items():
        share, kinds = what_trains([v for v in owners if owners[v] == name], trained)
        numbers = {number: own[number] for number in NUMBERS}
        found.append(Layer(name=name, trained=share, kinds=kinds, **numbers))
    return found


def what_trains(leaves: list[Value], trained: set[Value]) -> tuple[str, tuple[str, ...]]:
    """How much of a layer trains, and which kinds: the last part of a name, as in `conv.bias`."""
    # A frozen weight may have become a constant; constants of one axis are statistics and such.
    params = [v for v in leaves if v.role is Role.PARAM or v.type.rank > 1]
    chosen = [leaf for leaf in params if leaf in trained]
    kinds = tuple(dict.fromkeys(kind_of(leaf) for leaf in chosen))
    if not leaves:
        return "", kinds
    if not chosen:
        return "no", kinds
    return ("all" if chosen == params else "part"), kinds


def kind_of(leaf: Value) -> str:
    """`weight`, `bias`, or `some of weight` for the channels of one that train."""
    if leaf.link is not None and leaf.is_a(Relation.PART):
        return f"some of {quoted(leaf.link.of.rpartition('.')[2])}"
    return quoted(leaf.name.rpartition(".")[2])


def layer_table(program: Program) -> str:
    """The layers as aligned text, with a line of totals."""
    found = [layer for layer in layers(program) if layer.says_something]
    total = [sum(getattr(layer, number) for layer in found) for number in NUMBERS]
    head = ("layer", "kept", "trained", "frozen", "gradients", "MACs", "MACs back", "trains")
    lines = [head, *(table_row(layer) for layer in found), ("total", *cells(total), "")]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def aligned(line: tuple[str, ...]) -> str:
        middle = (f"{cell:>{w}}" for cell, w in zip(line[1:-1], widths[1:-1], strict=True))
        return "  ".join([f"{line[0]:<{widths[0]}}", *middle, line[-1]]).rstrip()

    return "\n".join(map(aligned, lines))


def table_row(layer: Layer) -> tuple[str, ...]:
    numbers = cells([getattr(layer, number) for number in NUMBERS])
    kinds = f": {', '.join(layer.kinds)}" if layer.trained == "part" else ""
    return (layer.label, *numbers, layer.trained + kinds)


def cells(numbers: Iterable[int]) -> list[str]:
    *sizes, forward, backward = numbers
    texts = [*map(kib, sizes), f"{forward:,}", f"{backward:,}"]
    return ["-" if text in ("0 B", "0") else text for text in texts]


def to_json(program: Program) -> dict[str, Any]:
    """All that the reports know, as plain data; bytes and counts are integers."""
    return {
        "name": program.name,
        "memory": program.memory,
        "entries": {name: entry_json(plan) for name, plan in program.plans.items()},
        "layers": [asdict(layer) | {"kinds": list(layer.kinds)} for layer in layers(program)],
    }


def entry_json(plan: Plan) -> dict[str, Any]:
    nodes, calls = plan.graph.nodes, kernel_calls(plan)
    peak = {
        "step": plan.peak,
        "node": print_node(nodes[min(plan.peak, len(nodes) - 1)]) if nodes else "",
        "live": [
            {
                "name": b.values[0].name,
                "bytes": b.bytes,
                "offset": b.offset,
                "first": b.first,
                "last": b.last,
            }
            for b in live_at_peak(plan)
        ],
    }
    return {
        "arena": plan.arena,
        "bound": plan.lower_bound,
        "calls": len(calls),
        "kernels": len({c.kernel for c in calls}),
        "macs": macs(plan),
        "peak": peak,
    }
