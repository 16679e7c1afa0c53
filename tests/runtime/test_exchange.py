"""What travels between devices: trained numbers by name, there and back."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

import whet
from integer_models import Residual
from integer_models import trained as with_statistics
from tiny import convnet, images
from whet.errors import DataError
from whet.runtime import Trainer, set_statistics, set_trained, statistics, trained
from whet.runtime.exchange import with_carry

SLICED = whet.Scheme(
    [
        whet.Rule("head.*"),
        whet.Rule("*.bias"),
        whet.Rule("grouped.weight", channels=0.5),
        whet.Rule("stem.weight", channels=0.5),
    ]
)


X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def floats(**options: Any) -> Trainer:
    batch = next(images())[0]
    return whet.compile(convnet().eval(), (batch,), **options).load()


@functools.cache
def program(rounding: str, update: Any = "full") -> whet.Program:
    model = with_statistics(Residual(), (1, 3, 8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    numbers = whet.Int8(rounding=rounding)
    return whet.compile(
        model, (X,), optimizer=optimizer, dtype=numbers, calibrate=[X], update=update
    )


def integers(rounding: str, update: Any = "full") -> Trainer:
    trainer = program(rounding, update).load()
    for step in range(8):
        trainer.step(X, torch.tensor([0, 1, 2, 3 - step % 2]))
    return trainer


def test_floats_travel_as_they_are_and_back_to_the_bit() -> None:
    trainer = floats(portable=True)
    for x, y in (pair for pair, _ in zip(images(), range(3), strict=False)):
        trainer.step(x, y, lr=0.1)
    found = trained(trainer)
    expected = {
        n: a.numpy() for n, a in trainer.state_dict().items() if n in trainer.program.chosen
    }
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[n], expected[n]) for n in found)
    assert {a.dtype for a in found.values()} == {np.dtype(np.float32)}
    other = floats()
    set_trained(other, found)
    assert all(np.array_equal(a, found[n]) for n, a in trained(other).items())


def test_of_a_parameter_that_trains_in_part_only_that_part_travels() -> None:
    trainer = floats(update=SLICED)
    whole = {n: a.numpy() for n, a in trainer.state_dict().items()}
    found = trained(trainer)
    parts = {n: cut for n, cut in trainer.program.trained.items() if cut is not None}
    assert parts.keys() == {"grouped.weight", "stem.weight"}
    for name, (axis, indices) in parts.items():
        assert np.array_equal(found[name], whole[name].take(indices, axis))
        assert found[name].size < whole[name].size
    changed = {n: a + np.float32(0.25) for n, a in found.items()}
    set_trained(trainer, changed)
    assert all(np.array_equal(a, changed[n]) for n, a in trained(trainer).items())
    after = trainer.state_dict()["stem.weight"].numpy()
    axis, indices = parts["stem.weight"]
    kept = [i for i in range(after.shape[axis]) if i not in indices]
    assert np.array_equal(after.take(kept, axis), whole["stem.weight"].take(kept, axis))


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "truncate"])
def test_integers_travel_as_the_reals_they_stand_for(rounding: str) -> None:
    trainer = integers(rounding)
    found, whole = trained(trainer), trainer.state_dict()
    assert found.keys() <= whole.keys() and len(found) > 8
    for name, array in found.items():
        assert np.array_equal(array, whole[name].numpy()), name
    saved = trainer.save()
    set_trained(trainer, found)
    assert trainer.save() == saved


@pytest.mark.parametrize("rounding", ["carry8", "carry16", "master"])
def test_a_fraction_of_a_step_travels_too(rounding: str) -> None:
    """The state_dict has the integers alone: what travels differs from it by up to half a step."""
    trainer = integers(rounding)
    found, whole = trained(trainer), trainer.state_dict()
    name = "block.0.0.weight"
    fold = trainer.program.folds[name]
    size = trainer._step_sizes(name) / np.abs(trainer._along(name, fold.scale))
    apart = (found[name] - whole[name].numpy()) / size
    assert 0.05 < np.abs(apart).max() <= 0.5 + 1e-4
    other = integers(rounding)
    set_trained(other, {n: np.zeros_like(a) for n, a in found.items()})
    set_trained(other, found)
    again = trained(other)
    unit = {"carry8": 2**-9, "carry16": 2**-17, "master": 0.0}[rounding]
    for n, array in found.items():
        steps = trainer.program.integer_rules.units
        half = unit * trainer._step_sizes(n) if n in steps else 0.0
        if n in trainer.program.folds:
            half = half / np.abs(trainer._along(n, trainer.program.folds[n].scale))
        assert (np.abs(again[n] - array) <= half + 1e-6 * np.abs(array).max()).all(), n
    if rounding != "carry16":  # float32 itself does not hold a bias to 1/65536 of a step
        for n in ("block.0.0.weight", "stem.0.weight", "head.weight"):
            assert np.array_equal(again[n], found[n]), n


@pytest.mark.parametrize("rounding", ["carry8", "carry16"])
def test_the_sign_of_the_carry_is_that_of_the_kernel(rounding: str) -> None:
    """Training with a carry follows training with a float master to about a unit of the carry.

    Read with the wrong sign, the two would differ by up to a whole step.
    """
    found, master = trained(integers(rounding)), trained(integers("master"))
    trainer, start = integers(rounding), trained(program("master").load())
    for name in ("block.0.0.weight", "block.1.0.weight"):
        fold = trainer.program.folds[name]
        size = trainer._step_sizes(name) / np.abs(trainer._along(name, fold.scale))
        inside = np.abs(trainer.arrays()[name].astype(int)) < 127  # at an end, a master stays there
        moved, apart = (np.abs(a[name] - master[name]) / size for a in (start, found))
        moved, apart = moved[inside], apart[inside]
        assert moved.max() > 0.5 and apart.max() < 0.2, (name, moved.max(), apart.max())


def test_slices_of_integers_travel() -> None:
    scheme = whet.Scheme(
        [
            whet.Rule("head.*"),
            whet.Rule("block.0.0.weight", channels=0.5),
            whet.Rule("block.1.0.weight", channels=0.25),  # depthwise: one scale for each channel
            whet.Rule("block.*.bias"),
        ]
    )
    trainer = integers("nearest", scheme)
    found, whole = trained(trainer), trainer.state_dict()
    cuts = [(n, *cut) for n, cut in trainer.program.trained.items() if cut is not None]
    assert len(cuts) == 2
    for name, axis, indices in cuts:
        assert np.allclose(found[name], whole[name].numpy().take(indices, axis), rtol=1e-6), name
    saved = trainer.save()
    set_trained(trainer, found)
    assert trainer.save() == saved


def test_every_fraction_fits_into_a_carry() -> None:
    for unit in (256, 65536):
        steps = np.linspace(-128.7, 127.7, 200_001)
        q, c = with_carry(steps, unit, -128, 127)
        assert -128 <= q.min() and q.max() <= 127
        assert -unit // 2 <= c.min() and c.max() <= unit // 2 - 1
        inside = (steps > -128.49) & (steps < 127.5)
        assert np.abs(q - c / unit - steps)[inside].max() <= 0.5 / unit + 1e-12
        assert (np.abs(q - np.clip(steps, -128, 127)) <= 0.5 + 1 / unit).all()


def refusals(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    name = "head.bias"
    return {
        "there is no array for head.bias": {n: a for n, a in found.items() if n != name},
        "nothing of the program is called head.bia": found | {"head.bia": found[name]},
        "head.bias has shape (1, 3), the program has (3,)": found | {name: found[name][None]},
        "head.bias holds numbers that are not finite": found | {name: found[name] * np.nan},
        "head.bias holds numbers that are not finite in": found | {name: found[name] + 1e300},
        "head.bias has dtype int8": found | {name: np.zeros(3, np.int8)},
    }


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    trainer = floats()
    found = {n: a.astype(np.float64) for n, a in trained(trainer).items()}
    saved = trainer.save()
    for message, arrays in refusals({n: a + 1 for n, a in found.items()}).items():
        with pytest.raises(DataError) as error:
            set_trained(trainer, arrays)
        assert message in str(error.value)
        assert trainer.save() == saved
    set_trained(trainer, found)


def test_running_statistics_travel_if_asked_for() -> None:
    batch = next(images())[0]
    model = convnet().train()
    trainer = whet.compile(model, (batch,)).load()
    x, y = next(images())
    trainer.step(x, y)
    found = statistics(trainer)
    assert {"bn.running_mean", "bn.running_var"} == found.keys()
    assert not found.keys() & trained(trainer).keys()
    other = whet.compile(convnet().train(), (batch,)).load()
    set_statistics(other, found)
    assert all(np.array_equal(a, found[n]) for n, a in statistics(other).items())
    with pytest.raises(DataError, match=r"there is no array for bn\.running_mean"):
        set_statistics(other, {"bn.running_var": found["bn.running_var"]})
    assert statistics(floats()) == {}
