"""Layers with weights."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from ....ir import Array
from ..constants import bias_of, weight_of
from ..rows import Given, Made, activation, fused, row
from ..windows import INSIDE, OUTSIDE, dilation_of, pads


@row("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(given: Given) -> Made:
    depthwise = given.operation.code == "DEPTHWISE_CONV_2D"
    options = given.options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    weight, scales = weight_of(given, 3 if depthwise else 0)
    weight = weight.permute((3, 0, 1, 2) if depthwise else INSIDE).contiguous()
    inputs = given.computed(0).shape[3]
    outputs, kernel = weight.shape[0], tuple(weight.shape[2:])
    around = pads(given, options, kernel)
    even = around[0] == around[1] and around[2] == around[3]
    layer = nn.utils.skip_init(
        nn.Conv2d, inputs, outputs, kernel, stride=(options.StrideH(), options.StrideW()),
        padding=(around[2], around[0]) if even else 0, dilation=dilation_of(options),
        groups=inputs // weight.shape[1], bias=given.operand(2) is not None,
    )  # fmt: skip
    fill(layer, weight, bias_of(given, outputs, scales))

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        x = x.permute(INSIDE)
        return compute(x if even else F.pad(x, around)).permute(OUTSIDE)

    act = activation(given, options.FusedActivationFunction())
    return fused(given, layer, act, moved, named(scales))


def fill(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)


def named(scales: Array | None) -> dict[str, Array]:
    return {} if scales is None else {".weight": scales}


@row("FULLY_CONNECTED")
def fully_connected(given: Given) -> Made:
    options = given.options("FullyConnectedOptions")
    given.computed(0)
    weight, scales = weight_of(given, 0)
    outputs, inputs = weight.shape
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=given.operand(2) is not None)
    fill(layer, weight, bias_of(given, outputs, scales))
    keeps = options.KeepNumDims()

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x if keeps or x.ndim == 2 else x.reshape(-1, inputs))

    act = activation(given, options.FusedActivationFunction())
    return fused(given, layer, act, moved, named(scales))
