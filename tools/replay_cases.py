"""The programs that replay compares: every kind of layer, scheme, number type and target.

They use only whet's public API, so that an older commit can compile them too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import whet
from whet import models, tinytl


class Tokens(nn.Module):
    """Ids, an embedding, attention and layer norms, as in a small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.words(ids))[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Excite(nn.Module):
    """Squeeze and excitation after a convolution, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.conv = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.down, self.up = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.conv(x)
        scale = torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return self.head((x + y * scale).mean((2, 3)))


def signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(6, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Hardswish(), nn.Flatten(),
        nn.Linear(8 * 16, 4),
    )  # fmt: skip


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8),
        nn.GELU(), nn.AvgPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 9, 3),
    )  # fmt: skip


def images(n: int, side: int, channels: int = 3) -> Tensor:
    return torch.randn(n, channels, side, side)


Made = tuple[nn.Module, Tensor]
MODELS: dict[str, Callable[[], Made]] = {
    "mlp": lambda: (models.mlp([784, 32, 10]), torch.randn(4, 784)),
    "lenet": lambda: (models.lenet(), images(2, 28, 1)),
    "mobilenet": lambda: (models.mobilenet_v2(10, 0.35), images(2, 32)),
    "mcunet": lambda: (models.mcunet_5fps(10, folded=True), images(1, 64)),
    "proxyless": lambda: (models.proxyless_nas_mobile(10, 0.3, folded=True), images(1, 64)),
    "resnet": lambda: (models.resnet18(10), images(2, 32)),
    "tokens": lambda: (Tokens(), torch.randint(0, 20, (2, 6))),
    "recurrent": lambda: (Recurrent(), torch.randn(2, 5, 4)),
    "excite": lambda: (Excite(), images(2, 16)),
    "signals": lambda: (signals(), torch.randn(2, 6, 32)),
    "grouped": lambda: (grouped(), images(2, 8, 4)),
}

SGD: dict[str, Any] = {"momentum": 0.9}
M7, M4, PORTABLE = {"target": "cortex-m7"}, {"target": "cortex-m4"}, {"target": "portable"}
INT8 = {"dtype": "int8"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "mlp-adam": ("mlp", {"optimizer": "Adam"}),
    "mlp-clip": ("mlp", {"clip_norm": 1.0, "accumulate": True}),
    "lenet": ("lenet", {}),
    "lenet-portable": ("lenet", PORTABLE),
    "lenet-adamw": ("lenet", {"optimizer": "AdamW"}),
    "lenet-int8-m7": ("lenet", {**INT8, **M7, "update": "bias+last"}),
    "lenet-int8-adam": ("lenet", {**INT8, "optimizer": "Adam"}),
    "lenet-m4": ("lenet", {**M4, "update": "last", "ram": "512K"}),
    "lenet-plain": ("lenet", {"without": whet.passes.SWITCHES}),
    "mobilenet": ("mobilenet", {}),
    "mobilenet-train": ("mobilenet", {"train": True}),
    "mobilenet-last": ("mobilenet", {"update": "last"}),
    "mobilenet-bias": ("mobilenet", {"update": "bias+last"}),
    "mobilenet-norm": ("mobilenet", {"update": "norm+last"}),
    "mobilenet-last-3": ("mobilenet", {"update": "last-3", "optimizer": "SGD", "momentum": 0.9}),
    "mobilenet-int8": ("mobilenet", {**INT8, "update": "last-2"}),
    "mobilenet-twice": ("mobilenet", {"rematerialize": "layers"}),
    "mobilenet-budget": ("mobilenet", {"ram": "2M"}),
    "mobilenet-lite": ("mobilenet", {"update": "tinytl-l+b", "lite": True}),
    "mcunet-sparse": ("mcunet", {"update": "mcunet-5fps-99kb"}),
    "mcunet-int8-m7": ("mcunet", {**INT8, **M7, "update": "mcunet-5fps-49kb"}),
    "mcunet-int8-m4": ("mcunet", {**INT8, **M4, "update": "mcunet-5fps-49kb"}),
    "mcunet-int8-host": ("mcunet", {**INT8, "update": "mcunet-5fps-99kb"}),
    "mcunet-int16": ("mcunet", {"dtype": whet.Int8(gradients="int16"), "update": "bias+last"}),
    "mcunet-carry": ("mcunet", {"dtype": whet.Int8(rounding="carry8"), "update": "bias+last"}),
    "mcunet-chance": ("mcunet", {"dtype": whet.Int8(rounding="stochastic"), "update": "last"}),
    "mcunet-master": ("mcunet", {"dtype": whet.Int8(rounding="master"), "update": "last"}),
    "proxyless-int8": ("proxyless", {**INT8, **M7, "update": "proxyless-w0.3-49kb"}),
    "resnet": ("resnet", {}),
    "resnet-train": ("resnet", {"train": True, "optimizer": "SGD", "momentum": 0.9}),
    "resnet-last": ("resnet", {"update": "last"}),
    "tokens": ("tokens", {}),
    "tokens-train": ("tokens", {"train": True, "optimizer": "AdamW"}),
    "tokens-portable": ("tokens", {**PORTABLE, "update": "last"}),
    "recurrent": ("recurrent", {}),
    "excite": ("excite", {}),
    "excite-int8-m7": ("excite", {**INT8, **M7}),
    "signals": ("signals", {}),
    "signals-int8-m7": ("signals", {**INT8, **M7, "update": "last-1"}),
    "grouped": ("grouped", {"train": True}),
    "grouped-int8": ("grouped", {**INT8, "accumulate": True}),
}


def program(name: str) -> whet.Program:
    key, settings = CASES[name]
    settings = dict(settings)
    torch.manual_seed(0)
    model, x = MODELS[key]()
    model.train(settings.pop("train", False))
    if settings.pop("lite", False):
        model = tinytl.prepare(model, x)
    if "dtype" in settings:
        settings["calibrate"] = [torch.randn(4, *x.shape[1:])]
    kind = settings.pop("optimizer", None)
    if kind is not None:
        momentum = {"momentum": settings.pop("momentum")} if "momentum" in settings else {}
        settings["optimizer"] = getattr(torch.optim, kind)(model.parameters(), lr=0.01, **momentum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return whet.compile(model, (x,), **settings)


def programs(word: str = "") -> Iterator[tuple[str, whet.Program]]:
    for name in CASES:
        if word in name:
            yield name, program(name)
