"""Passes about normalisations: what becomes part of them, and what is computed again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whet
from rewriting import expect
from whet.passes.fuse_norms import fuse_norms
from whet.passes.renew_norms import renew_norms

# --- fuse_norms


@pytest.mark.parametrize(
    ("clamp", "limits"), [("relu %y", "low=0.0"), ("hardtanh %y {high=6.0}", "low=-1.0, high=6.0")]
)
def test_a_clamp_becomes_part_of_the_norm(clamp: str, limits: str) -> None:
    expect(
        lambda g: fuse_norms(g, changing=[]),
        f"""
        %x : f32[2,4,3] input; %w : f32[3] param; %b : f32[3] param
        %y, %mean, %var = batch_norm_train %x, %w, %b : f32[2,4,3], f32[3], f32[3]
        %z = {clamp} : f32[2,4,3]
        return %z, %mean""",
        f"""
        %z_1, %z.1, %z.2 = batch_norm_train %x, %w, %b {{{limits}}} : f32[2,4,3], f32[3], f32[3]
        return %z_1, %z.1""",
    )


@pytest.mark.parametrize("reader", ["relu", "neg"])
def test_a_norm_that_is_read_elsewhere_is_not_clamped(reader: str) -> None:
    expect(
        lambda g: fuse_norms(g, changing=[]),
        f"""
        %x : f32[2,4,3] input; %w : f32[3] param
        %y, %mean, %var = batch_norm_train %x, %w, %w : f32[2,4,3], f32[3], f32[3]
        %z = relu %y : f32[2,4,3]
        %other = {reader} %y : f32[2,4,3]
        return %z, %other""",
    )


# --- renew_norms

NORMED = """
%x : f32[2,3] input; %w : f32[3] param; %v : f32[3,3] param; %lr : f32[] scalar
%y, %mean, %var = batch_norm_train %x, %w, %w {{low=0.0}} : f32[2,3], f32[3], f32[3]
%a = linear %y, %v : f32[2,3]
%loss = sum %a {{axes=(0, 1)}} : f32[1,1]
{again}%d.v = linear_dw %a, {y} : f32[3,3]
%d.y = linear_dx %a, %v : f32[2,3]
%d.w, %d.b = batch_norm_train_dw %d.y, {x}, %w, %w, %mean, %var {{low=0.0}} : f32[3], f32[3]
%v.next = sgd %v, %d.v, %lr : f32[3,3]
%w.next = sgd %w, %d.w, %lr : f32[3]
state %v <- %v.next
state %w <- %w.next
return {outputs}"""


def test_a_norm_is_computed_again_where_it_is_read_behind_the_loss() -> None:
    renewed = "batch_norm_clipped %x, %w, %w, %mean, %var {low=0.0}"
    expect(
        renew_norms,
        NORMED.format(again="", y="%y", x="%x", outputs="%loss"),
        NORMED.format(
            again=f"%y.again = {renewed} : f32[2,3]\n", y="%y.again", x="%x", outputs="%loss"
        ),
    )


@pytest.mark.parametrize(("x", "outputs"), [("%a", "%loss"), ("%x", "%loss, %y")])
def test_a_norm_is_kept_if_its_operand_is_not_or_if_it_is_a_result(x: str, outputs: str) -> None:
    expect(renew_norms, NORMED.format(again="", y="%y", x=x, outputs=outputs))


FROZEN = """
%x : f32[2,3] input; %w : f32[3] param; %v : f32[3,3] param
%mean : f32[3] const = [0.5, -0.5, 0.25]
%var : f32[3] const = [1.0, 4.0, 0.25]
%lr : f32[] scalar
%y = batch_norm %x, %w, %w, %mean, %var : f32[2,3]
%z = hardtanh %y {{low=0.0, high=6.0}} : f32[2,3]
%a = linear %z, %v : f32[2,3]
%loss = sum %a {{axes=(0, 1)}} : f32[1,1]
{again}%d.v = linear_dw %a, {z} : f32[3,3]
%d.z = linear_dx %a, %v : f32[2,3]
%d.w = batch_norm_dw %d.z, {x}, %mean, %var : f32[3]
%v.next = sgd %v, %d.v, %lr : f32[3,3]
%w.next = sgd %w, %d.w, %lr : f32[3]
state %v <- %v.next
state %w <- %w.next
return %loss"""


def test_a_norm_with_fixed_statistics_is_computed_again_with_the_clamp_behind_it() -> None:
    renewed = "batch_norm_clipped %x, %w, %w, %mean, %var {low=0.0, high=6.0}"
    expect(
        renew_norms,
        FROZEN.format(again="", z="%z", x="%x"),
        FROZEN.format(again=f"%z.again = {renewed} : f32[2,3]\n", z="%z.again", x="%x"),
    )


def test_one_whose_operand_is_not_kept_is_not_computed_again() -> None:
    expect(renew_norms, FROZEN.format(again="", z="%z", x="%d.z"))


def test_fixed_statistics_take_no_more_memory_than_those_of_the_batch() -> None:
    """A network in eval mode keeps what it keeps in training mode, but for the statistics."""
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8),
                                            nn.ReLU())]  # fmt: skip
    model = nn.Sequential(nn.Conv2d(3, 8, 1), *layers, nn.Flatten(), nn.Linear(8 * 64, 3))
    x = torch.randn(4, 3, 8, 8)
    arenas = {
        mode: whet.compile(model.train(mode), (x,), target="portable").arena
        for mode in (False, True)
    }
    assert arenas[False] <= arenas[True]
