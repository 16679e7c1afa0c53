"""Small ONNX files, good ones and bad ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
