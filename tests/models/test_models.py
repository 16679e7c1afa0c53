"""The model zoo: exact sizes, parameter names, shapes, and agreement with published weights."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from whet import models

Build = Callable[[], nn.Module]

# Parameters and the shape of one input.
ZOO: dict[str, tuple[Build, int, tuple[int, ...]]] = {
    "mobilenet_v2": (models.mobilenet_v2, 3_504_872, (3, 64, 64)),
    "mobilenet_v2-1.4": (lambda: models.mobilenet_v2(width=1.4), 6_108_776, (3, 32, 32)),
    "mobilenet_v2-0.5": (lambda: models.mobilenet_v2(width=0.5), 1_968_680, (3, 32, 32)),
    "mobilenet_v2-0.35": (lambda: models.mobilenet_v2(width=0.35), 1_677_128, (3, 64, 64)),
    "mbv2-w0.35": (
        lambda: models.mobilenet_v2(width=0.35, feature_mix=False, dropout=0.0, folded=True),
        357_448,
        (3, 128, 128),
    ),
    "proxyless": (models.proxyless_nas_mobile, 4_080_512, (3, 64, 64)),
    "proxyless-1.4": (lambda: models.proxyless_nas_mobile(width=1.4), 6_857_568, (3, 32, 32)),
    "proxyless-w0.3": (
        lambda: models.proxyless_nas_mobile(width=0.3, feature_mix=False, folded=True),
        423_232,
        (3, 128, 128),
    ),
    "mcunet-bn": (models.mcunet_5fps, 636_232, (3, 64, 64)),
    "mcunet-5fps": (lambda: models.mcunet_5fps(folded=True), 630_224, (3, 128, 128)),
    "resnet18": (models.resnet18, 11_689_512, (3, 64, 64)),
    "resnet50": (models.resnet50, 25_557_032, (3, 32, 32)),
    "lenet": (models.lenet, 61_706, (1, 28, 28)),
    "mlp": (lambda: models.mlp([784, 32, 10]), 25_450, (784,)),
    "ds_cnn": (models.ds_cnn, 23_180, (1, 49, 10)),
    "ds_cnn-folded": (lambda: models.ds_cnn(folded=True), 22_604, (1, 49, 10)),
}
CLASSES = {"lenet": 10, "mlp": 10, "ds_cnn": 12, "ds_cnn-folded": 12}
BACKBONES = ["mcunet-5fps", "proxyless-w0.3", "mbv2-w0.35"]


def count(model: nn.Module) -> int:
    """Count the trainable numbers of a model."""
    return sum(p.numel() for p in model.parameters())


def data(*parts: str) -> Path:
    """Find a data file below $WHET_DATA, or skip the test."""
    root = os.environ.get("WHET_DATA")
    if not root:
        pytest.skip("WHET_DATA is not set: it names the folder with the published weights")
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"{Path(*parts)} is not below $WHET_DATA")
    return path


@pytest.mark.parametrize("name", ZOO)
def test_parameters_and_output_shape(name: str) -> None:
    build, parameters, shape = ZOO[name]
    model = build().eval()
    assert count(model) == parameters
    with torch.no_grad():
        scores = model(torch.randn(2, *shape))
    assert scores.shape == (2, CLASSES.get(name, 1000))
    assert torch.isfinite(scores).all()


def test_all_is_sorted_and_complete() -> None:
    assert list(models.__all__) == sorted(models.__all__)
    assert all(callable(getattr(models, name)) for name in models.__all__)


@pytest.mark.parametrize("build", [models.mobilenet_v2, models.mcunet_5fps, models.resnet18])
def test_number_of_classes(build: Callable[[int], nn.Module]) -> None:
    *_, (name, bias) = build(7).named_parameters()
    assert name.endswith(".bias")
    assert bias.shape == (7,)


def test_mobilenet_names_and_shapes() -> None:
    state = models.mobilenet_v2().state_dict()
    assert len(state) == 314
    wanted = {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.0.1.running_mean": (32,),
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.1.weight": (16, 32, 1, 1),
        "features.1.conv.2.weight": (16,),
        "features.2.conv.0.0.weight": (96, 16, 1, 1),
        "features.2.conv.1.1.num_batches_tracked": (),
        "features.2.conv.2.weight": (24, 96, 1, 1),
        "features.17.conv.3.running_var": (320,),
        "features.18.0.weight": (1280, 320, 1, 1),
        "classifier.1.weight": (1000, 1280),
        "classifier.1.bias": (1000,),
    }
    assert {key: tuple(state[key].shape) for key in wanted} == wanted


def test_mobilenet_options() -> None:
    model = models.mobilenet_v2(width=0.35, last_channel=64, dropout=0.5)
    assert model.classifier[1].in_features == 64
    assert isinstance(model.classifier[0], nn.Dropout)
    assert model.classifier[0].p == 0.5
    without = models.mobilenet_v2(width=0.35, dropout=0.0)
    assert not any(isinstance(m, nn.Dropout) for m in without.modules())
    assert "classifier.1.weight" in without.state_dict()


def test_folded_networks_keep_the_names_of_convolutions() -> None:
    plain = models.mcunet_5fps()
    folded = models.mcunet_5fps(folded=True)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())

    def convs(model: nn.Module) -> list[str]:
        return [name for name, m in model.named_modules() if isinstance(m, nn.Conv2d)]

    assert convs(plain) == convs(folded)
    assert len(convs(folded)) == 1 + 2 + 13 * 3
    assert all(f"{name}.bias" in folded.state_dict() for name in convs(folded))


def test_resnet_names() -> None:
    small, large = models.resnet18().state_dict(), models.resnet50().state_dict()
    assert (len(small), len(large)) == (122, 320)
    assert list(small)[:2] == ["conv1.weight", "bn1.weight"]
    assert small["layer1.0.conv1.weight"].shape == (64, 64, 3, 3)
    assert "layer1.0.downsample.0.weight" not in small
    assert small["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert large["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert large["layer4.2.bn3.running_var"].shape == (2048,)
    assert list(large)[-2:] == ["fc.weight", "fc.bias"]


def test_mlp_ends_without_activation_and_needs_two_sizes() -> None:
    assert [type(m).__name__ for m in models.mlp([4, 3, 2])] == ["Linear", "ReLU", "Linear"]
    with pytest.raises(ValueError, match="input size"):
        models.mlp([4])


class OldBlock(nn.Module):
    """A MobileNetV2 block written as one flat `Sequential`, as early code had it."""

    def __init__(self, cin: int, hidden: int, out: int, stride: int) -> None:
        super().__init__()
        expand = [nn.Conv2d(cin, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        self.skip = stride == 1 and cin == out
        self.conv = nn.Sequential(
            *(expand if hidden != cin else []),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.skip else y


def old_mobilenet() -> nn.Module:
    """Build the features of MobileNetV2 in the older layout, without a classifier."""
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    stages += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    stem = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
    layers: list[nn.Module] = [nn.Sequential(stem, nn.BatchNorm2d(32), nn.ReLU6())]
    channels = 32
    for expand, out, repeats, stride in stages:
        for i in range(repeats):
            layers.append(OldBlock(channels, channels * expand, out, stride if i == 0 else 1))
            channels = out
    last = nn.Conv2d(channels, 1280, 1, bias=False)
    layers.append(nn.Sequential(last, nn.BatchNorm2d(1280), nn.ReLU6()))
    return nn.ModuleDict({"features": nn.Sequential(*layers)})


def test_old_layout_gives_the_same_network() -> None:
    torch.manual_seed(0)
    old = old_mobilenet().eval()
    for module in old.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean, 0.0, 0.1)  # type: ignore[arg-type]
    state = old.state_dict()
    assert len(state) == 312
    renamed = models.mobilenet_v2_from_old_layout(state)
    assert all(a is b for a, b in zip(renamed.values(), state.values(), strict=True))
    model = models.mobilenet_v2().eval()
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    assert (missing, unexpected) == (["classifier.1.weight", "classifier.1.bias"], [])
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model.features(x), old.get_submodule("features")(x))


def test_old_layout_refuses_the_new_one() -> None:
    with pytest.raises(ValueError, match="older MobileNetV2 layout"):
        models.mobilenet_v2_from_old_layout(models.mobilenet_v2(width=0.35).state_dict())


def forward_from_archive(path: Path, x: Tensor) -> Tensor:
    """Run the float network an archive describes, straight from its description."""
    z = np.load(path, allow_pickle=False)
    arch = json.loads(str(z["arch"]))

    def conv(x: Tensor, c: dict[str, Any]) -> Tensor:
        scale = z[f"{c['name']}.w_scale"].astype(np.float64)
        weight = torch.from_numpy(z[f"{c['name']}.weight"] * scale[:, None, None, None])
        bias = torch.from_numpy(z[f"{c['name']}.bias"] * c["x_scale"] * scale)
        pad = (c["kernel"][0] - 1) // 2
        y = nn.functional.conv2d(x, weight, bias, c["stride"], pad, 1, c["groups"])
        return y.clamp(0, 6) if c["act"] == "relu6" else y

    x = conv(x.double(), arch["stem"])
    for block in arch["blocks"]:
        y = x
        for c in block["convs"]:
            y = conv(y, c)
        x = x + y if block["residual"] is not None else y
    return conv(x.mean((2, 3), keepdim=True), arch["classifier"]).flatten(1)


@pytest.mark.parametrize("name", BACKBONES)
def test_int8_backbone(name: str) -> None:
    path = data("imagenet-backbones", f"{name}_int8.npz")
    model = models.load_int8_backbone(path).eval()
    build, parameters, shape = ZOO[name]
    assert count(model) == parameters
    # The constructor builds the very same network: names, shapes, strides, then residuals.
    ours = build().eval()
    assert str(ours) == str(model)
    ours.load_state_dict(model.state_dict())
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        scores = model(x)
        assert torch.equal(ours(x), scores)
        torch.testing.assert_close(
            scores.double(), forward_from_archive(path, x), rtol=1e-4, atol=1e-3
        )


def test_int8_backbone_refuses_another_architecture(tmp_path: Path) -> None:
    conv = {"name": "s", "in_ch": 3, "out_ch": 8, "kernel": [3, 3], "stride": 2, "groups": 1}
    head = {"name": "fc", "in_ch": 8, "out_ch": 2, "x_scale": 1.0, "act": "none"}
    arch = {"name": "odd", "stem": {**conv, "act": "relu"}, "blocks": [], "classifier": head}
    np.savez(tmp_path / "odd.npz", arch=json.dumps(arch))
    with pytest.raises(ValueError, match="odd"):
        models.load_int8_backbone(tmp_path / "odd.npz")


def test_ds_cnn_loads_the_published_weights() -> None:
    path = data("mlperf-tiny", "kws_dscnn_fp32.npz")
    model = models.load_ds_cnn(path).eval()
    assert count(model) == 22_604
    weights = np.load(path, allow_pickle=False)
    assert np.array_equal(model.state_dict()["pw3.weight"].numpy(), weights["pw3.weight"])
    with torch.no_grad():
        assert model(torch.randn(1, 1, 49, 10)).shape == (1, 12)
