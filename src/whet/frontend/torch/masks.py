"""Parameters that a model multiplies by a mask of zeros and ones, as torch.nn.utils.prune does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node as FxNode
from torch.nn.utils import prune

from .meta import buffer_for, stand_in

T = TypeVar("T")
SAME = ("aten.to.", "aten._to_copy.", "aten.alias.", "aten.detach.", "aten.clone.")


def masks_of(
    exported: ExportedProgram,
    lookup: Callable[[str], torch.Tensor],
    changing: Collection[str],
    names: Mapping[str, str],
) -> dict[FxNode, tuple[FxNode, torch.Tensor]]:
    """Products of a parameter and a mask, with both, where nothing else reads the parameter.

    `changing` are buffers that are no constants. A tied parameter has one of its `names`.
    """
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    tied: dict[str, list[FxNode]] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder" and specs[node.name].kind is InputKind.PARAMETER:
            target = str(specs[node.name].target)
            tied.setdefault(names.get(target, target), []).append(node)
    same = {node: group for group in tied.values() for node in group}
    found: dict[FxNode, tuple[FxNode, torch.Tensor]] = {}
    for node in exported.graph.nodes:
        if str(node.target) != "aten.mul.Tensor":
            continue
        for weight, other in (node.args, node.args[::-1]):
            mask = origin(other)
            if mask is None or not isinstance(weight, FxNode) or weight.op != "placeholder":
                continue
            kinds = [specs[n.name].kind for n in (weight, mask)]
            target = str(specs[mask.name].target)
            constant = kinds[1] in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
            if kinds[0] is InputKind.PARAMETER and constant and target not in changing:
                numbers = lookup(target)
                shape = tuple(weight.meta["val"].shape)
                if tuple(numbers.shape) == shape and bool(((numbers == 0) | (numbers == 1)).all()):
                    found[node] = weight, numbers.detach() != 0
    return {node: pair for node, pair in found.items() if only_so(same[pair[0]], pair[1], found)}


def origin(x: Any) -> FxNode | None:
    """The placeholder that a value is a copy of."""
    while isinstance(x, FxNode) and str(x.target).startswith(SAME):
        x = x.args[0]
    return x if isinstance(x, FxNode) and x.op == "placeholder" else None


def only_so(
    weights: Iterable[FxNode],
    mask: torch.Tensor,
    found: Mapping[FxNode, tuple[FxNode, torch.Tensor]],
) -> bool:
    """Whether the parameter, under all of its names, is used with this mask alone."""
    return all(
        user in found and torch.equal(found[user][1], mask)
        for weight in weights
        for user in weight.users
    )


def follow(model: nn.Module) -> None:
    """Compute every masked weight whenever the model runs.

    PyTorch does so when the layer runs. Attention reads the weight of its last layer without
    running it, and would keep the product of the first time.
    """
    masked = any(isinstance(h, prune.BasePruningMethod) for h in hooks(model))
    if masked and refresh not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(refresh)


def unfollow(model: nn.Module) -> None:
    for key, hook in list(model._forward_pre_hooks.items()):
        if hook is refresh:
            del model._forward_pre_hooks[key]


def refresh(model: nn.Module, inputs: Any) -> None:
    for module in model.modules():
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, prune.BasePruningMethod):
                hook(module, inputs)


def hooks(model: nn.Module) -> Iterator[Any]:
    return (h for module in model.modules() for h in module._forward_pre_hooks.values())


def copied(x: T, model: nn.Module, copies: Mapping[int, Any] = MappingProxyType({})) -> T:
    """A deep copy of something that has this model in it, whose masked weights `follow`.

    A pruned layer keeps the product of its last run as an attribute, which PyTorch does not copy.
    `copies`, by the id of the original, are taken as they are.
    """
    memo: dict[int, Any] = dict(copies)
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    made = copy.deepcopy(x, memo)
    follow(memo.get(id(model), made))
    return made


def sharing(model: nn.Module) -> nn.Module:
    """A copy to run or to export, with the numbers of the model's own parameters.

    What it caches while it runs, and its buffers, are its own. See meta.py for parameters that have
    no numbers.
    """
    shared: dict[int, torch.Tensor] = {
        id(p): nn.Parameter(stand_in(p.detach()), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    shared |= {id(b): buffer_for(b) for b in model.buffers() if b.is_meta}
    return copied(model, model, shared)
