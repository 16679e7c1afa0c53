"""What a graph uses its parameters for: the facts that rules and presets are about."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir import Graph, Node, Role, Value
from ..ops.shape import Reshape, Take, Transpose
from .structure import Structure, matrix_place


@dataclass(frozen=True)
class Parameter:
    """A parameter and its last use: `layer` counts convolutions and linear layers from 0.

    `channels` is how many input channels a layer's weight has, per group (for depthwise: in
    all), and 0 for anything that cannot train by channels. A weight that is used `otherwise` as
    well, transposed or in a sum, say, has them but trains whole.

    `role` says what it is for in a transformer, or is empty: query, key, value, qkv (several of
    them in one) and output for what belongs to the projections of attention; up for the linear
    layers that a feed-forward network begins with (the gate among them) and down for those behind;
    embedding; norm; head for the last layer, or vocabulary head if that has an output for each row
    of the largest embedding. `linear`: it is the weight of linear layers alone, stored either way.
    `tied`: it is an embedding and the weight of a layer as well.
    """

    name: str
    kind: str  # "weight", "bias", "norm weight", "norm bias" or "other"
    layer: int
    channels: int
    otherwise: bool = False
    role: str = ""
    linear: bool = False
    tied: bool = False

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def block(self) -> str:
        return block_of(self.name)


def block_of(name: str) -> str:
    """The path down to the last number of its first run: features.3, layer4.1, blocks.2.0."""
    match = re.match(r"[^.]*(?:\.\D[^.]*)*?(?:\.\d+)+(?=\.)", name)
    return match[0] if match else name.rpartition(".")[0]


def parameters_of(forward: Graph) -> list[Parameter]:
    """Every parameter in order of first use.

    Of several uses the last one in a layer tells what a parameter is, so that a head which shares
    its weight with an embedding is still the head.
    """
    # Values made of parameters alone, with what they are made of: a view of one, or a weight that
    # is computed, as weight normalisation does.
    made_of: dict[Value, tuple[Value, ...]] = {v: (v,) for v in forward.leaves_of(Role.PARAM)}
    views, reshaped = set(made_of), set(made_of)
    found: dict[str, Parameter] = {}
    otherwise: set[str] = set()
    uses = Uses()
    layer = -1
    for node in forward.nodes:
        layer += node.op.layer is not None
        for place, value in enumerate(node.ins):
            for leaf in made_of.get(value, ()):
                described = _describe(leaf.name, node, place, layer, value in views)
                if leaf.name not in found or described.kind != "other":
                    found[leaf.name] = described
                as_weight = is_weight(node, place)
                if value not in reshaped or not (as_weight or node.op is Reshape):
                    otherwise.add(leaf.name)
        if node.ins and all(v in made_of or v.role is Role.CONST for v in node.ins):
            leaves = tuple(dict.fromkeys(leaf for v in node.ins for leaf in made_of.get(v, ())))
            made_of.update((out, leaves) for out in node.outs)
            if node.op in (Reshape, Transpose) and node.ins[0] in views:
                views.update(node.outs)
            if node.op is Reshape and node.ins[0] in reshaped:
                reshaped.update(node.outs)
        uses.see(node, made_of, views)
    known = [replace(p, otherwise=p.name in otherwise and p.channels > 0) for p in found.values()]
    return with_roles(known, uses, Structure(forward, made_of, block_of).roles())


@dataclass
class Uses:
    """Which parameters linear layers multiply by, which are looked up, and which serve else."""

    linear: dict[str, int] = field(default_factory=dict)  # the number of outputs
    looked_up: dict[str, int] = field(default_factory=dict)  # the number of rows
    else_: set[str] = field(default_factory=set)

    def see(
        self, node: Node, made_of: Mapping[Value, tuple[Value, ...]], views: Collection[Value]
    ) -> None:
        """Note every use of a parameter that is more than a view of it."""
        matrix = matrix_place(node, made_of)
        for place, value in enumerate(node.ins):
            for leaf in made_of.get(value, ()):
                if value in views and place == matrix:
                    self.linear[leaf.name] = node.out.shape[-1]
                elif node.op is Take and place == 0 and value is leaf:
                    self.looked_up[leaf.name] = leaf.shape[0]
                elif value not in views or node.out not in views:
                    self.else_.add(leaf.name)


def with_roles(
    parameters: Sequence[Parameter], uses: Uses, roles: Mapping[str, str]
) -> list[Parameter]:
    """The parameters with what they are for; a bias is for what the weight of its module is."""
    last = max((p.layer for p in parameters if p.kind == "weight"), default=-1)
    rows = max(uses.looked_up.values(), default=0)
    modules: dict[str, str] = {}

    def role_of(p: Parameter) -> str:
        if p.name in roles:
            return roles[p.name]
        if p.name in uses.looked_up:
            return "embedding"
        if p.kind.startswith("norm"):
            return "norm"
        if p.kind == "weight" and p.layer == last:
            return "vocabulary head" if rows and uses.linear.get(p.name) == rows else "head"
        return ""

    for p in parameters:
        if p.kind in ("weight", "other") and (role := role_of(p)):
            modules[p.module] = role
    return [
        replace(
            p,
            role=modules.get(p.module, "") if p.kind == "bias" else role_of(p),
            linear=p.name in uses.linear and p.name not in uses.else_ | uses.looked_up.keys(),
            tied=p.name in uses.linear and p.name in uses.looked_up,
        )
        for p in parameters
    ]


def is_weight(node: Node, place: int) -> bool:
    """Whether the operand at this place is the weight of a layer."""
    return node.op.layer is not None and place == node.op.layer.weight


def _describe(name: str, node: Node, place: int, layer: int, direct: bool) -> Parameter:
    """What this use of a parameter says; `direct` if the operand is it and not made from it."""
    facts = node.op.layer
    if facts is not None and place == facts.weight:
        groups = node.attrs.groups if facts.inputs_of_all_groups else 1
        channels = node.ins[place].shape[facts.inputs] // groups
        return Parameter(name, "weight", layer, channels if direct else 0)
    if node.op.norm and place > 0:
        return Parameter(name, "norm weight" if place == 1 else "norm bias", layer, 0)
    kind = "bias" if facts is not None or name.endswith(".bias") else "other"
    # A normalisation that a model spells out is not one operator; it is known by its name.
    if "norm" in f"{node.loc.module.rpartition('.')[2]} {node.loc.op}".lower():
        kind = "norm bias" if kind == "bias" else "norm weight"
    return Parameter(name, kind, layer, 0)
