"""What frozen weights are in each form of few bits, and how many bytes that takes."""

from __future__ import annotations

import torch
from torch import nn

from whet.ir import Array
from whet.ops._blocks import BLOCKS, decoded, encoded
from whet.quantize.frozen import by_rows

FORMS = ("int8", *BLOCKS)
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}


def nearest(form: str, weight: Array) -> Array:
    """The weight as the form has it."""
    if form == "int8":
        return by_rows(weight, 0)
    data = encoded(form, weight)
    assert data is not None
    return decoded(form, data, weight.shape)


def size(form: str, outputs: int, inputs: int) -> int:
    """Bytes of such a weight."""
    if form == "int8":
        return outputs * (inputs + 4)
    return outputs * inputs // 32 * BLOCK_BYTES[form]


def rounded(model: nn.Module, form: str, *names: str) -> nn.Module:
    """The model with these weights as the form has them."""
    with torch.no_grad():
        for name in names:
            p = model.get_parameter(name)
            p.copy_(torch.from_numpy(nearest(form, p.numpy())))
    return model
