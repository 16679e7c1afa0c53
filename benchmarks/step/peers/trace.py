"""A PyTorch model as the list of layers that the other frameworks are given.

Batch norm is on statistics of the batch only: nets of which a part trains have it folded away.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

from .case import Layer

POOL = (nn.AdaptiveAvgPool2d, nn.functional.adaptive_avg_pool2d)
Described = tuple[str, dict[str, str], dict[str, Any]]  # op, tensors by role, attributes


def trace(model: nn.Module) -> list[Layer]:
    layers: list[Layer] = []
    names: dict[fx.Node, str] = {}
    for node in fx.symbolic_trace(model).graph.nodes:
        if node.op == "placeholder":
            names[node] = "input"
        if node.op in ("placeholder", "output"):
            continue
        ins = [names[n] for n in node.all_input_nodes]
        described = of_function(node) if node.op == "call_function" else of_module(node, model)
        if described is None:
            names[node] = ins[0]
            continue
        op, tensors, attrs = described
        names[node] = node.name
        layers.append(Layer(op, node.name, ins, tensors, attrs))
    return layers


def of_function(node: fx.Node) -> Described:
    if node.target in POOL:
        return "pool", {}, {}
    if node.target is torch.flatten:
        return "flatten", {}, {}
    if node.target is operator.add:
        return "add", {}, {}
    raise NotImplementedError(f"the benchmarks have no layer for {node.target}")


def of_module(node: fx.Node, model: nn.Module) -> Described | None:
    """What the module is; None for one that does nothing."""
    module = model.get_submodule(str(node.target))
    own = {role: f"{node.target}.{role}" for role, _ in module.named_parameters()}
    match module:
        case nn.Conv2d():
            sizes = {"stride": module.stride[0], "padding": module.padding[0]}
            return "conv", own, {**sizes, "groups": module.groups}
        case nn.BatchNorm2d(training=True):
            own |= {"mean": f"{node.target}.running_mean", "variance": f"{node.target}.running_var"}
            return "norm", own, {"eps": module.eps, "momentum": module.momentum}
        case nn.MaxPool2d():
            window: dict[str, Any] = {"kernel": module.kernel_size, "stride": module.stride}
            return "max_pool", {}, {**window, "padding": module.padding}
        case nn.Linear():
            return "linear", own, {}
        case nn.ReLU():
            return "relu", {}, {}
        case nn.ReLU6():
            return "relu6", {}, {}
        case nn.AdaptiveAvgPool2d():
            return "pool", {}, {}
        case nn.Identity() | nn.Dropout(p=0.0):
            return None
    raise NotImplementedError(f"the benchmarks have no layer for {type(module).__name__}")
