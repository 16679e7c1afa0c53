"""From coordinates to parameters by name and back: layouts, slices and integers."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import whet
from tiny import convnet, images, mlp
from whet.errors import UpdateError
from whet.ir import Array
from whet.runtime import trained
from whet.runtime.steps import step_sizes
from whet.runtime.update import Update, by_name, coordinates, decode, encode, flatten

X = torch.linspace(-1, 1, 144).reshape(2, 3, 6, 4)
SOME = whet.Scheme([whet.Rule("stem.weight", (0, 2)), whet.Rule("*.bias")])
PROGRAMS = {
    "float": {"accumulate": True},
    "sliced": {"accumulate": True, "update": SOME},
    "int8": {"dtype": "int8", "calibrate": [X]},
    "int8, sliced": {"dtype": "int8", "calibrate": [X], "update": SOME},
}


@functools.cache
def program(name: str) -> whet.Program:
    return whet.compile(convnet().eval(), (X,), **PROGRAMS[name])


def sent(made: whet.Program, values: np.ndarray) -> Update:
    return Update(made.fingerprint, 1, coordinates(made), None, values)


@pytest.mark.parametrize("name", PROGRAMS)
def test_coordinates_and_names_are_each_other_s_inverse(name: str) -> None:
    made = program(name)
    values = np.random.default_rng(0).standard_normal(coordinates(made)).astype(np.float32)
    arrays = by_name(made, decode(encode(sent(made, values))))
    assert np.array_equal(flatten(made, arrays), values)
    real = by_name(made, sent(made, values), real=True)
    np.testing.assert_allclose(flatten(made, real, real=True), values, rtol=1e-6)
    assert list(arrays) == list(real)


def test_coordinates_are_the_stored_ones() -> None:
    """What lies in memory, one parameter behind the other; with PyTorch's axes it is the model."""
    made, model = program("float"), convnet().eval()
    trainer = made.load()
    flat = np.concatenate([trainer.stored(name) for name in made.storage.params])
    arrays = by_name(made, sent(made, flat))
    assert arrays.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert np.array_equal(arrays[name], parameter.detach().numpy()), name


def test_of_a_slice_only_that_is_sent() -> None:
    made = program("sliced")
    trainer, (x, y) = made.load(), next(images())
    trainer.gradients(x.numpy(), y.numpy())
    collected = trainer.collected()
    assert collected["stem.weight"].shape == (4, 2, 3, 3), "two of three input channels"
    arrays = by_name(made, sent(made, flatten(made, collected)))
    for name, gradient in collected.items():
        assert np.array_equal(arrays[name], gradient), name


def meaning(trainer: whet.Trainer, name: str) -> Array:
    """What the integers of a parameter stand for, as stored."""
    program, stored = trainer.program, trainer.stored(name).astype(np.float64)
    info = program.tensors[name]
    if name not in program.integer_rules.units:
        return stored
    sizes = step_sizes(program, name).transpose(info.order)
    return (stored.reshape(info.type.shape) * sizes).ravel()


@pytest.mark.parametrize("name", ["int8", "int8, sliced"])
def test_changes_of_integers_become_those_of_the_model(name: str) -> None:
    made = program(name)
    trainer = made.load()
    before = {n: a.numpy() for n, a in trainer.state_dict().items()}
    start = {n: meaning(trainer, n) for n in made.storage.params}
    _, y = next(images())
    for _ in range(3):
        trainer.step(X.numpy(), y.numpy(), lr=2.0)
    moved = np.concatenate([meaning(trainer, n) - start[n] for n in start])
    assert np.count_nonzero(moved) > 10
    changes = by_name(made, sent(made, moved.astype(np.float32)), real=True)
    after = {n: a.numpy() for n, a in trainer.state_dict().items()}
    for name, change in changes.items():
        found = after[name] - before[name]
        if (part := made.trained[name]) is not None:
            found = found.take(part[1], part[0])
        np.testing.assert_allclose(found, change, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["float", "int8", "int8, sliced"])
def test_what_a_program_sends_is_what_its_parameters_changed_by(name: str) -> None:
    options = {k: v for k, v in PROGRAMS[name].items() if k != "accumulate"}
    if "dtype" in options:
        options["dtype"] = whet.Int8(rounding="carry8")
    made = whet.compile(convnet().eval(), (X,), send=whet.Send(), **options)
    trainer = made.load()
    before, (_, y) = trained(trainer), next(images())
    for _ in range(3):
        trainer.step(X.numpy(), y.numpy(), lr=0.5)
    after, sent_ = trained(trainer), by_name(made, decode(trainer.delta(1)), real=True)
    assert sent_.keys() == after.keys()
    for parameter, change in sent_.items():
        found = after[parameter] - before[parameter]
        assert np.abs(found).max() > 0, parameter
        np.testing.assert_allclose(change, found, rtol=1e-3, atol=2e-6)


def test_updates_of_others_and_wrong_arrays_are_refused() -> None:
    made, other = program("float"), whet.compile(mlp(), (torch.zeros(4, 5),))
    with pytest.raises(UpdateError, match="another model or scheme"):
        by_name(made, sent(other, np.zeros(coordinates(other), np.float32)))
    huge = Update(made.fingerprint, 1, 2**32 - 1, np.array([5]), np.ones(1, np.float32))
    with pytest.raises(UpdateError, match="another model or scheme"):
        by_name(made, huge)
    arrays = by_name(made, sent(made, np.zeros(coordinates(made), np.float32)))
    with pytest.raises(UpdateError, match=r"head\.bias is missing"):
        flatten(made, {n: a for n, a in arrays.items() if n != "head.bias"})
    with pytest.raises(UpdateError, match="tail does not train here"):
        flatten(made, arrays | {"tail": np.zeros(1)})
    with pytest.raises(UpdateError, match=r"head\.bias has shape \(1, 3\), not \(3,\)"):
        flatten(made, arrays | {"head.bias": np.zeros((1, 3))})
