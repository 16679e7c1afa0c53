"""Models on PyTorch's meta device, which can be planned: their tensors have shapes, but no values.

They are exported with tensors on the CPU in place of these, so that what depends on shapes alone
(positions, masks) has its values. A parameter takes no memory there. A buffer of floats, such as
the frequencies of rotary positions, gets arbitrary numbers; one of integers or bits is refused if
anything reads it, since plans depend on masks.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ...errors import FrontendError


def meta_names(model: nn.Module) -> frozenset[str]:
    """The parameters without values, under all of their names."""
    named = model.named_parameters(remove_duplicate=False)
    return frozenset(name for name, p in named if p.is_meta)


def stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one of its shape that takes no memory."""
    return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape) if tensor.is_meta else tensor


def buffer_for(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    numbers = torch.linspace(0.5, 1.0, tensor.numel()) if tensor.numel() else torch.zeros(0)
    return numbers.to(tensor.dtype).reshape(tensor.shape)


def output_of(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> object:
    """What the model returns, without values; nothing is computed."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        return model(*inputs)


def check_read(exported: ExportedProgram, unknown: Collection[str]) -> None:
    """Refuse buffers of integers without values that something reads; `unknown` are their names."""
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    for node in exported.graph.nodes:
        if node.op != "placeholder" or not node.users:
            continue
        name = str(specs[node.name].target).removeprefix("model.")
        if specs[node.name].kind is InputKind.BUFFER and name in unknown:
            raise FrontendError(
                f"buffer {name!r} has no values, and a plan may depend on it",
                why="it is on the meta device, and made of integers or bits",
                try_=f"set {name} to a tensor on the CPU, with its values",
            )


def integer_buffers(model: nn.Module) -> frozenset[str]:
    """Buffers without values that are not floats."""
    named = model.named_buffers(remove_duplicate=False)
    return frozenset(n for n, b in named if b.is_meta and not b.is_floating_point())
