"""The graph and its builder: names, types, pruning, and every way a graph can be invalid."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from strategies import steps
from whet.errors import InternalError, ShapeError
from whet.ir import Builder, DType, Graph, Loc, Op, Role, Type, Value, f32, i32, prune, u8, verify
from whet.ops import by_name

RELU, ADD, LINEAR = by_name("relu"), by_name("add"), by_name("linear")


def small() -> tuple[Graph, Builder]:
    """x and w give y = relu(x + w); w <- y."""
    b = Builder("small")
    x = b.leaf("x", f32(2), Role.INPUT)
    w = b.leaf("w", f32(2), Role.PARAM, np.ones(2))
    y = b.emit(RELU, b.emit(ADD, x, w, name="sum"), name="y")
    b.update(w, y)
    return b.finish([y]), b


def refused(graph: Graph, **changes: object) -> str:
    """The message with which the changed graph is refused."""
    with pytest.raises(InternalError) as caught:
        verify(dataclasses.replace(graph, **changes))
    assert "invalid graph 'small': " in str(caught.value)
    assert "graph small {" in str(caught.value), "the message shows the graph"
    return caught.value.what


def test_types_know_their_size() -> None:
    assert f32(2, 3).bytes == 24 and u8(2, 3).bytes == 6 and i32().bytes == 4
    assert f32().elements == 1 and f32(0, 4).bytes == 0 and f32(2, 3, 4).rank == 3
    assert str(f32(1, 8, 8, 16)) == "f32[1,8,8,16]" and str(Type(DType.U8, ())) == "u8[]"


def test_a_valid_graph_passes() -> None:
    graph, _ = small()
    verify(graph)
    assert [v.name for v in graph.leaves_of(Role.INPUT, Role.PARAM)] == ["x", "w"]


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (Value("t", f32()), "leaf %t has no role"),
        (Value("x", f32(2), Role.INPUT), "%x is defined twice"),
        (Value("c", f32(3), Role.CONST), "constant %c has no data"),
    ],
)
def test_verify_refuses_a_leaf(leaf: Value, message: str) -> None:
    graph, _ = small()
    assert message in refused(graph, leaves=(*graph.leaves, leaf))


def test_verify_refuses_a_leaf_defined_twice() -> None:
    graph, _ = small()
    assert "%x is defined twice" in refused(graph, leaves=(*graph.leaves, graph.leaves[0]))


def test_verify_refuses_a_node_listed_twice() -> None:
    graph, _ = small()
    assert "%y is defined twice" in refused(graph, nodes=(*graph.nodes, graph.nodes[-1]))


def test_verify_refuses_data_of_another_shape() -> None:
    graph, _ = small()
    message = refused(graph, data={"w": np.ones(3, np.float32)})
    assert "data of %w has shape (3,), not (2,)" in message


def test_verify_refuses_use_before_definition() -> None:
    graph, _ = small()
    message = refused(graph, nodes=tuple(reversed(graph.nodes)))
    assert "%sum is used by relu before it is defined" in message


def test_verify_refuses_a_value_from_elsewhere() -> None:
    """Values are compared by identity: one of the same name is not the same value."""
    graph, _ = small()
    other, _ = small()
    assert "%sum is used by relu before" in refused(graph, nodes=(graph.nodes[0], other.nodes[1]))


def test_verify_refuses_a_wrong_type() -> None:
    graph, _ = small()
    wrong = dataclasses.replace(graph.nodes[1], outs=(Value("y", f32(3)),))
    message = refused(graph, nodes=(graph.nodes[0], wrong))
    assert "%y has type f32[3], relu gives f32[2]" in message


def test_verify_refuses_a_missing_result() -> None:
    b = Builder("small")
    x = b.leaf("x", f32(1, 2, 2, 1), Role.INPUT)
    b.emit(by_name("max_pool2d"), x, kernel=(2, 2))
    graph = b.finish([b.nodes[0].out])
    one = dataclasses.replace(graph.nodes[0], outs=graph.nodes[0].outs[:1])
    assert "max_pool2d" in refused(graph, nodes=(one,))


def test_verify_refuses_an_undefined_output() -> None:
    graph, _ = small()
    assert "output %z is not defined" in refused(graph, outputs=(Value("z", f32(2)),))


def test_verify_refuses_to_update_an_input() -> None:
    graph, _ = small()
    message = refused(graph, state=((graph.leaves[0], graph.nodes[-1].out),))
    assert "%x is updated but is neither parameter nor state" in message


def test_verify_refuses_to_update_what_is_not_there() -> None:
    graph, _ = small()
    stranger = Value("s", f32(2), Role.STATE)
    assert "%s" in refused(graph, state=((stranger, graph.nodes[-1].out),))


def test_verify_refuses_two_updates_of_one_leaf() -> None:
    graph, _ = small()
    w, y = graph.leaves[1], graph.nodes[-1].out
    assert "%w is updated twice" in refused(graph, state=((w, y), (w, graph.nodes[0].out)))


@pytest.mark.parametrize("next_value", [Value("z", f32(2)), Value("z", f32(3))])
def test_verify_refuses_an_undefined_next_value(next_value: Value) -> None:
    graph, _ = small()
    message = refused(graph, state=((graph.leaves[1], next_value),))
    assert "next value %z of %w is undefined or of another type" in message


def test_verify_refuses_a_next_value_of_another_type() -> None:
    b = Builder("small")
    w = b.leaf("w", f32(2), Role.PARAM, np.ones(2))
    y = b.emit(by_name("concat"), w, w)
    graph = b.finish([y])
    message = refused(graph, state=((w, y),))
    assert "next value %concat of %w is undefined or of another type" in message


@settings(max_examples=50, deadline=None)
@given(steps())
def test_training_steps_are_valid_and_hold_nothing_unused(graph: Graph) -> None:
    verify(graph)
    used = {v for n in graph.nodes for v in n.ins} | set(graph.outputs)
    used |= {v for pair in graph.state for v in pair}
    for node in graph.nodes:
        assert used.intersection(node.outs), f"{node.out} is computed for nothing"
    kept = graph.leaves_of(Role.PARAM, Role.STATE, Role.CONST)
    assert used.issuperset(kept)
    assert set(graph.data) == {v.name for v in kept}


def test_the_builder_never_gives_a_name_twice() -> None:
    b = Builder("names")
    x = b.leaf("x", f32(2), Role.INPUT)
    names = [b.leaf("x", f32(2), Role.INPUT).name, b.leaf("x_1", f32(2), Role.INPUT).name]
    names += [b.emit(RELU, x, name="x").name, b.emit(RELU, x).name, b.emit(RELU, x).name]
    assert names == ["x_1", "x_1_1", "x_2", "relu", "relu_1"]


def test_results_of_one_node_are_numbered() -> None:
    b = Builder("names")
    x = b.leaf("x", f32(3, 2), Role.INPUT)
    w = b.leaf("w", f32(2), Role.PARAM, np.ones(2))
    first = b.emit_all(by_name("batch_norm_train"), x, w, w, name="bn")
    again = b.emit_all(by_name("batch_norm_train"), x, w, w, name="bn")
    assert [v.name for v in first] == ["bn", "bn.1", "bn.2"]
    assert [v.name for v in again] == ["bn_1", "bn.1_1", "bn.2_1"]
    assert [v.type for v in first] == [f32(3, 2), f32(2), f32(2)]


def test_an_unnamed_node_takes_the_scope_and_its_operator() -> None:
    b = Builder("names")
    x = b.leaf("x", f32(2), Role.INPUT)
    b.scope, b.loc = "d.fc.", Loc("fc", "relu", "model.py:3")
    assert b.emit(RELU, x).name == "d.fc.relu"
    assert str(b.nodes[-1].loc) == "fc  relu  model.py:3"


def test_extend_continues_a_graph_without_reusing_its_names() -> None:
    graph, _ = small()
    b = Builder.extend(graph, "longer")
    z = b.emit(RELU, graph.outputs[0], name="y")
    assert z.name == "y_1" and b.leaf("w", f32(), Role.SCALAR).name == "w_1"
    longer = b.finish([z])
    assert longer.nodes[:2] == graph.nodes and longer.state == graph.state
    assert len(graph.nodes) == 2, "the graph that was extended is as it was"


def test_equal_small_constants_are_shared() -> None:
    b = Builder("constants")
    assert b.const(np.float32(1)) is b.const(np.float32(1))
    assert b.const(np.float32(0)) is not b.const(np.float32(-0.0)), "not the same bits"
    assert b.const([1], dtype=DType.I32) is not b.const([1.0]), "not the same type"
    assert b.const(np.ones((1, 2))) is not b.const(np.ones(2)), "not the same shape"
    assert b.const(np.ones(17)) is not b.const(np.ones(17)), "too large to compare"


def test_shapes_that_do_not_fit_are_refused_where_the_node_is_made() -> None:
    b = Builder("wrong")
    b.loc = Loc("head.fc", "aten.linear.default", "net.py:12")
    x, w = b.leaf("x", f32(2, 3), Role.INPUT), b.leaf("w", f32(4, 5), Role.PARAM)
    with pytest.raises(ShapeError) as caught:
        b.emit(LINEAR, x, w)
    text = str(caught.value)
    assert text.startswith("linear: ")
    assert "at    head.fc  aten.linear.default  net.py:12" in text
    assert "why   %x : f32[2,3], %w : f32[4,5]" in text
    assert b.nodes == [], "nothing was added"


def test_prune_keeps_what_outputs_and_updates_need() -> None:
    b = Builder("prune")
    x, unused = (b.leaf(n, f32(2), Role.INPUT) for n in ("x", "unused"))
    label = b.leaf("label", i32(2), Role.LABEL)
    lr = b.leaf("lr", f32(), Role.SCALAR)
    w, dead, s = (
        b.leaf(n, f32(2), r, np.ones(2))
        for n, r in (("w", Role.PARAM), ("dead", Role.PARAM), ("s", Role.STATE))
    )
    y = b.emit(ADD, x, w, name="y")
    b.emit(RELU, b.emit(ADD, y, dead, name="waste"), name="more_waste")
    nxt = b.emit(RELU, s, name="s.next")
    b.const(np.ones(3), name="never")
    b.update(s, nxt)
    graph = prune(Graph("prune", tuple(b.leaves), tuple(b.nodes), (y,), tuple(b.state), b.data))
    assert [n.out.name for n in graph.nodes] == ["y", "s.next"]
    assert graph.leaves == (x, unused, label, lr, w, s), "the signature stays, dead leaves go"
    assert set(graph.data) == {"w", "s"}


def test_an_operator_can_be_defined_only_once() -> None:
    with pytest.raises(InternalError, match="operator 'relu' is defined twice"):
        type("Again", (Op,), {"name": "relu"})


def test_an_unknown_operator_is_answered_with_those_there_are() -> None:
    with pytest.raises(InternalError) as caught:
        by_name("frobnicate")
    assert "there is no operator 'frobnicate'" in str(caught.value)
    assert "cross_entropy" in str(caught.value)
