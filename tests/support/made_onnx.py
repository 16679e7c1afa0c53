"""Small ONNX files, good ones and bad ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

F = TensorProto.FLOAT


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str | None]],
    outputs: Sequence[str] = ("y",),
    constants: dict[str, Any] | None = None,
    opset: int = 18,
    kind: int = F,
    shape: Sequence[int | str] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, F, shape) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def small_net(opset: int = 18, batch: int | str = "n") -> onnx.ModelProto:
    """A convolution, a batch norm, a pool, a reshape by the shape of its input, and a product."""
    rng = np.random.default_rng(0)

    def f(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "conv/weight", "conv/bias"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "bn.s", "bn.b", "bn.m", "bn.v"], ["b"], name="bn"),
        node("Relu", ["b"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["d"], ["e"]),
        node("Gather", ["e", "zero"], ["g"]),
        node("Unsqueeze", ["g", "first"], ["h"]),
        node("Concat", ["h", "rest"], ["i"], axis=0),
        node("Reshape", ["d", "i"], ["j"]),
        node("Gemm", ["j", "head.weight", "head.bias"], ["y"], name="head", transB=1),
    ]
    constants = {
        "conv/weight": f(3, 1, 3, 3), "conv/bias": f(3), "bn.s": 1 + f(3) / 4, "bn.b": f(3),
        "bn.m": f(3) / 4, "bn.v": 1 + f(3) ** 2, "zero": np.int64(0), "first": np.array([0]),
        "rest": np.array([-1]), "head.weight": f(4, 48), "head.bias": f(4),
    }  # fmt: skip
    return model(nodes, {"x": [batch, 1, 8, 8]}, constants=constants, opset=opset, shape=["n", 4])


def quantized_net(kind: type = np.int8) -> tuple[onnx.ModelProto, np.ndarray]:
    """A residual network with pairs around values and integer weights, and pictures for it.

    Ranges are those of the pictures in floats, as static quantization finds them.
    """
    rng, node = np.random.default_rng(0), helper.make_node
    x = rng.normal(size=(4, 3, 8, 8)).astype(np.float32)
    weights = {"w1": (8, 3, 3, 3), "w2": (8, 8, 1, 1), "w3": (5, 8)}
    constants: dict[str, Any] = {"b1": rng.normal(size=8).astype(np.float32)}
    integers = []
    for name, shape in weights.items():
        constants[f"{name}_q"] = rng.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}_s"] = (0.004 * rng.uniform(0.5, 1.5, shape[0])).astype(np.float32)
        constants[f"{name}_z"] = np.zeros(shape[0], np.int8)
        parts = [f"{name}_q", f"{name}_s", f"{name}_z"]
        integers.append(node("DequantizeLinear", parts, [name], axis=0))
    layers = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"]),
        node("Add", ["c2", "r1"], ["a"]),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3"], ["y"], transB=1),
    ]
    rounded = ("x", "r1", "c2", "a", "g")
    seen = model([*integers, *layers], {"x": x.shape}, rounded[1:], constants, opset=19)
    values = ReferenceEvaluator(seen).run(None, {"x": x})
    pairs = []
    for name, value in zip(rounded, [x, *values], strict=True):
        low, high = min(value.min(), 0.0), max(value.max(), 0.0)
        scale = np.float32((high - low) / 255)
        zero = np.rint(np.iinfo(kind).min - low / scale)
        constants |= {f"{name}_s": scale, f"{name}_z": np.array(zero, kind)}
        grid = [f"{name}_s", f"{name}_z"]
        pairs.append(node("QuantizeLinear", [name, *grid], [f"{name}_q"]))
        pairs.append(node("DequantizeLinear", [f"{name}_q", *grid], [f"{name}_d"]))
    for layer in layers:
        for i, name in enumerate(layer.input):
            if name in rounded:
                layer.input[i] = f"{name}_d"
    nodes = sorted_nodes([*integers, *pairs, *layers], {"x", *constants})
    return model(nodes, {"x": x.shape}, constants=constants, opset=19, shape=(4, 5)), x


def sorted_nodes(nodes: list[onnx.NodeProto], known: set[str]) -> list[onnx.NodeProto]:
    """Each behind those that it reads."""
    found: list[onnx.NodeProto] = []
    while nodes:
        ready = next(node for node in nodes if known.issuperset(node.input))
        nodes.remove(ready)
        found.append(ready)
        known.update(ready.output)
    return found


def hostile(rng: random.Random, good: bytes) -> bytes:
    """A file that was changed in a few bytes, cut, extended or spliced."""
    kind = rng.randrange(8)
    if kind == 0:
        return good[: rng.randrange(len(good))]
    if kind == 1:
        at, other = rng.randrange(len(good)), rng.randrange(len(good))
        return good[:at] + good[other:]
    blob = bytearray(good)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        blob[rng.randrange(len(blob))] = rng.randrange(256)
    return bytes(blob)
