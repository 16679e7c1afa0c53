"""Traits say what is true: each is compared with what the operator infers, computes and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import whet
from kernel_checks import SAMPLES
from kernel_samples import DTYPES, Numbers
from whet.ir import Array, Builder, Layer, Node, Op, Role, Struct, Type, Value
from whet.ir.interp import interpret, run_reference
from whet.ops.bits import BitsDx, WithinBits
from whet.ops.conv import Conv2d, Conv2dDx, Depthwise
from whet.ops.conv_i8 import Conv2dI8, DepthwiseI8, IntegerLayer
from whet.ops.fused import Fused, FusedLayer
from whet.ops.fused_i8 import NarrowedLayer
from whet.ops.linear import Linear

OPS = list(Op.registry.values())
LAYERS = [op for op in OPS if op.layer is not None]
VECTORS = Path(whet.__file__).parent / "kernels" / "vec"
SMALL = [sample for sample in SAMPLES if not sample.long]


def first_node(op: type[Op]) -> tuple[Node, list[Array]]:
    """Of an operator's first sample."""
    return next(s for s in SMALL if s.op is op).nodes()[0]


def leaves(b: Builder, arrays: Sequence[Array]) -> list[Value]:
    kinds = [Type(DTYPES[a.dtype.type], a.shape) for a in arrays]
    return [b.leaf(f"v{i}", kind, Role.INPUT) for i, kind in enumerate(kinds)]


# --- layers and norms


def test_layers_are_these() -> None:
    assert set(LAYERS) == {Conv2d, Conv2dDx, Depthwise, Linear, Conv2dI8, DepthwiseI8}
    depthwise = [op for op in LAYERS if op.layer is not None and op.layer.depthwise]
    assert set(depthwise) == {Depthwise, DepthwiseI8}


@pytest.mark.parametrize("op", LAYERS, ids=lambda op: op.name)
def test_the_axes_of_a_layers_weight_run_over_its_channels(op: type[Op]) -> None:
    layer = op.layer
    assert layer is not None
    for sample in (s for s in SMALL if s.op is op):
        node = sample.nodes()[0][0]
        x, w = node.ins[0].shape, node.ins[layer.weight].shape
        groups = getattr(node.attrs, "groups", 1)
        into, out = (1, groups) if layer.inputs_of_all_groups else (groups, 1)
        assert (x[-1], node.out.shape[-1]) == (w[layer.inputs] * into, w[layer.outputs] * out)
        assert len(node.ins) <= 2 + layer.bias
        assert all(bias.shape == node.out.shape[-1:] for bias in node.ins[2:])


@pytest.mark.parametrize(
    ("layer", "stored"),
    [(Layer(-1, 0), (3, 0)), (Layer(0, -1), (0, 3)), (Layer(-1, -1), (2, 2))],
    ids=["convolution", "transposed", "depthwise"],
)
def test_where_the_axes_are_in_a_stored_parameter(layer: Layer, stored: tuple[int, int]) -> None:
    assert (layer.stored(layer.inputs, 4), layer.stored(layer.outputs, 4)) == stored


def test_norms_have_a_gain_and_an_offset_by_channel() -> None:
    norms = [op for op in OPS if op.norm]
    assert {"batch_norm", "batch_norm_train", "group_norm", "rms_norm"} == {n.name for n in norms}
    for op in norms:
        node, _ = first_node(op)
        assert all(value.shape == node.ins[0].shape[-1:] for value in node.ins[1:3])


def test_operators_that_read_weights() -> None:
    names = {op.name for op in OPS if op.reads_weights or op.layer}
    layers = "conv2d conv2d_dx depthwise depthwise_dx linear linear_dx conv2d_i8 depthwise_i8"
    fused = "conv2d_fused depthwise_fused linear_fused linear_cross_entropy stream"
    bf16 = "linear_bf16 linear_bf16_dx"
    integer = "conv2d_i8_dx depthwise_i8_dx conv2d_i8_fused depthwise_i8_fused stream_i8"
    assert names == {*layers.split(), *fused.split(), *integer.split(), *bf16.split()}
    assert {op.name: op.stored.name for op in OPS if op.stored} == {
        "linear": "linear_stored", "linear_fused": "linear_stored",
        "linear_dx": "linear_stored_dx", "take": "take_stored",
        "linear_cross_entropy": "linear_cross_entropy_stored",
        "linear_bf16": "linear_stored_bf16", "linear_bf16_dx": "linear_stored_bf16_dx",
    }  # fmt: skip
    assert {op.name for op in OPS if op.floats_as_integers} == {
        "widen", "linear_stored", "linear_stored_dx", "take_stored", "linear_dots",
        "linear_stored_bf16", "linear_stored_bf16_dx", "linear_cross_entropy_stored",
    }  # fmt: skip
    assert {op.name for op in OPS if op.expands} == {"spread", "lookup"}


# --- other forms of an operator


def test_a_fused_form_and_what_it_fuses_know_each_other() -> None:
    forms = [op for op in OPS if issubclass(op, Fused)]
    assert len(forms) == 5
    for form in forms:
        kind = FusedLayer if issubclass(form, FusedLayer) else NarrowedLayer
        other = NarrowedLayer if kind is FusedLayer else FusedLayer
        assert kind.of(form.fuses) is form and other.of(form.fuses) is None
        assert kind.of(form) is None, "it is fused already"


@pytest.mark.parametrize("op", [Conv2d, Depthwise, Linear], ids=lambda op: op.name)
def test_a_fused_layer_without_epilogue_is_the_layer(op: type[Op]) -> None:
    node, (x, w, *bias) = first_node(op)
    form = FusedLayer.of(op)
    assert form is not None
    attrs = form.Attrs(**asdict(node.attrs), bias=bool(bias))
    plain, fused = op.ref(node.attrs, x, w, *bias), form.ref(attrs, x, w, *bias)
    np.testing.assert_array_equal(np.asarray(fused), np.asarray(plain))


@pytest.mark.parametrize("op", [Conv2d, Depthwise, Linear], ids=lambda op: op.name)
def test_the_integer_form_of_a_layer_computes_the_same_of_integers(op: type[Op]) -> None:
    node, (x, w, *bias) = first_node(op)
    form, g = op.integer, Numbers(op.name)
    assert form is not None and issubclass(form, IntegerLayer)
    whole = [g.i8(*x.shape), g.i8(*w.shape), *(g.i32(*v.shape) for v in bias)]
    b = Builder("whole")
    values = leaves(b, whole)
    y = form.sums(b, node.attrs, values[0], values[1], values[2:], name="y", zero=3)
    feed = {v.name: a for v, a in zip(values, whole, strict=True)}
    (given,), _ = interpret(b.finish([y]), feed)
    real = [np.asarray(a, np.float64) for a in whole]
    right = np.asarray(op.ref(node.attrs, real[0] - 3, *real[1:]))
    np.testing.assert_array_equal(given.reshape(right.shape), right)


def test_a_stream_and_its_layers_know_each_other() -> None:
    by_stream = {op.name: op.streamed.name for op in OPS if op.streamed is not None}
    assert by_stream == {
        "conv2d_fused": "stream",
        "depthwise_fused": "stream",
        "conv2d_i8_fused": "stream_i8",
        "depthwise_i8_fused": "stream_i8",
    }


# --- what an operator computes


@pytest.mark.parametrize("op", [op for op in OPS if op.moves], ids=lambda op: op.name)
def test_what_moves_numbers_gives_those_of_its_first_operand(op: type[Op]) -> None:
    """int8 too."""
    node, (x, *rest) = first_node(op)
    numbers = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    whole = (numbers % 256 - 128).astype(np.int8)
    b = Builder("bytes")
    y = b.emit(op, *leaves(b, [whole, *rest]), **asdict(node.attrs))
    assert y.type.dtype.numpy is np.int8
    assert set(np.asarray(op.ref(node.attrs, whole, *rest)).flat) <= set(whole.flat)


def test_limits_are_where_a_clamp_stops() -> None:
    x = np.linspace(-9, 9, 181)
    found = [s for s in SMALL if s.op.limits(s.op.Attrs(**s.attrs)) is not None]
    assert {s.op.name for s in found} == {"relu", "hardtanh", "clamp"}
    for sample in found:
        attrs = sample.op.Attrs(**sample.attrs)
        low, high = sample.op.limits(attrs) or (0, 0)
        np.testing.assert_array_equal(sample.op.ref(attrs, x), np.clip(x, low, high))


def test_sides_give_the_slope_from_a_bit() -> None:
    names = set()
    for node, (dy, kept) in (pair for s in SMALL for pair in s.nodes() if len(pair[1]) == 2):
        if (sides := node.op.sides(node.attrs)) is not None:
            interval, slopes = sides
            bits = WithinBits.ref(WithinBits.Attrs(**interval), kept)  # type: ignore[arg-type]
            given = BitsDx.ref(BitsDx.Attrs(**slopes), dy, bits)
            np.testing.assert_allclose(given, np.asarray(node.op.ref(node.attrs, dy, kept)), 1e-6)
            names.add(node.op.name)
    assert names == {"relu_dx", "hardtanh_dx", "clamp_dx", "leaky_relu_dx", "hardsigmoid_dx"}


# --- kernels


def test_kernels_with_the_same_bits_are_these() -> None:
    """That they have them is tested in tests/kernels: the samples of these are compared exactly."""
    vectors = {path.stem for path in VECTORS.glob("*.c")}
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for node, _ in (pair for s in SMALL for pair in s.nodes()):
        call = node.op.call(node)
        names = () if call is None else (call.source, *call.needs)
        found[node.op.same_bits].update(vectors.intersection(names))
    names = "add_i8 conv2d_i8 conv2d_i8_dw conv2d_i8_dx depthwise_i8 depthwise_i8_dw "
    names += "depthwise_i8_dx dw_sgd_i8 requantize"
    assert found[True] == set(names.split())
    assert not found[True] & found[False]


def test_a_packable_weight_has_a_struct_that_can_say_so() -> None:
    names = set()
    for node, _ in (pair for s in SMALL for pair in s.nodes()):
        for weight, (place, index) in node.op.packable(node):
            call = node.op.call(node)
            assert call is not None and weight in node.ins and weight.type.rank == 4
            found = call.args[place]
            struct = found[index] if isinstance(found, tuple) else found
            assert isinstance(struct, Struct) and struct.fields[-1] == ("packed", 0)
            assert dict(struct.fields)["o"] == weight.shape[0]
            names.add(node.op.name)
    assert names == {"conv2d", "conv2d_fused", "stream"}


def test_what_products_round_to() -> None:
    assert {op.name: op.rounded.name for op in OPS if op.rounded} == {
        "linear": "linear_bf16", "linear_fused": "linear_bf16",
        "linear_dx": "linear_bf16_dx", "linear_dw": "linear_bf16_dw",
    }  # fmt: skip
    assert {op.name for op in OPS if op.multiplies == "int8"} == {"linear_dots"}
    assert len([op for op in OPS if op.multiplies == "bf16"]) == 5


# --- rows


def changed_at(node: Node, operand: int, axis: int, array: Array) -> Array:
    """An operand with other numbers at the first place along an axis, which are allowed there."""
    other = array.copy()
    part = other[(slice(None),) * axis + (slice(1),)]
    limit, _ = node.op.bounds(node).get(operand, (2, 0))
    part[...] = part + 1 if array.dtype.kind == "f" else (part + 1) % limit
    return other


def test_rows_depend_on_their_own_place_alone() -> None:
    """Other numbers at one place of an operand change the results at that place, if any."""
    seen = set()
    for sample in (s for s in SMALL if s.op.row_axis is not Op.row_axis):
        node, arrays = sample.nodes()[0]
        before = run_reference(node, arrays)
        for operand, value in enumerate(node.ins):
            for axis, size in enumerate(value.shape):
                along = node.op.row_axis(node, operand, axis)
                if along is None or size < 2:
                    continue
                own = [*arrays]
                own[operand] = changed_at(node, operand, axis, arrays[operand])
                for one, two in zip(before, run_reference(node, own), strict=True):
                    assert one.shape[along] == size, (sample.name, operand, axis)
                    rest = (slice(None),) * along + (slice(1, None),)
                    np.testing.assert_array_equal(one[rest], two[rest], sample.name)
                    seen.add(node.op.name)
    assert {"linear", "rms_norm", "group_norm", "take", "slice", "rotary", "add", "swiglu"} <= seen
