"""ONNX Runtime's training API: a forward graph in, gradient and update graphs out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from .case import RATE, Case, Layer


def node(op: str, layer: Layer, *extra: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, [*layer.ins, *extra], [layer.name], layer.name, **attrs)


def translate(layer: Layer, shapes: dict[str, tuple[int, ...]]) -> onnx.NodeProto:
    tensors, attrs = layer.tensors, layer.attrs
    own = tuple(tensors.values())
    match layer.op:
        case "conv":
            kernel = list(shapes[tensors["weight"]][2:])
            sizes = {"strides": [attrs["stride"]] * 2, "pads": [attrs["padding"]] * 4}
            return node("Conv", layer, *own, kernel_shape=kernel, group=attrs["groups"], **sizes)
        case "norm":
            outs = [layer.name, f"{tensors['mean']}.next", f"{tensors['variance']}.next"]
            more = {"epsilon": attrs["eps"], "momentum": 1 - attrs["momentum"]}
            ins = [*layer.ins, *(tensors[k] for k in ("weight", "bias", "mean", "variance"))]
            return helper.make_node(
                "BatchNormalization", ins, outs, layer.name, training_mode=1, **more
            )
        case "max_pool":
            sizes = {"kernel_shape": [attrs["kernel"]] * 2, "strides": [attrs["stride"]] * 2}
            return node("MaxPool", layer, pads=[attrs["padding"]] * 4, **sizes)
        case "relu6":
            return node("Clip", layer, "zero", "six")
        case "linear":
            return node("Gemm", layer, tensors["weight"], tensors["bias"], transB=1)
    plain = {"relu": "Relu", "add": "Add", "pool": "GlobalAveragePool", "flatten": "Flatten"}
    return node(plain[layer.op], layer)


def graph(case: Case) -> onnx.ModelProto:
    tensors = {n: a for n, a in case.tensors.items() if not n.endswith("num_batches_tracked")}
    tensors |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    shapes = {name: a.shape for name, a in tensors.items()}
    nodes = [translate(layer, shapes) for layer in case.layers]
    stored = [numpy_helper.from_array(a, name) for name, a in tensors.items()]
    classes = len(case.tensors[case.layers[-1].tensors["bias"]])
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, case.x.shape)
    last = case.layers[-1].name
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, [len(case.x), classes])
    made = helper.make_graph(nodes, "net", [x], [out], stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    names = [n for n in case.tensors if not n.endswith("num_batches_tracked")]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            graph(case),
            requires_grad=case.trained,
            frozen_params=[n for n in names if n not in case.trained],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.SGD,
            artifact_directory=folder,
        )
        state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        module = Module(f"{folder}/training_model.onnx", state, session_options=options)
        optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
    optimizer.set_learning_rate(RATE)
    module.train()

    def run() -> float:
        loss = module(case.x, case.y)
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss)

    return run
