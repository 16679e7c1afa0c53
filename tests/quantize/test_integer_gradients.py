"""Gradients as integers: how they are rounded, that sums fit, and that networks learn by them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cortex
import whet
from integer_models import DATA, SMALL, Residual, compiled, needs_data, trained
from integer_samples import EXAMPLES, agrees, seeds, windows, zeros
from rewriting import buffer_of, parse, peak
from whet import models
from whet.errors import FrontendError
from whet.ir import Array, Builder, DType, Role, Type
from whet.ir.interp import interpret, run_exact
from whet.ops import by_name
from whet.ops.conv import Window
from whet.ops.gradient_i8 import NarrowGradient
from whet.passes.narrow_gradients import limits_of, narrow_gradients
from whet.targets.cortex_m import Board
from whet.verify.integer import equal_steps

KINDS = ("int16", "int8")


def narrowed(g: Any, limit: int = 32767, kind: str = "int16") -> tuple[Array, float]:
    q, scale = NarrowGradient.ref(NarrowGradient.Attrs(kind, limit), np.float32(g))
    return q, float(scale[0])


def test_the_scale_is_the_least_power_of_two() -> None:
    for limit in (127, 1001, 32767):
        for exponent in (-100, -3, 0, 100):
            top = limit * 2.0**exponent
            assert narrowed([top, 1e-3 * top], limit)[1] == 2.0**exponent
            assert narrowed([-np.nextafter(np.float32(top), np.inf)], limit)[1] == 2.0 ** (
                exponent + 1
            )
    assert narrowed([0.0, -0.0])[1] == narrowed([1e-45])[1] == 2.0**-100
    assert not narrowed([1e-38])[0].any(), "what may count as 0 while a step runs"
    largest = float(np.finfo(np.float32).max)
    q, scale = narrowed([largest, -largest], 127, "int8")
    assert scale == 2.0**122 and q.tolist() == [64, -64]
    assert narrowed([0.5, 1.5, 2.5, -0.5, 127], 127)[0].tolist() == [0, 2, 2, 0, 127]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_becomes_nan(odd: float) -> None:
    """All that is computed from it, so that nothing looks like a gradient."""
    q, scale = narrowed([1.0, odd, 2.0])
    assert np.isnan(scale) and not q.any()


@settings(max_examples=EXAMPLES, deadline=None)
@given(windows(), zeros, st.integers(1, 3), st.sampled_from(KINDS), st.data())
def test_gradients_of_any_size(window: Any, zero: int, groups: int, kind: str, data: Any) -> None:
    image, kernel, attrs = window
    g, large = data.draw(seeds), data.draw(st.integers(127, 2000))
    c, o = (groups * data.draw(st.integers(1, n)) for n in (40, 70))
    out = Window(**attrs).output(image[1:], kernel)
    x, by = g.i8(*image, c), np.float32([2.0 ** data.draw(st.integers(-126, 90))])
    limit = 127 if kind == "int8" else large
    for dy, op in (
        (g.normal(image[0], *out, o), "conv2d"),
        (g.normal(*image[:1], *out, c), "depthwise"),
    ):
        q = NarrowGradient.ref(NarrowGradient.Attrs(kind, limit), dy)[0]
        more = dict(groups=groups) if op == "conv2d" else {}
        w = g.i8(o, *kernel, c // groups) if op == "conv2d" else g.i8(*kernel, c)
        agrees("narrow_gradient", dy, kind=kind, limit=limit)
        agrees(f"{op}_i8_dx", q, w, by, size=image[1:], **attrs, **more)
        agrees(f"{op}_i8_dw", q, x, by, kernel=kernel, zero=zero, **attrs, **more)


SHAPES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("conv2d_i8", (1, 6, 5, 3), (40, 3, 3, 3), dict(pad=(1, 1, 1, 1), zero=-128)),
    ("conv2d_i8", (2, 7, 9, 4), (64, 5, 3, 4), dict(stride=(2, 1), pad=(2, 1, 2, 1), zero=127)),
    ("conv2d_i8", (1, 9, 9, 6), (90, 3, 3, 2), dict(dilation=(2, 3), groups=3, zero=0)),
    ("conv2d_i8", (1, 18, 20, 2), (8, 4, 4, 2), dict(stride=(4, 3), dilation=(2, 3), zero=5)),
    ("depthwise_i8", (3, 40, 41, 2), (7, 7, 2), dict(stride=(2, 3), pad=(3, 3, 3, 3), zero=-128)),
]


@pytest.mark.parametrize(("op", "x", "w", "attrs"), SHAPES)
def test_no_sum_overflows(op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: Any) -> None:
    """With the largest integers everywhere, the largest sum is what the limit was computed from."""
    b = Builder("worst")
    leaves = [b.leaf(n, Type(DType.I8, s), Role.PARAM) for n, s in (("x", x), ("w", w))]
    y = b.emit(by_name(op), *leaves, **attrs)
    dy = b.leaf("dy", Type(DType.F32, y.shape), Role.INPUT)
    b.nodes[0].op.vjp(b, b.nodes[0], (dy,), (True, True))
    far = 127 if attrs["zero"] < 0 else -128
    for node in b.nodes[1:]:
        other = np.full(node.ins[1].shape, far if "_dw" in node.op.name else -128, np.int8)
        ones = np.ones(dy.shape, np.int16)
        sums = node.op.ref(node.attrs, ones, other, np.ones(1))
        assert isinstance(sums, np.ndarray)
        assert node.op.largest_sum is not None
        largest = node.op.largest_sum(node)
        assert np.abs(sums).max() == largest
        limit = (2**31 - 1) // largest
        assert limit * largest < 2**31 <= (limit + 1) * largest


LEAVES = """
    graph g {
      %dy : f32[1,4,4,8] input
      %far : f32[1,300,300,8] input
      %x : i8[1,4,4,3] input
      %y : i8[1,300,300,3] input
      %w : i8[8,1,1,3] param"""
GRAPH = f"""{LEAVES}
      %dx = conv2d_i8_dx %dy, %w {{size=(4, 4)}} : f32[1,4,4,3]
      %dw = conv2d_i8_dw %dy, %x {{zero=-128}} : f32[8,1,1,3]
      %db = sum %dy {{axes=(0, 1, 2)}} : f32[1,1,1,8]
      %dv = conv2d_i8_dw %far, %y {{zero=-128}} : f32[8,1,1,3]
      return %dx, %dw, %db, %dv
    }}"""
NARROW = f"""{LEAVES}
      %db = sum %dy {{axes=(0, 1, 2)}} : f32[1,1,1,8]
      %dy.int16, %dy.int16.1 = narrow_gradient %dy {{limit=32767}} : i16[1,4,4,8], f32[1]
      %dx = conv2d_i8_dx %dy.int16, %w, %dy.int16.1 {{size=(4, 4)}} : f32[1,4,4,3]
      %dw = conv2d_i8_dw %dy.int16, %x, %dy.int16.1 {{zero=-128}} : f32[8,1,1,3]
      %dv = conv2d_i8_dw %far, %y {{zero=-128}} : f32[8,1,1,3]
      return %dx, %dw, %db, %dv
    }}"""


def test_one_gradient_is_rounded_once_and_summed_before() -> None:
    """And not at all where 90,000 pixels would leave less than a byte."""
    after = narrow_gradients(parse(GRAPH), "int16")
    assert str(after) == textwrap.dedent(NARROW).strip()


def test_the_strictest_product_sets_the_limit() -> None:
    graph = parse(GRAPH.replace("4,4", "40,40").replace("(4, 4)", "(40, 40)"))
    of_weights = (2**31 - 1) // (1600 * 255)
    for kind, limit in (("int16", of_weights), ("int8", 127)):
        assert {v.name: n for v, n in limits_of(graph, kind).items()}["dy"] == limit


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("kind", "error"), [("int16", 2e-4), ("int8", 5e-2)])
@pytest.mark.parametrize("portable", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_are_nearly_autograds_and_steps_the_references(
    name: str, kind: str, error: float, portable: bool
) -> None:
    make, shape = SMALL[name]
    numbers = whet.Int8(gradients=kind)
    program = compiled(trained(make(), shape), shape, numbers, update="full", portable=portable)
    report = program.check(20)
    assert 1e-5 < report.worst_gradient[1] < error
    if name == "residual":
        assert "bit for bit" in str(report) and all(a == b for a, b in report.losses)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rounding",
    ["nearest", *(pytest.param(r, marks=pytest.mark.slow) for r in ("carry8", "stochastic"))],
)
def test_parts_accumulation_and_recomputation(kind: str, rounding: str) -> None:
    """Weights that train in part; gradients and apply are a step; less memory, the same bits."""
    shape = (2, 3, 16, 16)
    scheme = whet.Scheme([
        whet.Rule("head.*"), whet.Rule("*.bias"), whet.Rule("last.weight", channels=0.5),
        whet.Rule("block.1.0.weight", channels=(1, 3, 4)), whet.Rule("stem.0.weight"),
    ])  # fmt: skip
    model, numbers = trained(Residual(), shape), whet.Int8(gradients=kind, rounding=rounding)
    program = compiled(model, shape, numbers, update=scheme, accumulate=True)
    program.check(5)
    least = compiled(model, shape, numbers, update=scheme, rematerialize="layers")
    tight = compiled(model, shape, numbers, update=scheme, ram=least.memory["ram"])
    assert tight.memory["ram"] <= least.memory["ram"] < program.memory["ram"]
    trainers = [p.load() for p in (program, program, least, tight)]
    x, y = torch.randn(shape), torch.tensor([0, 2])
    for trainer in trainers:
        trainer.gradients(x, y) if trainer is trainers[1] else trainer.step(x, y, lr=0.1)
    trainers[1].apply(lr=0.1)
    first, *others = (t.arrays() for t in trainers)
    for name in first:
        assert all(np.array_equal(other[name], first[name]) for other in others if name in other)
    trainers[2].load(trainers[3].save())


@pytest.mark.parametrize("kind", KINDS)
def test_an_int8_head_other_optimizers_and_a_limit_of_the_norm(kind: str) -> None:
    shape = (2, 3, 16, 16)
    model = trained(Residual(), shape)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    numbers = whet.Int8(gradients=kind, head="int8", rounding="carry16")
    program = compiled(model, shape, numbers, optimizer=opt, clip_norm=1.0, portable=True)
    assert program.tensors["head.weight"].type.dtype is DType.I8
    program.check(5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_microcontroller_has_the_bits_of_the_reference(kind: str) -> None:
    cortex.need_tools()
    shape = (1, 3, 16, 16)
    model, numbers = trained(Residual(), shape), whet.Int8(gradients=kind)
    program = compiled(model, shape, numbers, update="full", target="cortex-m7")
    x, y = torch.randn(3, *shape), torch.tensor([[1], [4], [2]])
    with Board(program, watched=False) as board:
        equal_steps(board, [((x[i],), y[i]) for i in range(3)])


def test_a_network_learns_by_them() -> None:
    """Noisy pictures of four kinds, new ones in every step: as well as by floats."""
    shape = (8, 3, 16, 16)
    model, random = trained(Residual(), shape), np.random.default_rng(0)
    kinds = random.normal(size=(4, 3, 1, 1))

    def draw(count: int) -> tuple[Array, Array]:
        y = random.integers(0, 4, count)
        return (kinds[y] + random.normal(size=(count, *shape[1:]))).astype(np.float32), y

    lessons, (x, y) = [draw(8) for _ in range(150)], draw(64)
    for kind in ("float32", *KINDS):
        numbers = whet.Int8(gradients=kind, rounding="carry8")
        trainer = compiled(model, shape, numbers, update="full").load()
        for lesson in lessons:
            trainer.step(*lesson, lr=0.2)
        found = [trainer.predict(x[i : i + 8]).argmax(1) for i in range(0, 64, 8)]
        assert (np.concatenate(found) == y).mean() > 0.95, kind


def test_a_gradient_that_overflows_moves_no_integer() -> None:
    """A finite loss may still lead to infinite gradients: then the layers behind stay."""
    shape = (2, 3, 16, 16)
    program = compiled(trained(Residual(), shape), shape, whet.Int8(gradients="int16"))
    step = program.entries["train_step"]

    def spoil(node: Any, arrays: list[Array]) -> tuple[Array, ...]:
        if node.op is NarrowGradient:
            arrays = [np.full_like(arrays[0], np.inf)]
        return run_exact(node, arrays)

    feed = {"input": np.zeros((2, 16, 16, 3), np.int8), "label": np.zeros(2, np.int32)}
    _, after = interpret(step, feed | {"lr": np.float32(0.1)}, execute=spoil)
    weights = [n for n, a in after.items() if a.dtype == np.int8]
    assert len(weights) == 5
    for name in weights:
        np.testing.assert_array_equal(after[name], step.data[name])


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(FrontendError, match=r"no gradients 'int4'(.|\n)*float32, int16, int8"):
        whet.Int8(gradients="int4")


def backbone() -> nn.Module:
    assert DATA is not None
    model = models.load_int8_backbone(Path(DATA) / "imagenet-backbones" / "mcunet-5fps_int8.npz")
    torch.manual_seed(0)
    model.classifier[1] = nn.Linear(model.classifier[1].in_features, 10)
    return model.eval()


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "error"), [("int16", 1e-3), ("int8", 0.1)])
def test_a_pretrained_network_trains_to_the_bit(kind: str, error: float) -> None:
    """MCUNet under the published scheme of 99 KB, with a backbone of given scales."""
    program = whet.compile(
        backbone(), (torch.zeros(1, 3, 128, 128),), dtype=whet.Int8(gradients=kind),
        update="mcunet-5fps-99kb",
    )  # fmt: skip
    report = program.check(20)
    assert 1e-5 < report.worst_gradient[1] < error
    assert all(a == b for a, b in report.losses)


@needs_data
def test_they_take_less_memory_of_a_microcontroller() -> None:
    arenas = []
    for kind in ("float32", "int16", "int8"):
        program = whet.compile(
            backbone(), (torch.zeros(1, 3, 128, 128),), dtype=whet.Int8(gradients=kind),
            update="mcunet-5fps-49kb", target="cortex-m7",
        )  # fmt: skip
        arenas.append(program.memory["arena"])
    assert arenas[1] < 0.8 * arenas[0] and arenas[2] < 0.75 * arenas[0]


@pytest.mark.parametrize(("channels", "together"), [(3, True), (4, False), (8, False)])
def test_they_lie_where_the_floats_were_if_that_pays(channels: int, together: bool) -> None:
    """A place that is kept whole is 256 bytes too large, or two at once are as much too many."""
    text = f"""
    graph g {{
      %x : f32[1,4,4,8] input
      %w : i8[8,1,1,{channels}] param
      %dy = mul %x, %x : f32[1,4,4,8]
      %q, %q.1 = narrow_gradient %dy {{limit=32767}} : i16[1,4,4,8], f32[1]
      %dx = conv2d_i8_dx %q, %w, %q.1 {{size=(4, 4)}} : f32[1,4,4,{channels}]
      %s = sum %dx {{axes=(3,)}} : f32[1,4,4,1]
      return %s
    }}"""
    graph = parse(text)
    assert (buffer_of(graph, "q") == buffer_of(graph, "dy")) is together
    assert peak(graph) == 512 + 16 + (64 * channels if together else 256)
