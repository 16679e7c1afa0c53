"""TFLite files of int8 against the reference kernels of TFLite's own interpreter."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ai_edge_litert import schema_py_generated as s

import whet
from tflite_files import STEP, Writer, mobile_net, pooled_net, repeated, run
from whet.errors import FrontendError, UnsupportedOps, WhetError
from whet.frontend.memory import at_most
from whet.frontend.tflite.file import parse
from whet.frontend.tflite.rows import ROWS
from whet.models import from_tflite

Array = np.ndarray[Any, Any]


def pictures(count: int, seed: int = 1) -> tuple[Array, torch.Tensor]:
    """As integers of the file, and the real numbers that they are."""
    integers = np.random.default_rng(seed).integers(-128, 128, (count, 11, 11, 3)).astype(np.int8)
    return integers, torch.from_numpy((integers.astype(np.float32) - 3) * np.float32(0.05))


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_integer_program_computes_what_the_interpreter_does(seed: int, tmp_path: Path) -> None:
    data = mobile_net(seed)
    integers, x = pictures(4)
    theirs = np.concatenate([run(data, one[None]) for one in integers])
    assert len(np.unique(theirs)) > 8, "the outputs of the reference say something"
    program = whet.compile(from_tflite(written(tmp_path, data)), (x,), dtype="int8")
    ours = program.load().predict(x)
    # The interpreter rounds the logits to a step; sums before them may round by one more.
    steps = np.abs(ours / STEP + 2 - theirs)
    assert steps.max() < 1.5 and (steps <= 0.5 + 1e-3).mean() > 0.7


def test_all_weights_are_those_of_the_file(tmp_path: Path) -> None:
    """The program's integers, one for one, since the scales are the file's."""
    data = mobile_net()
    _, x = pictures(1)
    model = from_tflite(written(tmp_path, data))
    program = whet.compile(model, (x,), dtype="int8")
    graph = parse(data, Path("net.tflite"))
    constants = [t.data for t in graph.tensors if t.data is not None and t.kind == "INT8"]
    stored = {np.sort(numbers, None).tobytes() for numbers in constants}  # in any order of axes
    trained = program.entries["train_step"]
    *layers, head = model.whet_recipe.weights
    assert len(layers) == 5 and trained.data[head].dtype == np.float32, "a head is new in each task"
    for name in layers:
        assert trained.data[name].dtype == np.int8
        assert np.sort(trained.data[name], None).tobytes() in stored


@pytest.mark.slow
def test_a_softmax_and_a_head_of_integers(tmp_path: Path) -> None:
    data = mobile_net(softmax=True)
    integers, x = pictures(2)
    theirs = np.concatenate([run(data, one[None]) for one in integers])
    model = from_tflite(written(tmp_path, data))
    for head in ("fp32", "int8"):
        program = whet.compile(model, (x,), dtype=whet.Int8(head=head), loss="mse")
        assert np.abs(program.load().predict(x) - theirs).max() < 0.03


@pytest.mark.slow
def test_it_trains_in_integers(tmp_path: Path) -> None:
    _, x = pictures(4)
    y = torch.tensor([0, 1, 2, 3])
    program = whet.compile(
        from_tflite(written(tmp_path, mobile_net())), (x,), dtype="int8", update="last"
    )
    trainer = program.load()
    losses = [trainer.step(x, y, lr=0.05) for _ in range(30)]
    assert losses[-1] < losses[0] * 0.7
    program.check()


def test_every_operator_that_is_read_is_in_a_test() -> None:
    files = (mobile_net(softmax=True), pooled_net(), quantized_first())
    codes = {o.code for data in files for o in parse(data, Path("x")).operations}
    assert set(ROWS) == codes


def quantized_first() -> bytes:
    """A file whose input is float, as converters make them by default."""
    w = Writer(1, 11, 11, 3)
    given = w.tensor((1, 11, 11, 3), None, kind="FLOAT32")
    w.graph.inputs = [given]
    w.op("QUANTIZE", [given], w.input)
    return w.finish(w.dense(w.mean(w.conv(w.input, 4, 3, scale=0.02)), 3, scale=STEP))


def test_a_float_input_has_the_scale_of_what_it_becomes(tmp_path: Path) -> None:
    data = quantized_first()
    _, x = pictures(3)
    program = whet.compile(from_tflite(written(tmp_path, data)), (x,), dtype="int8")
    theirs = np.concatenate([run(data, one[None].numpy()) for one in x])
    assert np.abs(program.load().predict(x) / STEP + 2 - theirs).max() < 1.5


def test_padded_pools_and_scales_in_between(tmp_path: Path) -> None:
    """Among them one that saturates, which a network without it would not do."""
    data = pooled_net()
    integers, x = pictures(4)
    theirs = np.concatenate([run(data, one[None]) for one in integers])
    model = from_tflite(written(tmp_path, data))
    with pytest.warns(UserWarning, match="1 operator of the network stays in float32") as told:
        program = whet.compile(model, (x,), dtype="int8")
    assert "add at add_8" in str(told[0].message), "the sum with a constant"
    assert np.abs(program.load().predict(x) / STEP + 2 - theirs).max() < 1.5
    assert np.abs(theirs - theirs[0]).max() > 1, "the images do not give the same"


def test_a_scale_that_saturates_nothing_needs_no_operator(tmp_path: Path) -> None:
    def clamps(scale: float, zero: int) -> list[torch.nn.Module]:
        w = Writer(1, 4, 4, 3)
        x = w.alone("QUANTIZE", w.conv(w.input, 2, 1, scale=0.02, zero=0), scale, zero)
        model = from_tflite(written(tmp_path, w.finish(w.dense(w.mean(x), 3))))
        return [m for m in model.modules() if isinstance(m, torch.nn.Hardtanh)]

    assert clamps(0.04, 0) == clamps(0.02, 0) == []
    (found,) = clamps(0.02, 100)
    assert (found.min_val, found.max_val) == pytest.approx((-228 * 0.02, 27 * 0.02))
    (found,) = clamps(0.01, 0)
    assert (found.min_val, found.max_val) == pytest.approx((-1.28, 1.27))


def test_weights_of_a_bias_without_a_scale(tmp_path: Path) -> None:
    """It is the product of the other two, which the file may leave out."""

    def weights(leave_out: bool) -> dict[str, torch.Tensor]:
        w = Writer(1, 4, 4, 3)
        data = w.finish(w.dense(w.mean(w.conv(w.input, 2, 1)), 3))
        if leave_out:
            for tensor in w.graph.tensors:
                tensor.quantization = None if tensor.type == 2 else tensor.quantization
            data = w.finish(w.graph.outputs[0])
        return dict(from_tflite(written(tmp_path, data)).state_dict())

    given, derived = weights(False), weights(True)
    assert len(given) == 4
    for name, weight in given.items():
        torch.testing.assert_close(derived[name], weight)


def test_inputs_keep_their_scales(tmp_path: Path) -> None:
    w = Writer(1, 5, 5, 3)
    second = w.tensor((1, 5, 5, 4), 0.03, 5)
    w.graph.inputs = [w.input, second]
    x = w.mean(w.add(w.conv(w.input, 4, 3), w.conv(second, 4, 3)))
    values = from_tflite(written(tmp_path, w.finish(w.dense(x, 3)))).whet_recipe.values
    found = [(values[name].scale, values[name].zero) for name in ("input", "input_1")]
    assert found == [(pytest.approx(0.05), 3), (pytest.approx(0.03), 5)]


def test_a_reshape_that_moves_the_batch(tmp_path: Path) -> None:
    """The rows of all samples stay in order; what mixes samples is for the file's batch alone."""
    w = Writer(1, 6, 4)
    x = w.reshape(w.input, 6, 4)
    rows = from_tflite(written(tmp_path, w.finish(w.dense(x, 3))))
    both = torch.randn(2, 6, 4)
    assert rows(both).shape == (12, 3)
    torch.testing.assert_close(rows(both), torch.cat([rows(both[:1]), rows(both[1:])]))
    w = Writer(1, 6, 4)
    mixed = w.mean(w.dense(w.reshape(w.input, 6, 4), 3), axes=(0,))
    model = from_tflite(written(tmp_path, w.finish(mixed)))
    assert model(both[:1]).shape == (3,)
    with pytest.raises(FrontendError, match=r"MEAN .* cannot be computed for a batch 2 times"):
        model(both)
    with pytest.raises(FrontendError, match="cannot be computed for a batch 2 times"):
        whet.compile(model, (both,), dtype="int8")
    w = Writer(2, 6)
    model = from_tflite(written(tmp_path, w.finish(w.reshape(w.input, 3, 4))))
    assert model(torch.randn(4, 6)).shape == (6, 4)
    with pytest.raises(FrontendError, match=r"RESHAPE .* for a batch 1/2 times"):
        model(torch.randn(1, 6))
    with pytest.raises(FrontendError, match=r"has shape \(2, 5\), in the TFLite file \(2, 6\)"):
        model(torch.randn(2, 5))


def broken(kind: str) -> bytes:
    """A network with one thing that whet must not read over."""
    w = Writer(1, 6, 6, 3)
    x = w.conv(w.input, 4, 3)
    weight, bias = w.graph.operators[0].inputs[1:]
    quants = {i: w.graph.tensors[i].quantization for i in (weight, bias)}
    if kind in ("weight", "bias"):
        quants[weight if kind == "weight" else bias].zeroPoint[1] = 5
    if kind == "length":
        w.graph.operators[0].inputs[2] = w.tensor((1,), 0.1, kind="INT32", data=np.ones(1, "i4"))
    if kind == "axis":
        quants[weight].quantizedDimension = 3
        w.graph.tensors[weight].shape = [4, 3, 3, 3]
    if kind == "options":
        w.graph.operators[0].builtinOptions = s.Pool2DOptionsT()
        w.graph.operators[0].builtinOptionsType = s.BuiltinOptions.Pool2DOptions
    if kind == "same":
        w.graph.tensors[x].shape = [1, 400, 400, 4]
    if kind == "pad":
        w.graph.tensors[w.pad(x, 1 << 12)].shape = [1, 6, 6, 4]
    if kind in ("axes", "negative"):
        x = w.mean(x, axes=(1, 6) if kind == "axes" else (1, -5))
    if kind in ("QUANTIZE", "DEQUANTIZE"):
        x = w.alone(kind, weight, 0.1, 0)
    if kind == "half":
        w.graph.tensors[weight].type = s.TensorType.FLOAT16
    if kind == "rank":
        w.tensor((1,) * 9)
    return w.finish(x)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("weight", "CONV_2D of TFLite: operand 1 has the zero point 5"),
        ("bias", "CONV_2D of TFLite: operand 2 has the zero point 5"),
        ("length", r"its bias is of shape \(1,\), for 4 channels"),
        ("axis", "operand 1 has 4 scales"),
        ("options", "its options are Pool2DOptions, not Conv2DOptions"),
        ("same", "CONV_2D makes 6 pixels 400"),
        ("pad", r"PAD gives shape \(1, 8198, 8198, 4\) where it says \(1, 6, 6, 4\)"),
        ("axes", r"its axes are \[1, 6\]"),
        ("negative", r"its axes are \[1, -5\]"),
        ("QUANTIZE", "QUANTIZE of TFLite: operand 0 is a constant"),
        ("DEQUANTIZE", "DEQUANTIZE of TFLite: operand 0 is a constant"),
        ("half", "operand 1 is of type FLOAT16"),
        ("rank", "a tensor of 9 axes"),
    ],
)
def test_what_is_refused(kind: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match=words):
        from_tflite(written(tmp_path, broken(kind)))


def test_a_constant_that_many_operators_share(tmp_path: Path) -> None:
    """Each layer trains weights of its own; a small file must not take any amount of memory."""

    def deep(count: int) -> Path:
        w = Writer(1, 256)
        x = w.dense(w.input, 256)
        stored = w.graph.operators[0].inputs[1:]
        for _ in range(count - 1):
            options = w.graph.operators[0].builtinOptions
            x = w.op("FULLY_CONNECTED", [x, *stored], w.same(x, (1, 256)), options)
        return written(tmp_path, w.finish(x))

    assert len(list(from_tflite(deep(4)).parameters())) == 8
    with pytest.raises(FrontendError, match=r"would take 10,5.* bytes of weights"):
        from_tflite(deep(40))


def test_many_tensors_that_share_one_list(tmp_path: Path) -> None:
    """A list of n tensors that are one table, with a list of n scales: n * n items to read."""
    with pytest.raises(FrontendError, match="its lists together are longer than the file"):
        from_tflite(written(tmp_path, repeated(1000)))
    model = from_tflite(written(tmp_path, mobile_net()))
    assert len(model.whet_recipe.weights) == 6


def test_all_unknown_operators_are_listed_at_once(tmp_path: Path) -> None:
    w = Writer(1, 4, 4, 3)
    x = w.op("TANH", [w.op("HARD_SWISH", [w.input], w.same(w.input, (1, 4, 4, 3)))],
             w.same(w.input, (1, 4, 4, 3)))  # fmt: skip
    with pytest.raises(UnsupportedOps, match="2 operators of this TFLite file: HARD_SWISH, TANH"):
        from_tflite(written(tmp_path, w.finish(x)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not begin"),
        (b"PK\x03\x04" + bytes(100), "does not begin"),
        (mobile_net()[:1000], "damaged"),
        (mobile_net()[:-1000], "damaged"),
    ],
    ids=["empty", "zip", "start", "cut"],
)
def test_what_is_no_file_of_this_kind(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match=words):
        from_tflite(written(tmp_path, data))
    with pytest.raises(FrontendError, match="no such file"):
        from_tflite(tmp_path / "missing.tflite")


def test_sizes_are_checked_without_memory_for_the_values(tmp_path: Path) -> None:
    """An input of 1.5 GB, more than there is here, and results that are not of its size."""
    data = mobile_net()
    sizes = struct.pack("<5i", 4, 1, 11, 11, 3)
    assert data.count(sizes) == 1
    large = data.replace(sizes, struct.pack("<5i", 4, 1 << 20, 11, 11, 3))
    with (
        at_most(256 << 20),
        pytest.raises(FrontendError, match=r"shape \(1048576, .* where it says"),
    ):
        from_tflite(written(tmp_path, large))


def fuzz(count: int, seed: int, tmp_path: Path) -> int:
    """Bytes are changed at random; how many files were refused. Anything but our errors fails."""
    rng, data, refused = np.random.default_rng(seed), quantized_first(), 0
    path = tmp_path / "fuzzed.tflite"
    for _ in range(count):
        made = bytearray(data)
        for _ in range(int(rng.integers(1, 6))):
            place = int(rng.integers(8, len(made) - 4))
            if rng.random() < 0.5:
                made[place] = int(rng.integers(256))
            else:
                made[place : place + 4] = struct.pack("<I", int(rng.choice(EDGES)))
        path.write_bytes(
            bytes(made[: int(rng.integers(len(made)))] if rng.random() < 0.1 else made)
        )
        try:
            from_tflite(path)
        except WhetError:
            refused += 1
    return refused


EDGES = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**30, 255, 65536])


def test_changed_bytes_give_an_error_or_a_model(tmp_path: Path) -> None:
    assert 50 < fuzz(300, 0, tmp_path) < 300


@pytest.mark.slow
def test_many_changed_bytes(tmp_path: Path) -> None:
    assert fuzz(30_000, 1, tmp_path) > 10_000
