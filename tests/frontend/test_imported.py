"""Networks that come quantized, against their files: the same features, bit for bit.

What the file means is written out here once more, in NumPy and without whet's operators: the
arithmetic of arXiv:2206.15472 on the arrays and scales as they are stored.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image
from torch import nn

import whet
from integer_models import DATA, needs_data
from whet import models
from whet.ir import Array

PICTURES = 3
NAMES = [
    "mcunet-5fps",
    pytest.param("mbv2-w0.35", marks=pytest.mark.slow),
    pytest.param("proxyless-w0.3", marks=pytest.mark.slow),
]


def flowers(count: int) -> Array:
    """The middles of some test pictures as the network takes them: pixel - 128, [n, h, w, c]."""
    assert DATA is not None
    with np.load(Path(DATA) / "flowers102" / "flowers102_146.npz") as archive:
        data, offsets = archive["test_data"], archive["test_offsets"]
    ends = [(offsets[i], offsets[i + 1]) for i in range(count)]
    pictures = [np.asarray(Image.open(io.BytesIO(data[a:b].tobytes()))) for a, b in ends]
    middle = np.stack(pictures)[:, 9:137, 9:137].astype(np.int16)
    return (middle - 128).astype(np.int8)


def narrowed(real: Array, zero: int) -> Array:
    """Halves to the even number, then the ends of int8, which are those of ReLU6 too."""
    return np.clip(np.rint(real) + zero, -128, 127).astype(np.int8)


def products(x: Array, w: Array, stride: int, depthwise: bool) -> Array:
    """Of windows of x[h, w, c] and w[o, c, k, k], summed up: whole numbers, exact in float64."""
    around = (w.shape[2] - 1) // 2
    x = np.pad(x.astype(np.float64), ((around, around), (around, around), (0, 0)))
    taken = sliding_window_view(x, w.shape[2:], (0, 1))[::stride, ::stride]
    if depthwise:
        return np.einsum("hwckl,ckl->hwc", taken, w[:, 0].astype(np.float64))
    return np.tensordot(taken, w.astype(np.float64), ((2, 3, 4), (1, 2, 3)))


def layer(archive: Mapping[str, Array], told: dict[str, Any], x: Array) -> Array:
    """round((b + sum (x - zero_x) w) s_x s_w / s_y) + zero_y, by one product in float32."""
    weight, bias, scale = (archive[f"{told['name']}.{n}"] for n in ("weight", "bias", "w_scale"))
    wide = x.astype(np.int64) - told["x_zero"]
    total = products(wide, weight, told["stride"], told["groups"] > 1) + bias
    by = (told["x_scale"] * scale.astype(np.float64) / told["y_scale"]).astype(np.float32)
    return narrowed(total.astype(np.float32) * by, told["y_zero"])


def added(told: dict[str, Any], last: dict[str, Any], x: Array, y: Array) -> Array:
    """A block's input x and the result y of its last layer, each by its own scale."""
    left, right = (np.float32(n / told["y_scale"]) for n in (told["x_scale"], last["y_scale"]))
    real = (x.astype(np.float32) - told["x_zero"]) * left
    return narrowed(real + (y.astype(np.float32) - last["y_zero"]) * right, told["y_zero"])


def features(archive: Mapping[str, Array], arch: dict[str, Any], x: Array) -> Array:
    """What the classifier takes, of one picture [h, w, c]."""
    x = layer(archive, arch["stem"], x)
    for block in arch["blocks"]:
        before = x
        for told in block["convs"]:
            x = layer(archive, told, x)
        if block["residual"] is not None:
            x = added(block["residual"], block["convs"][-1], before, x)
    zero, count = arch["classifier"]["x_zero"], x.shape[0] * x.shape[1]
    total = (x.astype(np.int64) - zero).sum((0, 1)).astype(np.float32)
    return narrowed(total / np.float32(count), zero)


def seen_by_the_head(path: Path) -> whet.Program:
    """The network with a classifier that hands on what it gets."""
    model = models.load_int8_backbone(path).eval()
    old = model.classifier[1]
    assert isinstance(old, nn.Linear)
    same = nn.Linear(old.in_features, old.in_features)
    with torch.no_grad():
        same.weight.copy_(torch.eye(old.in_features))
        same.bias.zero_()
    model.classifier[1] = same
    return whet.compile(model, (torch.zeros(1, 3, 128, 128),), dtype="int8", update="last")


@needs_data
@pytest.mark.parametrize("name", NAMES)
def test_features_are_those_of_the_file(name: str) -> None:
    assert DATA is not None
    path = Path(DATA) / "imagenet-backbones" / f"{name}_int8.npz"
    trainer = seen_by_the_head(path).load()
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    arch = json.loads(str(arrays["arch"]))
    head = arch["classifier"]
    for picture in flowers(PICTURES):
        right = features(arrays, arch, picture)
        assert len(np.unique(right)) > 20  # of a picture, not of a wall
        given = trainer.predict(np.ascontiguousarray(picture.transpose(2, 0, 1)[None]))
        real = (right.astype(np.float32) - head["x_zero"]) * np.float32(head["x_scale"])
        np.testing.assert_array_equal(given[0], real)
