"""Pruned weights train as in PyTorch, stay pruned, and are stored by their live elements."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from typer.testing import CliRunner

import tiny
import whet
from every_layer import EveryLayer
from whet import pipeline, saved
from whet.cli import app
from whet.errors import CheckpointError, SchemeError
from whet.ir import Relation
from whet.pipeline import ways_to_store
from whet.report.layers import layers
from whet.runtime import exchange, update

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def pruned(seed: int = 0, amount: float = 0.6) -> nn.Module:
    torch.manual_seed(seed)
    net = EveryLayer()
    for layer in net.children():
        prune.random_unstructured(layer, "weight", amount)
    prune.random_unstructured(net.stem, "bias", 0.5)
    return net.eval()


def removed(net: nn.Module) -> nn.Module:
    """With the zeros in the weights, and no masks."""
    for layer in net.children():
        for name in ("weight", "bias"):
            if hasattr(layer, f"{name}_mask"):
                prune.remove(layer, name)
    return net


def batch(seed: int = 1, size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 2, 4, 4, generator=generator)
    return x, torch.randint(3, (size,), generator=generator)


def masks(net: nn.Module) -> dict[str, Tensor]:
    """Of pruned parameters, by name."""
    buffers = dict(net.named_buffers())
    return {n.replace("_mask", "_orig"): t != 0 for n, t in buffers.items() if n.endswith("_mask")}


def assert_trained_as(state: dict[str, Tensor], net: nn.Module) -> None:
    live = masks(net)
    for name, ours in state.items():
        theirs = net.get_parameter(name).detach().float()
        right = torch.where(live[name], theirs, 0) if name in live else theirs
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-6)


# Training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_are_those_of_pytorch_where_masks_are_ones(size: int) -> None:
    net, (x, y) = pruned(), batch(size=size)
    program = whet.compile(net, (x,), accumulate=True)
    trainer = program.load()
    trainer.gradients(x, y)
    nn.functional.cross_entropy(net(x), y).backward()
    found = trainer.collected()
    assert found.keys() == dict(net.named_parameters()).keys()
    for name, ours in found.items():
        theirs = net.get_parameter(name).grad
        assert theirs is not None
        places = program.trained[name]
        right = theirs.numpy() if places is None else theirs.numpy().take(places[1], places[0])
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_are_those_of_pytorch(name: str, seed: int) -> None:
    """Random masks of any density; two of three programs limit the norm of gradients."""
    net, clip = pruned(seed, (0.1, 0.6, 0.95)[seed]), (None, 0.5, 2.0)[seed]
    optimizer = OPTIMIZERS[name](net.parameters())
    options = {"optimizer": optimizer, "clip_norm": clip, "portable": seed == 1}
    trainer = whet.compile(net, batch()[:1], **options).load()
    start = net.get_parameter("head.weight_orig").detach().clone()
    for i in range(10):
        loss = trainer.step(*batch(i))
        assert tiny.torch_step(net, optimizer, *batch(i), clip_norm=clip) == pytest.approx(
            loss, rel=1e-4
        )
    state = trainer.state_dict()
    assert_trained_as(state, net)
    assert all(not state[key][~live].any() for key, live in masks(net).items())
    live = masks(net)["head.weight_orig"]
    assert (state["head.weight_orig"] != start)[live].any()


def test_collected_gradients_are_applied() -> None:
    net = pruned()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    trainer = whet.compile(net, batch()[:1], optimizer=optimizer, accumulate=True).load()
    for i in range(3):
        optimizer.zero_grad()
        for x, y in (batch(2 * i), batch(2 * i + 1)):
            trainer.gradients(x, y)
            (nn.functional.cross_entropy(net(x), y) / 2).backward()
        optimizer.step()
        trainer.apply(scale=0.5)
    assert_trained_as(trainer.state_dict(), net)


def test_optimizer_state_goes_on_where_it_stood() -> None:
    net = pruned()
    optimizer = OPTIMIZERS["nesterov"](net.parameters())
    for i in range(3):
        tiny.torch_step(net, optimizer, *batch(i))
    trainer = whet.compile(net, batch()[:1], optimizer=optimizer).load()
    for i in range(3, 6):
        trainer.step(*batch(i))
        tiny.torch_step(net, optimizer, *batch(i))
    assert_trained_as(trainer.state_dict(), net)


@pytest.mark.parametrize("without", ["share_common", "reorder", "schedule", "fuse_layers"])
def test_check_compares_with_the_pruned_model(without: str) -> None:
    net = pruned()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    whet.compile(net, batch()[:1], optimizer=optimizer, without=[without]).check(3)


@pytest.mark.parametrize("rounding", ["nearest", "carry8", "stochastic", "master"])
def test_integers_stay_pruned_too(rounding: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
    prune.random_unstructured(net[0], "weight", 0.5)
    prune.random_unstructured(net[3], "weight", 0.5)
    options = {"dtype": whet.Int8(rounding=rounding), "calibrate": [batch()[0]]}
    program = whet.compile(net, batch()[:1], optimizer="adam", **options)
    program.check(3)
    trainer = program.load()
    for i in range(5):
        trainer.step(*batch(i))
    state = trainer.state_dict()
    for name, live in masks(net).items():
        assert not state[name][~live].any() and state[name][live].any()
    assert (state["0.weight_orig"] - net.get_parameter("0.weight_orig")).abs().max() > 1e-3
    assert "0.weight_orig trains 36 of 72 elements, stored whole" in program.report()


# What trains ---------------------------------------------------------------------------------


def test_zeros_without_masks_are_kept_on_request() -> None:
    net = removed(pruned())
    x, y = batch()
    plain, sparse = (whet.compile(net, (x,), sparse=word).load() for word in (False, True))
    for trainer in (plain, sparse):
        trainer.step(x, y)
    start = net.state_dict()
    for name, tensor in sparse.state_dict().items():
        zero = (start[name] == 0) & torch.tensor(name.endswith("weight"))
        assert not tensor[zero].any()
        torch.testing.assert_close(tensor[~zero], plain.state_dict()[name][~zero])
    assert plain.state_dict()["head.weight"][start["head.weight"] == 0].any()


def test_a_rule_trains_what_is_not_zero() -> None:
    net = removed(pruned())
    scheme = whet.Scheme([whet.Rule("head.*"), whet.Rule("head.weight", sparse=True)], "mine")
    assert whet.Scheme.from_toml(scheme.to_toml()) == scheme
    assert "sparse = true" in scheme.to_toml()
    program = whet.compile(net, batch()[:1], update=scheme)
    program.check(3)
    live = net.state_dict()["head.weight"].numpy().ravel().nonzero()[0]
    assert program.trained == {"head.bias": None, "head.weight": (None, tuple(live))}
    assert program.memory["trained"] == 4 * (len(live) + 3)


def test_a_preset_keeps_masks() -> None:
    net = pruned()
    program = whet.compile(net, batch()[:1], update="last")
    assert set(program.trained) == {"head.weight_orig", "head.bias"}
    assert program.memory["trained"] == 4 * (int(masks(net)["head.weight_orig"].sum()) + 3)


def test_a_live_weight_may_be_zero() -> None:
    net = pruned()
    with torch.no_grad():
        net.get_parameter("head.weight_orig").zero_()
    trainer = whet.compile(net, batch()[:1]).load()
    for i in range(2):
        trainer.step(*batch(i))
    live = masks(net)["head.weight_orig"]
    assert torch.equal(trainer.state_dict()["head.weight_orig"] != 0, live)


class Factors(nn.Module):
    """A product that is no mask: because of the numbers, or because of another reader."""

    def __init__(self, factor: Tensor, again: bool) -> None:
        super().__init__()
        self.weight, self.again = nn.Parameter(torch.randn(3, 4)), again
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.weight * self.get_buffer("factor"))
        return y + self.weight.sum() if self.again else y


@pytest.mark.parametrize("again", [False, True])
def test_other_products_are_no_masks(again: bool) -> None:
    torch.manual_seed(0)
    factor = torch.tensor([1.0, 0.0, 1.0, 1.0 if again else 0.5]).expand(3, 4).contiguous()
    net = Factors(factor, again)
    program = whet.compile(net, (torch.randn(2, 4),))
    assert not program.parts
    program.check(3)


class Tied(nn.Module):
    """Two layers with one weight, each with a mask of its own."""

    def __init__(self, amounts: tuple[float, float]) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight
        for layer, amount in zip((self.first, self.second), amounts, strict=True):
            prune.l1_unstructured(layer, "weight", amount)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(torch.tanh(self.first(x))))


@pytest.mark.parametrize("other", [0.5, 0.25])
def test_a_tied_weight_keeps_its_masks(other: float) -> None:
    torch.manual_seed(0)
    net, x = Tied((0.5, other)), torch.randn(2, 6)
    program = whet.compile(net, (x,), optimizer=torch.optim.AdamW(net.parameters(), lr=0.01))
    program.check(3)
    trainer = program.load()
    trainer.step(x, torch.tensor([0, 2]))
    left = int((trainer.state_dict()["first.weight_orig"] != 0).sum())
    assert left == (18 if other == 0.5 else 36)  # two masks are no mask of the parameter


class Attention(nn.Module):
    """Its output projection does not run as a layer: attention reads the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


def test_a_weight_that_attention_reads_trains_under_its_mask() -> None:
    torch.manual_seed(0)
    net, x = Attention(), torch.randn(2, 4, 8)
    prune.l1_unstructured(net.attention.out_proj, "weight", 0.5)
    program = whet.compile(net, (x,))
    assert program.trained["attention.out_proj.weight_orig"] is not None
    program.check(3)


def test_a_mask_of_ones_is_no_mask() -> None:
    net = pruned()
    prune.identity(net.head, "bias")
    assert whet.compile(net, batch()[:1]).trained["head.bias_orig"] is None


def test_a_model_that_ran_can_be_compiled() -> None:
    """Its pruned layers hold the product of that run, which PyTorch does not copy."""
    net = pruned().train()
    net(batch()[0]).sum().backward()
    whet.compile(net, batch()[:1]).check(2)


@pytest.mark.parametrize(
    ("rules", "amount", "words"),
    [
        ([whet.Rule("head.bias", sparse=True)], 0.5, "none of its elements is zero"),
        ([whet.Rule("head.weight_orig", sparse=True)], 1.0, "all of its elements are zero"),
        ([whet.Rule("head.weight_orig")], 1.0, "all of its elements are zero"),
        ([whet.Rule("head.weight_orig", 0.5)], 0.5, "a mask prunes it"),
    ],
)
def test_what_cannot_train_is_refused(rules: Any, amount: float, words: str) -> None:
    with pytest.raises(SchemeError, match=words) as error:
        whet.compile(pruned(0, amount), batch()[:1], update=whet.Scheme(rules))
    assert "try" in str(error.value)


def test_rules_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(SchemeError, match="both sparse and channels"):
        whet.Rule("head.weight", 0.5, sparse=True)
    with pytest.raises(SchemeError, match="either true or false"):
        whet.Scheme.from_toml('[[train]]\nparams = "a"\nsparse = 1\n')
    with pytest.raises(SchemeError, match="no weight that trains has zeros"):
        whet.compile(tiny.mlp(), (torch.zeros(1, 5),), sparse=True)


# Memory --------------------------------------------------------------------------------------


def lenet_300_100(amount: float) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    net = nn.Sequential(nn.Flatten(), *layers)
    for layer in net if amount else ():
        if isinstance(layer, nn.Linear):
            prune.l1_unstructured(layer, "weight", amount)
    return net


def test_a_pruned_network_takes_a_fraction_of_the_memory() -> None:
    """In the plan and in the built program; LeNet-300-100, by momentum."""
    linked = importlib.import_module("benchmarks.memory.parts").linked_ram
    found = {}
    for amount in (0.0, 0.9):
        net = lenet_300_100(amount)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        program = whet.compile(net, (torch.zeros(1, 1, 28, 28),), optimizer=optimizer)
        found[amount] = program.memory
        assert linked(program) == program.memory["ram"]
    biases, weights = 410, 784 * 300 + 300 * 100 + 100 * 10
    assert found[0.0]["trained"] == found[0.0]["state"] == 4 * (weights + biases)
    assert found[0.9]["trained"] == found[0.9]["state"] == 4 * (weights // 10 + biases)
    assert found[0.9]["frozen"] < weights / 8 + 100
    assert found[0.0]["ram"] > 9.5 * found[0.9]["ram"]
    assert found[0.0]["flash"] > 7.5 * found[0.9]["flash"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_weight_is_stored_where_that_takes_less(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than the better of the two ways."""
    net = pruned(amount=0.2)
    optimizer = OPTIMIZERS[name](net.parameters())
    found = []

    def two_ways(*given: Any) -> Any:
        found.extend(ways_to_store(*given))
        return found

    monkeypatch.setattr(pipeline, "ways_to_store", two_ways)
    program = whet.compile(net, batch()[:1], optimizer=optimizer)
    rams = []
    for way in found[:2]:
        monkeypatch.setattr(pipeline, "ways_to_store", lambda *_, way=way: [way])
        rams.append(whet.compile(net, batch()[:1], optimizer=optimizer).memory["ram"])
    assert program.memory["ram"] == min(rams) < max(rams)
    assert sum("stored whole" in line for line in program.report().splitlines()) in (0, 5)


def test_the_report_says_what_is_pruned() -> None:
    net = pruned()
    program = whet.compile(net, batch()[:1], optimizer="adam")
    live = int(masks(net)["head.weight_orig"].sum())
    line = f"pruned: head.weight_orig trains {live} of 300 elements, the others are not stored"
    assert line in program.report()
    assert "some of weight_orig" in str([layer.kinds for layer in layers(program)])
    links = [v for v in program.entries["train_step"].leaves if v.is_a(Relation.PART)]
    assert {v.link.of for v in links if v.link} == set(masks(net))


# State in and out ----------------------------------------------------------------------------


def test_a_checkpoint_is_of_a_mask(tmp_path: Path) -> None:
    net = pruned()
    program = whet.compile(net, batch()[:1], optimizer="adam")
    trainer = program.load()
    trainer.step(*batch())
    program.save(tmp_path / "net.whet")
    again = saved.load(tmp_path / "net.whet")
    assert again.trained == program.trained and again.fingerprint == program.fingerprint
    other = again.load()
    other.load(trainer.save())
    assert trainer.step(*batch(2)) == other.step(*batch(2))
    assert trainer.save() == other.save()
    net.get_buffer("head.weight_mask").copy_(net.get_buffer("head.weight_mask").flip(1))
    with pytest.raises(CheckpointError):
        whet.compile(net, batch()[:1], optimizer="adam").load().load(trainer.save())


@pytest.mark.parametrize("amount", [0.1, 0.9])
def test_live_elements_travel(amount: float) -> None:
    """Whether they are stored alone or among zeros, which stay zeros whatever arrives."""
    net = pruned(amount=amount)
    program = whet.compile(net, batch()[:1], send=whet.Send())
    trainer, other = program.load(), program.load()
    trainer.begin()
    trainer.step(*batch())
    found = exchange.trained(trainer)
    for name, places in program.trained.items():
        whole = trainer.arrays()[name]
        right = whole if places is None else whole.take(places[1], places[0])
        np.testing.assert_array_equal(found[name], right)
    exchange.set_trained(other, {n: a + np.float32(0.5) for n, a in found.items()})
    other.load_state_dict({n: torch.tensor(a + 0.25) for n, a in other.arrays().items()})
    state = other.state_dict()
    for name, live in masks(net).items():
        assert not state[name][~live].any()
        expected = torch.from_numpy(trainer.arrays()[name])[live] + 0.75
        torch.testing.assert_close(state[name][live], expected)
    sent = update.by_name(program, update.decode(trainer.delta()))
    assert {n: a.shape for n, a in sent.items()} == {n: a.shape for n, a in found.items()}


def test_a_microcontroller_trains_it() -> None:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    prune.random_unstructured(net[0], "weight", 0.9)
    prune.random_unstructured(net[3], "weight", 0.5)
    x, y = batch(size=1)
    there = whet.compile(net, (x,), optimizer="adam", target="cortex-m7").load()
    here = whet.compile(net, (x,), optimizer="adam", portable=True).load()
    ours, theirs = ([one.step(x, y) for _ in range(5)] for one in (there, here))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert there.close().outside == 0


MODEL = """
import torch
from torch import nn
from torch.nn.utils import prune
def make():
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    prune.random_unstructured(net[0], "weight", 0.5)
    prune.remove(net[0], "weight")
    return net
"""


def test_the_command_line_keeps_zeros(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    words = ["plan", f"{tmp_path / 'net.py'}:make", "-i", "2,8", "--sparse"]
    done = CliRunner().invoke(app, words)
    assert "pruned: 0.weight trains 24 of 48 elements" in done.output
