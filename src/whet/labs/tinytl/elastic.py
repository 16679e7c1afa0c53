"""Many networks in one: blocks may be skipped, narrower, or have smaller kernels
(arXiv:1908.09791).

The largest network holds the weights of all. A narrower block uses the first of its inner channels,
which are sorted by importance; a smaller kernel is the centre of the larger one; a block that keeps
its size may be skipped. `extract` turns any of them into a plain network.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import FrontendError
from ...models import BlockSpec, InvertedResidual, InvertedResidualNet, make_divisible
from .branch import branches

WIDTHS = (0.5, 0.75, 1.0)  # fractions of a block's inner channels


@dataclass(frozen=True, order=True)
class Size:
    """The size of one block: whether it is present, its inner width, and its kernel."""

    kept: bool
    hidden: int
    kernel: int

    def __str__(self) -> str:
        return f"{self.hidden}k{self.kernel}" if self.kept else "-"


Choice = tuple[Size, ...]  # a sub-network: the size of every block


class Elastic(nn.Module):
    """A super-network over one of whet's chains of inverted residuals.

    `choice` is the active sub-network, initially the largest.
    """

    def __init__(self, net: nn.Module, widths: Sequence[float] = WIDTHS) -> None:
        super().__init__()
        if not isinstance(net, InvertedResidualNet) or not has_norms(net):
            raise FrontendError(
                f"{type(net).__name__} is not a chain of inverted residuals with batch norm",
                try_="whet.models.mobilenet_v2, proxyless_nas_mobile or mcunet_5fps",
            )
        if branches(net):
            raise FrontendError(
                "a super-network cannot have branches", try_="prepare the network extracted from it"
            )
        if not all(0 < width <= 1 for width in widths):
            raise FrontendError(
                f"widths={tuple(widths)} are not fractions", try_="widths=(0.5, 1.0)"
            )
        self.net = copy.deepcopy(net)
        self.blocks = [m for m in self.net.features if isinstance(m, InvertedResidual)]
        for block in self.blocks:
            sort_channels(block)
        self.sizes = [sizes_of(block, widths) for block in self.blocks]
        self.choice: Choice = self.largest

    @property
    def largest(self) -> Choice:
        return tuple(max(sizes) for sizes in self.sizes)

    @property
    def smallest(self) -> Choice:
        return tuple(min(sizes) for sizes in self.sizes)

    def sample(self, random: np.random.Generator) -> Choice:
        return tuple(sizes[int(random.integers(len(sizes)))] for sizes in self.sizes)

    def mutated(self, choice: Choice, random: np.random.Generator, rate: float = 0.1) -> Choice:
        """A choice with some of its blocks changed."""
        drawn = self.sample(random)
        return tuple(
            new if random.random() < rate else old for old, new in zip(choice, drawn, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        sizes = dict(zip(self.blocks, self.choice, strict=True))
        for module in self.net.features:
            x = run(module, x, sizes[module]) if isinstance(module, InvertedResidual) else module(x)
        x = functional.adaptive_avg_pool2d(x, (1, 1))
        y: Tensor = self.net.classifier(torch.flatten(x, 1))
        return y

    def extract(self, choice: Choice, calibrate: Iterable[Tensor] = ()) -> InvertedResidualNet:
        """A plain network of that choice, with a copy of the weights.

        The statistics of batch norm include other widths, so they are recomputed from `calibrate`.
        """
        if not isinstance(choice, tuple) or len(choice) != len(self.blocks):
            raise FrontendError(
                f"that is not a choice of {len(self.blocks)} sizes", try_="best.choice"
            )
        for block, size, sizes in zip(self.blocks, choice, self.sizes, strict=True):
            if size not in sizes:
                at = next(name for name, own in self.net.named_modules() if own is block)
                raise FrontendError(f"{at} cannot be {size}", try_=tuple(map(str, sizes)))
        net = copy.deepcopy(self.net)
        kept = iter(choice)
        features: list[nn.Module] = []
        for module in net.features:
            if not isinstance(module, InvertedResidual):
                features.append(module)
            elif (size := next(kept)).kept:
                features.append(cut(module, size))
        net.features = nn.Sequential(*features)
        if batches := list(calibrate):
            renew_statistics(net, batches)
        return net.eval()


def has_norms(net: InvertedResidualNet) -> bool:
    return any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


# --- Sizes ----------------------------------------------------------------------------------------


def sizes_of(block: InvertedResidual, widths: Sequence[float]) -> list[Size]:
    """All possible sizes of a block with the same input and output."""
    expand, (depthwise, _), _ = layers_of(block)
    hidden, kernel = depthwise.out_channels, depthwise.kernel_size[0]
    inner = {hidden}
    if expand is not None:
        inner |= {min(hidden, make_divisible(hidden * w)) for w in widths}
        inner.discard(expand[0].in_channels)  # a block as wide inside as outside has no expansion
    kernels = [k for k in (3, 5, 7) if k <= kernel] or [kernel]
    found = [Size(True, h, k) for h in sorted(inner) for k in kernels]
    return [Size(False, 0, 0), *found] if block.residual else found


Layer = tuple[nn.Conv2d, nn.BatchNorm2d]


def layers_of(block: InvertedResidual) -> tuple[Layer | None, Layer, Layer]:
    """Its convolutions, each with its norm: expand (if present), filter, project."""
    convs = [m for m in block.conv.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in block.conv.modules() if isinstance(m, nn.BatchNorm2d)]
    pairs = list(zip(convs, norms, strict=True))
    expand = pairs[0] if len(pairs) == 3 else None
    return expand, pairs[-2], pairs[-1]


def sort_channels(block: InvertedResidual) -> None:
    """Sort inner channels by their weight in the projection; the function is unchanged."""
    expand, (filter_, norm), (project, _) = layers_of(block)
    if expand is None:
        return
    order = project.weight.data.abs().sum((0, 2, 3)).argsort(descending=True)
    project.weight.data = project.weight.data[:, order].contiguous()
    for conv, own in (expand, (filter_, norm)):
        conv.weight.data = conv.weight.data[order].contiguous()
        for tensor in (own.weight.data, own.bias.data, own.running_mean, own.running_var):
            assert tensor is not None
            tensor.copy_(tensor[order])


# --- Running and cutting --------------------------------------------------------------------------


def run(block: InvertedResidual, x: Tensor, size: Size) -> Tensor:
    """Run the block with that size."""
    if not size.kept:
        return x
    expand, (conv, norm), (project, last) = layers_of(block)
    y = x
    if expand is not None:
        y = normalised(functional.conv2d(y, expand[0].weight[: size.hidden]), expand[1])
        y = functional.relu6(y)
    weight = middle(conv.weight[: size.hidden], size.kernel)
    y = functional.conv2d(y, weight, None, conv.stride, size.kernel // 2, groups=size.hidden)
    y = functional.relu6(normalised(y, norm))
    y = normalised(functional.conv2d(y, project.weight[:, : size.hidden]), last)
    return x + y if block.residual else y


def normalised(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """Normalise with the first channels of a norm; in train mode, update their statistics."""
    n = x.shape[1]
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None and variance is not None
    return functional.batch_norm(
        x, mean[:n], variance[:n], norm.weight[:n], norm.bias[:n], norm.training,
        0.1 if norm.momentum is None else norm.momentum, norm.eps,
    )  # fmt: skip


def middle(weight: Tensor, kernel: int) -> Tensor:
    edge = (weight.shape[-1] - kernel) // 2
    return weight[..., edge : edge + kernel, edge : edge + kernel]


def cut(block: InvertedResidual, size: Size) -> InvertedResidual:
    """A block of that size with a copy of the weights."""
    expand, (filter_, norm), (project, last) = layers_of(block)
    channels = filter_.in_channels if expand is None else expand[0].in_channels
    spec = BlockSpec(size.hidden, project.out_channels, size.kernel, filter_.stride[0])
    new = InvertedResidual(channels, spec, norm.eps, folded=False)
    own_expand, (own_filter, own_norm), (own_project, own_last) = layers_of(new)
    n = size.hidden
    pairs = [
        (own_filter.weight, middle(filter_.weight[:n], size.kernel)),
        (own_project.weight, project.weight[:, :n]), *tensors(own_norm, norm, n),
        *tensors(own_last, last, last.num_features),
    ]  # fmt: skip
    if expand is not None and own_expand is not None:
        pairs += [(own_expand[0].weight, expand[0].weight[:n])]
        pairs += tensors(own_expand[1], expand[1], n)
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs)
    return new.train(block.training)


def tensors(mine: nn.BatchNorm2d, theirs: nn.BatchNorm2d, n: int) -> list[tuple[Tensor, Tensor]]:
    names = ("weight", "bias", "running_mean", "running_var")
    return [(getattr(mine, name), getattr(theirs, name)[:n]) for name in names]


def renew_statistics(net: nn.Module, batches: Sequence[Tensor]) -> None:
    """Recompute statistics as means over the batches, with equal weights."""
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    net.train()
    try:
        with torch.no_grad():
            for x in batches:
                net(x)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        net.eval()
