"""Channels and blocks go, and the compiled program shrinks with them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import whet
from whet import compress
from whet.errors import FrontendError, SchemeError, WhetError
from whet.models import lenet, mobilenet_v2

X = torch.randn(2, 3, 6, 4)


class Residual(nn.Module):
    """A sum ties the channels of `stem` and of the second convolution of each block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.one, self.two = Block(), Block()
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(torch.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.relu(self.norm(self.first(x))))


def residual() -> Residual:
    torch.manual_seed(0)
    return Residual().eval()


def test_the_least_important_channels_go() -> None:
    """Nothing is lost where they are zero, so that the function stays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.randn(5, 4)
    with torch.no_grad():
        for row in (1, 4, 5):
            model[0].weight[row] = 0
            model[0].bias[row] = 0
            model[2].weight[:, row] = 0
    wanted, kept = model(x), model[0].weight[[0, 2, 3]].clone()
    found = compress.shrink(model, x, 0.5)
    assert found.channels == {"0": (6, 3), "2": (3, 3)}
    assert torch.equal(model[0].weight, kept)
    assert torch.allclose(model(x), wanted, atol=1e-6)
    assert found.parameters == (6 * 5 + 3 * 7, 3 * 5 + 3 * 4)


def test_connected_channels_go_together_and_the_output_keeps_its_size() -> None:
    model = residual()
    names = [name for name, _ in model.named_parameters()]
    found = compress.shrink(model, X, 0.5)
    assert found.channels == {
        "stem": (8, 4), "one.first": (6, 3), "one.second": (8, 4), "two.first": (6, 3),
        "two.second": (8, 4), "head": (3, 3),
    }  # fmt: skip
    assert model(X).shape == (2, 3)
    assert model.one.norm.num_features == 3 and not model.training
    assert [name for name, _ in model.named_parameters()] == names
    assert found.parameters[1] == sum(p.numel() for p in model.parameters())
    assert "parameters" in str(found)


def test_layers_shares_and_multiples() -> None:
    model = residual()
    found = compress.shrink(model, X, {"*.first": 0.34})
    assert {n: after for n, (_, after) in found.channels.items()} == {
        "stem": 8, "one.first": 2, "one.second": 8, "two.first": 2, "two.second": 8, "head": 3,
    }  # fmt: skip
    found = compress.shrink(residual(), X, 0.3, layers="one.first", multiple=4)
    assert found.channels["one.first"] == (6, 4) and found.channels["two.first"] == (6, 6)
    found = compress.shrink(residual(), X, 0.01)
    assert found.channels["one.first"] == (6, 1), "one stays"


def test_grouped_and_depthwise_convolutions() -> None:
    model = tiny.convnet()
    found = compress.shrink(model, X, 0.5)
    assert found.channels == {
        "stem": (4, 2), "depthwise": (4, 2), "grouped": (4, 2), "head": (3, 3)
    }  # fmt: skip
    assert model.grouped.groups == 2 and model(X).shape == (2, 3)


def test_frozen_parameters_stay_frozen_and_training_mode_stays() -> None:
    model = residual().train()
    model.stem.weight.requires_grad_(False)
    compress.shrink(model, X, 0.5)
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["stem.weight"]
    assert model.training and model.one.norm.training


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(channels=0), "not a share"),
        (dict(channels=50), "channels=0.5"),
        (dict(channels={"stem": 2}), "not a share"),
        (dict(channels={"stam": 0.5}), "stem"),
        (dict(layers=["first"]), "one.first"),
        (dict(multiple=0), "multiple=0"),
        (dict(example=torch.randn(2, 4, 6, 4)), "cannot be run"),
    ],
)
def test_bad_arguments_change_nothing(arguments: dict, words: str) -> None:
    model = residual()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(WhetError) as caught:
        compress.shrink(model, **{"example": X} | arguments)
    assert words in str(caught.value)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


class Fixed(nn.Module):
    """Its forward relies on the number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x) + torch.ones(6))


def test_a_model_that_relies_on_its_channels_is_refused() -> None:
    model = Fixed()
    with pytest.raises(FrontendError, match="does not run with fewer channels"):
        compress.shrink(model, torch.randn(2, 4), 0.5)
    assert model(torch.randn(2, 4)).shape == (2, 3)


def test_channels_go_in_rounds_that_resume(tmp_path: Path) -> None:
    labels = torch.tensor([0, 2])

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        nn.functional.cross_entropy(model(X), labels).backward()
        optimizer.step()

    def evaluate(model: nn.Module) -> float:
        with torch.no_grad():
            return -float(nn.functional.cross_entropy(model(X), labels))

    way = compress.Channels(X, 0.25)
    model, again = residual(), residual()
    found = compress.iterative(model, way, 3, train, evaluate, folder=tmp_path)
    assert model.stem.out_channels == 2 and model.one.first.out_channels == 2
    assert [r.at_target for r in found.rounds] == [False, False, True]
    assert found.rounds[0].nonzeros > found.rounds[1].nonzeros == found.rounds[2].nonzeros
    (tmp_path / "round-003.npz").unlink()
    calls = []
    compress.iterative(
        again, compress.Channels(X, 0.25), 3, lambda m: (calls.append(1), train(m)), evaluate,
        folder=tmp_path,
    )  # fmt: skip
    assert len(calls) == 1
    ours, theirs = model.state_dict(), again.state_dict()
    assert list(ours) == list(theirs) and all(torch.equal(ours[n], theirs[n]) for n in ours)


# --- Blocks ---------------------------------------------------------------------------------------


def test_the_block_that_changes_least_becomes_an_identity() -> None:
    model = residual()
    with torch.no_grad():
        model.one.second.weight.mul_(1e-3)
        model.one.second.bias.zero_()
    wanted = model(X).detach()
    found = compress.drop_blocks(model, X)
    assert list(found.blocks) == ["one"] and isinstance(model.one, nn.Identity)
    assert torch.allclose(model(X), wanted, atol=1e-2)
    cost = float((model(X).detach() - wanted).norm() / wanted.norm())
    assert found.blocks["one"] == pytest.approx(cost, rel=1e-5)
    assert found.parameters[0] - found.parameters[1] == 8 * 6 * 9 + 6 + 12 + 6 * 8 + 8


def test_blocks_go_by_accuracy() -> None:
    model = residual()
    found = compress.drop_blocks(
        model, X, evaluate=lambda m: 50.0 if isinstance(m.two, nn.Identity) else 10.0
    )
    assert found.blocks == {"two": -40.0} and isinstance(model.one, Block)
    with pytest.raises(SchemeError, match="2 blocks have"):
        compress.drop_blocks(residual(), X, 3)
    with pytest.raises(SchemeError, match="1 blocks have"):
        compress.drop_blocks(residual(), X, 2, blocks=["one"])
    model = residual()
    with pytest.raises(ZeroDivisionError):
        compress.drop_blocks(model, X, evaluate=failing())
    assert isinstance(model.one, Block) and isinstance(model.two, Block)


def failing():
    calls = iter([1.0, 1.0])
    return lambda model: next(calls, None) or 1 / 0


# --- In the compiled program ----------------------------------------------------------------------

CHIP = dict(update="full", target="cortex-m7", ram="16M", flash="16M")


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_flash_and_ram_shrink_with_the_parameters(dtype: str, share: float) -> None:
    """Both but for what a program has anyhow: the stack, and buffers of one call."""
    torch.manual_seed(0)
    x = torch.randn(1, 1, 28, 28)
    model = lenet().eval()
    options = CHIP | (dict(dtype="int8", calibrate=[x]) if dtype == "int8" else {})
    before = whet.compile(model, (x,), **options).memory
    found = compress.shrink(model, x, share)
    after = whet.compile(model, (x,), **options).memory
    wanted = found.parameters[1] / found.parameters[0]
    assert wanted == pytest.approx(share**2, rel=0.1)
    assert after["trained"] / before["trained"] == pytest.approx(wanted, rel=0.15)
    assert after["flash"] / before["flash"] == pytest.approx(wanted, rel=0.2)
    fixed = 8192 + 28 * 28 * 4  # the stack and the input
    assert (after["ram"] - fixed) / (before["ram"] - fixed) < share


@pytest.mark.slow
def test_a_shrunk_mobilenet_compiles_and_agrees_with_pytorch() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 32, 32)
    model = mobilenet_v2(num_classes=4, width=0.35).eval()
    before = sum(p.numel() for p in model.parameters())
    compress.shrink(model, x, 0.25)
    dropped = compress.drop_blocks(model, x, 3)
    assert dropped.parameters[1] < before / 10
    program = whet.compile(model, (x,), update="bias+last")
    assert np.allclose(
        program.load().predict(x.numpy()), model(x).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_tied_weights_stay_tied_or_the_model_as_it_is() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    net[4].weight = net[2].weight
    with pytest.raises(SchemeError, match=r"2\.weight and 4\.weight are tied"):
        compress.shrink(net, torch.randn(1, 8))
    assert net[4].weight is net[2].weight and net[2].weight.shape == (8, 8)


def test_a_way_can_be_used_for_several_models() -> None:
    way = compress.Channels(torch.randn(1, 8), 0.5)
    for width in (16, 64):
        net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))
        compress.iterative(net, way, 2, lambda m: None, lambda m: 1.0)
        assert net[0].out_features == width // 2
