"""Passes on integer graphs: text in, text out, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import whet
from integer_models import Residual, compiled, trained
from rewriting import expect, parse
from whet.ir import Graph, Role
from whet.ir.interp import interpret, run_exact
from whet.passes import SWITCHES
from whet.passes.drop_masks import drop_masks
from whet.passes.fuse_narrow import fuse_narrow
from whet.passes.stream_rows import stream_rows


def test_masks_that_nobody_reads_are_not_made() -> None:
    expect(
        drop_masks,
        """
        %x : i32[2,8] input; %d : f32[2,8] input; %s : f32[8] param
        %y, %y.1 = requantize %x, %s {mask=True} : i8[2,8], u8[2]
        %z, %z.1 = requantize %x, %s {zero=3, mask=True} : i8[2,8], u8[2]
        %dx = requantize_dx %d, %z.1, %s : f32[2,8]
        return %y, %z, %dx""",
        """
        %y = requantize %x, %s : i8[2,8]
        %z, %z.1 = requantize %x, %s {zero=3, mask=True} : i8[2,8], u8[2]
        %dx = requantize_dx %d, %z.1, %s : f32[2,8]
        return %y, %z, %dx""",
    )


def test_sums_are_narrowed_where_they_are_made() -> None:
    """With the channels that train apart; sums that somebody else reads stay."""
    expect(
        fuse_narrow,
        """
        %x : i8[1,4,4,3] input; %w : i8[8,1,1,3] param; %p : i8[8,1,1,2] param
        %v : i8[3,3,8] param; %s : f32[8] param
        %a = conv2d_i8 %x, %w {zero=2} : i32[1,4,4,8]
        %q = slice %x {axis=3, stop=2} : i8[1,4,4,2]
        %b = conv2d_i8 %q, %p {zero=2} : i32[1,4,4,8]
        %c = add %a, %b : i32[1,4,4,8]
        %y = requantize %c, %s {zero=-5} : i8[1,4,4,8]
        %d = depthwise_i8 %y, %v {pad=(1, 1, 1, 1), zero=-5} : i32[1,4,4,8]
        %z, %z.1 = requantize %d, %s {low=0, mask=True} : i8[1,4,4,8], u8[16]
        %e = conv2d_i8 %x, %w {zero=2} : i32[1,4,4,8]
        %t = requantize %e, %s : i8[1,4,4,8]
        return %z, %z.1, %e, %t""",
        """
        %q = slice %x {axis=3, stop=2} : i8[1,4,4,2]
        %y = conv2d_i8_fused %x, %w, %s, %q, %p {zero=-5, x_zero=2, part=True} : i8[1,4,4,8]
        %z, %z.1 = depthwise_i8_fused %y, %v, %s {pad=(1, 1, 1, 1), low=0, mask=True, x_zero=-5} : i8[1,4,4,8], u8[16]
        %e = conv2d_i8 %x, %w {zero=2} : i32[1,4,4,8]
        %t = requantize %e, %s : i8[1,4,4,8]
        return %z, %z.1, %e, %t""",  # noqa: E501
    )


CHAIN = """
    %x : i8[1,16,16,4] input; %u : i8[32,1,1,4] param; %v : i8[3,3,32] param
    %w : i8[4,1,1,32] param; %s : f32[32] param; %t : f32[4] param
    %a = conv2d_i8_fused %x, %u, %s {zero=-128} : i8[1,16,16,32]
    %b = depthwise_i8_fused %a, %v, %s {pad=(1, 1, 1, 1), x_zero=-128} : i8[1,16,16,32]
    %c = conv2d_i8_fused %b, %w, %t : i8[1,16,16,4]
    return %c"""


def test_int8_layers_stream() -> None:
    before = parse(CHAIN)
    after = stream_rows(before)
    assert [n.op.name for n in after.nodes] == ["stream_i8"]
    feed = {"x": np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 4)).astype(np.int8)}
    np.testing.assert_array_equal(interpret(before, feed)[0][0], interpret(after, feed)[0][0])


@pytest.mark.parametrize("gradients", ["float32", pytest.param("int16", marks=pytest.mark.slow)])
def test_every_pass_keeps_the_bits_of_an_integer_program(gradients: str) -> None:
    """All of them, and all but each one, train the same network to the same bits."""
    shape = (2, 3, 16, 16)
    model = trained(Residual(), shape)
    scheme = whet.Scheme([
        whet.Rule("head.*"), whet.Rule("*.bias"), whet.Rule("last.weight", channels=0.5),
        whet.Rule("block.1.0.weight", channels=(1, 3, 4)),
    ])  # fmt: skip
    x = np.random.default_rng(0).integers(-128, 128, (2, 16, 16, 3)).astype(np.int8)
    feed = {"input": x, "label": np.array([1, 4], np.int32), "lr": np.float32(0.05)}

    def trained_by(*without: str) -> dict[str, bytes]:
        numbers = whet.Int8(gradients=gradients)
        program = compiled(
            model, shape, numbers, update=scheme, without=without, rematerialize=True
        )
        step: Graph = program.entries["train_step"]
        (loss,), after = interpret(step, feed, execute=run_exact)
        assert {v.name for v in step.leaves_of(Role.PARAM)} >= {"last.weight.part"}
        return {"loss": loss.tobytes(), **{n: a.tobytes() for n, a in after.items()}}

    right = trained_by()
    for name in SWITCHES:
        assert trained_by(name) == right, name
    assert trained_by(*SWITCHES) == right


@pytest.mark.parametrize(
    "gradients", ["float32", "int16", pytest.param("int8", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("rounding", ["nearest", "carry8"])
def test_gradients_of_whole_numbers_are_spent_as_they_are_made(
    rounding: str, gradients: str
) -> None:
    """The gradient of the last convolution, 48 KB, is gone from the arena, and nothing else."""
    torch.manual_seed(0)
    shape = (1, 3, 8, 8)
    layers = [nn.Conv2d(3, 96, 3, 2, 1), nn.ReLU(), nn.Conv2d(96, 128, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 4)).eval()
    numbers = whet.Int8(rounding=rounding, gradients=gradients)
    program, plain = (
        compiled(model, shape, numbers, without=without, portable=True)
        for without in ((), ("fuse_updates",))
    )
    ours, theirs = ([n.op.name for n in p.entries["train_step"].nodes] for p in (program, plain))
    assert (ours.count("dw_sgd_settle"), theirs.count("dw_sgd_settle")) == (2, 0)
    assert ours.count("settle") == theirs.count("settle") - 2
    assert program.arena < plain.arena - 30_000
    vectors = compiled(model, shape, numbers)
    trainers = [p.load() for p in (program, plain, vectors)]
    random = np.random.default_rng(0)
    for _ in range(5):
        x, y = random.normal(size=shape).astype(np.float32), random.integers(0, 4, 1)
        assert len({trainer.step(x, y, lr=0.1) for trainer in trainers}) == 1
    first, *others = (trainer.arrays() for trainer in trainers)
    for name, array in first.items():
        assert all(np.array_equal(other[name], array) for other in others)
    program.check(3)
