"""What belongs to what is said by links, whatever a model calls its layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import mlp
from whet.ir import DType, Link, Relation, Value
from whet.ir.text import parse_graph
from whet.report.layers import layers
from whet.report.picture import buffer_kinds


class Misleading(nn.Module):
    """Names with the endings that the compiler gives to values of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.d = nn.Linear(6, 6)
        self.scaling = nn.ParameterDict({"part": torch.rand(6), "grad": torch.rand(6)})
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = torch.tanh(self.d(x)) * self.scaling["part"] + self.scaling["grad"]
        return self.head(h)


def links(program: whet.Program, entry: str) -> dict[str, Link]:
    return {v.name: v.link for v in program.entries[entry].leaves if v.link is not None}


def test_companions_of_parameters_are_linked_to_them() -> None:
    model = mlp()
    adam = torch.optim.Adam(model.parameters())
    program = whet.compile(model, (torch.randn(4, 5),), optimizer=adam, accumulate=True)
    names = [name for name, _ in model.named_parameters()]
    moments = {f"{n}.{m}": Link(Relation.MOMENT, n) for n in names for m in ("mean", "square")}
    sums = {f"{n}.grad": Link(Relation.GRADIENT_SUM, n) for n in names}
    assert links(program, "train_step") == moments
    assert links(program, "gradients") == sums
    assert links(program, "apply") == moments | sums


@pytest.mark.parametrize(
    ("rounding", "relation"), [("carry8", Relation.CARRY), ("master", Relation.MASTER)]
)
def test_what_rounding_keeps_is_linked_and_follows_the_parameter(
    rounding: str, relation: Relation
) -> None:
    model, x = mlp().eval(), torch.randn(4, 5)
    int8 = whet.Int8(rounding=rounding)
    program = whet.compile(model, (x,), dtype=int8, calibrate=[x])
    found = links(program, "train_step")
    assert {link.relation for link in found.values()} == {relation}
    integers = {n for n, t in program.storage.params.items() if t.dtype is not DType.F32}
    assert {link.of for link in found.values()} == integers and integers
    trainer = program.load()
    trainer.step(x, torch.arange(4) % 3, lr=5.0)
    trainer.load_state_dict(model.state_dict())
    for name, link in found.items():
        beside, own = trainer.stored(name), trainer.stored(link.of)
        expected = np.zeros_like(own) if relation is Relation.CARRY else own
        assert np.array_equal(np.rint(beside), expected), name


def test_a_part_is_linked_to_its_parameter_in_every_entry_point() -> None:
    scheme = whet.Scheme([whet.Rule("fc1.weight", 0.5)])
    program = whet.compile(mlp(), (torch.randn(4, 5),), update=scheme, accumulate=True)
    (name,) = program.parts
    for entry in ("train_step", "gradients", "apply"):
        assert links(program, entry)[name] == Link(Relation.PART, "fc1.weight")
    (layer,) = [layer for layer in layers(program) if layer.trained != "no" and layer.kinds]
    assert layer.kinds == ("some of weight",)


def test_a_model_may_use_the_names_of_the_compiler() -> None:
    model, x, y = Misleading(), torch.randn(4, 6), torch.arange(4) % 3
    program = whet.compile(model, (x,), accumulate=True)
    kinds = {kind for layer in layers(program) for kind in layer.kinds}
    assert kinds == {"weight", "bias", "part", "grad"}
    trainer = program.load()
    trainer.gradients(x, y)
    nn.functional.cross_entropy(model(x), y).backward()
    collected = trainer.collected()
    assert set(collected) == {name for name, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        assert p.grad is not None
        assert np.allclose(collected[name], p.grad.numpy(), atol=1e-6), name


def test_only_the_backward_pass_makes_cotangents() -> None:
    program = whet.compile(Misleading(), (torch.randn(4, 6),), clip_norm=1.0)
    plan = program.plans["train_step"]
    made = [v for node in plan.graph.nodes for v in node.outs]
    loss = made.index(plan.graph.outputs[0])
    assert not any(v.is_a(Relation.COTANGENT) for v in made[: loss + 1])
    kinds = {b.values[0].name: kind for b, kind in buffer_kinds(plan).items()}
    assert "cotangent" in kinds.values()
    squares = [name for name in kinds if name.endswith(".squares")]
    assert len(squares) == 6 and {kinds[name] for name in squares} == {"other"}


def test_links_are_not_printed_and_a_parsed_graph_has_none() -> None:
    program = whet.compile(mlp(), (torch.randn(4, 5),), accumulate=True)
    for graph in program.entries.values():
        again = parse_graph(str(graph), graph.data)
        values: list[Value] = [*again.leaves, *(v for n in again.nodes for v in n.outs)]
        assert str(again) == str(graph)
        assert all(v.link is None for v in values)
