"""Attention that is spelled out becomes one operator, which reads no more than it needs."""

from __future__ import annotations

import numpy as np
import pytest

from rewriting import assert_same_meaning, expect, names, parse
from whet.ir import Graph
from whet.passes.drop_moves import drop_moves
from whet.passes.fuse_attention import fuse_attention
from whet.passes.trim_attention import trim_attention

LOWEST = np.finfo(np.float32).min

HEADS = """
    %q : f32[2,3,2,4] input; %k : f32[2,5,2,4] input; %v : f32[2,5,2,4] input
"""
SPELLED = """
    %qt = transpose %q {perm=(0, 2, 1, 3)} : f32[2,2,3,4]
    %q3 = reshape %qt {shape=(4, 3, 4)} : f32[4,3,4]
    %kt = transpose %k {perm=(0, 2, 1, 3)} : f32[2,2,5,4]
    %k3 = reshape %kt {shape=(4, 5, 4)} : f32[4,5,4]
    %vt = transpose %v {perm=(0, 2, 1, 3)} : f32[2,2,5,4]
    %v3 = reshape %vt {shape=(4, 5, 4)} : f32[4,5,4]
    %s3 = bmm %q3, %k3 {tb=True} : f32[4,3,5]
    %s = reshape %s3 {shape=(2, 2, 3, 5)} : f32[2,2,3,5]
"""
DONE = """
    %w3 = reshape %w {shape=(4, 3, 5)} : f32[4,3,5]
    %y3 = bmm %w3, %v3 : f32[4,3,4]
    %y4 = reshape %y3 {shape=(2, 2, 3, 4)} : f32[2,2,3,4]
    %y = transpose %y4 {perm=(0, 2, 1, 3)} : f32[2,3,2,4]
    return %y
"""


def result(text: str, data: dict[str, object] | None = None) -> Graph:
    """What the three passes make of it, which means the same."""
    before = parse(text, None if data is None else {k: np.asarray(v) for k, v in data.items()})
    after = drop_moves(trim_attention(fuse_attention(before)))
    assert_same_meaning(before, after, rtol=1e-9)
    return after


def test_nothing_is_left_but_the_operator() -> None:
    graph = result(HEADS + SPELLED + "%w = softmax %s {axis=3} : f32[2,2,3,5]" + DONE)
    assert names(graph) == ["attention"] and not graph.data
    assert [v.name for v in graph.nodes[0].ins] == ["q", "k", "v"]


@pytest.mark.parametrize(
    ("lines", "scale", "masked"),
    [
        ("%m : f32[] const = [0.5]; %x = mul %s, %m : f32[2,2,3,5]", 0.5, False),
        ("%m : f32[] const = [4.0]; %x = div %s, %m : f32[2,2,3,5]", 0.25, False),
        ("%m : f32[2,1,1,5] input; %x = add %m, %s : f32[2,2,3,5]", 1.0, True),
        ("%m : f32[3,5] input; %x = add %s, %m : f32[2,2,3,5]", 1.0, True),
    ],
)
def test_a_factor_and_a_mask_belong_to_it(lines: str, scale: float, masked: bool) -> None:
    leaf, line = lines.split("; ")
    text = HEADS + leaf + SPELLED + line + "\n%w = softmax %x {axis=3} : f32[2,2,3,5]" + DONE
    graph = result(text, {"m": {0.5: 0.5, 0.25: 4.0}[scale]} if not masked else None)
    (node,) = [n for n in graph.nodes if n.op.name == "attention"]
    assert (node.attrs.scale, len(node.ins) == 4) == (scale, masked)
    assert set(names(graph)) <= {"attention", "reshape"}


@pytest.mark.parametrize(
    ("leaf", "lines"),
    [
        ("%m : f32[2,1,3,5] param", "%x = add %s, %m : f32[2,2,3,5]"),  # it needs a gradient
        ("%m : f32[2,1,3,1] input", "%x = add %s, %m : f32[2,2,3,5]"),  # one for all keys
        ("%m : f32[2,2,3,5] input", "%x = mul %s, %m : f32[2,2,3,5]"),
        ("%m : f32[3,5] input", "%x = div %m, %s : f32[2,2,3,5]"),
    ],
)
def test_other_operands_keep_it_from_being_recognised(leaf: str, lines: str) -> None:
    text = HEADS + leaf + SPELLED + lines + "\n%w = softmax %x {axis=3} : f32[2,2,3,5]" + DONE
    assert "softmax" in names(result(text))


def test_weights_that_are_an_output_stay() -> None:
    text = HEADS + SPELLED + "%w = softmax %s {axis=3} : f32[2,2,3,5]" + DONE
    assert "softmax" in names(result(text.replace("return %y", "return %y, %w")))


def test_a_softmax_over_queries_stays() -> None:
    assert "softmax" in names(
        result(HEADS + SPELLED + "%w = softmax %s {axis=2} : f32[2,2,3,5]" + DONE)
    )


ATTENTION = "attention %q, %k, %v{m} : f32[2,3,2,4], f32[2,2,3], f32[2,2,3]"
LOWER = np.where(np.tri(3, 5), 0, -np.inf)
HIDES = np.where(np.arange(30).reshape(2, 1, 3, 5) % 5 == 3, -np.inf, 0)


@pytest.mark.parametrize(
    ("mask", "causal", "left"),
    [
        (np.zeros((2, 1, 3, 5)), False, None),
        (np.tile(LOWER, (2, 1, 1, 1)), True, None),
        (np.tile(np.maximum(LOWER, LOWEST), (1, 2, 1, 1)), True, None),
        (np.tile(LOWER.clip(-1e4), (1, 2, 1, 1)), False, (1, 1, 3, 5)),  # it hides only almost
        (np.tile(LOWER[::-1], (2, 2, 1, 1)), False, (1, 1, 3, 5)),
        (HIDES, False, (1, 1, 1, 5)),
        (np.arange(30.0).reshape(2, 1, 3, 5), False, (2, 1, 3, 5)),
    ],
)
def test_constant_masks_are_read_once(
    mask: np.ndarray, causal: bool, left: tuple[int, ...] | None
) -> None:
    shape = ",".join(map(str, mask.shape))
    call = ATTENTION.replace("{m}", ", %m")
    text = HEADS + f"%m : f32[{shape}] const\n%y, %top, %share = {call}\nreturn %y"
    graph = result(text, {"m": mask.astype(np.float32)})
    (node,) = graph.nodes
    assert node.attrs.causal == causal
    assert tuple(v.shape for v in node.ins[3:]) == (() if left is None else (left,))


def test_heads_are_read_before_they_are_repeated() -> None:
    text = """
    %q : f32[2,3,6,4] input; %k : f32[2,5,2,4] input; %v : f32[2,5,2,4] input
    %k5 = reshape %k {shape=(2, 5, 1, 2, 4)} : f32[2,5,1,2,4]
    %ke = expand %k5 {shape=(2, 5, 3, 2, 4)} : f32[2,5,3,2,4]
    %kt = transpose %ke {perm=(0, 1, 3, 2, 4)} : f32[2,5,2,3,4]
    %kh = reshape %kt {shape=(2, 5, 6, 4)} : f32[2,5,6,4]
    %v5 = reshape %v {shape=(2, 5, 2, 1, 4)} : f32[2,5,2,1,4]
    %ve = expand %v5 {shape=(2, 5, 2, 3, 4)} : f32[2,5,2,3,4]
    %vh = reshape %ve {shape=(2, 5, 6, 4)} : f32[2,5,6,4]
    %y, %top, %share = attention %q, %kh, %vh : f32[2,3,6,4], f32[2,6,3], f32[2,6,3]
    return %y
    """
    graph = result(text)
    assert names(graph) == ["attention"] and graph.nodes[0].ins[1].name == "k"
    other = text.replace("perm=(0, 1, 3, 2, 4)", "perm=(0, 1, 2, 3, 4)").replace(
        "%ke {perm=(0, 1, 2, 3, 4)} : f32[2,5,2,3,4]", "%ke {perm=(0, 1, 2, 3, 4)} : f32[2,5,3,2,4]"
    )  # heads in another order
    assert "expand" in names(result(other))


def test_a_mask_is_read_before_it_is_repeated_for_every_query() -> None:
    call = ATTENTION.replace("{m}", ", %m")
    text = (
        HEADS
        + f"""%seen : u8[2,1,1,5] input
    %zero : f32[] const = [0.0]; %low : f32[] const = [-9.0]
    %wide = expand %seen {{shape=(2, 1, 3, 5)}} : u8[2,1,3,5]
    %m = where %wide, %zero, %low : f32[2,1,3,5]
    %y, %top, %share = {call}
    return %y
    """
    )
    graph = result(text, {"zero": 0.0, "low": -9.0})
    assert names(graph) == ["where", "attention"]
    assert graph.nodes[1].ins[3].shape == (2, 1, 1, 5)


def test_transposes_that_undo_each_other_are_dropped() -> None:
    expect(
        drop_moves,
        """%x : f32[2,3,4] input
        %a = transpose %x {perm=(1, 0, 2)} : f32[3,2,4]
        %b = reshape %a {shape=(3, 2, 2, 2)} : f32[3,2,2,2]
        %c = transpose %b {perm=(1, 0, 2, 3)} : f32[2,3,2,2]
        %d = transpose %b {perm=(2, 0, 1, 3)} : f32[2,3,2,2]
        %e = add %c, %d : f32[2,3,2,2]
        return %e""",
        """%a = transpose %x {perm=(1, 0, 2)} : f32[3,2,4]
        %b = reshape %a {shape=(3, 2, 2, 2)} : f32[3,2,2,2]
        %c = reshape %x {shape=(2, 3, 2, 2)} : f32[2,3,2,2]
        %d = transpose %b {perm=(2, 0, 1, 3)} : f32[2,3,2,2]
        %e = add %c, %d : f32[2,3,2,2]
        return %e""",
    )


def test_a_take_of_everything_in_order_is_a_view() -> None:
    expect(
        drop_moves,
        """%x : f32[3] input
        %all : i32[1,3] const = [0, 1, 2]
        %turned : i32[1,3] const = [0, 2, 1]
        %a = take %x, %all : f32[1,3]
        %b = take %x, %turned : f32[1,3]
        %c = add %a, %b : f32[1,3]
        return %c""",
        """%x : f32[3] input
        %turned : i32[1,3] const = [0, 2, 1]
        %a = reshape %x {shape=(1, 3)} : f32[1,3]
        %b = take %x, %turned : f32[1,3]
        %c = add %a, %b : f32[1,3]
        return %c""",
    )
