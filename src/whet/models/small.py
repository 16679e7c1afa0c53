"""Small networks: LeNet-5, a multi-layer perceptron and the keyword-spotting DS-CNN."""

import os
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al., 1998, figure 2) with ReLU and max pooling instead of tanh and
    averages."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of 1x28x28 images to class scores."""
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(torch.flatten(x, 1)))
        x = self.fc3(self.relu(self.fc2(x)))
        return x


class DSCNN(nn.Module):
    """Depthwise-separable network for keyword spotting, as in MLPerf Tiny (arXiv:2106.07597).

    The small DS-CNN of "Hello Edge" (arXiv:1711.07128): a 10x4 stem, four 3x3 blocks, 64 channels.
    """

    blocks = 4

    def __init__(self, num_classes: int, folded: bool) -> None:
        super().__init__()
        width = 64
        # The reference pads so that a stride of 2 halves the size exactly: 4 rows above, 5 below.
        self.pad = nn.ZeroPad2d((1, 1, 4, 5))
        self._add("conv0", nn.Conv2d(1, width, (10, 4), 2, bias=folded), folded)
        for i in range(1, self.blocks + 1):
            depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=folded)
            self._add(f"dw{i}", depthwise, folded)
            self._add(f"pw{i}", nn.Conv2d(width, width, 1, bias=folded), folded)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(width, num_classes)

    def _add(self, name: str, conv: nn.Conv2d, folded: bool) -> None:
        self.add_module(name, conv)
        norm: nn.Module = nn.Identity() if folded else nn.BatchNorm2d(conv.out_channels)
        self.add_module(f"{name}_bn", norm)

    def _unit(self, name: str, x: Tensor) -> Tensor:
        conv, norm = self.get_submodule(name), self.get_submodule(f"{name}_bn")
        x = self.relu(norm(conv(x)))
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of 1x49x10 MFCC images to label scores."""
        x = self._unit("conv0", self.pad(x))
        for i in range(1, self.blocks + 1):
            x = self._unit(f"pw{i}", self._unit(f"dw{i}", x))
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        x = self.fc(torch.flatten(x, 1))
        return x


def lenet(num_classes: int = 10) -> LeNet:
    """Build LeNet-5 for 1x28x28 digits (LeCun et al., "Gradient-Based Learning", 1998)."""
    return LeNet(num_classes)


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Build linear layers of the given sizes, input first, with ReLU (Rumelhart et al., 1986)."""
    if len(sizes) < 2:
        raise ValueError("an MLP needs an input size and an output size")
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def ds_cnn(num_classes: int = 12, *, folded: bool = False) -> DSCNN:
    """Build the MLPerf Tiny keyword-spotting network for 1x49x10 MFCCs (arXiv:2106.07597).

    It differs from the reference in two points: there is no dropout, and the final average is over
    all 25 rows instead of 24. `folded=True` has a bias in place of each BatchNorm.
    """
    return DSCNN(num_classes, folded)


def load_ds_cnn(path: str | os.PathLike[str]) -> DSCNN:
    """Load a folded DS-CNN from an .npz of float32 tensors with the module's parameter names."""
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if name != "arch"]
        state = {name: torch.from_numpy(archive[name]) for name in names}
    model = ds_cnn(len(state["fc.bias"]), folded=True)
    model.load_state_dict(state)
    return model
