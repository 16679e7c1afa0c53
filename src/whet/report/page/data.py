"""What the page draws, as plain data: the blocks of an arena, the steps, the layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...ir import Graph, Node, Relation, Role, Value
from ...ir.printing import summary
from ...memory.plan import Buffer, Plan
from ...names import quoted
from ..kept import kept_buffers, loss_step
from ..layers import (
    gradient_buffers,
    layers,
    shares,
    table_row,
    updates_at_once,
    weight_owners,
)
from ..phases import phases_of

if TYPE_CHECKING:
    from ...emit.program import Program

# Kind of block -> its role, and words for it. The colours are those of the roles, in page.css.
KINDS: dict[str, tuple[str, str]] = {
    "kept": ("activation", "activation kept for the backward pass"),
    "passing": ("activation", "activation of the moment"),
    "input": ("activation", "input buffer"),
    "cotangent": ("gradient", "gradient of an activation"),
    "parameter": ("gradient", "gradient of a parameter"),
    "weight": ("weight", "weight"),
    "state": ("state", "state"),
    "scratch": ("scratch", "scratch memory"),
    "io": ("scratch", "arrays of the caller"),
}
NAMED = 3  # readers that are named in a reason


def as_script(data: Any) -> str:
    """JSON that means nothing to an HTML parser, whatever names are in it."""
    text = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def program_data(program: Program, label: str, budget: int | None) -> dict[str, Any]:
    """The training step of a program; `budget` is the RAM that it must fit in."""
    plan, memory = program.plans["train_step"], program.memory
    rest = memory["ram"] - memory["arena"]
    found = [layer for layer in layers(program) if layer.says_something]
    places = {layer.name: i for i, layer in enumerate(found)}
    story = Story(plan, places)
    return {
        "label": label,
        "arena": plan.arena,
        "bound": plan.lower_bound,
        "peak": plan.peak,
        "loss": story.loss,
        "ram": memory["ram"],
        "budget": budget,
        "room": None if budget is None else budget - rest,  # what is left for the arena
        "steps": story.steps(program.statements["train_step"]),
        "blocks": [story.block(i, b) for i, b in enumerate(plan.buffers)],
        "resident": resident(program, places, memory["ram"] - memory["arena"]),
        "layers": [table_row(layer) for layer in found],
    }


def resident(program: Program, places: dict[str, int], size: int) -> list[dict[str, Any]]:
    """RAM outside of the arena, of all the time: parameters, their state, arrays of the caller."""
    store, owners = program.storage, weight_owners(program.plans["train_step"].graph)
    layer_of = {v.name: places.get(name) for v, name in owners.items()}
    found: list[dict[str, Any]] = [
        {"name": quoted(name), "kind": kind, "bytes": t.bytes, "layer": layer_of.get(name)}
        for kind, table in (("weight", store.params), ("state", store.state))
        for name, t in table.items()
    ]
    rest = size - sum(block["bytes"] for block in found)
    if rest > 0:
        words = f"{program.target.io_words}, alignment"
        words += ", stack" if program.memory["stack"] else ""
        found.append({"name": words, "kind": "io", "bytes": rest, "layer": None})
    return found


class Story:
    """A plan in words: what every block is, who reads it, and why it is kept."""

    def __init__(self, plan: Plan, places: dict[str, int]) -> None:
        self.plan, self.graph, self.places = plan, plan.graph, places
        self.loss, self.phases = loss_step(plan.graph), phases_of(plan.graph)
        self.kept, self.gradients = set(kept_buffers(plan)), gradient_buffers(plan)
        self.scratch = set(plan.workspace.values())
        self.results = {plan.home[v] for v in plan.graph.outputs}
        self.owners = weight_owners(plan.graph)
        self.updates = {v: leaf for leaf, v in plan.graph.state if leaf in self.owners}
        self.calls = [n.op.call(n) is not None for n in plan.graph.nodes]

    @cached_property
    def readers(self) -> dict[Buffer, list[int]]:
        found: dict[Buffer, list[int]] = {}
        for i, node in enumerate(self.graph.nodes):
            if not self.calls[i]:
                continue  # a view reads nothing
            homes = {h for v in node.ins if isinstance(h := self.plan.home[v], Buffer)}
            for home in homes:
                found.setdefault(home, []).append(i)
        return found

    # Steps --------------------------------------------------------------------------------------

    def steps(self, lines: dict[Node, list[str]]) -> list[dict[str, Any]]:
        return [
            {
                "phase": self.phase(node),
                "ir": summary(node),
                "c": " ".join(line.strip() for line in lines[node]),
                "layers": [self.places[m] for m in self.modules(node) if m in self.places],
                "op": node.op.name,
            }
            for node in self.graph.nodes
        ]

    def phase(self, node: Node) -> str:
        return "fused" if updates_at_once(node) else self.phases[node]

    def modules(self, node: Node) -> list[str]:
        """Its layers; an update belongs to the layer of its parameter."""
        leaf = next((self.updates[v] for v in node.outs if v in self.updates), None)
        return [name for name, _, _ in shares(node)] if leaf is None else [self.owners[leaf]]

    # Blocks -------------------------------------------------------------------------------------

    def block(self, number: int, b: Buffer) -> dict[str, Any]:
        kind, maker = self.kind(b), self.graph.nodes[b.first]
        modules = [self.owners[self.gradients[b]]] if b in self.gradients else self.modules(maker)
        return {
            "name": quoted(b.values[0].name),
            "others": [quoted(v.name) for v in b.values[1:]],
            "type": str(b.values[0].type),
            "kind": kind,
            "bytes": b.bytes,
            "offset": b.offset,
            "first": b.first,
            "last": b.last,
            "calls": max(1, sum(self.calls[b.first : b.last + 1])),
            "reads": self.readers.get(b, []),
            "layer": next((self.places[m] for m in modules if m in self.places), None),
            "why": self.why(b, kind),
        }

    def kind(self, b: Buffer) -> str:
        value = b.values[0]
        if value in self.scratch:
            return "scratch"
        if value.role in (Role.INPUT, Role.CACHE):
            return "input" if value.role is Role.INPUT else "state"
        if b in self.gradients:
            return "parameter"
        maker = self.graph.nodes[b.first]
        if maker.ins and all(v.role in (Role.PARAM, Role.CONST) for v in maker.ins):
            return "weight"  # in another form, made for the layers that read it
        if b in self.kept:
            return "kept"
        if b.first <= self.loss or value.name.endswith(".again"):
            return "passing"
        return "cotangent"

    def why(self, b: Buffer, kind: str) -> str:
        late = [i for i in self.readers.get(b, []) if i > self.loss]
        if kind == "scratch":
            return "scratch memory of one kernel call"
        if b in self.results:
            return "a result of the step"
        if kind == "kept" and late:
            return f"the backward pass reads it: {self.named(late)}"
        read = self.named(self.readers.get(b, []))
        if kind == "parameter":
            return f"gradient of {quoted(self.gradients[b].name)}, for {read or 'its update'}"
        return f"read by {read}" if read else "nothing reads it"

    def named(self, steps: Sequence[int]) -> str:
        words = [self.reader(self.graph.nodes[i]) for i in steps[:NAMED]]
        more = len(steps) - len(words)
        return ", ".join(words) + (f" and {more} more" if more else "")

    def reader(self, node: Node) -> str:
        names = [quoted(m) for m in self.modules(node) if m]
        return f"{node.op.name} of {names[0]}" if names else node.op.name


def moments(graph: Graph) -> dict[str, int]:
    """Bytes of optimizer state by parameter."""
    found: dict[str, int] = {}
    leaves: list[Value] = [v for v in graph.leaves_of(Role.STATE) if v.is_a(Relation.MOMENT)]
    for v in leaves:
        assert v.link is not None
        found[v.link.of] = found.get(v.link.of, 0) + v.type.bytes
    return found
