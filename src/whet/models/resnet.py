"""ResNet-18 and ResNet-50 (He et al., 2015, arXiv:1512.03385) with torchvision's names."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def _conv3x3(cin: int, cout: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, 3, stride, padding=1, bias=False)


def _conv1x1(cin: int, cout: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (arXiv:1512.03385, figure 5 left)."""

    expansion = 1

    def __init__(self, cin: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv3x3(cin, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU()
        self.conv2 = _conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to an NCHW tensor."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(y + shortcut)
        return y


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut (arXiv:1512.03385, figure 5 right).

    As in torchvision the stride sits on the 3x3 convolution, not on the first 1x1.
    """

    expansion = 4

    def __init__(self, cin: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv1x1(cin, planes)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv1x1(planes, planes * self.expansion)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to an NCHW tensor."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(y + shortcut)
        return y


class ResNet(nn.Module):
    """Four stages of residual blocks, average pool and linear head (arXiv:1512.03385, table 1)."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], num_classes: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        width = block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], 1)
        self.layer2 = _stage(block, 64 * width, 128, depths[1], 2)
        self.layer3 = _stage(block, 128 * width, 256, depths[2], 2)
        self.layer4 = _stage(block, 256 * width, 512, depths[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of RGB images, NCHW, to class scores."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.fc(torch.flatten(self.avgpool(x), 1))
        return x


def _stage(
    block: type[BasicBlock | Bottleneck], cin: int, planes: int, depth: int, stride: int
) -> nn.Sequential:
    out = planes * block.expansion
    downsample = None
    if stride != 1 or cin != out:
        downsample = nn.Sequential(_conv1x1(cin, out, stride), nn.BatchNorm2d(out))
    rest = [block(out, planes, 1, None) for _ in range(depth - 1)]
    return nn.Sequential(block(cin, planes, stride, downsample), *rest)


def resnet18(num_classes: int = 1000) -> ResNet:
    """Build the 18-layer residual network (arXiv:1512.03385, table 1)."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    """Build the 50-layer residual network, stride on the 3x3 (arXiv:1512.03385, table 1)."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)
