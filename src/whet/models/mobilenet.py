"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381) with torchvision's parameter names."""

import re
from collections.abc import Mapping

from torch import Tensor

from .inverted import BlockSpec, InvertedResidualNet, make_divisible

# Expansion, channels, repeats, stride of the first repeat: table 2 of the paper.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

# Position inside `conv` in the older layout -> position in torchvision's.
_OLD_EXPANDED = {"0": "0.0", "1": "0.1", "3": "1.0", "4": "1.1", "6": "2", "7": "3"}
_OLD_PLAIN = {"0": "0.0", "1": "0.1", "3": "1", "4": "2"}
_OLD_KEY = re.compile(r"(features\.\d+\.conv)\.(\d+)\.(\w+)")


def mobilenet_v2(
    num_classes: int = 1000,
    width: float = 1.0,
    *,
    dropout: float = 0.2,
    last_channel: int | None = None,
    feature_mix: bool = True,
    folded: bool = False,
) -> InvertedResidualNet:
    """Build MobileNetV2 at any width (arXiv:1801.04381, table 2).

    `last_channel` sets the width of the feature mix (default: 1280, more for width > 1).
    `feature_mix=False` leaves that layer out, as in "On-Device Training Under 256KB Memory"
    (arXiv:2206.15472), whose mbv2-w0.35 is `mobilenet_v2(width=0.35, feature_mix=False)`.
    `folded=True` gives every convolution a bias in place of its BatchNorm.
    """
    channels = stem = make_divisible(32 * width)
    blocks = []
    for expand, base, repeats, first_stride in _STAGES:
        out = make_divisible(base * width)
        for i in range(repeats):
            blocks.append(BlockSpec(channels * expand, out, 3, first_stride if i == 0 else 1))
            channels = out
    mix = last_channel or make_divisible(1280 * max(1.0, width))
    return InvertedResidualNet(
        stem,
        blocks,
        mix if feature_mix else None,
        num_classes,
        dropout=dropout,
        eps=1e-5,
        folded=folded,
    )


def mobilenet_v2_from_old_layout(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a MobileNetV2 whose blocks are flat `Sequential`s.

    Older checkpoints number the layers of a block `conv.{0,1,3,4,6,7}`, or `conv.{0,1,3,4}`
    where it has no expansion; the result has torchvision's names and shares the tensors.
    """
    matches = {key: _OLD_KEY.fullmatch(key) for key in state}
    expanded = {m[1] for m in matches.values() if m and m[2] == "6"}
    renamed: dict[str, Tensor] = {}
    for key, tensor in state.items():
        if match := matches[key]:
            block, index, leaf = match.groups()
            table = _OLD_EXPANDED if block in expanded else _OLD_PLAIN
            if index not in table:
                raise ValueError(f"{key!r} does not belong to the older MobileNetV2 layout")
            key = f"{block}.{table[index]}.{leaf}"
        elif ".conv." in key:
            raise ValueError(f"{key!r} does not belong to the older MobileNetV2 layout")
        renamed[key] = tensor
    return renamed
