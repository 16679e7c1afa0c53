"""Weights of few values train those values, as PyTorch does it for codebook[index]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import prune

import whet
from every_layer import EveryLayer
from whet.errors import DataError, FrontendError, SchemeError
from whet.ir import Codebook
from whet.runtime import exchange
from whet.targets.cortex_m import Board

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}
VALUES = {"stem": 4, "depthwise": 3, "grouped": 8, "up": 2, "twice": 5, "head": 16}
SHARED = whet.Scheme([whet.Rule("*.weight", shared=True)])


def shared(zeros: float = 0.0) -> nn.Module:
    """So many different values in each weight, and `zeros` among them."""
    torch.manual_seed(0)
    net = EveryLayer().eval()
    for name, count in VALUES.items():
        weight = net.get_parameter(f"{name}.weight")
        values = torch.linspace(-0.6, 0.7, count)
        places = torch.randint(count, weight.shape)
        places.view(-1)[:count] = torch.arange(count)
        kept = torch.rand(weight.shape) >= zeros
        weight.data = torch.where(kept, values[places], 0.0)
    return net


def batch(seed: int = 1, size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 2, 4, 4, generator=generator)
    return x, torch.randint(3, (size,), generator=generator)


class Reference:
    """PyTorch with codebook[index] in place of each weight; autograd sums over the index."""

    def __init__(self, net: nn.Module, optimizer: str, clip: float | None) -> None:
        self.net, self.clip = net, clip
        weights = {f"{name}.weight": net.get_parameter(f"{name}.weight") for name in VALUES}
        found = {n: torch.unique(w.detach(), return_inverse=True) for n, w in weights.items()}
        self.index = {n: index for n, (_, index) in found.items()}
        self.books = {n: nn.Parameter(book.clone()) for n, (book, _) in found.items()}
        self.optimizer = OPTIMIZERS[optimizer](self.books.values())

    def weights(self) -> dict[str, Tensor]:
        return {n: book[self.index[n]] for n, book in self.books.items()}

    def backward(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(functional_call(self.net, self.weights(), x), y).backward()

    def step(self, x: Tensor, y: Tensor) -> None:
        self.backward(x, y)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.books.values(), self.clip)
        self.optimizer.step()


def compiled(net: nn.Module, optimizer: str = "sgd", **options: Any) -> whet.Program:
    given = {"update": SHARED, "optimizer": OPTIMIZERS[optimizer](net.parameters()), **options}
    return whet.compile(net, batch()[:1], **given)


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_of_values_are_those_of_autograd_and_sums_of_the_dense_ones(size: int) -> None:
    net, (x, y) = shared(), batch(size=size)
    trainer = whet.compile(net, (x,), update=SHARED, accumulate=True).load()
    trainer.gradients(x, y)
    found = trainer.collected()
    reference = Reference(net, "sgd", None)
    reference.backward(x, y)
    nn.functional.cross_entropy(net(x), y).backward()
    assert found.keys() == reference.books.keys()
    for name, ours in found.items():
        book, index = reference.books[name], reference.index[name]
        dense = net.get_parameter(name).grad
        assert book.grad is not None and dense is not None
        sums = torch.zeros(len(book)).index_add(0, index.flatten(), dense.flatten())
        np.testing.assert_allclose(ours, book.grad, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours, sums, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch(name: str, clip: float | None) -> None:
    net = shared()
    trainer = compiled(net, name, clip_norm=clip).load()
    reference = Reference(net, name, clip)
    for seed in range(5):
        trainer.step(*batch(seed))
        reference.step(*batch(seed))
    state, weights = trainer.state_dict(), reference.weights()
    assert state.keys() == weights.keys()
    for weight, right in weights.items():
        torch.testing.assert_close(state[weight], right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"portable": True}, {"accumulate": True}])
def test_check_passes(options: dict[str, Any]) -> None:
    report = compiled(shared(), "nesterov", clip_norm=1.0, **options).check(steps=3)
    assert {n.partition(".")[0] for n in report.gradients} == set(VALUES)


def test_what_trains_and_its_state_are_the_values_alone() -> None:
    net = shared()
    program = compiled(net, "adamw")
    values = 4 * sum(VALUES.values())
    assert program.memory["trained"] == values
    assert program.memory["state"] == 2 * values + 4
    bits = {"stem": 2, "depthwise": 2, "grouped": 3, "up": 1, "twice": 3, "head": 4}
    stored = program.storage.stored
    for name, count in bits.items():
        elements = net.get_parameter(f"{name}.weight").numel()
        assert stored[f"{name}.weight.index"].bytes == -(-elements * count // 8)
    assert "trains 16 values of 300 elements" in program.report()


def test_zeros_of_a_pruned_weight_stay_zero() -> None:
    net = shared(zeros=0.5)
    scheme = whet.Scheme([whet.Rule("*.weight", shared=True, sparse=True)])
    for name in OPTIMIZERS:
        trainer = compiled(net, name, update=scheme).load()
        for seed in range(4):
            trainer.step(*batch(seed))
        for weight, now in trainer.state_dict().items():
            before = net.get_parameter(weight).detach()
            assert torch.equal(now == 0, before == 0) and not torch.equal(now, before)
    assert compiled(net, update=scheme).check(steps=3)
    masked = shared(zeros=0.5)
    for module in masked.children():
        prune.custom_from_mask(module, "weight", module.weight != 0)
    assert not any(w.all() for w in trainer.state_dict().values())
    masked_scheme = whet.Scheme([whet.Rule("*.weight*", shared=True)])
    assert compiled(masked, update=masked_scheme).check(steps=3)


def test_a_checkpoint_and_numbers_of_another_device_hold_the_values(tmp_path: Path) -> None:
    net = shared()
    program = compiled(net, "adamw")
    trainer, other = program.load(), whet.load(program.save(tmp_path / "a.whet")).load()
    trainer.step(*batch(1))
    saved = trainer.save()
    expected = [trainer.step(*batch(2)), trainer.step(*batch(3))]
    other.load(saved)
    assert [other.step(*batch(2)), other.step(*batch(3))] == expected
    found = exchange.trained(trainer)
    assert {n: len(a) for n, a in found.items()} == {f"{n}.weight": k for n, k in VALUES.items()}
    exchange.set_trained(other, {n: a + 1 for n, a in found.items()})
    here, there = trainer.state_dict(), other.state_dict()
    assert all(torch.allclose(there[n], here[n] + 1) for n in here)
    other.load_state_dict(here)
    assert all(torch.equal(other.state_dict()[n], here[n]) for n in here)
    wrong = {n: w.clone() for n, w in here.items()}
    wrong["head.weight"][0, :3] += torch.tensor([0.1, 0.2, 0.3])
    with pytest.raises(DataError, match=r"head\.weight does not fit"):
        other.load_state_dict(wrong)
    assert all(torch.equal(other.state_dict()[n], here[n]) for n in here)


def test_the_board_trains_values_as_the_host_does() -> None:
    x, y = (part[:1] for part in batch())
    net = shared()
    given: dict[str, Any] = {"update": SHARED, "optimizer": OPTIMIZERS["sgd"](net.parameters())}
    here, there = (whet.compile(net, (x,), target=t, **given) for t in ("portable", "cortex-m7"))
    trainer = here.load()
    board = Board(there)
    losses, state = [board.step(x, y) for _ in range(3)], board.arrays()
    seen = board.close()
    assert seen is not None and seen.outside == 0
    assert losses == pytest.approx([trainer.step(x, y) for _ in range(3)], rel=1e-5)
    for name, array in trainer.arrays().items():
        np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-6)


def test_schemes_in_toml_say_shared() -> None:
    scheme = whet.Scheme([whet.Rule("a", shared=True), whet.Rule("b", sparse=True, shared=True)])
    assert whet.Scheme.from_toml(scheme.to_toml() + "\n") == scheme
    text = '[[train]]\nparams = "head.weight"\nshared = true\n'
    assert whet.Scheme.from_toml(text).rules == (whet.Rule("head.weight", shared=True),)


def test_what_cannot_train_by_a_codebook_is_refused() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(32, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
    scheme = whet.Scheme([whet.Rule("1.weight", shared=True)])
    with pytest.raises(SchemeError, match="it has 640 values, a codebook has 256 at most") as error:
        compiled(plain, update=scheme)
    assert "whet.compress" in str(error.value)
    small = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)).eval()
    whole = whet.Scheme([whet.Rule("0.weight", shared=True)])
    with pytest.raises(SchemeError, match="made of integers"):
        compiled(small, update=whole, dtype="int8", calibrate=[batch()[0]])
    with pytest.raises(SchemeError, match="none of its elements is zero"):
        compiled(shared(), update=whet.Scheme([whet.Rule("head.*t", shared=True, sparse=True)]))
    with pytest.raises(SchemeError, match="both shared and channels"):
        whet.Rule("head.weight", channels=0.5, shared=True)
    with pytest.raises(SchemeError, match="shared = 1"):
        whet.Rule("head.weight", shared=1)  # type: ignore[arg-type]
    net = shared()
    adam = torch.optim.Adam(net.parameters())
    nn.functional.cross_entropy(net(batch()[0]), batch()[1]).backward()
    adam.step()
    net.load_state_dict(shared().state_dict())  # shared again; the optimizer knows the old ones
    with pytest.raises(FrontendError, match="moments of"):
        whet.compile(net, batch()[:1], update=SHARED, optimizer=adam)


def test_a_part_knows_what_it_cannot_hold() -> None:
    whole = np.array([[0.0, 1.5, 1.5], [-2.0, 0.0, 1.5]], np.float32)
    part = Codebook.of("w", whole, fixed=True)
    assert (part.entries, part.bits, part.zero) == (3, 2, 1)
    assert part.take(whole).tolist() == [-2.0, 0.0, 1.5]
    assert np.array_equal(part.put(part.take(whole), np.empty_like(whole)), whole)
    gradient = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert part.reduce(gradient).tolist() == [3.0, 0.0, 8.0]
    assert part.lost(whole) == "" and part.lost(gradient).startswith("4 of 6 elements")
