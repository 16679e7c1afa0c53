"""Sums, activations, and what changes how a number is stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..rows import Given, Made, activation, plain, row, through


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


@row("SOFTMAX")
def softmax(given: Given) -> Made:
    if given.options("SoftmaxOptions").Beta() != 1.0:
        raise given.refused("beta is not 1")
    return plain(given, "softmax", lambda x: torch.softmax(x, -1))


@row("QUANTIZE", "DEQUANTIZE")
def same(given: Given) -> Made:
    """Another way to store the same number; whet decides where that is needed."""
    return Made({}, lambda own, x: x, {}, ())
