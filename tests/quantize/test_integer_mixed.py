"""Ordinary networks as integer programs: checked, and what stays in float32 is named."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whet
from integer_models import compiled, examples, trained
from whet import models


def between(*layers: nn.Module) -> nn.Sequential:
    """Behind a first convolution, and before the mean over images that a head reads."""
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *layers, *pool, nn.Linear(8, 4))


class Largest(nn.Module):
    """Over channels: one number decides which others count."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0.1, x, x.max(1, keepdim=True)[0])


DECIDING: dict[str, Any] = {
    "average-beyond": lambda: nn.AvgPool2d(2, ceil_mode=True),
    "average-padded": lambda: nn.AvgPool2d((4, 3), (3, 2), 1, ceil_mode=True),
    "average-inside": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average-divided": lambda: nn.AvgPool2d(2, ceil_mode=True, divisor_override=9),
    "reflect": lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
    "prelu": lambda: nn.PReLU(8),
    "largest": Largest,
}


@pytest.mark.parametrize("name", DECIDING)
def test_pools_that_round_up_indices_and_decisions_are_checked(name: str) -> None:
    shape = (2, 3, 11, 12)
    model = trained(between(DECIDING[name](), nn.Conv2d(8, 8, 1)), shape)
    report = compiled(model, shape, portable=True).check(3)
    assert set(report.gradients) == {name for name, _ in model.named_parameters()}
    assert report.worst_gradient[1] < 2e-6
    assert report.rounded == () and all(a == b for a, b in report.losses)


class Grid(nn.Module):
    """Features, and what a layer makes of positions: a constant, or learned."""

    def __init__(self, learned: bool) -> None:
        super().__init__()
        self.stem, self.place = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(4, 8, 1)
        self.body, self.head = nn.Conv2d(8, 8, 3), nn.Linear(8, 4)
        grid = 100 * torch.randn(1, 4, 7, 6)  # not the range of anything else
        self.grid = nn.Parameter(grid) if learned else nn.Buffer(grid)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x)) + self.place(self.grid)
        return self.head(torch.relu(self.body(x)).mean((2, 3)))


@pytest.mark.parametrize("learned", [False, True])
def test_a_layer_of_a_constant_or_parameter_knows_its_range(learned: bool) -> None:
    shape = (2, 3, 7, 6)
    torch.manual_seed(0)
    model = trained(Grid(learned), shape)
    program = compiled(model, shape)
    report = program.check(3)
    assert {"place.weight", "stem.weight", "head.weight"} <= set(report.gradients)
    (x,) = examples(shape, 1)
    right, ours = model(x[:2]).detach(), torch.from_numpy(program.load().predict(x[:2].numpy()))
    assert (ours - right).abs().max() < 0.05 * right.abs().max()


# What stays in float32 --------------------------------------------------------------------------


def warned(model: nn.Module, shape: tuple[int, ...], **kwargs: Any) -> list[str]:
    """What `compile` says of operators that stay in float32, line by line."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        whet.compile(
            model.eval(), (torch.zeros(shape),), calibrate=examples(shape),
            **{"dtype": "int8"} | kwargs,
        )  # fmt: skip
    said = [w for w in found if "float32" in str(w.message)]
    assert len(said) <= 1 and all(w.filename == __file__ for w in said)
    return str(said[0].message).splitlines() if said else []


def costs(lines: list[str]) -> list[str]:
    """Without the places."""
    return [re.sub(r" at .*:(?= [\d,.]+ KiB)", ":", line.strip()) for line in lines[1:]]


class Gates(nn.Module):
    """Runs of floats, of which only the first reads integers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.a(x))
        y = torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        x = self.b(x * torch.sigmoid(self.excite(y)))
        x = nn.functional.avg_pool2d(torch.sigmoid(x) * torch.exp(x), 2)
        return self.head(x.flatten(2).mean(2))


@pytest.mark.parametrize("head", ["fp32", "int8"])
def test_what_has_no_integer_form_is_named_and_what_follows_it(head: str) -> None:
    lines = warned(Gates(), (1, 3, 16, 16), dtype=whet.Int8(head=head))
    assert lines[0] == (
        "9 operators of the network stay in float32, between dequantizing and quantizing; "
        "their results take 42.1 KiB, up to four times what int8 would:"
    )
    assert costs(lines) == [
        "2 x mul: 16.0 KiB", "2 x sigmoid: 8.0 KiB", "silu: 8.0 KiB", "exp: 8.0 KiB",
        "avg_pool2d: 2.0 KiB", "2 x mean: 0.1 KiB",
    ]  # fmt: skip
    place = r"2 x mul at aten\.mul\.Tensor  test_integer_mixed\.py:\d+ and 1 other place: "
    assert re.match(place, lines[1].strip())


class Shared(nn.Module):
    """One layer in four places, and views between them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.often, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        for _ in range(4):
            x = self.often(x).reshape(x.shape[0], 8, x.shape[2] - 2, -1)
        return self.head(self.b(x).mean((2, 3)))


def test_costs_are_those_of_every_place() -> None:
    lines = warned(Shared(), (1, 3, 16, 16))
    pixels = 14 * 14 + 12 * 12 + 10 * 10 + 8 * 8
    assert pixels * 8 * 4 / 1024 == 15.75 and pixels * 8 * 8 * 9 == 290_304
    assert costs(lines) == ["4 x conv2d: 15.8 KiB, 290,304 multiply-accumulates"]
    assert lines[1].startswith("  4 x conv2d at often  aten.conv2d.default")


class Standard(nn.Module):
    """The numbers of a picture as a network saw them when it was trained."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.4) / 0.2


@pytest.mark.parametrize(
    ("first", "names"), [(nn.BatchNorm2d(3), ["batch_norm"]), (Standard(), ["sub", "mul"])]
)
def test_floats_before_the_first_layer_are_named(first: nn.Module, names: list[str]) -> None:
    lines = warned(nn.Sequential(first, *between()), (2, 3, 16, 16))
    assert costs(lines) == [*(f"{n}: 6.0 KiB" for n in names), "input is float32, too: 6.0 KiB"]


INTEGERS: dict[str, Any] = {
    "small": lambda: nn.Sequential(*between(nn.MaxPool2d(2), nn.Hardtanh()), nn.Sigmoid()),
    "lenet": models.lenet,
    "resnet": lambda: models.resnet18(num_classes=4),
    "mcunet": lambda: models.mcunet_5fps(num_classes=4),
    "mobilenet": lambda: models.mobilenet_v2(num_classes=4, width=0.35),
    "proxyless": lambda: models.proxyless_nas_mobile(num_classes=4, width=0.3),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_nothing_is_said_where_only_the_head_is_float(name: str) -> None:
    shape = (1, 1, 28, 28) if name == "lenet" else (1, 3, 64, 64)
    assert warned(INTEGERS[name](), shape, update="last") == []
