"""Chains of inverted-residual blocks, shared by MobileNetV2, ProxylessNAS and MCUNet.

Parameter names follow torchvision's MobileNetV2 for all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class BlockSpec(NamedTuple):
    """Shape of one inverted-residual block; `hidden` equal to the input means no expansion."""

    hidden: int
    out: int
    kernel: int
    stride: int


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round to a multiple of `divisor`, without losing more than a tenth of `value`."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def conv_layers(
    cin: int, cout: int, kernel: int, stride: int, groups: int, eps: float, folded: bool
) -> list[nn.Module]:
    """Return a bias-free convolution and its BatchNorm, or one convolution with bias if folded."""
    conv = nn.Conv2d(
        cin, cout, kernel, stride, padding=(kernel - 1) // 2, groups=groups, bias=folded
    )
    return [conv] if folded else [conv, nn.BatchNorm2d(cout, eps=eps)]


class InvertedResidual(nn.Module):
    """Expand 1x1, filter depthwise, project 1x1 without activation (arXiv:1801.04381, section 3).

    The input is added to the output where stride and channels allow it.
    """

    def __init__(self, cin: int, spec: BlockSpec, eps: float, folded: bool) -> None:
        super().__init__()
        hidden, out, kernel, stride = spec
        self.residual = stride == 1 and cin == out
        layers: list[nn.Module] = []
        if hidden != cin:
            expand = conv_layers(cin, hidden, 1, 1, 1, eps, folded)
            layers.append(nn.Sequential(*expand, nn.ReLU6()))
        depthwise = conv_layers(hidden, hidden, kernel, stride, hidden, eps, folded)
        layers.append(nn.Sequential(*depthwise, nn.ReLU6()))
        layers.extend(conv_layers(hidden, out, 1, 1, 1, eps, folded))
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to an NCHW tensor."""
        y: Tensor = self.conv(x)
        return x + y if self.residual else y


class InvertedResidualNet(nn.Module):
    """Stem, blocks, optional 1x1 feature mix, average pool and linear head (arXiv:1801.04381)."""

    def __init__(
        self,
        stem: int,
        blocks: Sequence[BlockSpec],
        feature_mix: int | None,
        num_classes: int,
        *,
        dropout: float,
        eps: float,
        folded: bool,
    ) -> None:
        super().__init__()
        first = conv_layers(3, stem, 3, 2, 1, eps, folded)
        features: list[nn.Module] = [nn.Sequential(*first, nn.ReLU6())]
        channels = stem
        for spec in blocks:
            features.append(InvertedResidual(channels, spec, eps, folded))
            channels = spec.out
        if feature_mix is not None:
            mix = conv_layers(channels, feature_mix, 1, 1, 1, eps, folded)
            features.append(nn.Sequential(*mix, nn.ReLU6()))
            channels = feature_mix
        self.features = nn.Sequential(*features)
        # The head stays at index 1 without dropout, so that checkpoints keep their names.
        drop: nn.Module = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.classifier = nn.Sequential(drop, nn.Linear(channels, num_classes))
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of RGB images, NCHW, to class scores."""
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        x = self.classifier(torch.flatten(x, 1))
        return x
