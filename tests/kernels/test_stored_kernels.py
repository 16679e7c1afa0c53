"""Kernels that read a weight as it is stored have the bits of those that read it in floats."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import c_kernels
from kernel_checks import assert_close
from kernel_samples import Sample
from kernel_samples_stored import KINDS, other_blocks, stored_samples
from whet.errors import ShapeError
from whet.ir import Array, Builder, Node, Op, Role, Type, f32, i8, u8
from whet.ops._blocks import BLOCKS, decoded
from whet.ops.stored import StoredWeight, floats

FLOATS = {
    "linear_stored": "linear_fused",
    "linear_stored_dx": "linear_dx",
    "take_stored": "take",
    "linear_cross_entropy_stored": "linear_cross_entropy",
}


def in_floats(node: Node, arrays: list[Array]) -> Sample:
    """The same layer, whose weight is in floats."""
    a: StoredWeight = node.attrs
    first = int(node.op.name != "take_stored")  # where the weight begins
    data, *table = arrays[first : first + a.arrays]
    weight = floats(a, data, *(t.astype(np.float32) for t in table))
    ins = (*arrays[:first], weight, *arrays[first + a.arrays :])
    op = Op.registry[FLOATS[node.op.name]]
    own = {f.name: getattr(a, f.name) for f in fields(op.Attrs) if hasattr(a, f.name)}
    return Sample(op, ins, own, node.op.name)


@pytest.mark.parametrize("isa", c_kernels.ISAS)
@pytest.mark.parametrize("sample", stored_samples(), ids=lambda s: s.name)
def test_stored_weights_have_the_bits_of_floats(sample: Sample, isa: str) -> None:
    node, arrays = sample.nodes()[0]
    mine = c_kernels.execute(node, arrays, isa=isa)
    right = c_kernels.execute(*in_floats(node, arrays).nodes()[0], isa=isa)
    assert len(mine) == len(right) == len(node.outs)
    for y, other in zip(mine, right, strict=True):
        np.testing.assert_array_equal(y.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("isa", c_kernels.ISAS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_scales_of_blocks_may_be_any_short_float(kind: str, isa: str) -> None:
    data, index = other_blocks(kind), np.arange(8, dtype=np.int32)
    attrs: dict[str, Any] = dict(kind=kind, outputs=8, inputs=32)
    ((node, arrays),) = Sample(Op.registry["take_stored"], (data, index), attrs, kind).nodes()
    (y,) = c_kernels.execute(node, arrays, isa=isa)
    np.testing.assert_array_equal(y, decoded(kind, data, (8, 32)))
    assert np.isfinite(y).all() and y[6:].any() and y[2:6].any()


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_samples_of_every_form(kind: str) -> None:
    names = {s.op.name for s in stored_samples() if s.attrs["kind"] == kind}
    assert names == set(FLOATS)


def test_a_block_by_hand() -> None:
    """d = 0.5 and m = -1; the nibbles of byte k are k and 15 - k."""
    bytes_ = [0x00, 0x38, 0x00, 0xBC, *(k | (15 - k) << 4 for k in range(16))]
    data, index = np.array(bytes_, np.uint8), np.zeros(1, np.int32)
    right = np.concatenate([np.arange(16), 15 - np.arange(16)]) * 0.5 - 1
    attrs: dict[str, Any] = dict(kind="q4_1", outputs=1, inputs=32)
    ((node, arrays),) = Sample(Op.registry["take_stored"], (data, index), attrs, "by hand").nodes()
    for isa in c_kernels.ISAS:
        (y,) = c_kernels.execute(node, arrays, isa=isa)
        assert_close(node, y, right[None])
    np.testing.assert_array_equal(decoded("q4_1", data, (1, 32)), right[None])


@pytest.mark.parametrize(
    "types, attrs",
    [
        ((f32(2, 32), u8(34)), dict(kind="q8_0", outputs=2, inputs=32)),
        ((f32(2, 33), u8(34)), dict(kind="q8_0", outputs=1, inputs=33)),
        ((f32(2, 64), u8(34)), dict(kind="q8_0", outputs=1, inputs=32)),
        ((f32(2, 32), u8(34)), dict(kind="q5_0", outputs=1, inputs=32)),
        ((f32(2, 8), i8(3, 8)), dict(outputs=3, inputs=8)),
        ((f32(2, 8), i8(3, 8), f32(2)), dict(outputs=3, inputs=8)),
        ((f32(2, 8), u8(12), f32(17)), dict(kind="book", bits=4, outputs=3, inputs=8)),
        ((f32(2, 8), i8(3, 8), f32(3), f32(2)), dict(outputs=3, inputs=8, bias=True)),
    ],
)
def test_arrays_must_be_those_of_the_form(types: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    b = Builder("net")
    leaves = [b.leaf(f"x{i}", t, Role.INPUT) for i, t in enumerate(types)]
    with pytest.raises(ShapeError):
        b.emit(Op.registry["linear_stored"], *leaves, **attrs)


@pytest.mark.parametrize("index", [f32(2), u8(2)])
def test_rows_are_taken_by_integers(index: Type) -> None:
    b = Builder("net")
    leaves = [b.leaf("w", u8(34), Role.INPUT), b.leaf("i", index, Role.INPUT)]
    with pytest.raises(ShapeError, match="must be i32"):
        b.emit(Op.registry["take_stored"], *leaves, kind="q8_0", outputs=1, inputs=32)
