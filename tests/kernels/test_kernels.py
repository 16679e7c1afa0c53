"""Every C kernel against the meaning of its operator, on every sample."""

from __future__ import annotations

import ctypes
import re
import zlib

import numpy as np
import pytest

import c_kernels
from kernel_checks import SAMPLES, check, runs
from kernel_samples import Collector, Sample, reference
from kernel_samples_fused import Layer, add_stream, depthwise, full, same
from whet import ops
from whet.errors import ShapeError
from whet.ir import Array, Builder, Node, Op, Role, Type, f32, i32, u8
from whet.ir.interp import interpret
from whet.ops.stream import Stream

LINES = ("formula", "shapes", "aliasing", "rounding", "workspace")  # of every kernel's comment


@pytest.mark.parametrize("isa", c_kernels.ISAS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_kernel_computes_its_operator(sample: Sample, isa: str) -> None:
    wanted = runs(sample, isa)
    check(wanted, [c_kernels.execute(*run, isa) for run in wanted])


def test_every_operator_has_a_sample() -> None:
    seen = {node.op.name for s in SAMPLES if not s.long for node, _ in s.nodes()}
    assert seen == set(Op.registry)


def test_every_prototype_is_defined_where_the_call_says() -> None:
    text = {p.stem: p.read_text() for p in (*c_kernels.sources("vec"), *c_kernels.SOURCES)}
    for node, _ in (pair for s in SAMPLES if not s.long for pair in s.nodes()):
        call = node.op.call(node)
        assert call is None or f"void {call.kernel}(" in text[call.source]
    everything = "".join(text.values())
    missing = [n for n in c_kernels.prototypes() if not re.search(rf"^\w+ {n}\(", everything, re.M)]
    assert not missing


def test_sources_keep_to_the_rules() -> None:
    full = r" .*?^ \* ".join(LINES)
    files = {p for isa in c_kernels.FOLDERS for p in c_kernels.sources(isa)}
    for path in (*files, *c_kernels.HEADERS):
        text = path.read_text()
        assert text.startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"), path
        assert max(map(len, text.splitlines())) <= 100, path
        allowed = {"math.h", "stddef.h", "stdint.h", "string.h"}
        allowed |= {own.name for own in c_kernels.HEADERS}
        if path.name in ("whet_bf16.h", "whet_bytes.h", "whet_dot.h"):  # alone know the processor
            allowed |= {"immintrin.h", "arm_neon.h"}
        if path.name == "threads.c":  # alone knows the system
            allowed |= {"pthread.h", "sched.h", "stdatomic.h", "stdlib.h"}
        if path.name == "map.c":  # alone knows files
            allowed |= {"fcntl.h", "sys/mman.h", "sys/stat.h", "unistd.h"}
        if path.name == "whet_matmul.h":  # two instructions of AVX-512
            allowed |= {"immintrin.h"}
        assert set(re.findall(r'#include [<"](\S+)[>"]', text)) <= allowed, path
        kernels = re.findall(r"^\w+ whet_\w+\(", text, re.M)
        comments = re.findall(rf"^/\* (?:The same |{full})", text, re.M | re.S)
        assert path.suffix == ".h" or len(kernels) == len(comments), path


def test_kernels_compile_without_warnings() -> None:
    for isa in c_kernels.ISAS:
        c_kernels.library(isa)  # gcc builds it, and any warning is an error
        c_kernels.compile_kernels("clang", isa, "-fsyntax-only")


def layers_of(node: Node, arrays: list[Array]) -> Array:
    """What a stream computes, by the kernels of its layers one after the other."""
    x, *operands = arrays
    for layer, attrs, own in Stream.split(node.attrs.stages, operands):
        ((single, _),) = Sample(layer, (x, *own), vars(attrs), "layer").nodes()
        (x,) = c_kernels.execute(single, [x, *own])
    return x


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if s.op is ops.stream.Stream and s.ins[0].shape[2] >= 4],
    ids=lambda s: s.name,
)
def test_a_stream_has_the_bits_of_its_layers(sample: Sample) -> None:
    ((node, arrays),) = sample.nodes()
    (y,) = c_kernels.execute(node, arrays)
    np.testing.assert_array_equal(y.view(np.uint32), layers_of(node, arrays).view(np.uint32))


BLOCK = [full(40, limits=1), depthwise(3, limits=1, **same(3)), full(20, add=True)]


def test_a_residual_block_may_be_streamed_in_place() -> None:
    """On x, which is operand 0 and also the addend: the last of five."""
    s = Collector()
    add_stream(s, (1, 6, 5, 20), BLOCK)
    ((node, _),) = s.samples[0].nodes()
    assert node.ins[0] is node.ins[4] and node.op.inplace(node) == ((0, 0), (0, 4))


@pytest.mark.parametrize(
    "layers",
    [
        [full(20, 3, **same(3)), full(20)],
        [depthwise(3, **same(3)), full(20)],
        [full(20)],
        [full(20), full(20, 2, stride=(2, 2), pad=(2, 2, 2, 2))],
        [full(20), full(20, 3, pad=(0, 1, 0, 1)), full(20, 3, pad=(4, 1, 0, 1))],
    ],
    ids=["3x3 first", "depthwise first", "alone", "strided", "rows change"],
)
def test_in_place_would_be_wrong_where_a_stream_says_no(layers: list[Layer]) -> None:
    s = Collector()
    add_stream(s, (1, 4, 4, 20), layers)
    ((node, arrays),) = s.samples[0].nodes()
    assert node.out.type == node.ins[0].type and node.op.inplace(node) == ()
    (right,) = c_kernels.execute(node, arrays)
    (wrong,) = c_kernels.execute(node, arrays, [(0, 0)])
    assert not np.array_equal(right, wrong)


def test_max_pool_keeps_the_fewest_bits() -> None:
    """Written out by hand: the reference and the kernel could share a mistake."""
    x = np.zeros((1, 2, 10, 1), np.float32)
    for q, place in enumerate((1, 2, 3, 0, 2)):
        x[0, place // 2, 2 * q + place % 2, 0] = 1
    window = dict(out=(1, 5), kernel=(2, 2), stride=(2, 2))
    sample = Sample(Op.registry["max_pool2d"], (x,), window, "by hand")
    ((node, arrays), *_) = sample.nodes()
    assert node.outs[1].type == u8(2)
    for outs in (c_kernels.execute(node, arrays), reference(node, arrays)):
        assert outs[1].tolist() == [0b00_11_10_01, 0b10]


@pytest.mark.parametrize(
    "kernel, bits", [((1, 1), 1), ((1, 2), 1), ((2, 2), 2), ((3, 3), 4), ((5, 5), 5), ((16, 16), 8)]
)
def test_the_index_of_a_window_takes_bits(kernel: tuple[int, int], bits: int) -> None:
    y, index = ops.pool.MaxPool2d.infer(ops.pool.Pool((3, 1), kernel), f32(1, 18, 16, 7))
    assert y == f32(1, 3, 1, 7) and index == u8(-(-21 * bits // 8))


@pytest.mark.parametrize("closed, mask", [(False, 0b0001_1000), (True, 0b0011_1101)])
def test_a_bit_says_whether_an_element_is_within(closed: bool, mask: int) -> None:
    """By hand too: -1 and 2 lie on the limits, NaN is never inside, the ninth bit is alone."""
    x = np.array([-1, -1.5, 2, 0, 1, 2, np.nan, np.inf, 1.5], np.float32)
    attrs = dict(low=-1.0, high=2.0, closed=closed)
    sample = Sample(Op.registry["within_bits"], (x,), attrs, "by hand")
    ((node, arrays),) = sample.nodes()
    assert not node.op.differentiable
    for (bits,) in (c_kernels.execute(node, arrays), reference(node, arrays)):
        assert bits.tolist() == [mask, 1]


def test_interpret_runs_on_the_kernels() -> None:
    b = Builder("net")
    x = b.leaf("x", f32(2, 6), Role.INPUT)
    w = b.leaf("w", f32(3, 6), Role.PARAM, np.linspace(-1, 1, 18).reshape(3, 6))
    y = b.emit(Op.registry["relu"], b.emit(Op.registry["linear"], x, w))
    feed = {"x": np.linspace(0, 2, 12).reshape(2, 6)}
    graph = b.finish([y])
    (right,), _ = interpret(graph, feed)
    (given,), _ = interpret(graph, feed, execute=c_kernels.execute)
    np.testing.assert_allclose(given, right, rtol=1e-6)


def test_crc32_is_the_usual_one() -> None:
    crc32 = c_kernels.library().whet_crc32
    crc32.argtypes, crc32.restype = (
        [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32],
        ctypes.c_uint32,
    )
    data = bytes(range(256)) * 3
    assert crc32(data, len(data), 0) == zlib.crc32(data)
    assert crc32(data[10:], len(data) - 10, crc32(data, 10, 0)) == zlib.crc32(data)
    assert crc32(b"", 0, 0) == 0


def test_ids_in_range() -> None:
    def ok(*ids: int) -> bool:
        array = (ctypes.c_int32 * len(ids))(*ids)
        return bool(c_kernels.library().whet_ids_in_range(array, len(ids), 5, -100))

    assert ok(0, 4, 2) and ok(-100, 3) and ok()
    assert not ok(0, 5) and not ok(-1) and not ok(1, 2, 2**31 - 1)


def test_is_finite() -> None:
    finite = c_kernels.library().whet_is_finite
    finite.argtypes = [ctypes.c_float]
    assert finite(-3.0e38) and finite(0.0)
    assert not any(map(finite, (float("inf"), float("-inf"), float("nan"))))


@pytest.mark.parametrize(
    "op, gradient, attrs, tail",
    [
        ("put_add", "take_dx", dict(axis=1), (np.array([2, 0, 2, 2], np.int32),)),
        ("slice_add", "slice_dx", dict(axis=1, start=1), ()),
    ],
)
def test_adding_to_a_part_is_adding_its_gradient(
    op: str, gradient: str, attrs: dict[str, int], tail: tuple[Array, ...]
) -> None:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(1)
    base, u = (rng.integers(-9, 9, (2, n, 3)).astype(np.float32) for n in (5, 4))
    ((node, arrays),) = Sample(Op.registry[op], (base, u, *tail), attrs, op).nodes()
    apart = Op.registry[gradient]
    right = base + apart.ref(apart.Attrs(**attrs, size=5), u, *tail)
    for (y,) in (c_kernels.execute(node, arrays), reference(node, arrays)):
        np.testing.assert_array_equal(y, right)


@pytest.mark.parametrize(
    "op, shapes, attrs",
    [
        ("put_add", (f32(4, 3), f32(2, 3), i32(3)), dict(axis=0)),
        ("put_add", (f32(4, 3), f32(2, 3), f32(2)), dict(axis=0)),
        ("put_add", (f32(4, 3), f32(2, 3), i32(2)), dict(axis=2)),
        ("slice_add", (f32(4, 3), f32(2, 3)), dict(axis=0, start=3)),
        ("slice_add", (f32(4, 3), f32(2, 3)), dict(axis=0, start=-1)),
        ("slice_add", (f32(4, 3), f32(2, 2)), dict(axis=0)),
        ("slice_add", (f32(4, 3), f32(2)), dict(axis=0)),
    ],
)
def test_a_part_must_fit(op: str, shapes: tuple[Type, ...], attrs: dict[str, int]) -> None:
    b = Builder("net")
    leaves = [b.leaf(f"x{i}", t, Role.INPUT) for i, t in enumerate(shapes)]
    with pytest.raises(ShapeError):
        b.emit(Op.registry[op], *leaves, **attrs)
