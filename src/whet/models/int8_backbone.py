"""Float networks from int8 ImageNet backbones stored as .npz.

The format: `<layer>.weight` int8, `<layer>.w_scale` float32 per output channel, `<layer>.bias`
int32, and `arch`, a JSON text that lists stem, blocks and classifier with their scales.
"""

import json
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..ir.quant import Quant, Recipe
from .inverted import BlockSpec, InvertedResidual, InvertedResidualNet


def load_int8_backbone(path: str | os.PathLike[str]) -> InvertedResidualNet:
    """Build the float network, with BatchNorm folded, that an int8 .npz backbone describes.

    Weights become `weight * w_scale[o]` and biases `bias * x_scale * w_scale[o]`, the
    dequantization of arXiv:1712.05877. The expected input is (pixel / 255 - 0.5) / 0.5.
    """
    with np.load(path, allow_pickle=False) as archive:
        arch: dict[str, Any] = json.loads(str(archive["arch"]))
        model = _build(arch)
        layers = [arch["stem"], *(conv for b in arch["blocks"] for conv in b["convs"])]
        modules = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        for layer, module in zip([*layers, arch["classifier"]], modules, strict=True):
            weight, bias = _dequantise(archive, layer["name"], float(layer["x_scale"]))
            with torch.no_grad():
                module.weight.copy_(weight.reshape(module.weight.shape))
                assert module.bias is not None
                module.bias.copy_(bias)
        object.__setattr__(model, "whet_recipe", _recipe(archive, arch, model))
    return model


def _recipe(archive: Any, arch: dict[str, Any], model: InvertedResidualNet) -> Recipe:
    """The scales of the file by the names of values and weights in whet's graph.

    The head's weight has none, since every task has its own head.
    """
    stem = arch["stem"]
    values = {"input": Quant(float(stem["x_scale"]), int(stem["x_zero"]))}
    weights: dict[str, Any] = {}
    convs = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    layers = [stem, *(conv for b in arch["blocks"] for conv in b["convs"])]
    for (name, _), layer in zip(convs, layers, strict=True):
        weights[f"{name}.weight"] = archive[f"{layer['name']}.w_scale"].astype(np.float64)
        result = f"{name.rpartition('.')[0]}.1" if layer["act"] == "relu6" else name
        values[result] = _quant(layer)
    for i, block in enumerate(arch["blocks"], start=1):
        if block["residual"] is not None:
            values[f"features.{i}.add"] = _quant(block["residual"])
    values["classifier.1"] = _quant(arch["classifier"])
    return Recipe(values, weights)


def _quant(layer: dict[str, Any]) -> Quant:
    return Quant(float(layer["y_scale"]), int(layer["y_zero"]))


def _dequantise(archive: Any, name: str, x_scale: float) -> tuple[Tensor, Tensor]:
    weight = torch.from_numpy(archive[f"{name}.weight"]).double()
    bias = torch.from_numpy(archive[f"{name}.bias"]).double()
    scale = torch.from_numpy(archive[f"{name}.w_scale"]).double()
    return weight * scale.reshape(-1, 1, 1, 1), bias * x_scale * scale


def _build(arch: dict[str, Any]) -> InvertedResidualNet:
    blocks = []
    for block in arch["blocks"]:
        depthwise, project = block["convs"][-2:]
        kernel, stride = int(depthwise["kernel"][0]), int(depthwise["stride"])
        blocks.append(BlockSpec(int(depthwise["out_ch"]), int(project["out_ch"]), kernel, stride))
    model = InvertedResidualNet(
        int(arch["stem"]["out_ch"]),
        blocks,
        None,
        int(arch["classifier"]["out_ch"]),
        dropout=0.0,
        eps=0.0,
        folded=True,
    )
    _check(arch, model)
    return model


def _describe(sequence: nn.Module) -> list[tuple[Any, ...]]:
    """List the convolutions below a module as `arch` would, with the activation after each."""
    found: list[tuple[Any, ...]] = []
    for module in sequence.modules():
        if isinstance(module, nn.Conv2d):
            shape = (module.in_channels, module.out_channels, list(module.kernel_size))
            found.append((*shape, module.stride[0], module.groups, "none"))
        elif isinstance(module, nn.ReLU6):
            found[-1] = (*found[-1][:-1], "relu6")
    return found


def _check(arch: dict[str, Any], model: InvertedResidualNet) -> None:
    """Raise unless the network built is the one described, activations and residuals included."""
    fields = ("in_ch", "out_ch", "kernel", "stride", "groups", "act")
    stem = {"convs": [arch["stem"]], "residual": None}
    for described, module in zip([stem, *arch["blocks"]], model.features, strict=True):
        wanted = [tuple(conv[field] for field in fields) for conv in described["convs"]]
        residual = isinstance(module, InvertedResidual) and module.residual
        if _describe(module) != wanted or residual != (described["residual"] is not None):
            names = [conv["name"] for conv in described["convs"]]
            raise ValueError(f"{arch['name']}: {names} is not an inverted-residual block")
    head = arch["classifier"]
    linear = model.classifier[1]
    assert isinstance(linear, nn.Linear)
    if head["in_ch"] != linear.in_features or head["act"] != "none":
        raise ValueError(f"{arch['name']}: the classifier does not follow the last block")
