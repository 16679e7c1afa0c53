"""Models of other formats as PyTorch modules: parameters by path, and a program that is walked.

A front end gives `Interpreted` the tensors of a file and an object that computes the outputs from
inputs and tensors. `torch.export`, autodiff and `check` then treat it like any other module.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...errors import FrontendError

MOST = 1 << 28  # numbers of an example


@dataclass(frozen=True)
class Input:
    """An input as its file declares it: sizes are numbers, names of free sizes, or unknown."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int | str | None, ...]
    count: int | None = None  # of ids, all below it

    def example(self, batch: int, free: Mapping[str, int]) -> Tensor:
        """Random numbers, or ids, of this shape; a free first size is the batch."""
        sizes = [self._size(i, size, batch, free) for i, size in enumerate(self.sizes)]
        if math.prod(sizes) > MOST:
            raise FrontendError(
                f"input {self.name!r} has {math.prod(sizes):,} numbers",
                why=f"an example of at most {MOST:,} is made; its shape is {sizes}",
            )
        if self.dtype.is_floating_point and self.count is None:
            return torch.randn(sizes).to(self.dtype)
        if self.dtype == torch.bool:
            return torch.ones(sizes, dtype=torch.bool)
        return torch.randint(0, self.count or 2, sizes).to(self.dtype)

    def _size(self, i: int, size: int | str | None, batch: int, free: Mapping[str, int]) -> int:
        if isinstance(size, int):
            return size
        if isinstance(size, str) and size in free:
            return free[size]
        if i == 0:
            return batch
        raise FrontendError(
            f"the file leaves a size of input {self.name!r} open",
            why=f"its shape is {list(self.sizes)}",
            try_="the whole shape, as --input 1,3,64,64",
        )


class Walk(Protocol):
    """What a file computes. It never changes, so copies of a module share it."""

    def __call__(self, module: Interpreted, inputs: Sequence[Tensor]) -> Any: ...

    def __deepcopy__(self, memo: dict[int, Any]) -> Any: ...


class Interpreted(nn.Module):
    """Parameters and buffers named by their path in a file, and a walk that computes with them.

    `paths` gives better names to tensors whose name in the file says nothing.
    """

    def __init__(
        self,
        walk: Walk,
        inputs: Sequence[Input],
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        paths: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.walk, self.declared = walk, tuple(inputs)
        self.paths = unique_paths({name: paths.get(name, name) for name in [*parameters, *buffers]})
        for name, tensor in parameters.items():
            owner, leaf = owner_of(self, self.paths[name])
            owner.register_parameter(leaf, nn.Parameter(tensor))
        for name, tensor in buffers.items():
            owner, leaf = owner_of(self, self.paths[name])
            owner.register_buffer(leaf, tensor)

    def tensor(self, name: str) -> Tensor:
        """The parameter or buffer of this name in the file."""
        *path, leaf = self.paths[name].split(".")
        owner: Any = self
        for part in path:
            owner = owner._modules[part]
        found: Tensor = getattr(owner, leaf)
        return found

    def example(self, batch: int = 1, **free: int) -> tuple[Tensor, ...]:
        """Inputs of the shapes in the file; `free` gives sizes that the file only names."""
        return tuple(declared.example(batch, free) for declared in self.declared)

    def forward(self, *inputs: Tensor) -> Any:
        if len(inputs) != len(self.declared):
            names = ", ".join(declared.name for declared in self.declared)
            raise FrontendError(
                f"the model has {len(self.declared)} inputs and got {len(inputs)}", why=names
            )
        return self.walk(self, inputs)

    def extra_repr(self) -> str:
        return ", ".join(f"{i.name}: {list(i.sizes)}" for i in self.declared)


def owner_of(root: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that holds the tensor of this path, made if it is not there."""
    *names, leaf = path.split(".")
    for name in names:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root._modules[name]  # type: ignore[assignment]
    return root, leaf


# Attributes of a module that no tensor or part of it may hide.
TAKEN = frozenset(dir(nn.Module())) | {"walk", "declared", "paths", "tensor", "example"}


def is_taken(part: str) -> bool:
    return part in TAKEN or keyword.iskeyword(part)


def unique_paths(wished: Mapping[str, str]) -> dict[str, str]:
    """Each name as a path of modules; none is the beginning of another, and none twice."""
    found: dict[str, str] = {}
    used: set[str] = set()  # paths of tensors, and of modules around them
    leaves: set[str] = set()
    for name, wish in wished.items():
        plain = re.sub(r'[:"\\\n\r\0]', "_", wish.replace("/", "."))
        parts = [part for part in plain.split(".") if part] or ["tensor"]
        wanted = path = ".".join(f"{part}_" if is_taken(part) else part for part in parts)
        count = 1
        while path in used or any(start in leaves for start in starts(path)):
            count += 1
            path = f"{wanted.replace('.', '_')}_{count}"
        leaves.add(path)
        used.update(starts(path), {path})
        found[name] = path
    return found


def starts(path: str) -> list[str]:
    """The modules around the tensor of this path."""
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]
