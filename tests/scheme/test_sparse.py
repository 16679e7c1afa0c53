"""Training in part: slices follow PyTorch's gradients, and nothing else changes by a bit."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import schemes
import tiny
import whet
from schemes import Ready, random_scheme
from whet.emit.program import Program
from whet.errors import CheckError, CheckpointError, DataError, SchemeError
from whet.models import mcunet_5fps, mobilenet_v2, proxyless_nas_mobile, resnet18
from whet.passes import SWITCHES
from whet.scheme import Rule, Scheme

Batch = tuple[Tensor, Tensor]
Place = tuple[Any, ...]

NETS: dict[str, Callable[..., Ready]] = {"images": schemes.images, "signals": schemes.signals}


@functools.cache
def ready(net: str, train: bool = False) -> Ready:
    return NETS[net](train)


def batches(of: Ready, seed: int = 1) -> Iterator[Batch]:
    (example,) = of.source.inputs
    with torch.no_grad():
        classes = copy.deepcopy(of.module).eval()(example).shape[1]
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(example.shape, generator=generator)
        yield x, torch.randint(classes, (len(x),), generator=generator)


# What PyTorch says, without whet -------------------------------------------------------------


def places(module: nn.Module, chosen: dict[str, tuple[int, ...] | None]) -> dict[str, Place]:
    """Where in PyTorch's arrays the chosen input channels lie, from the layers themselves."""
    found: dict[str, Place] = {}
    for name, channels in chosen.items():
        layer: Any = module.get_submodule(name.rpartition(".")[0])
        if channels is None:
            found[name] = ()
        elif isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d)):
            each = layer.in_channels // layer.groups
            found[name] = ([g * each + c for g in range(layer.groups) for c in channels],)
        elif isinstance(layer, nn.Linear) or layer.groups < layer.out_channels:
            found[name] = (slice(None), list(channels))
        else:
            found[name] = (list(channels),)
    return found


class Oracle:
    """PyTorch in double precision with every slice a parameter of its own, and no others."""

    def __init__(self, of: Ready, scheme: Scheme, clip_norm: float | None = None) -> None:
        self.module = copy.deepcopy(of.module).double()
        self.clip_norm = clip_norm
        self.whole = {n: p.detach().clone() for n, p in self.module.named_parameters()}
        self.places = places(self.module, scheme.resolve(of.parameters))
        self.slices = {
            n: self.whole[n][place].clone().requires_grad_() for n, place in self.places.items()
        }

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters, with the slices where they belong."""
        found = dict(self.whole)
        for name, part in self.slices.items():
            mask = torch.zeros(self.whole[name].shape, dtype=torch.bool)
            mask[self.places[name]] = True
            found[name] = self.whole[name].masked_scatter(mask, part)
        return found

    def loss(self, batch: Batch) -> Tensor:
        scores = functional_call(self.module, self.parameters(), (batch[0].double(),))
        return nn.functional.cross_entropy(scores, batch[1])

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        found = torch.autograd.grad(self.loss(batch), list(self.slices.values()))
        return dict(zip(self.slices, found, strict=True))

    def step(self, optimizer: torch.optim.Optimizer, *several: Batch) -> None:
        """One step on the mean loss of the batches."""
        optimizer.zero_grad()
        for batch in several:
            (self.loss(batch) / len(several)).backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.slices.values(), self.clip_norm)
        optimizer.step()


def assert_near(ours: dict[str, Any], theirs: dict[str, Tensor], tolerance: float) -> None:
    """By relative size of the difference; what is almost zero is measured by the whole."""
    assert set(ours) == set(theirs)
    truth = {n: t.detach().numpy() for n, t in theirs.items()}
    largest = max(np.linalg.norm(t) for t in truth.values())
    for name, t in truth.items():
        assert ours[name].shape == t.shape
        size = max(float(np.linalg.norm(t)), 1e-4 * largest)
        assert np.linalg.norm(ours[name] - t) <= tolerance * size, name


def some_quick(seeds: range, count: int) -> list[Any]:
    """As many of them in every run, and all where slow tests run."""
    return [*seeds[:count], *(pytest.param(s, marks=pytest.mark.slow) for s in seeds[count:])]


# Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some_quick(range(10), 5))
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("net", NETS)
def test_gradients_of_slices_are_autograds(net: str, train: bool, seed: int) -> None:
    of = ready(net, train)
    scheme = random_scheme(of.parameters, random.Random(seed))
    program, oracle, batch = of.program(scheme), Oracle(of, scheme), next(batches(of, seed))
    trainer = program.load()
    assert trainer.gradients(*batch) == pytest.approx(oracle.loss(batch).item(), rel=1e-5)
    assert_near(trainer.collected(), oracle.gradients(batch), 1e-4)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("net", NETS)
def test_every_weight_trains_by_single_channels(net: str, train: bool) -> None:
    """All weights at once, each in one channel: the first, the last, then every other one."""
    of = ready(net, train)
    weights = [p for p in of.parameters if p.channels]
    batch = next(batches(of))
    for channel in (lambda n: [0], lambda n: [n - 1], lambda n: range(0, n, 2)):
        scheme = Scheme([Rule(p.name, channel(p.channels)) for p in weights])
        trainer = of.program(scheme).load()
        trainer.gradients(*batch)
        assert_near(trainer.collected(), Oracle(of, scheme).gradients(batch), 1e-4)


@pytest.mark.parametrize("left_out", SWITCHES)
def test_schemes_do_not_depend_on_any_pass(left_out: str) -> None:
    of = ready("images", train=True)
    scheme = random_scheme(of.parameters, random.Random(31))
    of.program(scheme, without=whet.passes.check_switches([left_out])).check(3)


def test_a_layer_that_is_used_twice_trains_by_channels() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(6, 6, 3, padding=1, groups=2)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.conv(torch.tanh(self.conv(x))))
            return self.head(x.mean((2, 3)))

    torch.manual_seed(0)
    of = Ready.of(Twice().eval(), torch.randn(2, 6, 5, 5))
    scheme = Scheme([Rule("conv.weight", [0, 2]), Rule("head.weight", 0.5)])
    trainer, batch = of.program(scheme).load(), next(batches(of))
    trainer.gradients(*batch)
    assert_near(trainer.collected(), Oracle(of, scheme).gradients(batch), 1e-4)


def test_a_weight_with_another_use_trains_whole_or_not_at_all() -> None:
    of = Ready.of(tiny.TwoUses().eval(), torch.randn(2, 6))
    with pytest.raises(SchemeError, match=r"first\.weight cannot train by channels") as error:
        of.program(Scheme([Rule("first.weight", 0.5)]))
    assert "otherwise than one convolution or linear layer" in str(error.value)
    of.program(Scheme([Rule("first.weight")])).check(3)


# Memory and work -----------------------------------------------------------------------------


@pytest.mark.parametrize("net", NETS)
def test_only_the_slices_are_in_ram(net: str) -> None:
    of = ready(net)
    for seed in range(20):
        scheme = random_scheme(of.parameters, random.Random(seed))
        program, oracle = of.program(scheme), Oracle(of, scheme)
        numbers = sum(t.numel() for t in oracle.slices.values())
        assert program.memory["trained"] == 4 * numbers
        taken = {n: place for n, place in oracle.places.items() if place}
        assert set(program.sliced_parameters) == set(taken)
        for name in taken:
            assert name in program.storage.frozen and f"{name}.part" in program.storage.params


def weight_gradient_macs(program: Program) -> int:
    """Multiply-accumulates spent on gradients of weights in one training step."""
    nodes = program.entries["train_step"].nodes
    makers = [n for n in nodes if n.op.name.endswith("_dw") or n.op.name.startswith("dw_")]
    assert makers
    return sum(n.op.macs(n) for n in makers)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("net", NETS)
def test_work_for_a_weight_falls_in_proportion_to_its_channels(net: str, fused: bool) -> None:
    of = ready(net)
    without = () if fused else ("fuse_updates",)
    for p in of.parameters:
        if not p.channels:
            continue
        whole = of.program(Scheme([Rule(p.name)]), False, without)
        full = weight_gradient_macs(whole)
        assert full > 0
        for count in {1, (p.channels + 1) // 2, p.channels}:
            part = of.program(Scheme([Rule(p.name, range(count))]), False, without)
            assert weight_gradient_macs(part) * p.channels == full * count, (p.name, count)


# Ten steps -----------------------------------------------------------------------------------

OPTIMIZERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], float | None]] = {
    "momentum and decay": (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1), None,
    ),
    "nesterov, clipped": (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True), 0.5,
    ),
    "adam and decay": (lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), None),
    "adamw, clipped": (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), 0.5),
}  # fmt: skip


@functools.cache
def with_optimizer(net: str, name: str) -> Ready:
    make, clip_norm = OPTIMIZERS[name]
    return NETS[net](optimizer=lambda m: make(m.parameters()), clip_norm=clip_norm)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_ten_steps_move_the_slices_and_not_a_bit_of_anything_else(
    net: str, name: str, seed: int
) -> None:
    of = with_optimizer(net, name)
    make, clip_norm = OPTIMIZERS[name]
    scheme = random_scheme(of.parameters, random.Random(seed))
    oracle = Oracle(of, scheme, clip_norm)
    optimizer = make(list(oracle.slices.values()))
    trainer = of.program(scheme, accumulate=False).load()
    fresh = trainer.save()
    source = batches(of, seed)
    x, _ = next(source)
    untrained = trainer.predict(x)
    for batch in itertools.islice(source, 10):
        trainer.step(*batch)
        oracle.step(optimizer, batch)

    before = of.module.state_dict()
    after = trainer.state_dict()
    assert set(after) == set(oracle.places), "nothing but what trains, and no running statistics"
    for part, place in oracle.places.items():
        frozen = torch.ones(before[part].shape, dtype=torch.bool)
        frozen[place] = False
        assert torch.equal(after[part][frozen], before[part][frozen]), "frozen channels moved"
    moved = {n: after[n][place].numpy() for n, place in oracle.places.items()}
    assert_near(moved, oracle.slices, 1e-3)

    trained = copy.deepcopy(of.module)
    assert not trained.load_state_dict(after, strict=False).unexpected_keys
    with torch.no_grad():
        torch.testing.assert_close(
            torch.from_numpy(trainer.predict(x)), trained(x), rtol=1e-3, atol=1e-5
        )
    assert not np.array_equal(trainer.predict(x), untrained)
    trainer.load(fresh)
    assert np.array_equal(trainer.predict(x), untrained), "the program itself has changed"


def test_optimizer_state_of_a_slice_is_the_slice_of_the_state() -> None:
    """Training goes on in part where it stood in whole."""
    torch.manual_seed(0)
    module = schemes.settle(schemes.Images(), torch.randn(4, 3, 8, 6)).eval()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    source = batches(ready("images"))
    for x, y in itertools.islice(source, 3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    of = Ready.of(module, next(source)[0], optimizer=lambda _: optimizer)
    scheme = Scheme([Rule(p.name, 0.4) for p in of.parameters if p.channels])
    oracle = Oracle(of, scheme)
    slices = torch.optim.SGD(oracle.slices.values(), lr=0.02, momentum=0.9)
    for name, part in oracle.slices.items():
        whole = optimizer.state[module.get_parameter(name)]["momentum_buffer"]
        slices.state[part]["momentum_buffer"] = whole[oracle.places[name]].double()
    trainer = of.program(scheme, accumulate=False).load()
    for batch in itertools.islice(source, 3):
        trainer.step(*batch)
        oracle.step(slices, batch)
    after = trainer.state_dict()
    assert_near({n: after[n][p].numpy() for n, p in oracle.places.items()}, oracle.slices, 1e-4)


@pytest.mark.parametrize("net", NETS)
def test_collected_gradients_of_slices_are_applied(net: str) -> None:
    of = with_optimizer(net, "nesterov, clipped")
    make, clip_norm = OPTIMIZERS["nesterov, clipped"]
    scheme = random_scheme(of.parameters, random.Random(7))
    oracle = Oracle(of, scheme, clip_norm)
    optimizer = make(list(oracle.slices.values()))
    trainer = of.program(scheme).load()
    source = batches(of)
    for _ in range(3):
        first, second = next(source), next(source)
        trainer.gradients(*first)
        trainer.gradients(*second)
        trainer.apply(scale=0.5)
        oracle.step(optimizer, first, second)
        assert not any(g.any() for g in trainer.collected().values()), "not cleared"
    after = trainer.state_dict()
    assert_near({n: after[n][p].numpy() for n, p in oracle.places.items()}, oracle.slices, 1e-4)


# State in and out ----------------------------------------------------------------------------


def partial_scheme(of: Ready) -> Scheme:
    parts = [Rule(p.name, 0.5) for p in of.parameters if p.channels]
    return Scheme([*parts, Rule("head.*"), Rule("norm.*")])


def test_a_checkpoint_of_slices_continues_exactly(tmp_path: Path) -> None:
    of = with_optimizer("images", "adam and decay")
    program = of.program(partial_scheme(of), accumulate=False)
    trainer, source = program.load(), batches(of)
    for batch in itertools.islice(source, 3):
        trainer.step(*batch)
    blob = trainer.save(tmp_path / "three.bin")
    rest = list(itertools.islice(source, 3))
    for batch in rest:
        trainer.step(*batch)
    again = program.load()
    again.load(tmp_path / "three.bin")
    for batch in rest:
        again.step(*batch)
    assert again.save() == trainer.save() != blob
    other = of.program("last", accumulate=False).load()
    with pytest.raises(CheckpointError):
        other.load(blob)


def test_a_state_dict_sets_slices_and_leaves_frozen_channels() -> None:
    of = ready("images", train=True)
    scheme = partial_scheme(of)
    program = of.program(scheme, accumulate=False)
    trainer, source = program.load(), batches(of)
    for batch in itertools.islice(source, 3):
        trainer.step(*batch)
    state = trainer.state_dict()
    assert {"norm.running_mean", "norm.running_var"} < set(state)
    again = program.load()
    again.load_state_dict(state)
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    x, _ = next(source)
    assert np.array_equal(again.predict(x), trainer.predict(x))

    spots = places(of.module, scheme.resolve(of.parameters))
    noise = {
        n: torch.randn(t.shape) for n, t in of.module.state_dict().items() if t.is_floating_point()
    }
    again.load_state_dict(noise)
    loaded, start = again.state_dict(), of.module.state_dict()
    for name, place in spots.items():
        expected = start[name].clone()
        expected[place] = noise[name][place]
        assert torch.equal(loaded[name], expected), name
    with pytest.raises(DataError, match=r"stem\.weight has shape \(6, 1, 3, 3\)"):
        again.load_state_dict({"stem.weight": torch.zeros(6, 1, 3, 3)})


# Real models ---------------------------------------------------------------------------------

MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mobilenet_v2-0.35": (lambda: mobilenet_v2(10, 0.35, dropout=0), 64),
    "proxyless-0.3": (lambda: proxyless_nas_mobile(10, 0.3), 64),
    "mcunet-5fps": (lambda: mcunet_5fps(10), 64),
    "resnet18": (lambda: resnet18(10), 32),
}
LIKE_OTHERS = {"proxyless-0.3", "mobilenet_v2-0.35"}  # inverted residuals, as in MCUNet
FEW, MANY = 2, 50


@functools.cache
def real(name: str, train: bool = False) -> Ready:
    make, size = MODELS[name]
    torch.manual_seed(0)
    module = schemes.settle(make(), torch.randn(4, 3, size, size)).train(train)
    return Ready.of(module, torch.randn(2 if train else 1, 3, size, size))


@pytest.mark.parametrize(
    "scheme",
    # test_zoo.py trains everything, and often
    [pytest.param("full", marks=pytest.mark.slow), "last", "bias+last", "norm+last", "last-2"],
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LIKE_OTHERS else n for n in MODELS],
)
def test_presets_on_real_models(name: str, scheme: str) -> None:
    real(name).program(scheme).check(1)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[pytest.mark.slow] if name in LIKE_OTHERS and seed else [])
        for name in MODELS
        for seed in range(FEW)
    ],
)
def test_random_schemes_on_real_models(name: str, seed: int) -> None:
    of = real(name)
    of.program(random_scheme(of.parameters, random.Random(seed))).check(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW, FEW + MANY))
@pytest.mark.parametrize("name", MODELS)
def test_many_random_schemes_on_real_models(name: str, seed: int) -> None:
    """Every other one in training mode, where batch norm takes its statistics from the batch."""
    of = real(name, train=seed % 2 == 1)
    of.program(random_scheme(of.parameters, random.Random(seed))).check(3)


def test_a_weight_with_two_kinds_of_use_trains_whole_or_not_at_all() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4, 3, 3) / 6)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(nn.functional.conv2d(x, self.w))
            return nn.functional.conv_transpose2d(y, self.w).mean((2, 3))

    model, x = Both().eval(), torch.randn(2, 4, 8, 8)
    with pytest.raises(SchemeError, match="w cannot train by channels"):
        whet.compile(model, (x,), update=Scheme([Rule("w", [1, 3])]))
    whet.compile(model, (x,), update="full").check(3)


def test_a_weight_that_is_reshaped_across_its_channels_trains_whole_or_not_at_all() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.w.flatten(1))

    model, x = Flat().eval(), torch.randn(2, 16)
    with pytest.raises(SchemeError, match="w cannot train by channels"):
        whet.compile(model, (x,), update=Scheme([Rule("w", [1, 13])]))
    whet.compile(model, (x,), update="full").check(3)


def test_check_notices_a_parameter_that_is_left_out() -> None:
    model = tiny.mlp()
    program = whet.compile(model, (torch.randn(4, 5),), update="full", accumulate=True)
    partly = whet.compile(model, (torch.randn(4, 5),), update="last", accumulate=True)
    wrong = dataclasses.replace(partly, chosen=program.chosen)
    with pytest.raises(CheckError):
        wrong.check(2)


def test_a_checkpoint_outlives_another_budget() -> None:
    model = tiny.convnet().train()
    x, y = next(tiny.images())
    first = whet.compile(model, (x,))
    second = whet.compile(model, (x,), rematerialize=True, without=["keep_bits", "renew_norms"])
    assert str(first.entries["train_step"]) != str(second.entries["train_step"])
    trainer = first.load()
    trainer.step(x, y)
    other = second.load()
    other.load(trainer.save())
    np.testing.assert_array_equal(other.predict(x), trainer.predict(x))
