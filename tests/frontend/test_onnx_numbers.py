"""Single nodes of ONNX at the edges of their rules: numbers of onnx's reference, and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor
from torch.nn import functional as F

import whet
from made_onnx import model
from whet.frontend.onnx import file, load
from whet.frontend.torch.interpreted import unique_paths

node = helper.make_node


def module(made: onnx.ModelProto) -> Any:
    place = Path("made.onnx")
    return load.module_of(file.parse(made.SerializeToString(), place), place)


def one(op: str, shape: list[int], opset: int = 18, **attributes: Any) -> Any:
    return module(model([node(op, ["x"], ["y"], **attributes)], {"x": shape}, opset=opset))


def test_expand_to_the_same_size() -> None:
    made = model(
        [node("Expand", ["x", "s"], ["y"])],
        {"x": [1, 1, 256, 256]},
        constants={"s": np.array([1, 1, 256, 256])},
    )
    x = torch.randn(1, 1, 256, 256)
    torch.testing.assert_close(module(made)(x), x)


@pytest.mark.parametrize(
    "options",
    [
        dict(auto_pad="SAME_UPPER", strides=[3, 3]),
        dict(auto_pad="SAME_LOWER", strides=[3, 2]),
        dict(output_shape=[10, 14], strides=[2, 2]),
        dict(pads=[0, 1, 1, 0], strides=[1, 1]),
    ],
)
def test_transposed_convolutions_that_grow(options: dict[str, Any]) -> None:
    """What lies outside of all windows is the bias."""
    w, b = torch.randn(2, 2, 2, 2), torch.tensor([10.0, 20.0])
    made = model(
        [node("ConvTranspose", ["x", "w", "b"], ["y"], **options)],
        {"x": [1, 2, 4, 4]},
        constants={"w": w.numpy(), "b": b.numpy()},
    )
    x, strides = torch.randn(1, 2, 4, 4), options["strides"]
    full = F.conv_transpose2d(x, w, None, strides)
    cut = []
    for i in (1, 0):
        if "pads" in options:
            first, last = options["pads"][i], options["pads"][i + 2]
        else:
            total = full.shape[2 + i] - options.get("output_shape", [4 * s for s in strides])[i]
            first = total // 2 if options.get("auto_pad") == "SAME_UPPER" else total - total // 2
            last = total - first
        cut += [-first, -last]
    wanted = F.pad(full, cut) + b.reshape(2, 1, 1)
    torch.testing.assert_close(module(made)(x), wanted)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 1, 2, 4), (1, 2, 4)])
def test_integers_are_resized_and_rounded(mode: str, shape: tuple[int, ...]) -> None:
    x = np.array([0, 100, 200, 250, 3, 253, 0, 90], np.uint8).reshape(shape)  # no exact halves
    scales = np.array([1] * (len(shape) - 1) + [2.5], np.float32)
    made = model(
        [node("Resize", ["x", "", "s"], ["y"], mode=mode)],
        {"x": shape},
        constants={"s": scales},
        kind=TensorProto.UINT8,
    )
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_array_equal(module(made)(torch.from_numpy(x)).numpy(), wanted)


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_mean_and_variance_of_a_constant_picture(opset: int) -> None:
    nodes = [node("MeanVarianceNormalization", ["x"], ["y"])]
    net = module(model(nodes, {"x": [1, 1, 7, 9]}, opset=opset, shape=[1, 1, 7, 9]))
    for number in np.linspace(0, 50, 20):
        x = torch.full((1, 1, 7, 9), float(number), requires_grad=True)
        y = net(x)
        assert y.abs().max() <= 1.001
        y.sum().backward()
        assert torch.isfinite(x.grad).all()  # type: ignore[arg-type]
    x = torch.randn(1, 1, 7, 9) * 3 + 5
    wanted = (x - x.mean()) / x.std(correction=0)
    torch.testing.assert_close(net(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LpNormalization", dict(p=2, axis=-1)),
        ("LpPool", dict(kernel_shape=[2, 2], strides=[2, 2])),
        ("LpPool", dict(kernel_shape=[2, 2], strides=[2, 2], p=3)),
        ("GlobalLpPool", dict(p=2)),
    ],
)
def test_gradients_of_norms_at_zero(op: str, options: dict[str, Any]) -> None:
    net = one(op, [1, 2, 2, 4], **options)
    x = torch.randn(1, 2, 2, 4)
    x[0, 0, :, :2] = 0
    x[0, 1] = 0
    x.requires_grad_()
    net(x).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert not x.grad[0, 1].any() and x.grad[0, 0, :, 2:].any()


def test_valid_windows_are_whole_windows() -> None:
    options = dict(kernel_shape=[3], strides=[2], auto_pad="VALID", ceil_mode=1)
    x = torch.randn(1, 1, 8)
    y = one("MaxPool", [1, 1, 8], **options)(x)
    torch.testing.assert_close(y, F.max_pool1d(x, 3, 2))
    assert y.shape == (1, 1, 3)


def test_without_a_condition_a_loop_runs_to_its_end() -> None:
    def info(name: str, kind: int, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [
            node("Constant", [], ["on"], value=numpy_helper.from_array(np.array(False))),
            node("Add", ["s", "s"], ["twice"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", 1, [2])],
        [info("on", TensorProto.BOOL, []), info("twice", 1, [2])],
    )
    for condition, wanted in (("", 8.0), ("yes", 2.0)):
        made = model(
            [node("Loop", ["n", condition, "x"], ["y"], body=body)],
            {"x": [2]},
            constants={"n": np.array(3), "yes": np.array(True)},
            shape=[2],
        )
        torch.testing.assert_close(module(made)(torch.ones(2)), torch.full((2,), wanted))


def test_names_that_python_does_not_allow() -> None:
    name = "model/lambda/weight"
    made = model(
        [node("MatMul", ["x", name], ["y"])],
        {"x": [2, 3]},
        constants={name: np.ones((3, 4), np.float32)},
    )
    net = module(made)
    assert [n for n, _ in net.named_parameters()] == ["model.lambda_.weight"]
    whet.compile(net, net.example(), target="portable")


def test_paths_are_unique_and_plain() -> None:
    wished = {str(i): w for i, w in enumerate(['a"b\\c\nd\re\0', "", "/", "tensor", "if/x"])}
    found = unique_paths(wished)
    assert found["0"] == "a_b_c_d_e_" and found["4"] == "if_.x"
    assert len({*found.values()}) == 5 and "tensor" not in found.values()


def test_an_empty_name_hides_nothing() -> None:
    made = model(
        [node("Add", ["x", "/"], ["y"])], {"x": [2]}, constants={"/": np.ones(2, np.float32)}
    )
    found: Tensor = module(made)(torch.ones(2))
    torch.testing.assert_close(found.detach(), torch.full((2,), 2.0))
