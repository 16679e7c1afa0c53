"""Train two factors beside the frozen weight of a linear layer, as in LoRA (arXiv:2106.09685)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from ..errors import SchemeError
from ..ir import Builder, DType, Factors, Graph, Node, Role, Value, f32
from ..ops.binary import Add, Mul
from ..ops.linear import Bmm, Linear
from ..ops.shape import Reshape, Transpose
from .rewriting import Uses, rewrite


def find_factors(graph: Graph, wanted: Mapping[str, tuple[int, float]]) -> dict[str, Factors]:
    """The factors beside each of the `wanted` parameters, for which rank and scale are given.

    Refused are weights that anything but linear layers reads, and those of integers.
    """
    uses = Uses(graph)
    taken = {leaf.name for leaf in graph.leaves}
    found: dict[str, Factors] = {}
    for node in graph.nodes:
        if node.op in (Reshape, Transpose):
            continue
        for place, value in enumerate(node.ins):
            leaf, turned = source(uses, value)
            if leaf.name not in wanted:
                continue
            if leaf.type.dtype is not DType.F32:
                raise refused(leaf, node, "it is made of integers; factors train in float programs")
            own = factors_of(node, place, leaf, turned, *wanted[leaf.name])
            if found.setdefault(leaf.name, own) != own:
                raise refused(leaf, node, "layers read it in two ways")
            if taken.intersection(own.names):
                raise refused(leaf, node, f"the model has a parameter {own.names[0]}")
    return found


def factors_of(
    node: Node, place: int, leaf: Value, turned: bool, rank: int, scale: float
) -> Factors:
    """Those beside the weight of this layer, which is the leaf, or its transpose if `turned`."""
    if place != 1 or node.op not in (Linear, Bmm):
        raise refused(leaf, node, f"{node.op.name} reads it, which is no linear layer")
    outputs, inputs = node.ins[1].shape[-2:]
    if node.op is Bmm and not node.attrs.tb:
        outputs, inputs, turned = inputs, outputs, not turned
    if leaf.shape != ((inputs, outputs) if turned else (outputs, inputs)):
        raise refused(leaf, node, "the layer reads it in another shape")
    return Factors(leaf.name, rank, scale, inputs, outputs, turned)


def add_factors(graph: Graph, factors: Mapping[str, Factors]) -> Graph:
    """linear(x, w) becomes linear(x, w) + scale * linear(linear(x, w.lora_A), w.lora_B).

    The small product is scaled. w stays as it is, and frozen.
    """
    uses = Uses(graph)
    leaves: dict[str, list[Value]] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op not in (Linear, Bmm):
            return None
        leaf, _ = source(uses, node.ins[1])
        if (own := factors.get(leaf.name)) is None:
            return None
        if leaf.name not in leaves:
            starts = zip(own.names, own.start(), strict=True)
            leaves[leaf.name] = [
                b.leaf(name, f32(*numbers.shape), Role.PARAM, numbers) for name, numbers in starts
            ]
        (down, up), x, name = leaves[leaf.name], node.ins[0], node.out.name
        frozen = b.emit(node.op, *node.ins, name=f"{name}.frozen", **asdict(node.attrs))
        if node.op is Bmm and node.attrs.ta:
            x = b.emit(Transpose, x, name=f"{name}.in", perm=(0, 2, 1))
        low = b.emit(Linear, x, down, name=f"{name}.lora_A")
        if own.scale != 1:
            low = b.emit(Mul, low, b.const(own.scale), name=f"{name}.lora_A")
        return (b.emit(Add, frozen, b.emit(Linear, low, up, name=f"{name}.lora_B"), name=name),)

    return rewrite(graph, rule)


def source(uses: Uses, value: Value) -> tuple[Value, bool]:
    """The leaf that a value is a view of, and whether it is transposed."""
    maker = uses.producer.get(value)
    if maker is None or maker.op not in (Reshape, Transpose):
        return value, False
    leaf, turned = source(uses, maker.ins[0])
    if maker.op is Transpose:
        turned ^= maker.attrs.perm[-2:] != tuple(range(value.type.rank))[-2:]
    return leaf, turned


def refused(leaf: Value, node: Node, why: str) -> SchemeError:
    return SchemeError(f"{leaf} cannot be adapted by LoRA", at=str(node.loc), why=why)
