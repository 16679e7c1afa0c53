"""The operations of a TFLite file as layers of PyTorch, in the file's order of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UnsupportedOps
from ...ir import Array
from .file import Operation, Stored, schema

NONE, RELU, RELU6 = 0, 1, 3  # activations
SAME = 0
INSIDE, OUTSIDE = (0, 3, 1, 2), (0, 2, 3, 1)  # images with the channels second, and last


@dataclass(frozen=True, eq=False)
class Given:
    """An operation with its tensors, and the name of its layer."""

    operation: Operation
    tensors: tuple[Stored, ...]
    name: str

    @property
    def result(self) -> Stored:
        return self.tensors[self.operation.outputs[0]]

    def operand(self, i: int) -> Stored | None:
        """None where there is no such operand."""
        inputs = self.operation.inputs
        return self.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def needed(self, i: int) -> Stored:
        found = self.operand(i)
        if found is None:
            raise self.refused(f"it has no operand {i}")
        return found

    def constant(self, i: int) -> Array:
        found = self.needed(i)
        if found.data is None:
            raise self.refused(f"operand {i} is no constant")
        return found.data

    def options(self, name: str) -> Any:
        found = schema(name)()
        if self.operation.options is None:
            raise self.refused("it has no options")
        found.Init(self.operation.options.Bytes, self.operation.options.Pos)
        return found

    def refused(self, why: str) -> UnsupportedOps:
        return UnsupportedOps(f"{self.operation.code} of TFLite: {why}", at=self.result.name)


@dataclass(frozen=True, eq=False)
class Made:
    """What an operation becomes: modules by the end of their name, and what is done with them.

    A copy of the network has modules of its own, so `call` gets them.

    `scales` are those of weights, by the end of their name; `results` name values of whet's graph
    that have the result's scale.
    """

    modules: Mapping[str, nn.Module]
    call: Callable[..., Tensor]
    scales: Mapping[str, Array]
    results: tuple[str, ...]


ROWS: dict[str, Callable[[Given], Made]] = {}


def row(*codes: str) -> Callable[[Callable[[Given], Made]], Callable[[Given], Made]]:
    def register(make: Callable[[Given], Made]) -> Callable[[Given], Made]:
        for code in codes:
            ROWS[code] = make
        return make

    return register


def real(stored: Stored) -> Tensor:
    """The numbers that a constant stands for."""
    assert stored.data is not None
    if stored.kind == "FLOAT32":
        return torch.from_numpy(stored.data.copy())
    shape = [1] * stored.data.ndim
    if len(stored.scales) > 1:
        if not 0 <= stored.axis < len(shape) or stored.data.shape[stored.axis] != len(
            stored.scales
        ):
            raise ValueError(f"{len(stored.scales)} scales for a tensor of {stored.data.shape}")
        shape[stored.axis] = -1
    scales, zeros = (
        np.asarray(n, np.float64).reshape(shape) for n in (stored.scales, stored.zeros)
    )
    return torch.from_numpy(((stored.data - zeros) * scales).astype(np.float32))


def channels(stored: Stored, count: int) -> Array:
    scales = np.asarray(stored.scales, np.float64)
    return np.full(count, scales[0]) if len(scales) == 1 else scales


def activation(given: Given, number: int) -> nn.Module | None:
    kinds = {NONE: None, RELU: nn.ReLU(), RELU6: nn.ReLU6()}
    if number not in kinds:
        raise given.refused(f"activation {number}")
    return kinds[number]


def fused(
    given: Given, layer: nn.Module, act: nn.Module | None, around: Callable[..., Tensor],
    scales: Mapping[str, Array],
) -> Made:  # fmt: skip
    """A layer with the activation behind it, whose result has the scale."""
    modules = {"": layer} | ({"_act": act} if act is not None else {})

    def call(own: Sequence[nn.Module], x: Tensor) -> Tensor:
        return around(x, lambda y: through(own, y))

    return Made(modules, call, scales, (given.name + ("_act" if act is not None else ""),))


def through(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def pads(given: Given, options: Any, kernel: tuple[int, ...]) -> list[int]:
    """Left, right, top and bottom, as TFLite fills up."""
    if options.Padding() != SAME:
        return [0, 0, 0, 0]
    strides = (options.StrideH(), options.StrideW())
    dilations = dilation_of(options)
    found: list[int] = []
    for axis in (1, 0):
        size, out = given.needed(0).shape[axis + 1], given.result.shape[axis + 1]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = max(0, (out - 1) * strides[axis] + reach - size)
        found += [total // 2, total - total // 2]
    return found


def dilation_of(options: Any) -> tuple[int, int]:
    if not hasattr(options, "DilationHFactor"):
        return 1, 1
    return options.DilationHFactor(), options.DilationWFactor()


@row("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(given: Given) -> Made:
    depthwise = given.operation.code == "DEPTHWISE_CONV_2D"
    options = given.options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    given.constant(1)
    stored = given.needed(1)
    weight = real(stored).permute((3, 0, 1, 2) if depthwise else INSIDE).contiguous()
    inputs = given.needed(0).shape[3]
    outputs, kernel = weight.shape[0], tuple(weight.shape[2:])
    around = pads(given, options, kernel)
    even = around[0] == around[1] and around[2] == around[3]
    layer = nn.utils.skip_init(
        nn.Conv2d, inputs, outputs, kernel, stride=(options.StrideH(), options.StrideW()),
        padding=(around[2], around[0]) if even else 0, dilation=dilation_of(options),
        groups=inputs // weight.shape[1], bias=given.operand(2) is not None,
    )  # fmt: skip
    fill(layer, weight, given.operand(2))

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        x = x.permute(INSIDE)
        return compute(x if even else F.pad(x, around)).permute(OUTSIDE)

    act = activation(given, options.FusedActivationFunction())
    return fused(given, layer, act, moved, {".weight": channels(stored, outputs)})


def fill(layer: nn.Module, weight: Tensor, bias: Stored | None) -> None:
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        if bias.data is None:
            raise ValueError("a bias that is no constant")
        layer.bias = nn.Parameter(real(bias))


@row("FULLY_CONNECTED")
def fully_connected(given: Given) -> Made:
    options = given.options("FullyConnectedOptions")
    given.constant(1)
    stored = given.needed(1)
    weight = real(stored)
    outputs, inputs = weight.shape
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=given.operand(2) is not None)
    fill(layer, weight, given.operand(2))
    keeps = options.KeepNumDims()

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x if keeps or x.ndim == 2 else x.reshape(-1, inputs))

    act = activation(given, options.FusedActivationFunction())
    return fused(given, layer, act, moved, {".weight": channels(stored, outputs)})


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@row("ADD")
def add(given: Given) -> Made:
    act = activation(given, given.options("AddOptions").FusedActivationFunction())
    if any(given.needed(i).data is not None for i in (0, 1)):
        raise given.refused("one operand is a constant")
    modules = {"": Sum()} | ({"_act": act} if act is not None else {})

    def call(own: Sequence[nn.Module], x: Tensor, y: Tensor) -> Tensor:
        return through(own[1:], own[0](x, y))

    result = f"{given.name}.add" if act is None else f"{given.name}_act"
    return Made(modules, call, {}, (result,))


@row("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(given: Given) -> Made:
    options = given.options("Pool2DOptions")
    kernel = (options.FilterHeight(), options.FilterWidth())
    around, strides = pads(given, options, kernel), (options.StrideH(), options.StrideW())
    if any(around):
        raise given.refused("it is padded")
    kind = nn.AvgPool2d if given.operation.code == "AVERAGE_POOL_2D" else nn.MaxPool2d
    act = activation(given, options.FusedActivationFunction())

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x.permute(INSIDE)).permute(OUTSIDE)

    return fused(given, kind(kernel, strides), act, moved, {})


@row("MEAN")
def mean(given: Given) -> Made:
    axes = tuple(int(n) % len(given.needed(0).shape) for n in given.constant(1).reshape(-1))
    keeps = bool(given.options("ReducerOptions").KeepDims())
    return plain(given, "mean", lambda x: x.mean(axes, keepdim=keeps))


@row("RESHAPE")
def reshape(given: Given) -> Made:
    """To the sizes of the result; the first is that of a batch where it is one before and after."""
    shape, before = list(given.result.shape), given.needed(0).shape
    first = -1 if before[:1] == tuple(shape[:1]) else shape[0]
    return plain(given, "view", lambda x: x.reshape(first, *shape[1:]))


@row("PAD")
def pad(given: Given) -> Made:
    widths = given.constant(1).reshape(-1, 2)[::-1].reshape(-1).tolist()
    return plain(given, "pad", lambda x: F.pad(x, widths))


@row("SOFTMAX")
def softmax(given: Given) -> Made:
    if given.options("SoftmaxOptions").Beta() != 1.0:
        raise given.refused("beta is not 1")
    return plain(given, "softmax", lambda x: torch.softmax(x, -1))


class Plain(nn.Module):
    def __init__(self, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)


def plain(given: Given, word: str, compute: Callable[[Tensor], Tensor]) -> Made:
    return Made({"": Plain(compute)}, lambda own, x: own[0](x), {}, (f"{given.name}.{word}",))


@row("QUANTIZE", "DEQUANTIZE")
def same(given: Given) -> Made:
    """Another way to store the same number; whet decides where that is needed."""
    return Made({}, lambda own, x: x, {}, ())


def check_known(operations: tuple[Operation, ...]) -> None:
    """Say all operators at once that have no row."""
    missing = sorted({o.code for o in operations} - set(ROWS))
    if missing:
        raise UnsupportedOps(
            f"whet does not know {len(missing)} operators of this TFLite file: "
            + ", ".join(missing),
            try_="docs/tflite.md lists the operators",
        )
