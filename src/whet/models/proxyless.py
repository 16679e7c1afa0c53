"""ProxylessNAS-Mobile (Cai et al., 2019) and MCUNet (Lin et al., 2020) for ImageNet."""

from .inverted import BlockSpec, InvertedResidualNet, make_divisible

# Per stage: channels, stride of its first block, then (expansion, kernel) of each block.
# The network found for mobile phones in arXiv:1812.00332.
_MOBILE = (
    (16, 1, ((1, 3),)),
    (32, 2, ((3, 5), (3, 3))),
    (40, 2, ((3, 7), (3, 3), (3, 5), (3, 5))),
    (80, 2, ((6, 7), (3, 5), (3, 5), (3, 5))),
    (96, 1, ((6, 5), (3, 5), (3, 5), (3, 5))),
    (192, 2, ((6, 7), (6, 7), (3, 7), (3, 7))),
    (320, 1, ((6, 7),)),
)

# Widths whose published channels differ from the rounding rule: stem, then one number per stage.
# 0.3 is the network of arXiv:2206.15472 (the rule gives 56 where it has 64); 1.4 is the authors'
# own wide one (the rule gives 48 and 272 where it has 40 and 256).
_PUBLISHED_CHANNELS = {
    0.3: (16, 8, 16, 16, 24, 32, 64, 96),
    1.4: (48, 24, 40, 56, 112, 136, 256, 448),
}

# Expansion, channels, kernel, stride of each block of mcunet-5fps.
_MCUNET_5FPS = (
    (1, 8, 3, 1),
    (4, 16, 3, 2),
    (3, 16, 3, 1),
    (3, 24, 7, 2),
    (5, 24, 3, 1),
    (5, 40, 3, 2),
    (4, 40, 7, 1),
    (4, 48, 5, 1),
    (3, 48, 3, 1),
    (4, 48, 3, 1),
    (5, 96, 7, 2),
    (4, 96, 5, 1),
    (4, 96, 5, 1),
    (6, 160, 3, 1),
)


def proxyless_nas_mobile(
    num_classes: int = 1000,
    width: float = 1.0,
    *,
    dropout: float = 0.0,
    feature_mix: bool = True,
    folded: bool = False,
) -> InvertedResidualNet:
    """Build ProxylessNAS-Mobile, found by search on a phone (arXiv:1812.00332).

    `width=0.3, feature_mix=False` is the proxyless-w0.3 of "On-Device Training Under 256KB
    Memory" (arXiv:2206.15472). Widths 0.3 and 1.4 use their published channels, every other
    width the rounding rule. `folded=True` gives every convolution a bias in place of BatchNorm.
    """
    rounded = [make_divisible(base * width) for base in (32, *(stage[0] for stage in _MOBILE))]
    channels, *outs = _PUBLISHED_CHANNELS.get(width, rounded)
    stem = channels
    blocks = []
    for out, (_, first_stride, layers) in zip(outs, _MOBILE, strict=True):
        for i, (expand, kernel) in enumerate(layers):
            stride = first_stride if i == 0 else 1
            blocks.append(BlockSpec(channels * expand, out, kernel, stride))
            channels = out
    mix = make_divisible(1280 * max(1.0, width)) if feature_mix else None
    return InvertedResidualNet(
        stem, blocks, mix, num_classes, dropout=dropout, eps=1e-3, folded=folded
    )


def mcunet_5fps(
    num_classes: int = 1000, *, dropout: float = 0.0, folded: bool = False
) -> InvertedResidualNet:
    """Build mcunet-5fps, the MCUNet (arXiv:2007.10319) trained on device in arXiv:2206.15472.

    It takes 128x128 images and has no feature mix: the head sees 160 pooled channels.
    """
    channels = stem = 16
    blocks = []
    for expand, out, kernel, stride in _MCUNET_5FPS:
        blocks.append(BlockSpec(channels * expand, out, kernel, stride))
        channels = out
    return InvertedResidualNet(
        stem, blocks, None, num_classes, dropout=dropout, eps=1e-3, folded=folded
    )
