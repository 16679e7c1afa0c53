"""Weights against gradients, layer by layer: why integers need QAS. The command is __main__.py."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass

import numpy as np
from torch import nn

from benchmarks.common import pictures
from benchmarks.common.page import table
from benchmarks.common.pictures import CLASSES, Array, Pictures
from benchmarks.qas.study import (
    VARIANTS,
    Recipe,
    Variant,
    as_input,
    backbone_path,
    compiled,
    make_model,
)
from whet.report import svg

DEAD = 1e-5  # scales below this belong to channels whose weights are all but 0
WAYS = ("fp32", "int8", "int8 + QAS")
WAY_COLORS = dict(zip(WAYS, ("#222222", "#e8a33d", "#c2313d"), strict=True))
Ratios = dict[str, dict[str, float]]  # log10 |W| / |G| by parameter and way


@dataclass(frozen=True)
class Stored:
    """One parameter in the backbone's file: its integers, and what 1 of them stands for."""

    integers: Array
    scale: Array  # of each output channel, shaped to multiply

    @property
    def alive(self) -> Array:
        return self.scale.ravel() > 0

    def norm(self, values: Array) -> float:
        return float(np.linalg.norm(values.astype(np.float64)[self.alive]))


def stored_parameters(backbone: str, model: nn.Module) -> dict[str, Stored]:
    """Those of the convolutions, by the model's names, dead channels with a scale of 0."""
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    found = {}
    with np.load(backbone_path(backbone), allow_pickle=False) as archive:
        arch = json.loads(str(archive["arch"]))
        layers = [arch["stem"], *(conv for block in arch["blocks"] for conv in block["convs"])]
        for name, layer in zip(names, layers, strict=True):
            weight, bias = (archive[f"{layer['name']}.{kind}"] for kind in ("weight", "bias"))
            scale = archive[f"{layer['name']}.w_scale"].astype(np.float64)
            scale = np.where(scale < DEAD, 0.0, scale)
            found[f"{name}.weight"] = Stored(weight, scale.reshape(-1, 1, 1, 1))
            found[f"{name}.bias"] = Stored(bias, scale * float(layer["x_scale"]))
    return found


def ratios(backbone: str, data: str, batches: int, recipe: Recipe) -> Ratios:
    """At the start of training, of every convolution's weight and bias."""
    model = make_model(backbone, CLASSES[data], 0)
    stored = stored_parameters(backbone, model)
    train = pictures.load(data, "train")
    taken = np.random.default_rng(0).permutation(len(train))[: batches * recipe.batch]
    real = collected(model, VARIANTS["fp32"], train, taken, recipe.batch)
    whole = collected(model, VARIANTS["plain"], train, taken, recipe.batch)
    found: Ratios = {}
    for name, own in stored.items():
        gain = np.divide(1, own.scale**2, out=np.zeros_like(own.scale), where=own.scale > 0)
        pairs = (
            (own.integers * own.scale, real[name]),
            (own.integers, whole[name]),
            (own.integers, whole[name] * gain),
        )
        found[name] = {
            way: math.log10(own.norm(w) / max(own.norm(g), 1e-300))
            for way, (w, g) in zip(WAYS, pairs, strict=True)
        }
    return found


def collected(
    model: nn.Module, variant: Variant, train: Pictures, taken: Array, batch: int
) -> dict[str, Array]:
    """The mean gradient of some batches, everything trained."""
    program = compiled(model, batch, "full", variant, accumulate=True)
    trainer = program.load(threads=1)
    groups = taken.reshape(-1, batch)
    for group in groups:
        images = train.images[np.sort(group)]
        trainer.gradients(as_input(variant, pictures.centre(images)), train.labels[np.sort(group)])
    return {name: total / len(groups) for name, total in trainer.collected().items()}


def ratio_table(found: Ratios) -> str:
    """How far the ratios of int8 are from those of fp32, in powers of ten."""
    rows = []
    for kind in ("weight", "bias"):
        for way in WAYS[1:]:
            apart = [r[way] - r["fp32"] for n, r in found.items() if n.endswith(kind)]
            ends = (f"{f(apart):+.2f}" for f in (statistics.median, min, max))
            rows.append([f"{kind}, {way}", *ends])
    return table(["log10 of the ratio, minus that of fp32", "median", "least", "most"], rows)


def ratio_picture(found: Ratios, backbone: str, data: str) -> str:
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 92.0, svg.HEIGHT - 40.0
    values = [v for by_way in found.values() for v in by_way.values()]
    low, high = math.floor(min(values)), math.ceil(max(values))

    def x(i: int) -> float:
        return left + (right - left) * (i + 0.5) / len(found)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    parts = svg.legend(left, 72, [(color, way) for way, color in WAY_COLORS.items()])
    for tick in range(low, high + 1):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 7, y(tick) + 4, f"{tick}", text_anchor="end"))
    for way, color in WAY_COLORS.items():
        points = [(x(i), y(by_way[way])) for i, by_way in enumerate(found.values())]
        line = " ".join(f"{svg.number(a)},{svg.number(b)}" for a, b in points)
        parts.append(
            svg.element(
                "polyline",
                points=line,
                fill="none",
                stroke=color,
                stroke_width=3 if way == "fp32" else 1,
            )
        )
        for (a, b), (name, by_way) in zip(points, found.items(), strict=True):
            words = svg.tooltip(f"{name}, {way}: {by_way[way]:.2f}")
            parts.append(svg.element("circle", words, cx=a, cy=b, r=2.5, fill=color))
    words = "weight and bias of every convolution, from the first to the last"
    parts.append(svg.text((left + right) / 2, bottom + 24, words, text_anchor="middle"))
    about = f"log10 of the norm of a parameter over that of its gradient; {backbone}, {data}"
    return svg.page("Parameters against their gradients", about, parts)
