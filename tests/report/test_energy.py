"""The estimate of energy, against counts made by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tiny
import whet
from whet.ir import Builder, Graph, Node, Role, f32, i8
from whet.memory.plan import Plan, plan
from whet.ops.binary import Add
from whet.ops.linear import Linear
from whet.report.energy import CACHES, MACS, Factors, Level, arithmetic, energy_of, factors_for
from whet.report.program import macs
from whet.settings import target_of

KIB = 1024


def levels(*sizes: int) -> Factors:
    """A picojoule per byte in the first memory, ten in the next, and so on."""
    found = [Level(f"{size}", size, 10.0**i) for i, size in enumerate(sizes)]
    return Factors(levels=(*found, Level("rest", None, 10.0 ** len(sizes))))


def chain() -> Graph:
    """x, y and z have 1 KiB each: y = x + x, z = y + y. Only y is in the arena."""
    b = Builder("predict")
    x = b.leaf("x", f32(256), Role.INPUT)
    y = b.emit(Add, x, x, name="y")
    return b.finish([b.emit(Add, y, y, name="z")])


def test_what_is_not_touched_again_soon_comes_from_farther_away() -> None:
    """x is read twice, y written and read twice, z written: 6 KiB.

    Between two uses of x in successive steps, y and z are touched: with x itself, 3 KiB. The same
    is true of the first use of y and of z; the other reads follow a use of the same 1 KiB.
    """
    p = plan(chain(), inplace=False)
    assert [(b.bytes, b.values[0].name) for b in p.buffers] == [(KIB, "y")]
    small = energy_of(p, levels(2 * KIB))
    assert small.accesses == (3 * KIB, 3 * KIB)
    assert small.memory == small.total == 3 * KIB * 1.0 + 3 * KIB * 10.0
    assert energy_of(p, levels(3 * KIB)).accesses == (6 * KIB, 0)
    assert energy_of(p, levels(512)).accesses == (0, 6 * KIB)
    assert energy_of(p, levels(1 * KIB, 2 * KIB)).accesses == (3 * KIB, 0, 3 * KIB)


def test_the_working_set_counts_every_byte_once() -> None:
    found = energy_of(plan(chain(), inplace=False), levels(2 * KIB, 3 * KIB))
    assert found.working_set == 3 * KIB and found.level.name == str(3 * KIB)


def test_blocks_at_one_address_are_one_place() -> None:
    """a, b, c = x + x, a + a, b + b: a and c lie at the same address, so c finds it in the cache.

    Two blocks of 1 KiB, and x and the result outside. c is written after a was read and b written
    and read: 2 KiB.
    """
    b = Builder("predict")
    x = b.leaf("x", f32(256), Role.INPUT)
    v = x
    for name in "abc":
        v = b.emit(Add, v, v, name=name)
    p = plan(b.finish([b.emit(Add, v, v, name="out")]), inplace=False)
    places = {block.values[0].name: block.offset for block in p.buffers}
    assert places["a"] == places["c"] != places["b"] and p.arena == 2 * KIB
    # 2 x, 3 each of a, b, c, 1 of out: 12 KiB. Since the last use, x has seen a, b and out; out has
    # seen x, a and b; the first of b has seen c, out, x and a: 4 KiB each, with itself. The first
    # of a has seen out and x since c was read: 3 KiB. The first of c takes 2 KiB, all others 1.
    assert energy_of(p, levels(1 * KIB, 2 * KIB, 3 * KIB)).accesses == (
        7 * KIB, 1 * KIB, 1 * KIB, 3 * KIB,
    )  # fmt: skip


def step_of(update: str) -> Plan:
    x, _ = next(tiny.vectors())
    return whet.compile(tiny.mlp(), (x,), update=update).plans["train_step"]


@pytest.fixture(scope="module")
def step() -> Plan:
    return step_of("full")


def test_multiply_accumulates_are_counted_by_hand(step: Plan) -> None:
    """Forward 4 * (5 * 8 + 8 * 3), the same again for weights, and 4 * 8 * 3 for the hidden."""
    found = energy_of(step)
    assert dict(found.macs) == {"float32": 2 * 4 * (5 * 8 + 8 * 3) + 4 * 8 * 3}
    assert found.arithmetic == pytest.approx((3.7 + 0.9) * 608)
    assert sum(found.macs.values()) == macs(step)


def test_figures_are_those_of_the_publication() -> None:
    """64 bits: 10, 20, 100 pJ; 32 bits of DRAM: 640; additions and multiplications."""
    assert [8 * level.per_byte for level in CACHES[:3]] == [10, 20, 100]
    assert 4 * CACHES[3].per_byte == 640
    assert MACS == pytest.approx({"float32": 4.6, "bfloat16": 2.0, "int32": 3.2, "int8": 0.3})


def test_other_figures_give_other_energies(step: Plan) -> None:
    free = Factors(levels=(Level("all", None, 0.0),), macs={"float32": 2.0})
    assert energy_of(step, free).total == 2.0 * 608


def test_less_training_takes_less_energy(step: Plan) -> None:
    full, last = energy_of(step), energy_of(step_of("last"))
    assert last.memory < full.memory and last.arithmetic < full.arithmetic


def test_integers_count_as_integers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)).eval()
    x = torch.randn(1, 1, 6, 6)
    program = whet.compile(model, (x,), update="last", dtype="int8", calibrate=[x])
    found = energy_of(program.plans["train_step"])
    assert found.macs["int8"] == 2 * 9 * 16  # the convolution; the head is of floats
    assert found.macs["float32"] >= 32 * 2


def linear(*kinds: object) -> Node:
    b = Builder("predict")
    x, w = (b.leaf(name, kind, Role.INPUT) for name, kind in zip("xw", kinds, strict=True))
    return Node(Linear, (x, w), (), None)


def test_the_format_of_a_product_is_that_of_its_operands() -> None:
    assert arithmetic(linear(f32(1, 4), f32(2, 4))) == "float32"
    assert arithmetic(linear(i8(1, 4), i8(2, 4))) == "int8"
    assert arithmetic(linear(f32(1, 4), i8(2, 4))) == "float32"


def test_a_microcontroller_has_one_memory() -> None:
    for ram, per_byte in (("256K", 12.5), ("32K", 2.5), ("2M", 12.5)):
        (level,) = factors_for(target_of("cortex-m7", False, ram, None)).levels
        assert (level.bytes, level.per_byte) == (None, per_byte)
    assert factors_for(target_of("host", False, None, None)).levels == CACHES
