"""Every network of whet.models and many of timm's: gradients and ten steps equal PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from agreement import agreement, prepared  # first: timm cannot be imported before it
from whet import models

import timm  # isort: skip

OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobilenet_v2": (lambda: models.mobilenet_v2(10), (3, 32, 32)),
    "mbv2-w0.35": (
        lambda: models.mobilenet_v2(width=0.35, feature_mix=False, dropout=0.0, folded=True),
        (3, 48, 48),
    ),
    "proxyless": (lambda: models.proxyless_nas_mobile(10), (3, 32, 32)),
    "proxyless-w0.3": (
        lambda: models.proxyless_nas_mobile(width=0.3, feature_mix=False, folded=True),
        (3, 48, 48),
    ),
    "mcunet": (models.mcunet_5fps, (3, 48, 48)),
    "mcunet-folded": (lambda: models.mcunet_5fps(folded=True), (3, 64, 64)),
    "resnet18": (lambda: models.resnet18(10), (3, 32, 32)),
    "resnet50": (lambda: models.resnet50(10), (3, 32, 32)),
    "lenet": (models.lenet, (1, 28, 28)),
    "mlp": (lambda: models.mlp([784, 32, 10]), (784,)),
    "ds_cnn": (models.ds_cnn, (1, 49, 10)),
    "ds_cnn-folded": (lambda: models.ds_cnn(folded=True), (1, 49, 10)),
}

SLOW = {"resnet50", "test_nfnet", "ghostnet_100", "repvgg_a0", "mobilevit_xxs", "proxyless"}
SLOW |= {"resnet18", "vit_tiny_patch16_224", "mobilenet_v2", "efficientnet_lite0"}
SLOW |= {"edgenext_xx_small", "convnext_atto", "starnet_s050", "mnasnet_100", "regnetx_002"}
SLOW |= {"mobilenetv4_conv_small_035", "test_mambaout", "mcunet"}
SLOW |= {"mobilenetv3_small_100", "mbv2-w0.35", "proxyless-w0.3"}
SLOWEST = {"test_nfnet", "ghostnet_100", "repvgg_a0", "mobilevit_xxs"}  # at any batch
SLOWEST |= {"resnet50", "efficientnet_lite0", "mnasnet_100", "regnetx_002", "proxyless"}
SLOWEST |= {"convnext_atto", "mobilenetv4_conv_small_035"}
SLOWEST |= {"edgenext_xx_small", "starnet_s050", "test_mambaout", "vit_tiny_patch16_224"}
SLOWEST |= {"mobilenet_v2"}  # its narrow form is quick, and batch norm is in mcunet

# Side of the picture in the default run.
TIMM = {
    "mobilenetv3_small_100": 32,
    "mnasnet_100": 32,
    "efficientnet_lite0": 32,
    "ghostnet_100": 32,
    "regnetx_002": 32,
    "resnet18": 32,
    "repvgg_a0": 32,
    "convnext_atto": 32,
    "vit_tiny_patch16_224": 32,
    "mobilenetv4_conv_small_035": 32,
    "mobilevit_xxs": 64,
    "edgenext_xx_small": 64,
    "lcnet_035": 32,
    "starnet_s050": 32,
    "test_nfnet": 32,
    "test_mambaout": 32,
}

# Others, one or two of each family, with the smallest side they take.
MORE = {
    "cait_xxs24_224": 64, "coat_tiny": 64, "convit_tiny": 64, "cpubone_nano": 64,
    "crossvit_9_240": 240, "cs3darknet_focus_s": 64, "csatv2": 64, "deit_tiny_patch16_224": 64,
    "densenet121": 64, "dla46x_c": 64, "dpn48b": 64,
    "efficientvim_m1": 64, "efficientvit_b0": 64, "ese_vovnet19b_slim_dw": 64, "fasternet_t0": 64,
    "fastvit_t8": 64, "gcvit_xxtiny": 64, "gmlp_ti16_224": 64, "halonet_h1": 256,
    "hardcorenas_b": 64, "hgnetv2_b0": 64, "hrnet_w18_small": 64, "iformer_t": 64,
    "inception_next_atto": 64, "lcnetv2_small": 64, "legacy_seresnet18": 64, "lowformer_b0": 64,
    "maxvit_pico_rw_256": 64, "nest_tiny": 64, "pit_ti_224": 64,
    "poolformerv2_s12": 64, "pvt_v2_b0": 64, "repghostnet_050": 64, "repvit_m1": 64,
    "resnest14d": 64, "resnetv2_18": 64, "rexnet_100": 64, "skresnet18": 64, "swiftformer_xs": 64,
    "test_byobnet": 64, "test_efficientnet": 64, "test_resnet": 64, "test_vit": 64,
    "tinynet_e": 64, "visformer_tiny": 64, "vit_tiny_patch16_dinov3_qkvb": 64,
    "vit_tiny_r_s16_p8_224": 64, "xcit_nano_12_p8_224": 64,
}  # fmt: skip


def from_timm(name: str, side: int) -> nn.Module:
    for options in ({"img_size": side}, {}):
        try:
            return timm.create_model(name, num_classes=10, **options)
        except TypeError:  # it takes pictures of any size, so it takes no size
            continue
    raise AssertionError(name)


class Shuffled(nn.Module):
    """Half of the channels go through, and both halves are mixed afterwards (ShuffleNet v2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        y = torch.cat([kept, self.branch(changed)], dim=1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), nn.MaxPool2d(3, 2, 1), *(Shuffled(24) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip


def at_batches(names: Iterable[str]) -> list[Any]:
    """Every model at batch 1 and 4; slow ones only where slow tests run."""
    return [
        pytest.param(name, batch, marks=[pytest.mark.slow] if slow(name, batch) else [])
        for name in names
        for batch in (1, 4)
    ]


def slow(name: str, batch: int) -> bool:
    return name in SLOWEST or (batch == 4 and (name in SLOW or name in TIMM))


def of_timm() -> list[Any]:
    """Without timm's resnet18, which is ours; that is among the slow ones."""
    quick = at_batches(name for name in TIMM if name != "resnet18")
    same = [pytest.param("resnet18", batch, marks=pytest.mark.slow) for batch in (1, 4)]
    return quick + same


@pytest.mark.parametrize(("name", "batch"), at_batches(OWN))
def test_own_models_train_as_pytorch_does(name: str, batch: int) -> None:
    build, shape = OWN[name]
    torch.manual_seed(0)
    x = torch.randn(batch, *shape)
    agreement(prepared(build(), x), x)


@pytest.mark.parametrize(("name", "batch"), of_timm())
def test_timm_models_train_as_pytorch_does(name: str, batch: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(batch, 3, TIMM[name], TIMM[name])
    agreement(prepared(from_timm(name, TIMM[name]), x), x)


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_shuffled_channels_train_as_pytorch_does(batch: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(batch, 3, 48, 48)
    agreement(prepared(shufflenet(), x), x)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        pytest.param("mobilenetv3_small_050", 96, marks=pytest.mark.slow),
        pytest.param("resnet10t", 64, marks=pytest.mark.slow),
        pytest.param("regnetx_002", 64, marks=pytest.mark.slow),
        pytest.param("mobileone_s0", 64, marks=pytest.mark.slow),  # its logits are 1e8 in eval mode
    ],
)
def test_batch_statistics_train_as_pytorch_does(name: str, side: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, side, side)
    agreement(prepared(from_timm(name, side), x).train(), x)


@pytest.mark.parametrize("name", ["ds_cnn", pytest.param("mcunet", marks=pytest.mark.slow)])
def test_own_models_with_batch_statistics_train_as_pytorch_does(name: str) -> None:
    build, shape = OWN[name]
    torch.manual_seed(0)
    x = torch.randn(4, *shape)
    agreement(prepared(build(), x).train(), x)


# The loss overflows at the usual 1e-3, in PyTorch too.
RATES = {"mnasnet_100": 1e-5, "visformer_tiny": 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", TIMM)
def test_timm_models_at_their_own_resolution(name: str, batch: int) -> None:
    torch.manual_seed(0)
    side = timm.get_pretrained_cfg(name).input_size[-1]
    x = torch.randn(batch, 3, side, side)
    agreement(prepared(from_timm(name, side), x), x, lr=RATES.get(name, 1e-3))


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_timm_models_train_as_pytorch_does(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, MORE[name], MORE[name])
    agreement(prepared(from_timm(name, MORE[name]), x), x, lr=RATES.get(name, 1e-3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["levit_128s", "tiny_vit_5m_224", "efficientvit_m0", "efficientformerv2_s0"]
)
def test_models_that_cache_in_eval_mode_train_in_train_mode(name: str) -> None:
    """PyTorch itself cannot train these in eval mode, in which they keep a part of their graph."""
    torch.manual_seed(0)
    side = 224 if name == "levit_128s" else 64
    x = torch.randn(4, 3, side, side)
    agreement(prepared(from_timm(name, side), x).train(), x)


@pytest.mark.slow
def test_positions_that_a_layer_reads_have_a_range_in_integers() -> None:
    """EdgeNeXt has a convolution of a constant: no calibration could see what comes in there."""
    torch.manual_seed(0)
    x = torch.randn(1, 3, 64, 64)
    model = prepared(from_timm("edgenext_xx_small", 64), x)
    with pytest.warns(UserWarning, match="stay in float32"):
        program = whet.compile(model, (x,), dtype="int8", calibrate=[x], update="last")
    right = model(x).detach().numpy()
    error = np.abs(program.load().predict(x) - right).max() / np.abs(right).max()
    assert error < 0.1, error
