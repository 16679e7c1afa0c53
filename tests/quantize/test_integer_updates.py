"""How integer parameters move: optimizers, rounding, scaling, limits, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from integer_models import Residual, compiled, norms, trained
from whet.errors import FrontendError
from whet.ir import DType

OPTIMIZERS: dict[str, Any] = {
    "decay": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
}


@pytest.mark.parametrize(
    ("qas", "optimizer"),
    [
        *((True, name) for name in OPTIMIZERS),
        (False, "adam"),
        *(
            pytest.param(False, name, marks=pytest.mark.slow)
            for name in OPTIMIZERS
            if name != "adam"
        ),
    ],
)
def test_every_optimizer(optimizer: str, qas: bool) -> None:
    shape = (2, 3, 16, 16)
    model = trained(Residual(), shape)
    opt = OPTIMIZERS[optimizer](model.parameters())
    compiled(model, shape, whet.Int8(qas=qas), optimizer=opt, clip_norm=10.0).check(10)


@pytest.mark.parametrize("rounding", ["stochastic", "truncate", "carry8", "carry16", "master"])
def test_every_way_to_round(rounding: str) -> None:
    shape = (2, 3, 16, 16)
    program = compiled(trained(Residual(), shape), shape, whet.Int8(rounding=rounding, seed=7))
    program.check(10)
    extra = {"carry8": 1, "carry16": 2, "master": 4}.get(rounding, 0)
    trained_integers = sum(
        t.elements for t in program.storage.params.values() if t.dtype is not DType.F32
    )
    seeds = 8 if rounding == "stochastic" else 0
    assert program.memory["state"] == extra * trained_integers + seeds


def test_qas_moves_integers_as_the_floats_they_stand_for() -> None:
    """One step of SGD: the real weights move by lr times the real gradient, up to rounding."""
    shape, rate = (4, 3, 16, 16), 0.05
    model = trained(Residual(), shape)
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        opt = optimizer(model.parameters(), lr=rate)
        program = compiled(model, shape, whet.Int8(rounding="master"), optimizer=opt,
                           accumulate=True)  # fmt: skip
        trainer = program.load()
        x, y = torch.randn(shape), torch.tensor([0, 1, 2, 3])
        trainer.gradients(x, y)
        gradient = trainer.collected()
        before = {n: trainer.stored(f"{n}.master") for n in program.integer_rules.units}
        trainer.step(x, y)
        for name in program.integer_rules.units:
            info, size = program.tensors[name], sizes_of(program, name)
            order = info.order
            raw = np.transpose(gradient[name], order).ravel() if order else gradient[name].ravel()
            real = raw / size
            wanted = rate * (real if optimizer is torch.optim.SGD else np.sign(real))
            moved = (before[name] - trainer.stored(f"{name}.master")) * size
            free = np.abs(trainer.stored(f"{name}.master")) < 126  # not held by the range
            large = free & (np.abs(real) > 1e-5)
            np.testing.assert_allclose(moved[large], wanted[large], rtol=2e-2, atol=1e-6 * rate)


def test_an_int8_head_learns_beyond_its_first_logits() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    x, y = torch.randn(8, 6), torch.arange(8) % 3
    program = whet.compile(model, (x,), dtype=whet.Int8(head="int8", rounding="carry8"),
                           calibrate=[x], update="full")  # fmt: skip
    trainer = program.load()
    losses = [trainer.step(x, y, lr=0.2) for _ in range(400)]
    assert losses[-1] < 0.1 * losses[0]


def test_a_limit_of_the_norm_is_that_of_the_real_gradients() -> None:
    """Clipped, everything moves as in fp32: what the head does depends on the norm of all."""
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    nn.init.normal_(model[6].weight, 0, 10)  # so that the norm is mostly the body's
    x, y = torch.randn(4, 3, 8, 8), torch.arange(4)
    moves: list[dict[str, float]] = []
    for kind in ({}, {"dtype": whet.Int8(rounding="master"), "calibrate": [x]}):
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        program = whet.compile(model, (x,), optimizer=opt, clip_norm=0.5, **kind)
        trainer = program.load()
        before = masters(trainer)
        trainer.step(x, y)
        after = masters(trainer)
        moves.append({n: float(np.linalg.norm(after[n] - before[n])) for n in before})
    for name, move in moves[0].items():
        assert moves[1][name] == pytest.approx(move, rel=0.1), name
    assert sum(m * m for m in moves[1].values()) ** 0.5 == pytest.approx(0.01 * 0.5, rel=0.01)


def masters(trainer: whet.Trainer) -> dict[str, Any]:
    """All parameters as real numbers, as the optimizer has them."""
    program = trainer.program
    found = dict(trainer.arrays())
    for name in program.integer_rules.units:
        found[name] = trainer.stored(f"{name}.master").ravel() * sizes_of(program, name)
    return {name: found[name] for name in program.chosen}


def sizes_of(program: whet.Program, name: str) -> Any:
    """What 1 stands for in each number of an integer parameter, as it is stored."""
    unit, info = program.integer_rules.units[name], program.tensors[name]
    along = [1] * info.type.rank
    along[unit.axis] = -1
    size = program.entries["train_step"].data[unit.scale] * unit.unit
    return np.broadcast_to(size.reshape(along), info.type.shape).ravel()


@pytest.mark.parametrize("norm", [True, False])
def test_moments_of_other_numbers_are_refused(norm: bool) -> None:
    layers = [nn.Conv2d(3, 4, 3), *([nn.BatchNorm2d(4)] if norm else []), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(4 * 36, 3))
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([0, 1])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
    words = {"optimizer": opt, "calibrate": [x]}
    if not norm:
        whet.compile(model.eval(), (x,), dtype="int8", **words)  # real numbers with moments of them
    with pytest.raises(FrontendError, match=r"has moments of 0\.weight as it was before"):
        whet.compile(model.eval(), (x,), dtype=whet.Int8(qas=norm), **words)


@pytest.mark.parametrize(
    "words", [{"qas": "no"}, {"qas": 1}, {"seed": 1.5}, {"seed": 2**40}, {"seed": -1}]
)
def test_choices_of_another_kind_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(FrontendError, match=f"Int8: {next(iter(words))}="):
        whet.Int8(**words)


def test_gradients_and_apply_are_a_step() -> None:
    """Also where chance decides: it is a parameter's own."""
    shape = (2, 3, 8, 8)
    program = compiled(norms(shape), shape, whet.Int8(rounding="stochastic"), accumulate=True)
    one, other = program.load(), program.load()
    x, y = torch.randn(shape), torch.tensor([0, 2])
    one.step(x, y, lr=0.1)
    other.gradients(x, y)
    other.apply(lr=0.1)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(other.arrays()[name], array, name)
