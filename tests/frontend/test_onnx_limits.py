"""ONNX files that ask for too much: for other files, for memory, for time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from made_onnx import model
from whet.errors import FrontendError
from whet.frontend.onnx import graph, sizes
from whet.models import from_onnx

node = helper.make_node
BIG = 1 << 20


def saved(made: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def external(dims: list[int], length: str | None = None) -> TensorProto:
    tensor = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="numbers.bin")
    if length is not None:
        tensor.external_data.add(key="length", value=length)
    return tensor


def with_function(constant: onnx.NodeProto) -> onnx.ModelProto:
    """x + constant, computed by a function of the file."""
    nodes = [constant, node("Add", ["a", "k"], ["b"])]
    opset = helper.make_opsetid("", 18)
    function = helper.make_function("own", "Plus", ["a"], ["b"], nodes, [opset])
    made = model([node("Plus", ["x"], ["y"], domain="own")], {"x": [2]}, shape=[2])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.append(function)
    return made


def constant_of(attribute: AttributeProto) -> onnx.NodeProto:
    made = node("Constant", [], ["k"])
    made.attribute.append(attribute)
    return made


def test_data_of_a_function_is_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not in the current folder, where onnx itself would look for it."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (here / "numbers.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    monkeypatch.chdir(here)
    made = with_function(node("Constant", [], ["k"], value=external([2])))
    path = saved(made, home)
    with pytest.raises(FrontendError, match="is missing"):
        from_onnx(path)
    (home / "numbers.bin").write_bytes(np.array([3, 4], np.float32).tobytes())
    torch.testing.assert_close(from_onnx(path)(torch.zeros(2)), torch.tensor([3.0, 4.0]))


def test_data_of_sparse_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "numbers.bin").write_bytes(bytes(8))
    monkeypatch.chdir(tmp_path)
    places = numpy_helper.from_array(np.array([0, 1]))
    sparse = onnx.SparseTensorProto(dims=[2], values=external([2]), indices=places)
    attribute = helper.make_attribute("sparse_value", sparse)
    for made in (
        with_function(constant_of(attribute)),
        model([constant_of(attribute), node("Add", ["x", "k"], ["y"])], {"x": [2]}, shape=[2]),
    ):
        with pytest.raises(FrontendError, match="is missing"):
            from_onnx(saved(made, home))
    (home / "numbers.bin").write_bytes(bytes(8))
    with pytest.raises(FrontendError, match="sparse tensor"):
        from_onnx(saved(made, home))


def test_tensors_outside_of_the_file_are_never_numbers() -> None:
    with pytest.raises(FrontendError, match="not in the file"):
        graph.array_of(external([2]))


@pytest.mark.parametrize(
    ("dims", "length", "words"),
    [
        ([2], None, "does not say where it ends"),
        ([2], "4000", "4,000 bytes for a tensor of 8"),
        ([2], "4", "4 bytes for a tensor of 8"),
        ([1 << 40], None, "is cut off"),
        ([-2], None, "shape"),
    ],
)
def test_external_data_is_as_long_as_its_tensor(
    dims: list[int], length: str | None, words: str, tmp_path: Path
) -> None:
    (tmp_path / "numbers.bin").write_bytes(bytes(4000))
    made = model([node("Add", ["x", "k"], ["y"])], {"x": [2]}, shape=[2])
    made.graph.initializer.append(external(dims, length))
    with pytest.raises(FrontendError, match=words):
        from_onnx(saved(made, tmp_path))


def doubled(count: int) -> list[onnx.NodeProto]:
    names = ["x", *(f"c{i}" for i in range(count - 1)), "y"]
    return [node("Concat", [a, a], [b], axis=3) for a, b in pairwise(names)]


def window(op: str, inputs: list[str], **attributes: Any) -> list[onnx.NodeProto]:
    return [node(op, inputs, ["y"], **attributes)]


F32, ONE = np.float32, np.ones((1, 1, 1, 1), np.float32)
# Nodes, an operator set, and constants, each of which asks for more than 2 ** 28 numbers.
TOO_LARGE: dict[str, tuple[list[onnx.NodeProto], int, dict[str, Any]]] = {
    "Upsample-8": (window("Upsample", ["x"], scales=[1.0, 1.0, 2e4, 2e4]), 8, {}),
    "Resize-10": (window("Resize", ["x", "s"]), 10, {"s": np.array([1, 1, 2e4, 2e4], F32)}),
    "Resize of axes": (
        window("Resize", ["x", "", "s"], axes=[2, 3]),
        18,
        {"s": np.array([2e4, 2e4], F32)},
    ),
    "Pad-10": (window("Pad", ["x"], pads=[100] * 8), 10, {}),
    "Pad": (window("Pad", ["x", "p"]), 18, {"p": np.array([100] * 8)}),
    "CenterCropPad": (window("CenterCropPad", ["x", "s"]), 18, {"s": np.array([1, 1, BIG, BIG])}),
    "Concat": (doubled(30), 18, {}),
    "Col2Im": (
        window("Col2Im", ["l", "i", "b"]),
        18,
        {"l": np.ones((1, 1, 1), F32), "i": np.array([BIG, BIG]), "b": np.array([1, 1])},
    ),
    "MaxUnpool": (
        window("MaxUnpool", ["x", "i"], kernel_shape=[BIG, BIG]),
        18,
        {"i": np.zeros((1, 1, 1, 1), np.int64)},
    ),
    "AffineGrid": (
        window("AffineGrid", ["t", "s"]),
        20,
        {"t": np.ones((1, 2, 3), F32), "s": np.array([1, 1, BIG, BIG])},
    ),
    "DFT": (window("DFT", ["x", "n"], axis=1), 17, {"n": np.array(BIG)}),
    "Conv": (window("Conv", ["x", "w"], pads=[BIG] * 4, strides=[BIG, BIG]), 18, {"w": ONE}),
    "ConvTranspose": (
        window("ConvTranspose", ["x", "w"], dilations=[BIG, BIG], pads=[BIG] * 4),
        18,
        {"w": np.ones((1, 1, 3, 3), F32)},
    ),
    "MaxPool": (
        window("MaxPool", ["x"], kernel_shape=[BIG, BIG], pads=[BIG - 1] * 4, strides=[BIG, BIG]),
        18,
        {},
    ),
    "SAME": (window("LpPool", ["x"], kernel_shape=[BIG, BIG], auto_pad="SAME_UPPER"), 18, {}),
    "Expand": (window("Expand", ["x", "s"]), 18, {"s": np.array([1, 1, BIG, BIG])}),
    "Tile": (window("Tile", ["x", "s"]), 18, {"s": np.array([1, 1, BIG, BIG])}),
    "broadcasts": (
        [node("Reshape", ["v", "s"], ["r"]), *window("Add", ["v", "r"])],
        18,
        {"v": np.ones(1 << 15, F32), "s": np.array([1 << 15, 1])},
    ),
    "known values": (
        [node("ConstantOfShape", ["s"], [f"k{i}"]) for i in range(5)]
        + [node("Sum", [f"k{i}" for i in range(5)], ["k"]), *window("Add", ["x", "k"])],
        18,
        {"s": np.array([60])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_LARGE)
def test_too_large(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, opset, constants = TOO_LARGE[what]
    if what == "known values":
        monkeypatch.setattr(sizes, "MOST", 299)
    dims = [1, 1, 1] if what == "DFT" else [1, 1, 1, 1]
    rank = {"broadcasts": 2, "DFT": 3}.get(what, 4)
    shape = [f"n{i}" for i in range(rank)]
    made = model(nodes, {"x": dims}, constants=constants, opset=opset, shape=shape)
    with pytest.raises(FrontendError, match=r"of .* elements"):
        from_onnx(saved(made, tmp_path))(torch.ones(dims))


@pytest.mark.parametrize("count", [18, 40, 2000])
def test_functions_that_call_functions(count: int, tmp_path: Path) -> None:
    made = model([node(f"F{count - 1}", ["x"], ["y"], domain="own")], {"x": [2]}, shape=[2])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made.opset_import.append(opsets[1])
    for i in range(count):
        inner = dict(op_type=f"F{i - 1}", domain="own") if i else dict(op_type="Relu")
        nodes = [node(inputs=[a], outputs=[b], **inner) for a, b in ("ac", "cb")]
        made.functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, opsets))
    with pytest.raises(FrontendError, match="functions of"):
        from_onnx(saved(made, tmp_path))


def test_loops_in_loops(tmp_path: Path) -> None:
    def info(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [])

    def looped(inner: onnx.NodeProto, depth: int) -> onnx.NodeProto:
        ins = [info(f"i{depth}", TensorProto.INT64), info(f"c{depth}", TensorProto.BOOL)]
        ins, outs = [*ins, info(f"s{depth}")], [info(f"c{depth}", TensorProto.BOOL)]
        body = helper.make_graph([inner], "body", ins, [*outs, info(f"t{depth}")])
        return node("Loop", ["n", "", f"s{depth + 1}"], [f"t{depth + 1}"], body=body)

    made = node("Identity", ["s0"], ["t0"])
    for depth in range(3):
        made = looped(made, depth)
    made.input[2], made.output[0] = "x", "y"
    file = model([made], {"x": []}, constants={"n": np.array(900)}, shape=[])
    with pytest.raises(FrontendError, match="loops of the file are too long"):
        from_onnx(saved(file, tmp_path))(torch.ones(()))
