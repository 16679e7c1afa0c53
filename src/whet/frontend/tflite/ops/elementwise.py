"""Sums, activations, and what changes how a number is stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ....ir.quant import HIGH, LOW
from ..constants import real
from ..rows import Given, Made, activation, plain, row, through
from ..scales import covers, held, quant_of


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Shift(nn.Module):
    """By numbers that do not train."""

    by: Tensor

    def __init__(self, by: Tensor) -> None:
        super().__init__()
        self.register_buffer("by", by)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


@row("ADD")
def add(given: Given) -> Made:
    act = activation(given, given.options("AddOptions").FusedActivationFunction())
    stored = [i for i in (0, 1) if given.needed(i).data is not None]
    if len(stored) == 2:
        raise given.refused("both operands are constants")
    modules: dict[str, nn.Module] = {"": Shift(real(given, stored[0])) if stored else Sum()}
    if act is not None:
        modules["_act"] = act

    def call(own: Sequence[nn.Module], *operands: Tensor) -> Tensor:
        return through(own[1:], own[0](*operands))

    result = f"{given.name}.add" if act is None else f"{given.name}_act"
    return Made(modules, call, {}, (result,))


@row("RELU", "RELU6")
def rectify(given: Given) -> Made:
    given.computed(0)
    return alone(given, nn.ReLU() if given.operation.code == "RELU" else nn.ReLU6())


def alone(given: Given, layer: nn.Module) -> Made:
    return Made({"": layer}, lambda own, x: own[0](x), {}, (given.name,))


@row("SOFTMAX")
def softmax(given: Given) -> Made:
    if given.options("SoftmaxOptions").Beta() != 1.0:
        raise given.refused("beta is not 1")
    if len(given.computed(0).shape) < 2:
        raise given.refused("its operand has no axis but that of the batch")
    return plain(given, "softmax", lambda x: torch.softmax(x, -1))


@row("DEQUANTIZE")
def dequantize(given: Given) -> Made:
    """Another way to store the same number; whet decides where that is needed."""
    given.computed(0)
    return Made({}, lambda own, x: x, {}, ())


@row("QUANTIZE")
def quantize(given: Given) -> Made:
    """The same number, held in the range of the result where that is not the range it is in."""
    stored, quant = given.computed(0), quant_of(given.result)
    if stored.kind not in ("INT8", "FLOAT32") or quant is None:
        raise given.refused(
            f"it makes {given.result.kind} of {stored.kind}",
            "whet reads networks of INT8, with one scale for each value",
        )
    before = held(given.graph, given.operation.inputs[0])
    if before is not None and covers(quant, before):
        return Made({}, lambda own, x: x, {}, ())
    return alone(given, nn.Hardtanh(quant.real(LOW), quant.real(HIGH)))
