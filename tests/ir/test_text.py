"""IR text is an interface: what is printed can be read back, and what is wrong is pointed at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from strategies import feed, graphs, steps
from whet.errors import InternalError
from whet.ir import Builder, DType, Graph, Role, f32, i32
from whet.ir.interp import interpret
from whet.ir.printing import print_graph
from whet.ir.text import parse_graph, parse_type
from whet.ops import by_name

STEP = """\
graph train_step {
  %input : f32[2,3] input
  %label : i32[2] label
  %lr : f32[] scalar
  %fc.weight : f32[4,3] param
  %fc.weight.momentum : f32[4,3] state
  %one : f32[] const = [1.0]
  %fc = linear %input, %fc.weight : f32[2,4]
  %loss = cross_entropy %fc, %label {ignore_index=-1, smoothing=0.25} : f32[]
  %d.fc = cross_entropy_dx %one, %fc, %label {ignore_index=-1, smoothing=0.25} : f32[2,4]
  %d.fc.weight = linear_dw %d.fc, %input : f32[4,3]
  %fc.weight.next, %m = sgd_momentum %fc.weight, %d.fc.weight, %fc.weight.momentum, %lr \
{momentum=0.5, nesterov=True} : f32[4,3], f32[4,3]
  state %fc.weight <- %fc.weight.next
  state %fc.weight.momentum <- %m
  return %loss
}"""


def leaves_data(graph: Graph) -> dict[str, np.ndarray]:
    """What the text leaves out: parameters, state and large constants."""
    return {v.name: graph.data[v.name] for v in graph.leaves if v.name in graph.data}


def test_a_step_written_by_hand_comes_back_as_it_was() -> None:
    graph = parse_graph(STEP)
    assert print_graph(graph) == STEP
    update = graph.nodes[-1]
    assert [v.name for v in update.outs] == ["fc.weight.next", "m"]
    assert update.attrs.momentum == 0.5 and update.attrs.nesterov is True
    assert graph.nodes[1].attrs.ignore_index == -1 and graph.nodes[1].attrs.mean is True
    assert [(a.name, b.name) for a, b in graph.state] == [
        ("fc.weight", "fc.weight.next"),
        ("fc.weight.momentum", "m"),
    ]
    assert str(graph) == STEP


def round_trip(graph: Graph) -> Graph:
    """The graph, printed and read again, which prints alike."""
    text = print_graph(graph)
    again = parse_graph(text, leaves_data(graph))
    assert print_graph(again) == text
    return again


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_forward_graphs_survive_a_round_trip(graph: Graph) -> None:
    again, values = round_trip(graph), feed(graph)
    (one, one_state), (other, other_state) = interpret(graph, values), interpret(again, values)
    np.testing.assert_equal(one, other)
    np.testing.assert_equal(one_state, other_state)


@settings(max_examples=50, deadline=None)
@given(steps())
def test_training_steps_survive_a_round_trip(graph: Graph) -> None:
    again = round_trip(graph)
    assert [n.attrs for n in again.nodes] == [n.attrs for n in graph.nodes]
    assert [v.role for v in again.leaves] == [v.role for v in graph.leaves]


@pytest.mark.parametrize(
    "array",
    [
        np.float32(0.1),
        np.array([1e-30, 3.4e38, -0.0], np.float32),
        np.array([np.inf, -np.inf, np.nan], np.float32),
        np.array([0.1, 1 / 3]),
        np.arange(16).reshape(2, 8) / 7,
        np.zeros((0, 3)),
    ],
    ids=["scalar", "extremes", "not finite", "double", "sixteen", "empty"],
)
def test_small_constants_are_written_out(array: np.ndarray) -> None:
    b = Builder("f")
    value = b.const(array)
    graph = b.finish([value])
    assert " const = [" in print_graph(graph)
    again = parse_graph(print_graph(graph))
    assert print_graph(again) == print_graph(graph)
    kept = again.data[value.name].astype(np.float32)
    assert kept.shape == array.shape
    assert kept.tobytes() == np.asarray(array, np.float32).tobytes()


def test_integer_and_boolean_constants_keep_their_type() -> None:
    b = Builder("f")
    ids = b.const([2**31 - 1, -(2**31), 16777217], dtype=DType.I32)
    bits = b.const([0, 1, 255], dtype=DType.U8)
    again = parse_graph(print_graph(b.finish([ids, bits])))
    assert again.data[ids.name].dtype == np.int32 and again.data[bits.name].dtype == np.uint8
    assert again.data[ids.name].tolist() == [2**31 - 1, -(2**31), 16777217]
    assert again.data[bits.name].tolist() == [0, 1, 255]


def test_large_constants_and_parameters_are_handed_over_beside_the_text() -> None:
    b = Builder("f")
    large = b.const(np.arange(17.0))
    weight = b.leaf("w", f32(17), Role.PARAM, np.ones(17))
    graph = b.finish([b.emit(by_name("mul"), large, weight)])
    text = print_graph(graph)
    assert f"%{large.name} : f32[17] const\n" in text and "%w : f32[17] param\n" in text
    with pytest.raises(InternalError, match="constant %const has no data"):
        parse_graph(text)
    again = parse_graph(text, graph.data)
    np.testing.assert_array_equal(interpret(again, {})[0][0], np.arange(17.0))


def test_only_attributes_that_differ_from_their_default_are_printed() -> None:
    b = Builder("f")
    x = b.leaf("x", f32(1, 4, 4, 2), Role.INPUT)
    w = b.leaf("w", f32(3, 2, 2, 2), Role.PARAM)
    plain = b.emit(by_name("conv2d"), x, w, name="a")
    other = b.emit(by_name("conv2d"), x, w, name="b", stride=(2, 2), pad=(1, 1, 1, 1))
    lines = print_graph(b.finish([plain, other])).splitlines()
    assert lines[3] == "  %a = conv2d %x, %w : f32[1,3,3,3]"
    assert lines[4] == "  %b = conv2d %x, %w {stride=(2, 2), pad=(1, 1, 1, 1)} : f32[1,3,3,3]"


def test_infinite_attributes_can_be_read() -> None:
    text = """\
graph f {
  %x : f32[2] input
  %y = clamp %x {low=0.5} : f32[2]
  %z = pad %y {low=(1,), high=(0,), value=-inf} : f32[3]
  %w = clamp %z {low=-3.0, high=inf} : f32[3]
  return %w
}"""
    graph = parse_graph(text)
    assert graph.nodes[1].attrs.value == -np.inf and graph.nodes[2].attrs.high == np.inf
    assert print_graph(graph) == text.replace(", high=inf", "")


def test_names_of_modules_may_hold_any_character() -> None:
    b = Builder("f")
    x = b.leaf("blocks.conv-1.größe:0", f32(2), Role.PARAM)
    graph = b.finish([b.emit(by_name("relu"), x, name="act, é\n\\x20 : {")])
    again = parse_graph(print_graph(graph))
    assert print_graph(again) == print_graph(graph)
    assert [again.leaves[0].name, again.nodes[0].out.name] == [x.name, graph.nodes[0].out.name]


def test_comments_and_blank_lines_are_passed_over() -> None:
    text = "graph f {\n\n  # the input\n  %x : f32[2] input\n\n  return %x\n}"
    assert [v.name for v in parse_graph(text).outputs] == ["x"]


def test_a_graph_without_outputs_has_a_bare_return() -> None:
    b = Builder("apply")
    w = b.leaf("w", f32(2), Role.PARAM, np.ones(2))
    b.update(w, b.emit(by_name("fill"), shape=(2,), value=0.5))
    graph = b.finish(())
    text = print_graph(graph)
    assert text.endswith("  state %w <- %fill\n  return\n}")
    assert "  %fill = fill {shape=(2,), value=0.5} : f32[2]\n" in text
    assert print_graph(parse_graph(text)) == text


def test_types() -> None:
    assert parse_type("f32[]") == f32()
    assert parse_type("i32[4]") == i32(4)
    assert str(parse_type("u8[1,2,3]")) == "u8[1,2,3]"
    for wrong in ("f32", "f32[a]", "f64[2]", "[2]"):
        with pytest.raises(ValueError, match=r"is not an? "):
            parse_type(wrong)


HEAD = "graph f {\n  %x : f32[2,3] input\n"

MISTAKES = {
    "nonsense": ("  what is this", "neither a leaf, a node"),
    "unknown operator": ("  %y = frobnicate %x : f32[2,3]", "there is no operator 'frobnicate'"),
    "unknown value": ("  %y = relu %z : f32[2,3]", "%z"),
    "wrong type": ("  %y = relu %x : f32[3,2]", "relu gives f32[2,3]"),
    "shapes that do not fit": ("  %y = linear %x, %x, %x : f32[2,2]", "linear: "),
    "too many operands": ("  %y = relu %x, %x : f32[2,3]", "relu on 2 operands"),
    "unknown attribute": ("  %y = relu %x {slope=2} : f32[2,3]", "slope"),
    "not a literal": ("  %y = leaky_relu %x {negative_slope=f()} : f32[2,3]", "not attributes"),
    "broken attribute": ("  %y = leaky_relu %x {negative_slope=} : f32[2,3]", "not attributes"),
    "too few results": ("  %y = softmax %x {axis=1} : f32[2,3], f32[2,3]", "softmax gives"),
    "unknown role": ("  %y : f32[2] treasure", "treasure"),
    "unknown element type": ("  %y : f16[2] input", "'f16' is not an element type"),
    "no type": ("  %y : many input", "'many' is not a type"),
    "too few numbers": ("  %c : f32[3] const = [1.0, 2.0]", "cannot reshape"),
    "leaf defined twice": ("  %x : f32[2,3] input", "%x is defined twice"),
    "node defined twice": ("  %x = relu %x : f32[2,3]", "%x is defined twice"),
    "update of nothing": ("  state %y <- %x", "%y"),
    "update without arrow": ("  state %x", "values to unpack"),
    "return of nothing": ("  return %y", "%y"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_with_its_line(mistake: str) -> None:
    line, message = MISTAKES[mistake]
    with pytest.raises(InternalError) as caught:
        parse_graph(f"{HEAD}\n{line}\n  return %x\n}}")
    text = str(caught.value)
    assert "IR text, line 4: " in text, text
    assert message in text, text
    assert f"at    {line.strip()}" in text, text


@pytest.mark.parametrize("text", ["", "\n", "grph f {", "graph f"])
def test_text_that_is_no_graph(text: str) -> None:
    with pytest.raises(InternalError, match="IR text must begin with"):
        parse_graph(text)
