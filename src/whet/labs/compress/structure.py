"""Structured pruning: channels and whole blocks go, and the network really shrinks.

What one channel is connected to (the next layer's inputs, norms, the other side of a residual sum)
is found by the dependency graph of Torch-Pruning (Fang et al., arXiv:2301.12900).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import nn

from ...errors import FrontendError, SchemeError, WhetError
from ..common.blocks import as_in_use, find_blocks, run
from .iterate import Evaluate, Train, accuracy, become, count_parameters
from .magnitude import check_share
from .tables import aligned, percent
from .weights import Layers, all_weights, check_finite, finish, held, unknown

Shares = float | Mapping[str, float]
LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass(frozen=True)
class Shrunk:
    """Output channels before and after, by layer, and parameters of the model."""

    channels: Mapping[str, tuple[int, int]]
    parameters: tuple[int, int]

    def __str__(self) -> str:
        lines = [("layer", "channels", "left", "kept")]
        lines += [(n, str(a), str(b), percent(b / a)) for n, (a, b) in self.channels.items()]
        before, after = self.parameters
        lines.append(("parameters", f"{before:,}", f"{after:,}", percent(after / before)))
        return aligned(lines)


def shrink(
    model: nn.Module,
    example: torch.Tensor,
    channels: Shares = 0.5,
    *,
    layers: Layers = None,
    multiple: int = 1,
) -> Shrunk:
    """Remove output channels, in place: the share `channels` of each layer stays, at least one.

    Channels that are connected go together, those first whose weights have the smallest L2 norm,
    over all layers of the group. What the model gives keeps its size. `layers` restricts what may
    be narrower, `multiple` rounds the number of channels that stay up to a multiple. A mapping
    gives shares by name or pattern. Parameters are replaced: make optimizers afterwards.
    """
    check_channels(model, channels, layers)
    if not isinstance(multiple, int) or multiple < 1:
        raise SchemeError(f"multiple={multiple!r} is not a positive integer", try_="multiple=8")
    start = widths(model)
    return narrow(model, example, shares_of(model, channels, layers), start, multiple)


def check_channels(model: nn.Module, channels: Shares, layers: Layers = None) -> None:
    for share in channels.values() if isinstance(channels, Mapping) else [channels]:
        check_share(share, "channels")
    shares_of(model, channels, layers)
    torch_pruning()


@dataclass
class Channels:
    """For `iterative`: layers become narrower in rounds, down to a share of their channels.

    `start` are the channels before the first round.
    """

    example: torch.Tensor
    share: Shares = 0.5
    layers: Layers = None
    multiple: int = 1
    start: dict[str, int] = field(default_factory=dict, repr=False)

    def reduce(self, model: nn.Module, level: float) -> None:
        start = widths(model)
        start |= {name: n for name, n in self.start.items() if name in start}
        goal = shares_of(model, self.share, self.layers)
        now = {name: share + (1 - share) * level for name, share in goal.items()}
        narrow(model, self.example, now, start, self.multiple)
        self.start = start

    def train(self, model: nn.Module, train: Train) -> None:
        with held(model):
            train(model)

    def words(self) -> dict[str, object]:
        share = dict(self.share) if isinstance(self.share, Mapping) else self.share
        return {"way": "channels", "share": share, "layers": self.layers, "multiple": self.multiple}


def widths(model: nn.Module) -> dict[str, int]:
    """Output channels of convolutions and linear layers by name."""
    return {
        name: module.out_features if isinstance(module, nn.Linear) else module.out_channels
        for name, module in model.named_modules()
        if isinstance(module, LAYERS)
    }


def shares_of(model: nn.Module, channels: Shares, layers: Layers) -> dict[str, float]:
    """The share of each layer that may be narrower."""
    names = list(widths(model))
    if not names:
        raise SchemeError("the model has no convolution and no linear layer")
    patterns = ["*"] if layers is None else [layers] if isinstance(layers, str) else list(layers)
    given = channels if isinstance(channels, Mapping) else dict.fromkeys(patterns, channels)
    for pattern in [*patterns, *given]:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise unknown(pattern, names)
    allowed = [n for n in names if any(fnmatchcase(n, p) for p in patterns)]
    found = {n: next((s for p, s in given.items() if fnmatchcase(n, p)), None) for n in allowed}
    return {name: share for name, share in found.items() if share is not None}


def narrow(
    model: nn.Module,
    example: torch.Tensor,
    shares: Mapping[str, float],
    start: Mapping[str, int],
    multiple: int,
) -> Shrunk:
    """All on a copy; the model becomes it once it has been run."""
    finish(model)
    check_finite(all_weights(model))
    small = copy.deepcopy(model)
    with as_in_use(small), torch.no_grad():
        run(small, example)
        wanted = shape_of(small(example))
    before = widths(model)
    frozen = [p for p in small.parameters() if not p.requires_grad]
    modes = [module.training for module in small.modules()]
    try:
        for parameter in frozen:  # the graph is traced by autograd
            parameter.requires_grad_(True)
        remove(small, example, shares, start, multiple)
    finally:
        for name, parameter in small.named_parameters():
            parameter.requires_grad_(model.get_parameter(name).requires_grad)
        for module, mode in zip(small.modules(), modes, strict=True):
            module.training = mode
    check_tied(model, small)
    check_shape(small, example, wanted)
    after = widths(small)
    sizes = count_parameters(model), count_parameters(small)
    become(model, small)
    return Shrunk({name: (n, after[name]) for name, n in before.items()}, sizes)


def remove(
    model: nn.Module,
    example: torch.Tensor,
    shares: Mapping[str, float],
    start: Mapping[str, int],
    multiple: int,
) -> None:
    tp = torch_pruning()
    importance = tp.importance.GroupMagnitudeImportance(p=2)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = tp.DependencyGraph().build_dependency(model, example_inputs=example)
            names = {module: name for name, module in model.named_modules()}
            groups = list(graph.get_all_groups(root_module_types=LAYERS))
            for group in groups:
                drop(tp, graph, group, names, importance, shares, start, multiple)
    except WhetError:
        raise
    except Exception as error:
        raise FrontendError(
            f"the channels of {type(model).__name__} cannot be traced",
            why=f"Torch-Pruning: {type(error).__name__}: {error}",
            try_="layers=, with those only that standard modules use",
        ) from error


def drop(
    tp: Any, graph: Any, group: Any, names: Mapping[Any, str], importance: Any,
    shares: Mapping[str, float], start: Mapping[str, int], multiple: int,
) -> None:  # fmt: skip
    """Remove the least important channels of one group, if every layer of it allows that."""
    makers = [dep for dep, _ in group if graph.is_out_channel_pruning_fn(dep.handler)]
    layers = [names[d.target.module] for d in makers if names.get(d.target.module) in start]
    if any(not dep.target.outputs for dep in makers):  # what the model gives
        return
    if not layers or any(name not in shares for name in layers):
        return
    root = group[0].dep
    now = graph.get_out_channels(root.target.module)
    share = max(shares[name] for name in layers)  # of connected layers, the widest counts
    blocks = block_count(makers)
    step = blocks * multiple // math.gcd(blocks, multiple)
    keep = max(1, math.floor(share * start[names[root.target.module]] + 0.5))
    keep = min(now, math.ceil(keep / step) * step)
    if keep >= now or now % blocks:
        return
    scores = importance(group)
    if scores is None:
        return
    mean = scores.detach().reshape(blocks, -1).mean(0).double().numpy()
    lowest = np.argsort(mean, kind="stable")[: (now - keep) // blocks]
    gone = sorted(int(i) + block * (now // blocks) for block in range(blocks) for i in lowest)
    graph.get_pruning_group(root.target.module, root.handler, gone).prune()


def block_count(makers: Sequence[Any]) -> int:
    """Parts of the channels that have to stay equally large: grouped convolutions, group norm."""
    counts = [1]
    for dep in makers:
        module = dep.target.module
        if isinstance(module, nn.modules.conv._ConvNd) and module.groups != module.out_channels:
            counts.append(module.groups)
        if isinstance(module, nn.GroupNorm):
            counts.append(module.num_groups)
    return math.lcm(*counts)


def torch_pruning() -> Any:
    try:
        import torch_pruning
    except ModuleNotFoundError as error:
        raise SchemeError(
            "Torch-Pruning is not installed",
            why="it finds which channels are connected",
            try_="pip install torch-pruning",
        ) from error
    return torch_pruning


def check_tied(model: nn.Module, small: nn.Module) -> None:
    """One weight of several layers has not become several."""
    first: dict[nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        one = first.setdefault(parameter, name)
        if small.get_parameter(one) is not small.get_parameter(name):
            raise SchemeError(
                f"{one} and {name} are tied",
                why="with fewer channels they would be two weights",
                try_="layers=, without them and the layers before them",
            )


def shape_of(given: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return tuple(given.shape)
    return [shape_of(one) for one in given] if isinstance(given, (tuple, list)) else None


def check_shape(model: nn.Module, example: torch.Tensor, wanted: Any) -> None:
    """The narrower model runs and gives what it gave."""
    try:
        with as_in_use(model), torch.no_grad():
            found = shape_of(model(example))
        why = f"it gives {found} instead of {wanted}"
    except Exception as error:
        found, why = None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if found != wanted or found is None:
        raise FrontendError(
            f"{type(model).__name__} does not run with fewer channels",
            why=(why, "its own forward relies on their number"),
            try_="layers=, with those only that standard modules use",
        )


# --- Blocks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dropped:
    """Blocks that became identities, in that order, with what each cost."""

    blocks: Mapping[str, float]
    measure: str
    parameters: tuple[int, int]

    def __str__(self) -> str:
        lines = [("block", self.measure)]
        lines += [(name, f"{cost:.4g}") for name, cost in self.blocks.items()]
        before, after = self.parameters
        return f"{aligned(lines)}\nparameters: {before:,} before, {after:,} after"


def drop_blocks(
    model: nn.Module,
    example: torch.Tensor,
    count: int = 1,
    *,
    blocks: Sequence[str] = (),
    evaluate: Evaluate | None = None,
) -> Dropped:
    """Replace blocks whose input and output have one shape by identities, in place.

    One after the other, the block goes without which the accuracy by `evaluate` is highest, or,
    without `evaluate`, the output for `example` changes least. `blocks` restricts the choice.
    """
    finish(model)
    every = [b.name for b in find_blocks(model, example, blocks) if b.taken == b.given and b.name]
    if not isinstance(count, int) or not 0 < count <= len(every):
        raise SchemeError(
            f"count={count!r} blocks cannot be dropped",
            why=f"{len(every)} blocks have an output of the shape of their input",
            try_=tuple(every) or "shrink(model, example)",
        )
    before = count_parameters(model)
    base = accuracy(evaluate, model) if evaluate else 0.0
    wanted = outputs(model, example)
    costs: dict[str, float] = {}
    for _ in range(count):
        found = {}
        for name in (n for n in every if n not in costs):
            with without(model, name):
                left = accuracy(evaluate, model) if evaluate else 0.0
                found[name] = base - left if evaluate else change(model, example, wanted)
        worst = min(found, key=lambda n: found[n])
        costs[worst] = found[worst]
        replace(model, worst, nn.Identity())
    measure = "accuracy lost" if evaluate else "change of the output"
    return Dropped(costs, measure, (before, count_parameters(model)))


def outputs(model: nn.Module, example: torch.Tensor) -> torch.Tensor:
    with as_in_use(model), torch.no_grad():
        found = model(example)
    if not isinstance(found, torch.Tensor):
        raise FrontendError("the model gives no tensor to compare", try_="evaluate=")
    return found


def change(model: nn.Module, example: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative to the norm of the outputs."""
    found = outputs(model, example)
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))


class without:
    """The model with an identity in the place of a block, for a while."""

    def __init__(self, model: nn.Module, name: str) -> None:
        self.model, self.name = model, name
        self.block = model.get_submodule(name)

    def __enter__(self) -> None:
        replace(self.model, self.name, nn.Identity())

    def __exit__(self, *_: object) -> None:
        replace(self.model, self.name, self.block)


def replace(model: nn.Module, name: str, module: nn.Module) -> None:
    outer, _, own = name.rpartition(".")
    model.get_submodule(outer)._modules[own] = module
