"""Every pass does what it says, on small graphs as text, and keeps the meaning of any graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
import whet
from plan_checks import runs_like_the_graph, shares_safely
from rewriting import assert_same_meaning, buffer_of, expect, full_text, names, parse, peak
from tiny import convnet, images, mlp, vectors
from whet.errors import SchemeError
from whet.ir import Graph, Role, f32
from whet.ir.interp import interpret
from whet.memory.plan import lifetimes
from whet.models import mcunet_5fps
from whet.ops import by_name
from whet.passes import PASSES, SWITCHES, Context, Recompute, Stage, find_slices, run_stage
from whet.passes.add_parts import add_parts
from whet.passes.fold_batch_norm import fold_batch_norm
from whet.passes.fold_constants import fold_constants
from whet.passes.keep_bits import keep_bits
from whet.passes.rematerialize import rematerialize
from whet.passes.reorder import reorder
from whet.passes.schedule import schedule
from whet.passes.share_common import share_common
from whet.passes.split_channels import split_channels
from whet.passes.stream_rows import stream_rows

# --- share_common


def test_equal_nodes_are_computed_once() -> None:
    """Also where only sharing makes their operands equal."""
    expect(
        share_common,
        """
        %x : f32[2,3] input
        %a = relu %x : f32[2,3]
        %b = relu %x : f32[2,3]
        %c = sum %a {axes=(1,)} : f32[2,1]
        %d = sum %b {axes=(1,)} : f32[2,1]
        %e = add %c, %d : f32[2,1]
        return %e, %b""",
        """
        %a = relu %x : f32[2,3]
        %c = sum %a {axes=(1,)} : f32[2,1]
        %e = add %c, %c : f32[2,1]
        return %e, %a""",
    )


def test_nodes_that_differ_are_not_shared() -> None:
    expect(
        share_common,
        """
        %x : f32[2,3] input; %y : f32[2,3] input
        %a = sum %x {axes=(1,)} : f32[2,1]
        %b = sum %y {axes=(1,)} : f32[2,1]
        %c = sum %x {axes=(0,)} : f32[1,3]
        %d = mean %x {axes=(1,)} : f32[2,1]
        return %a, %b, %c, %d""",
    )


# --- fold_constants


def test_what_does_not_change_is_computed_now() -> None:
    graph = expect(
        lambda g: fold_constants(g, changing=["trained"]),
        """
        %x : f32[2] input; %frozen : f32[2] param; %trained : f32[2] param
        %two : f32[] const = [2.0]
        %twice = mul %frozen, %two : f32[2]
        %negative = neg %twice : f32[2]
        %kept = mul %trained, %two : f32[2]
        %a = add %x, %negative : f32[2]
        %b = add %a, %kept : f32[2]
        return %b""",
        """
        %x : f32[2] input; %trained : f32[2] param
        %two : f32[] const = [2.0]
        %negative.folded : f32[2] const = [-16.0, -25.0]
        %kept = mul %trained, %two : f32[2]
        %a = add %x, %negative.folded : f32[2]
        %b = add %a, %kept : f32[2]
        return %b""",
        rtol=1e-9,
    )
    assert graph.data["negative.folded"].dtype == np.float64


def test_nothing_that_would_grow_is_folded() -> None:
    expect(
        lambda g: fold_constants(g, changing=[]),
        """
        %x : f32[4,3] input
        %row : f32[1,3] const = [1.0, 2.0, 3.0]
        %rows = expand %row {shape=(4, 3)} : f32[4,3]
        %y = mul %x, %rows : f32[4,3]
        return %y""",
    )


# --- fold_batch_norm

NORM = """
%x : f32[1,4,4,2] input; %w : f32[3,1,1,2] param; %bias : f32[3] param
%gamma : f32[3] param; %beta : f32[3] param
%mean : f32[3] const = [0.5, -1.0, 2.0]
%var : f32[3] const = [1.0, 4.0, 0.25]
%conv = conv2d %x, %w, %bias : f32[1,4,4,3]
%bn = batch_norm %conv, %gamma, %beta, %mean, %var {eps=0.001} : f32[1,4,4,3]
return %bn"""


def test_a_frozen_batch_norm_moves_into_the_convolution() -> None:
    graph = parse(NORM)
    after = fold_batch_norm(graph, [])
    assert names(after) == ["conv2d"] and after.nodes[0].out.name == "bn"
    assert [(v.name, v.role) for v in after.nodes[0].ins] == [
        ("x", Role.INPUT), ("conv.folded_weight", Role.CONST), ("conv.folded_bias", Role.CONST),
    ]  # fmt: skip
    assert_same_meaning(graph, after, rtol=1e-9)


def test_a_trained_beta_stays_a_parameter() -> None:
    graph = parse(NORM)
    after = fold_batch_norm(graph, ["beta"])
    assert names(after) == ["add", "conv2d"]
    assert [v.name for v in after.leaves_of(Role.PARAM)] == ["beta"]
    assert_same_meaning(graph, after, 1e-9, ["beta"])


@pytest.mark.parametrize("trained", ["w", "bias", "gamma"])
def test_a_batch_norm_stays_if_its_layer_trains(trained: str) -> None:
    graph = parse(NORM)
    assert str(fold_batch_norm(graph, [trained])) == str(graph)


@pytest.mark.parametrize(
    "reader, outputs", [("", "%bn, %conv"), ("%y = relu %conv : f32[1,4,4,3]", "%bn, %y")]
)
def test_a_batch_norm_stays_if_the_convolution_is_read_elsewhere(reader: str, outputs: str) -> None:
    text = NORM.replace("return %bn", f"{reader}\n  return {outputs}")
    graph = parse(text)
    assert names(fold_batch_norm(graph, [])) == names(graph)


@pytest.mark.parametrize(
    "layer",
    [
        "%conv = depthwise %x, %d : f32[1,4,4,3]",
        "%r = reshape %d {shape=(3,)} : f32[3]\n  %s = reshape %r {shape=(1, 1, 3)} : f32[1,1,3]\n"
        "  %conv = depthwise %x, %s : f32[1,4,4,3]",
        "%conv = linear %x, %l, %bias : f32[1,4,4,3]",
    ],
    ids=["depthwise", "a view of the weight", "linear"],
)
def test_a_batch_norm_moves_into_any_layer(layer: str) -> None:
    text = NORM.replace("%conv = conv2d %x, %w, %bias : f32[1,4,4,3]", layer)
    text = text.replace("f32[1,4,4,2]", "f32[1,4,4,3]")
    text = text.replace("%w : f32[3,1,1,2]", "%l : f32[3,3] param\n  %d : f32[1,1,3]")
    graph = parse(text)
    after = fold_batch_norm(graph, [])
    assert names(after)[-1] in ("depthwise", "linear")
    assert_same_meaning(graph, after, rtol=1e-9)


# --- split_channels


def test_some_input_channels_train() -> None:
    before = parse(
        """
        %x : f32[2,4] input; %w : f32[3,4] param; %b : f32[3] param
        %y = linear %x, %w, %b : f32[2,3]
        return %y"""
    )
    parts = find_slices(before, {"w": (1, 2)})
    after = split_channels(before, parts)
    assert str(after) == full_text(
        """
        %x : f32[2,4] input; %w : f32[3,4] param; %b : f32[3] param
        %w.part : f32[3,2] param
        %y.frozen = linear %x, %w, %b : f32[2,3]
        %x.part = slice %x {axis=1, start=1, stop=3} : f32[2,2]
        %y.part = linear %x.part, %w.part : f32[2,3]
        %y = add %y.frozen, %y.part : f32[2,3]
        return %y"""
    )
    assert not after.data["w"][:, 1:3].any() and before.data["w"].all()
    np.testing.assert_array_equal(after.data["w.part"], before.data["w"][:, 1:3])
    assert_same_meaning(before, after, rtol=1e-9)


def test_channels_apart_are_taken_one_by_one() -> None:
    before = parse(
        """
        %x : f32[1,2,2,4] input; %w : f32[1,1,4,1] param
        %v = reshape %w {shape=(1, 1, 4)} : f32[1,1,4]
        %y = depthwise %x, %v : f32[1,2,2,4]
        return %y"""
    )
    after = split_channels(before, find_slices(before, {"w": (0, 3)}))
    apart = ["reshape", "depthwise", "take", "reshape", "depthwise", "take_dx", "add"]
    assert names(after) == apart
    assert_same_meaning(before, after, rtol=1e-9)


def test_only_layers_train_by_channels() -> None:
    graph = parse("%x : f32[2] input; %w : f32[2] param\n%y = mul %x, %w : f32[2]\nreturn %y")
    with pytest.raises(SchemeError, match="w cannot train by channels"):
        find_slices(graph, {"w": (0,)})


# --- add_parts


def test_a_part_is_added_without_zeros_around_it() -> None:
    expect(
        add_parts,
        """
        %x : f32[5,2] input; %u : f32[3,2] input; %i : i32[3] input
        %a = slice_dx %u {start=1, size=5} : f32[5,2]
        %b = add %a, %x : f32[5,2]
        %c = take_dx %u, %i {size=5} : f32[5,2]
        %d = add %b, %c : f32[5,2]
        return %d""",
        """
        %b = slice_add %x, %u {start=1} : f32[5,2]
        %d = put_add %b, %u, %i : f32[5,2]
        return %d""",
    )


@pytest.mark.parametrize(
    "part, rest, outputs",
    [
        ("slice_dx %u {step=2, size=5}", "%z = neg %y : f32[5,2]", "%z"),
        ("slice_dx %u {size=5}", "%z = neg %a : f32[5,2]", "%y, %z"),
        ("slice_dx %u {size=5}", "%z = neg %x : f32[5,2]", "%y, %z, %a"),
    ],
    ids=["every second row", "read twice", "an output"],
)
def test_a_part_stays_apart(part: str, rest: str, outputs: str) -> None:
    expect(
        add_parts,
        f"""
        %x : f32[5,2] input; %u : f32[3,2] input
        %a = {part} : f32[5,2]
        %y = add %a, %x : f32[5,2]
        {rest}
        return {outputs}""",
    )


def test_a_part_is_not_added_to_what_is_broadcast() -> None:
    expect(
        add_parts,
        """
        %x : f32[2] input; %u : f32[3,2] input
        %a = slice_dx %u {size=5} : f32[5,2]
        %y = add %a, %x : f32[5,2]
        return %y""",
    )


# --- keep_bits

ACTIVATED = """
%x : f32[13] input; %dy : f32[13] input; %w : f32[13] param; %lr : f32[] scalar
%a = mul %x, %w : f32[13]
%y = relu %a : f32[13]
%loss = sum %y {axes=(0,)} : f32[1]
%da = relu_dx %dy, %y : f32[13]
%g = mul %da, %x : f32[13]
%next = sgd %w, %g, %lr : f32[13]
state %w <- %next
return %loss"""


def test_a_bit_is_kept_for_the_backward_pass() -> None:
    """13 elements take 2 bytes, from the moment y exists; y itself is gone after the loss."""
    kept = ACTIVATED.replace("%loss =", "%y.bits = within_bits %y : u8[2]\n%loss =")
    kept = kept.replace("relu_dx %dy, %y", "bits_dx %dy, %y.bits")
    after = expect(keep_bits, ACTIVATED, kept)
    loss = names(after).index("sum")
    assert buffer_of(parse(ACTIVATED), "y").last > loss and buffer_of(after, "y").last == loss
    assert buffer_of(after, "y.bits").last == loss + 1


@pytest.mark.parametrize(
    "old, new",
    [
        ("%g = mul %da, %x", "%g = mul %da, %y"),
        ("return %loss", "return %loss, %y"),
        ("relu_dx %dy, %y", "relu_dx %dy, %x"),
        ("relu_dx %dy, %y", "tanh_dx %dy, %y"),
    ],
    ids=["kept anyway", "an output", "an input", "not two-sided"],
)
def test_no_bits_where_they_save_nothing(old: str, new: str) -> None:
    expect(keep_bits, ACTIVATED.replace(old, new))


@pytest.mark.parametrize(
    "op, attrs, bits",
    [
        ("relu", "", ""),
        ("leaky_relu", " {negative_slope=0.3}", ""),
        ("hardtanh", " {low=-0.5, high=1.5}", " {low=-0.5, high=1.5}"),
        ("clamp", " {low=-0.5}", " {low=-0.5, closed=True}"),
        ("hardsigmoid", "", " {high=1.0}"),
    ],
)
def test_bits_know_the_sides_of_every_kinked_function(op: str, attrs: str, bits: str) -> None:
    kept = "%a" if op == "clamp" else "%y"
    text = ACTIVATED.replace("relu %a", f"{op} %a{attrs}")
    text = text.replace("relu_dx %dy, %y", f"{op}_dx %dy, {kept}{attrs}")
    graph = parse(text)
    after = keep_bits(graph)
    assert f"{kept}.bits = within_bits {kept}{bits} : u8[2]" in str(after)
    corners = {"x": np.array([-3, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, -4, 9, -9], np.float32)}
    corners |= {"w": np.ones(13, np.float32), "dy": np.arange(13), "lr": np.float32(1)}
    (_, right), (_, given) = interpret(graph, corners), interpret(after, corners)
    np.testing.assert_allclose(given["w"], right["w"], rtol=1e-6)


# --- real models


@functools.cache
def training_steps(model: str) -> dict[str, Graph]:
    """The training step of a model: raw, with the forward graph simplified, and as compiled."""
    simplified = [s for s in SWITCHES if not s.startswith("fold")]
    return {
        "raw": step_of(model, SWITCHES),
        "simplified": step_of(model, simplified),
        "compiled": step_of(model, []),
    }


def step_of(model: str, without: list[str]) -> Graph:
    if model == "mcunet":
        torch.manual_seed(0)
        net, x, update = mcunet_5fps(num_classes=4).eval(), torch.randn(1, 3, 32, 32), "last-3"
    elif model == "mlp":
        net, x, update = mlp(), next(vectors())[0], None
    else:
        net, x, update = convnet().train(model == "convnet"), next(images())[0], None
    return whet.compile(net, (x,), without=without, update=update).entries["train_step"]


MODELS = ["mlp", "convnet", "convnet, eval", "mcunet"]
RECOMPUTE = {"rematerialize": rematerialize, "costly": lambda g: rematerialize(g, costly=True)}
ALONE = {p.name: p.run for p in PASSES if p.stage is Stage.STEP and p.switch and not p.program}
STEPS: Mapping[str, Callable[[Graph], Graph]] = ALONE | RECOMPUTE


def optimise(graph: Graph, recompute: Recompute | None = None) -> Graph:
    context = Context(recompute=recompute)
    return run_stage(Stage.STEP, {"train_step": graph}, context)["train_step"]


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.slow) if m == "mcunet" else m for m in MODELS]
)
def test_no_pass_changes_a_training_step(model: str) -> None:
    """Each on its own, and each on what those before it have made."""
    graph = training_steps(model)["simplified"]
    so_far = graph
    for name, step in STEPS.items():
        assert_same_meaning(graph, step(graph))
        if name not in RECOMPUTE:
            so_far = step(so_far)
            assert_same_meaning(graph, so_far)
    assert peak(so_far) <= peak(graph)


@pytest.mark.parametrize("model", MODELS)
def test_all_passes_together_change_nothing(model: str) -> None:
    steps = training_steps(model)
    assert_same_meaning(steps["raw"], steps["compiled"], rtol=1e-6)
    assert peak(steps["compiled"]) < peak(steps["raw"])


def test_every_weight_is_updated_right_after_its_gradient() -> None:
    graph = reorder(training_steps("mlp")["raw"])
    order = [v.name for n in graph.nodes for v in n.outs]
    for weight in ("fc1.weight", "fc2.weight"):
        assert order.index(f"{weight}.next") == order.index(f"d.{weight}") + 1
        buffer = buffer_of(graph, f"d.{weight}")
        assert buffer.last - buffer.first == 1
    for bias in ("fc1.bias", "fc2.bias"):  # a sum, its view, and the update
        buffer = buffer_of(graph, f"d.{bias}")
        assert buffer.last - buffer.first == 2
    assert not lifetimes(graph).copies


def test_a_batch_norm_net_needs_less_if_it_computes_twice() -> None:
    graph = training_steps("convnet")["raw"]
    plain, twice = optimise(graph), optimise(graph, recompute=Recompute())
    assert peak(twice) < peak(plain)
    assert any(".again" in v.name for n in twice.nodes for v in n.outs)
    assert_same_meaning(graph, twice)


def test_a_frozen_net_in_eval_mode_has_no_batch_norm() -> None:
    net = convnet().eval()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith("head") or name == "bn.bias")
    inputs = next(images())[:1]
    program = whet.compile(net, inputs)
    for graph in program.entries.values():
        assert not [n for n in names(graph) if "batch_norm" in n]
    step = program.entries["train_step"]
    assert {leaf.name for leaf, _ in step.state} == {"bn.bias", "head.weight", "head.bias"}
    raw = whet.compile(net, inputs, without=SWITCHES).entries["train_step"]
    assert "batch_norm" in names(raw)
    assert_same_meaning(raw, step, rtol=1e-6)


# --- any graph


@settings(max_examples=100, deadline=None)
@given(strategies.steps(), st.sampled_from([None, Recompute(), Recompute(layers=True)]))
def test_passes_keep_the_meaning_of_random_steps(graph: Graph, recompute: Recompute | None) -> None:
    after = optimise(graph, recompute=recompute)
    assert_same_meaning(graph, after, rtol=1e-6)
    shares_safely(runs_like_the_graph(after))


@st.composite
def convolutional(draw: strategies.Draw) -> Graph:
    """Layers in a row, some with a residual from further back: what streams are made of."""
    g = strategies.Grower(draw, smooth=False)
    x = g.b.leaf("x", f32(draw(st.integers(1, 2)), 16, draw(st.integers(1, 5)), 2), Role.INPUT)
    g.values = [g.b.emit(by_name("neg"), x)]
    for _ in range(draw(st.integers(2, 7))):
        x = g.values[-1]
        k, c = draw(st.sampled_from([1, 1, 3])), x.shape[3]
        wide = draw(st.sampled_from([2, 2, 6]))
        pad, stride = (k // 2,) * 4, draw(st.sampled_from([(1, 1), (1, 1), (2, 1)]))
        op, w, o = (
            ("conv2d", (wide, k, k, c), wide)
            if draw(st.booleans())
            else ("depthwise", (k, k, c), c)
        )
        bias = [g.param(o)] if draw(st.booleans()) else []
        g.add(op, x, g.param(*w), *bias, pad=pad, stride=stride)
        same = [v for v in g.values[:-1] if v.type == g.values[-1].type]
        if same and draw(st.booleans()):
            g.add("add", g.values[-1], draw(st.sampled_from(same)))
        if draw(st.booleans()):
            g.add(draw(st.sampled_from(["relu", "hardtanh", "tanh"])), g.values[-1])
    return g.b.finish(g.values[-1:])


@settings(max_examples=150, deadline=None)
@given(convolutional())
def test_passes_keep_the_meaning_of_convolutional_nets(graph: Graph) -> None:
    after = optimise(graph)
    assert peak(after) <= peak(graph)
    assert_same_meaning(graph, after)
    shares_safely(runs_like_the_graph(after))


@settings(max_examples=50, deadline=None)
@given(strategies.steps())
def test_no_pass_raises_the_peak_of_random_steps(graph: Graph) -> None:
    for step in (schedule, stream_rows, rematerialize):
        assert peak(step(graph)) <= peak(graph)


@settings(max_examples=50, deadline=None)
@given(strategies.graphs(), st.data())
def test_simplifying_keeps_the_meaning_of_random_graphs(graph: Graph, data: st.DataObject) -> None:
    changing = {v.name for v in graph.leaves_of(Role.PARAM) if data.draw(st.booleans())}
    context = Context(changing=changing | {leaf.name for leaf, _ in graph.state})
    after = run_stage(Stage.MODEL, {"training": graph}, context)["training"]
    assert_same_meaning(graph, after, 1e-6, changing)
