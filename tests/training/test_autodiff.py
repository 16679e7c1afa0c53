"""Gradients add up over all uses, stop where they should, and cost nothing where nobody asks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import whet
from rewriting import parse
from strategies import feed, graphs
from token_models import Tied
from whet.errors import FrontendError, ShapeError
from whet.ir import Array, Builder, Graph, Role, Value, f32
from whet.ir.interp import interpret
from whet.ops import by_name
from whet.training.autodiff import backward, loss_seed


def gradient_graph(forward: Graph, *names: str) -> Graph:
    """The loss, then the gradient of every named leaf that has one."""
    b = Builder.extend(forward, "gradients")
    b.state = []
    grads: dict[str, Value] = {}
    trained = [v for v in forward.leaves if v.name in names]
    loss = forward.outputs[0]
    seed = loss_seed(b, loss)
    backward(b, forward, {loss: seed}, trained, lambda v, g: grads.update({v.name: g}))
    return b.finish([loss, *(grads[n] for n in names if n in grads)])


def numeric(forward: Graph, values: dict[str, Array], name: str, step: float = 1e-5) -> Array:
    """Central differences in double precision."""
    start = np.asarray(values.get(name, forward.data.get(name)), np.float64)
    grad = np.zeros_like(start)
    for i in np.ndindex(start.shape):
        sides = []
        for sign in (1, -1):
            moved = start.copy()
            moved[i] += sign * step
            (loss,), _ = interpret(forward, {**values, name: moved}, real=np.float64)
            sides.append(float(loss))
        grad[i] = (sides[0] - sides[1]) / (2 * step)
    return grad


def agree(forward: Graph, *names: str, values: dict[str, Array] | None = None) -> Graph:
    """Assert that the gradients of the named leaves are the derivatives."""
    values = feed(forward) if values is None else values
    graph = gradient_graph(forward, *names)
    (_, *grads), _ = interpret(graph, values, real=np.float64)
    for name, grad in zip(names, grads, strict=True):
        np.testing.assert_allclose(grad, numeric(forward, values, name), rtol=1e-5, atol=1e-8)
    return graph


def operators(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


RESIDUAL = """
%x : f32[2,3] input; %w : f32[3,3] param; %v : f32[3,3] param
%h = linear %x, %w : f32[2,3]
%a = tanh %h : f32[2,3]
%r = linear %a, %v : f32[2,3]
%sum = add %h, %r : f32[2,3]
%square = mul %sum, %sum : f32[2,3]
%mean = mean %square {axes=(0, 1)} : f32[1,1]
%loss = reshape %mean {shape=()} : f32[]
return %loss"""


def random_data(**shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_both_paths_of_a_residual_reach_the_weight() -> None:
    forward = parse(RESIDUAL, random_data(w=(3, 3), v=(3, 3)))
    graph = agree(forward, "w", "v")
    text = str(graph)
    assert "%d.h_1 = add " in text or "%d.h = add " in text, "the two cotangents of %h are added"


def test_the_three_uses_of_a_value_add_up() -> None:
    forward = parse(
        """
%w : f32[2,2] param
%a = sigmoid %w : f32[2,2]
%b = mul %a, %a : f32[2,2]
%c = mul %b, %a : f32[2,2]
%sum = sum %c {axes=(0, 1)} : f32[1,1]
%loss = reshape %sum {shape=()} : f32[]
return %loss""",
        {"w": np.array([[0.5, -1.0], [2.0, 0.0]])},
    )
    graph = agree(forward, "w")
    (_, dw), _ = interpret(graph, {}, real=np.float64)
    s = 1 / (1 + np.exp(-np.array([[0.5, -1.0], [2.0, 0.0]])))
    np.testing.assert_allclose(dw, 3 * s**3 * (1 - s), rtol=1e-12)


def test_a_parameter_used_by_two_layers_gets_both_gradients() -> None:
    forward = parse(
        """
%x : f32[2,3] input; %w : f32[3,3] param
%h = linear %x, %w : f32[2,3]
%a = tanh %h : f32[2,3]
%y = linear %a, %w : f32[2,3]
%mean = mean %y {axes=(0, 1)} : f32[1,1]
%loss = reshape %mean {shape=()} : f32[]
return %loss""",
        random_data(w=(3, 3)),
    )
    graph = agree(forward, "w")
    assert operators(graph).count("linear_dw") == 2
    assert operators(graph)[-1] == "add"


def test_tied_weights_train_as_in_pytorch() -> None:
    torch.manual_seed(0)
    model = Tied()
    ids, labels = torch.randint(7, (2, 5)), torch.randint(7, (2, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    program = whet.compile(model, (ids,), optimizer=optimizer)
    step = program.entries["train_step"]
    assert [v.name for v in step.leaves_of(Role.PARAM)] == [
        "table.weight", "middle.weight", "middle.bias",
    ]  # fmt: skip
    assert operators(step).count("sgd") == 3, "one update for the one shared parameter"
    trainer = program.load()
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        assert trainer.step(ids, labels) == pytest.approx(loss.item(), rel=1e-5)
    trained = trainer.state_dict()
    torch.testing.assert_close(trained["table.weight"], model.out.weight.data, rtol=1e-4, atol=1e-6)


PLACED = """
%w : f32[3,2,2] param; %at : i32[2] const
%wide = {} : f32[3,5,2]
%cube = pow %wide {{exponent=3.0}} : f32[3,5,2]
%sum = sum %cube {{axes=(0, 1, 2)}} : f32[1,1,1]
%loss = reshape %sum {{shape=()}} : f32[]
return %loss"""


@pytest.mark.parametrize(
    "place, at",
    [
        ("slice_dx %w {axis=1, start=1, step=2, size=5}", (0, 0)),
        ("slice_dx %w {axis=1, start=3, step=1, size=5}", (0, 0)),
        ("take_dx %w, %at {axis=1, skip=-1, size=5}", (4, 1)),
        ("take_dx %w, %at {axis=1, skip=-1, size=5}", (2, 2)),
    ],
)
def test_the_gradient_of_an_index_can_itself_be_in_a_model(place: str, at: tuple[int, int]) -> None:
    data = random_data(w=(3, 2, 2)) | {"at": np.array(at, np.int32)}
    agree(parse(PLACED.format(place), data), "w")


BRANCHES = """
%x : f32[2,3] input; %w : f32[3,3] param; %v : f32[3,3] param
%left = linear %x, %w : f32[2,3]
%left.act = tanh %left : f32[2,3]
%right = linear %x, %v : f32[2,3]
%right.act = sigmoid %right : f32[2,3]
%both = mul %left.act, %right.act : f32[2,3]
%mean = mean %both {axes=(0, 1)} : f32[1,1]
%loss = reshape %mean {shape=()} : f32[]
return %loss"""


def test_an_untrained_branch_has_no_backward_nodes() -> None:
    forward = parse(BRANCHES, random_data(w=(3, 3), v=(3, 3)))
    both, left = agree(forward, "w", "v"), agree(forward, "w")
    assert operators(both).count("linear_dw") == 2
    assert {"tanh_dx", "sigmoid_dx"} <= set(operators(both))
    assert operators(left).count("linear_dw") == 1
    assert "tanh_dx" in operators(left) and "sigmoid_dx" not in operators(left)
    assert "linear_dx" not in operators(both), "nobody asks for the gradient of the input"


def test_no_gradient_at_all_means_no_backward_pass() -> None:
    forward = parse(BRANCHES, random_data(w=(3, 3), v=(3, 3)))
    assert operators(gradient_graph(forward)) == operators(forward)


def test_nothing_passes_through_detach() -> None:
    cut = BRANCHES.replace(
        "%both = mul %left.act,", "%still = detach %left.act : f32[2,3]\n  %both = mul %still,"
    )
    forward = parse(cut, random_data(w=(3, 3), v=(3, 3)))
    assert len(gradient_graph(forward, "w").outputs) == 1, "w has no gradient"
    graph = agree(forward, "v")
    assert "tanh_dx" not in operators(graph)


def test_detach_in_pytorch_stops_the_same_gradients() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x)
            return self.b(h.detach()) + h

    torch.manual_seed(0)
    model = Cut()
    x, y = torch.randn(4, 3), torch.randint(3, (4,))
    trainer = whet.compile(model, (x,), accumulate=True).load()
    trainer.gradients(x, y)
    nn.functional.cross_entropy(model(x), y).backward()
    ours = trainer.collected()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(ours[name], p.grad.numpy(), rtol=1e-5, atol=1e-7)


def deep(*frozen: str) -> Graph:
    """The step of a chain of three layers with some parameters frozen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    for name, p in model.named_parameters():
        p.requires_grad = name not in frozen
    return whet.compile(model, (torch.randn(2, 3),)).entries["train_step"]


def test_freezing_drops_exactly_the_dead_backward_nodes() -> None:
    full = {n.out.name: n.op.name for n in deep().nodes}
    weight = {n.out.name: n.op.name for n in deep("2.weight").nodes}
    gone = {full[name] for name in full.keys() - weight.keys()}
    assert gone == {"linear_dw", "sgd"} and len(full) - len(weight) == 2
    assert not weight.keys() - full.keys()

    head_only = deep("0.weight", "0.bias", "2.weight", "2.bias")
    names = [n.op.name for n in head_only.nodes]
    assert names.count("linear") == 3 and names.count("linear_dw") == 1
    assert "linear_dx" not in names and "tanh_dx" not in names
    assert names.count("sgd") == 2

    first = [n.op.name for n in deep("2.weight", "2.bias", "4.weight", "4.bias").nodes]
    assert first.count("linear_dx") == 2 and first.count("tanh_dx") == 2
    assert first.count("linear_dw") == 1 and first.count("sgd") == 2


def test_frozen_values_are_not_kept_for_the_backward_pass() -> None:
    """What a gradient does not need is free before the backward pass: the arena shrinks."""
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (nn.Linear(16, 16), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    x = torch.randn(8, 16)
    whole = whet.compile(model, (x,)).plans["train_step"].lower_bound
    for p in model[:-1].parameters():
        p.requires_grad = False
    head = whet.compile(model, (x,)).plans["train_step"].lower_bound
    assert head <= 2 * 8 * 16 * 4 + 256, "two activations at a time"
    assert whole >= 4 * 8 * 16 * 4, "every tanh is kept"


@settings(max_examples=60)
@given(graphs(smooth=True, stateful=False))
def test_gradients_of_random_graphs_are_derivatives(forward: Graph) -> None:
    names = [v.name for v in forward.leaves_of(Role.PARAM)]
    values = feed(forward, seed=1)
    graph = gradient_graph(forward, *names)
    assert len(graph.outputs) == 1 + len(names)
    (loss, *grads), _ = interpret(graph, values, real=np.float64)
    for name, grad in zip(names, grads, strict=True):
        right = numeric(forward, values, name, step=1e-4)
        noise = 1e-5 * abs(float(loss))  # a difference of large losses has few digits
        scale = max(1.0, float(np.abs(right).max()), noise)
        np.testing.assert_allclose(grad, right, rtol=1e-4, atol=1e-6 * scale, err_msg=str(forward))


@settings(max_examples=30)
@given(graphs())
def test_the_forward_pass_is_not_changed_by_its_gradient(forward: Graph) -> None:
    names = [v.name for v in forward.leaves_of(Role.PARAM)]
    values = feed(forward)
    (loss, *_), _ = interpret(gradient_graph(forward, *names), values)
    np.testing.assert_array_equal(loss, interpret(forward, values)[0][0])


def test_a_loss_of_several_numbers_is_refused() -> None:
    b = Builder("f")
    w = b.leaf("w", f32(3), Role.PARAM, np.ones(3))
    forward = b.finish([b.emit(by_name("relu"), w)])
    with pytest.raises(FrontendError) as caught:
        gradient_graph(forward, "w")
    assert "the loss has shape (3,); training needs a single number" in str(caught.value)
    assert "reduction='mean' or 'sum'" in str(caught.value)


def test_a_gradient_nobody_can_give_is_refused() -> None:
    """A mask of `attention` that asks for one; zeros would be wrong."""
    b = Builder("masked")
    rows = [b.leaf(name, f32(1, 3, 2, 4), Role.PARAM, np.ones((1, 3, 2, 4))) for name in "qkv"]
    mask = b.leaf("mask", f32(1, 1, 3, 3), Role.INPUT)
    y, *_ = b.emit_all(by_name("attention"), *rows, mask, scale=0.5)
    total = b.emit(by_name("sum"), y, axes=(0, 1, 2, 3))
    forward = b.finish([b.emit(by_name("reshape"), total, shape=())])
    agree(forward, "q", values=feed(forward))
    with pytest.raises(ShapeError, match="the mask of this operator has no gradient"):
        gradient_graph(forward, "mask")
