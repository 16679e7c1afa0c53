"""Passes that order, fuse, stream and repeat work so that less is alive at once."""

from __future__ import annotations

import pytest

from rewriting import assert_same_meaning, expect, full_text, names, parse, peak
from whet.memory.plan import lifetimes
from whet.ops.optimizers import OPTIMIZERS, Optimizer
from whet.passes.fuse_layers import fuse_layers
from whet.passes.fuse_updates import fuse_updates
from whet.passes.rematerialize import rematerialize
from whet.passes.reorder import reorder
from whet.passes.schedule import schedule
from whet.passes.stream_rows import stream_rows

# --- reorder

UPDATED = """
%x : f32[2,3] input; %w : f32[3,3] param; %v : f32[3,3] param; %lr : f32[] scalar
%a = linear %x, %w : f32[2,3]
%b = linear %a, %v : f32[2,3]
%loss = sum %b {axes=(0, 1)} : f32[1,1]
%d.v = linear_dw %b, %a : f32[3,3]
%d.a = linear_dx %b, %v : f32[2,3]
%d.w = linear_dw %d.a, %x : f32[3,3]
%v.next = sgd %v, %d.v, %lr : f32[3,3]
%w.next = sgd %w, %d.w, %lr : f32[3,3]
state %v <- %v.next
state %w <- %w.next
return %loss"""


def test_updates_follow_their_gradients() -> None:
    """That of v waits for the last reader of the old v."""
    after = expect(
        reorder,
        UPDATED,
        """
        %a = linear %x, %w : f32[2,3]
        %b = linear %a, %v : f32[2,3]
        %loss = sum %b {axes=(0, 1)} : f32[1,1]
        %d.v = linear_dw %b, %a : f32[3,3]
        %d.a = linear_dx %b, %v : f32[2,3]
        %v.next = sgd %v, %d.v, %lr : f32[3,3]
        %d.w = linear_dw %d.a, %x : f32[3,3]
        %w.next = sgd %w, %d.w, %lr : f32[3,3]
        state %v <- %v.next
        state %w <- %w.next
        return %loss""",
    )
    assert not lifetimes(after).copies


def test_updates_wait_for_the_outputs() -> None:
    """A gradient that exists before the loss does not change the weight before the loss."""
    expect(
        reorder,
        """
        %x : f32[3] input; %w : f32[3] param; %lr : f32[] scalar
        %g = mul %x, %x : f32[3]
        %y = mul %x, %g : f32[3]
        %loss = sum %y {axes=(0,)} : f32[1]
        %next = sgd %w, %g, %lr : f32[3]
        state %w <- %next
        return %loss""",
    )


def test_a_next_value_that_is_read_is_no_update() -> None:
    expect(
        reorder,
        """
        %x : f32[3] input; %s : f32[3] state
        %y = neg %x : f32[3]
        %next = add %s, %x : f32[3]
        %z = mul %next, %y : f32[3]
        state %s <- %next
        return %z""",
    )


# --- fuse_layers


def test_an_addition_and_a_clamp_become_part_of_the_layer() -> None:
    expect(
        fuse_layers,
        """
        %x : f32[1,4,4,2] input; %w : f32[2,1,1,2] param; %b : f32[2] param
        %d : f32[3,3,2] param; %l : f32[5,32] param
        %conv = conv2d %x, %w, %b : f32[1,4,4,2]
        %sum = add %x, %conv : f32[1,4,4,2]
        %six = hardtanh %sum {low=0.0, high=6.0} : f32[1,4,4,2]
        %deep = depthwise %six, %d {pad=(1, 1, 1, 1)} : f32[1,4,4,2]
        %more = add %deep, %six : f32[1,4,4,2]
        %flat = reshape %more {shape=(1, 32)} : f32[1,32]
        %head = linear %flat, %l : f32[1,5]
        %y = relu %head : f32[1,5]
        return %y""",
        """
        %six = conv2d_fused %x, %w, %b, %x {bias=True, add=True, low=0.0, high=6.0} : f32[1,4,4,2]
        %more = depthwise_fused %six, %d, %six {pad=(1, 1, 1, 1), add=True} : f32[1,4,4,2]
        %flat = reshape %more {shape=(1, 32)} : f32[1,32]
        %y = linear_fused %flat, %l {low=0.0} : f32[1,5]
        return %y""",
    )


@pytest.mark.parametrize(
    "line, outputs",
    [
        ("%y = relu %a : f32[2,3]", "%y, %a"),
        ("%y = relu %a : f32[2,3]\n%z = neg %a : f32[2,3]", "%y, %z"),
        ("%y = add %a, %a : f32[2,3]", "%y"),
        ("%y = add %a, %r : f32[2,3]", "%y"),
        ("%t = neg %x : f32[2,3]\n%y = add %a, %t : f32[2,3]", "%y"),
        ("%y = tanh %a : f32[2,3]", "%y"),
    ],
    ids=["an output", "read twice", "added to itself", "broadcast", "not next to it", "tanh"],
)
def test_a_layer_stays_on_its_own(line: str, outputs: str) -> None:
    leaves = "%x : f32[2,3] input\n%r : f32[3] input\n%w : f32[3,3] param"
    layer = "%a = linear %x, %w : f32[2,3]"
    graph = parse(f"{leaves}\n{layer}\n{line}\nreturn {outputs}")
    assert str(fuse_layers(graph)) == str(graph)


def test_only_the_first_of_two_clamps_is_fused() -> None:
    """And doing it again does not let the second one take the place of the first."""
    graph = parse(
        """
        %x : f32[2,3] input; %w : f32[3,3] param
        %a = linear %x, %w : f32[2,3]
        %b = relu %a : f32[2,3]
        %c = hardtanh %b : f32[2,3]
        return %c"""
    )
    once = fuse_layers(graph)
    assert names(once) == ["linear_fused", "hardtanh"]
    assert str(fuse_layers(once)) == str(once)


# --- fuse_updates


LARGE = UPDATED.replace("[2,3]", "[2,64]").replace("[3,3]", "[64,64]")  # more than one block


def test_a_gradient_is_spent_while_it_is_made() -> None:
    before = reorder(parse(LARGE))
    after = fuse_updates(before)
    assert str(after) == full_text(
        """
        %x : f32[2,64] input; %w : f32[64,64] param; %v : f32[64,64] param
        %lr : f32[] scalar
        %a = linear %x, %w : f32[2,64]
        %b = linear %a, %v : f32[2,64]
        %loss = sum %b {axes=(0, 1)} : f32[1,1]
        %d.a = linear_dx %b, %v : f32[2,64]
        %v.next = dw_sgd %v, %b, %a, %lr : f32[64,64]
        %w.next = dw_sgd %w, %d.a, %x, %lr : f32[64,64]
        state %v <- %v.next
        state %w <- %w.next
        return %loss"""
    )
    assert_same_meaning(before, after)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.update.name)
def test_the_gradient_of_a_large_layer_needs_no_buffer(optimizer: Optimizer) -> None:
    """What is left of its 64 KiB are the 8 KiB of one block."""
    rule, moments = optimizer.update.name, [moment.name for moment in optimizer.moments({})]
    ins = "".join(f"%{m}, " for m in moments) + ("%t, " if optimizer.counts else "")
    leaves = "\n".join(f"%{m} : f32[128,1,1,128] state" for m in moments)
    outs = "".join(f", %{m}.next" for m in moments)
    updates = "\n".join(f"state %{m} <- %{m}.next" for m in moments)
    kinds = ", ".join(["f32[128,1,1,128]"] * (1 + len(moments)))
    graph = parse(
        f"""
        %x : f32[1,4,4,128] input
        %w : f32[128,1,1,128] param
        {leaves}
        %t : f32[] state
        %lr : f32[] scalar
        %y = conv2d %x, %w : f32[1,4,4,128]
        %loss = sum %y {{axes=(0, 1, 2, 3)}} : f32[1,1,1,1]
        %g = conv2d_dw %y, %x : f32[128,1,1,128]
        %w.next{outs} = {rule} %w, %g, {ins}%lr : {kinds}
        state %w <- %w.next
        {updates}
        return %loss"""
    )
    after = fuse_updates(graph)
    assert names(after) == ["conv2d", "sum", f"dw_{rule}"]
    assert not [b for b in lifetimes(after).buffers if b.bytes == 128 * 128 * 4]
    assert peak(graph) - peak(after) == 128 * 128 * 4 - 2048 * 4
    assert_same_meaning(graph, after)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_the_gradient_of_an_embedding_needs_no_buffer(kind: str) -> None:
    """Of 4000 rows of 16 numbers, 250 are made at a time."""
    more = "{narrow=True} " if kind == "bf16" else ""
    graph = parse(
        f"""
        %ids : i32[2,3] input
        %w : f32[4000,16] param
        %m : {kind}[4000,16] state
        %v : {kind}[4000,16] state
        %t : f32[] state
        %lr : f32[] scalar
        %y = take %w, %ids {{axis=0}} : f32[2,3,16]
        %loss = sum %y {{axes=(0, 1, 2)}} : f32[1,1,1]
        %g = take_dx %y, %ids {{axis=0, skip=1, size=4000}} : f32[4000,16]
        %w.next, %m.next, %v.next = adam %w, %g, %m, %v, %t, %lr {more}: f32[4000,16],\
 {kind}[4000,16], {kind}[4000,16]
        state %w <- %w.next
        state %m <- %m.next
        state %v <- %v.next
        return %loss"""
    )
    after = fuse_updates(graph)
    assert names(after) == ["take", "sum", "take_adam"]
    fused = after.nodes[-1].attrs
    assert (fused.skip, fused.narrow) == (1, kind == "bf16")
    assert peak(graph) - peak(after) == (4000 - 250) * 16 * 4
    assert_same_meaning(graph, after)


def test_a_gradient_that_somebody_else_reads_is_made_whole() -> None:
    text = LARGE.replace("return %loss", "%n = sum_squares %d.w : f32[]\n  return %loss, %n")
    assert names(fuse_updates(parse(text))).count("linear_dw") == 1
    clipped = LARGE.replace(
        "%w.next = sgd %w, %d.w", "%c = mul %d.w, %d.v : f32[64,64]\n%w.next = sgd %w, %c"
    )
    assert "dw_sgd" not in names(fuse_updates(parse(clipped)))


def test_a_gradient_smaller_than_its_operand_is_made_whole() -> None:
    graph = parse(LARGE.replace("[2,64]", "[65,64]"))
    assert str(fuse_updates(graph)) == str(graph)


def test_a_gradient_of_one_block_is_made_whole() -> None:
    graph = parse(UPDATED)
    assert str(fuse_updates(graph)) == str(graph)


# --- stream_rows

CHAIN = """
%x : f32[1,8,8,4] input; %expand : f32[16,1,1,4] param; %deep : f32[3,3,16] param
%project : f32[4,1,1,16] param
%a = conv2d %x, %expand : f32[1,8,8,16]
%b = depthwise %a, %deep {pad=(1, 1, 1, 1)} : f32[1,8,8,16]
%c = conv2d %b, %project : f32[1,8,8,4]
return %c"""
MAP, ROW, SMALL = 8 * 8 * 16 * 4, 8 * 16 * 4, 8 * 8 * 4 * 4  # bytes of %a, of a row of it, of %c


def test_a_chain_of_layers_is_run_row_by_row() -> None:
    """Three rows of %a and one of %b stand in for the two maps."""
    assert peak(parse(CHAIN)) == 2 * MAP
    after = expect(
        stream_rows,
        CHAIN,
        """
        %c = stream %x, %expand, %deep, %project {stages=(\
(False, (1, 1), (0, 0, 0, 0), (1, 1), 1, False, False, -inf, inf), \
(True, (1, 1), (1, 1, 1, 1), (1, 1), 1, False, False, -inf, inf), \
(False, (1, 1), (0, 0, 0, 0), (1, 1), 1, False, False, -inf, inf))} : f32[1,8,8,4]
        return %c""",
    )
    assert peak(after) == 3 * ROW + ROW, "the result is in the caller's memory"


def test_a_residual_block_is_streamed_in_the_place_of_its_operand() -> None:
    text = CHAIN.replace("%a = conv2d %x", "%r = relu %x : f32[1,8,8,4]\n  %a = conv2d %r")
    text = text.replace("return %c", "%y = add %r, %c : f32[1,8,8,4]\n  return %y")
    graph = parse(text)
    after = stream_rows(fuse_layers(graph))
    assert names(after) == ["relu", "stream"]
    assert peak(after) == 3 * ROW + ROW, "both are in the caller's memory"
    assert_same_meaning(graph, after)


def test_what_a_stream_needs_in_place_decides_about_the_others() -> None:
    """With room for its result as well, the block would need more than the two layers behind it
    (their maps: 1 KiB and 2.5 KiB), and those would stay as they are."""
    text = CHAIN.replace("%a = conv2d %x", "%r = relu %x : f32[1,8,8,4]\n  %a = conv2d %r")
    text = text.replace(
        "%deep :", "%v : f32[10,1,1,4] param\n  %w : f32[1,3,3,10] param\n  %deep :"
    )
    tail = "%y = add %r, %c : f32[1,8,8,4]\n  %d = conv2d %y, %v : f32[1,8,8,10]\n"
    tail += "  %e = conv2d %d, %w {pad=(1, 1, 1, 1)} : f32[1,8,8,1]\n  return %e"
    after = stream_rows(fuse_layers(parse(text.replace("return %c", tail))))
    assert names(after) == ["relu", "stream", "stream"]
    assert peak(after) == SMALL + 3 * ROW + ROW


def test_layers_that_do_not_make_the_peak_stay_on_their_own() -> None:
    """Larger than anything in the chain: the operand of a sum before it."""
    text = CHAIN.replace("%x : f32[1,8,8,4]", "%large : f32[9,8,8,16]")
    wide = "%e = relu %large : f32[9,8,8,16]\n  %s = sum %e {axes=(0, 3)} : f32[1,8,8,1]\n"
    wide += "  %x = concat %s, %s, %s, %s {axis=3} : f32[1,8,8,4]\n  %a = conv2d"
    graph = parse(text.replace("%a = conv2d", wide))
    assert str(stream_rows(graph)) == str(graph)


@pytest.mark.parametrize("outputs", ["%c, %a, %b", "%c, %ra, %rb"], ids=["outputs", "read twice"])
def test_maps_that_are_needed_whole_are_not_streamed(outputs: str) -> None:
    readers = "".join(f"%r{v} = relu %{v} : f32[1,8,8,16]\n  " for v in "ab")
    text = CHAIN.replace("return %c", f"{readers}return {outputs}")
    graph = parse(text)
    assert "stream" not in names(stream_rows(graph))


def test_a_long_chain_is_cut_into_streams() -> None:
    """The kernel can hold 16 layers; the second stream has the map between and a smaller result."""
    same = "{pad=(1, 1, 1, 1)} : f32[1,200,4"
    layers = [f"%y{i + 1} = conv2d %y{i}, %w {same},3]" for i in range(19)]
    leaves = ["%y0 : f32[1,200,4,3] input", "%w : f32[3,3,3,3] param", "%v : f32[1,3,3,3] param"]
    last = f"%y = conv2d %y19, %v {same},1]"
    graph = parse("\n".join([*leaves, *layers, last, "return %y"]))
    after = stream_rows(graph)
    streams = [len(n.attrs.stages) for n in after.nodes if n.op.name == "stream"]
    assert len(streams) == 2 and max(streams) <= 16
    assert peak(after) < peak(graph) == 2 * 200 * 4 * 3 * 4
    assert_same_meaning(graph, after, rtol=1e-9)


# --- schedule

BRANCHES = """
%x : f32[1,4] input; %v : f32[256,4] param; %w : f32[256,4] param
%a = linear %x, %v : f32[1,256]
%b = linear %x, %w : f32[1,256]
%c = sum %a {axes=(1,)} : f32[1,1]
%d = sum %b {axes=(1,)} : f32[1,1]
%y = add %c, %d : f32[1,1]
return %y"""


def test_a_branch_ends_before_the_next_begins() -> None:
    """One wide value at a time, with the results of both branches: one is where the sum will be,
    in the caller's memory, and the other takes 16 bytes."""
    assert peak(parse(BRANCHES)) == 2 * 1024
    after = expect(
        schedule,
        BRANCHES,
        """
        %a = linear %x, %v : f32[1,256]
        %c = sum %a {axes=(1,)} : f32[1,1]
        %b = linear %x, %w : f32[1,256]
        %d = sum %b {axes=(1,)} : f32[1,1]
        %y = add %c, %d : f32[1,1]
        return %y""",
    )
    assert peak(after) == 1024 + 16


def test_what_is_read_late_is_made_late() -> None:
    """%wide is not needed before the work on %a is done."""
    graph = parse(
        """
        %x : f32[1,4] input; %v : f32[256,4] param; %w : f32[256,4] param
        %wide = linear %x, %w : f32[1,256]
        %a = linear %x, %v : f32[1,256]
        %c = sum %a {axes=(1,)} : f32[1,1]
        %d = mul %wide, %c : f32[1,256]
        %e = sum %d {axes=(1,)} : f32[1,1]
        return %e"""
    )
    after = schedule(graph)
    assert [n.out.name for n in after.nodes] == ["a", "c", "wide", "d", "e"]
    assert (peak(graph), peak(after)) == (2 * 1024 + 16, 1024 + 16)
    assert_same_meaning(graph, after)


def test_updates_are_not_moved_before_outputs_or_readers() -> None:
    """%next would free the large %g early, but the loss may turn out not to be finite."""
    graph = parse(
        """
        %x : f32[256] input; %w : f32[256] param; %lr : f32[] scalar
        %g = mul %x, %x : f32[256]
        %a = mul %x, %w : f32[256]
        %b = tanh %a : f32[256]
        %loss = sum %b {axes=(0,)} : f32[1]
        %next = sgd %w, %g, %lr : f32[256]
        state %w <- %next
        return %loss"""
    )
    after = schedule(graph)
    assert names(after)[-1] == "sgd" and not lifetimes(after).copies
    assert peak(after) < peak(graph)
    assert_same_meaning(graph, after)


def test_an_order_that_cannot_be_better_stays() -> None:
    expect(schedule, CHAIN)


# --- rematerialize

KEPT = """
%x : f32[256] input; %w : f32[256] param
%a = mul %x, %w : f32[256]
%b = exp %a : f32[256]
%c = sin %a : f32[256]
%d = mul %b, %c : f32[256]
%e = tanh %d : f32[256]
%s = sum %e {axes=(0,)} : f32[1]
%y = mul %s, %a : f32[256]
%z = sum %y {axes=(0,)} : f32[1]
return %z"""


def test_a_value_is_computed_again_instead_of_kept() -> None:
    again = "%a.again = mul %x, %w : f32[256]\n%y = mul %s, %a.again"
    after = expect(rematerialize, KEPT, KEPT.replace("%y = mul %s, %a", again))
    assert (peak(parse(KEPT)), peak(after)) == (3 * 1024, 2 * 1024)


def test_nothing_is_computed_again_below_the_limit() -> None:
    expect(lambda g: rematerialize(g, limit=3 * 1024), KEPT)


def test_layers_are_computed_again_only_if_that_is_allowed() -> None:
    graph = parse(
        """
        %x : f32[1,4] input; %w : f32[256,4] param
        %a = linear %x, %w : f32[1,256]
        %b = exp %a : f32[1,256]
        %c = sin %a : f32[1,256]
        %d = mul %b, %c : f32[1,256]
        %s = sum %d {axes=(1,)} : f32[1,1]
        %y = mul %s, %a : f32[1,256]
        %z = sum %y {axes=(1,)} : f32[1,1]
        return %z"""
    )
    assert str(rematerialize(graph)) == str(graph)
    after = rematerialize(graph, costly=True)
    assert names(after).count("linear") == 2 and peak(after) == 2 * 1024 < peak(graph)
    assert_same_meaning(graph, after)
