"""What `model.compile` of Keras was told: what is translated, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import whet
from whet.errors import FrontendError
from whet.frontend.keras.backend import keras as keras_on_torch
from whet.models import from_keras

keras = keras_on_torch()
L = keras.layers


def dense(units: int = 1, **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), L.Dense(units, name="head", **options)], name="net")


class Adds(L.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(keras.ops.mean(x * x))
        return x


class OwnStep(keras.Model):
    def compute_loss(self, *given: Any, **options: Any) -> Any:
        return 2 * super().compute_loss(*given, **options)


def own_step() -> Any:
    i = keras.Input((3,))
    return OwnStep(i, L.Dense(1)(i))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dense(kernel_regularizer="l2"), "regularizers: net/head/kernel has L2"),
        (lambda: dense(bias_regularizer="l1"), "regularizers: net/head/bias has L1"),
        (lambda: dense(activity_regularizer="l1"), "activity regularizers: head has L1"),
        (lambda: dense(kernel_constraint="non_neg"), "constraints: net/head/kernel has NonNeg"),
        (lambda: keras.Sequential([keras.Input((3,)), L.Dense(1), Adds()]), "add_loss"),
        (own_step, "compute_loss"),
    ],
)
def test_what_keras_adds_to_the_loss_is_refused(make: Callable[[], Any], words: str) -> None:
    model = make()
    model.compile("sgd", "mse")
    with pytest.raises(FrontendError, match=words) as caught:
        from_keras(model).compiled()
    assert "loss= and optimizer= of whet.compile" in str(caught.value)


def test_penalties_of_what_is_frozen_do_not_matter() -> None:
    """Constraints hold after steps, and Keras skips regularizers of frozen variables."""
    i = keras.Input((3,))
    frozen = L.Dense(3, kernel_regularizer="l2", kernel_constraint="non_neg", trainable=False)
    model = keras.Model(i, L.Dense(1)(frozen(i)))
    model.compile("sgd", "mse")
    assert set(from_keras(model).compiled()) == {"loss", "labels", "optimizer", "clip_norm"}


class MeanSquaredError(keras.losses.Loss):  # named like Keras' own
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.abs(y_true - y_pred)


class SGD(keras.optimizers.SGD):
    pass


@pytest.mark.parametrize(
    ("optimizer", "loss", "words"),
    [
        ("sgd", MeanSquaredError(), "the loss MeanSquaredError of .*test_keras_compiled"),
        (SGD(), "mse", "the optimizer SGD of .*test_keras_compiled"),
    ],
)
def test_classes_named_like_those_of_keras(optimizer: Any, loss: Any, words: str) -> None:
    model = dense()
    model.compile(optimizer, loss)
    with pytest.raises(FrontendError, match=words):
        from_keras(model).compiled()


def test_a_scaled_loss_is_refused() -> None:
    model = dense()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), "mse")
    with pytest.raises(FrontendError, match="LossScaleOptimizer") as caught:
        from_keras(model).compiled()
    assert "inner_optimizer" in str(caught.value)
    model.compile(model.optimizer.inner_optimizer, "mse")
    assert from_keras(model).compiled()["optimizer"].param_groups[0]["lr"] == pytest.approx(0.1)


def test_nothing_that_trains_is_an_error() -> None:
    model = dense()
    model.compile("sgd", "mse")
    model.get_layer("head").trainable = False
    with pytest.raises(FrontendError, match="no variable of the Keras model is trainable"):
        from_keras(model).compiled()


class Subclass(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.head = L.Dense(2)

    def call(self, x: Any) -> Any:
        return self.head(x)


def test_a_subclass_has_labels_like_its_outputs() -> None:
    model = Subclass()
    model.build((None, 3))
    with pytest.raises(FrontendError, match="has no weights yet"):
        from_keras(model)  # its layers are built by the first call
    model(torch.zeros(1, 3))
    model.compile("sgd", "mse")
    module = from_keras(model)
    told = module.compiled(4)
    assert told["labels"].shape == (4, 2)
    program = whet.compile(module, module.example(4), **told)
    assert program.check(steps=1).losses


@pytest.mark.parametrize("loss", [["mse"], {"head": "mse"}, [keras.losses.MeanSquaredError()]])
def test_one_loss_in_a_list_is_that_loss(loss: Any) -> None:
    i = keras.Input((3,))
    model = keras.Model(i, L.Dense(1, name="head")(i))
    model.compile("sgd", loss)
    told, (x, y) = from_keras(model).compiled(4), (torch.randn(4, 3), torch.randn(4, 1))
    theirs = model.compute_loss(x, y, model(x))
    assert told["loss"](model(x), y).item() == pytest.approx(theirs.item())


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ({"tail": "mse"}, "for an output 'tail'"),
        (["mse", "mae"], "more than one loss"),
    ],
)
def test_losses_that_are_for_other_outputs(loss: Any, words: str) -> None:
    i = keras.Input((3,))
    model = keras.Model(i, L.Dense(1, name="head")(i))
    model.compile("sgd", loss)
    with pytest.raises(FrontendError, match=words):
        from_keras(model).compiled()


def test_open_sizes_of_images_leave_the_labels_known() -> None:
    """No example can be made without them; Keras still says which outputs there are."""
    i = keras.Input((None, None, 3))
    model = keras.Model(i, L.Dense(5)(L.GlobalAveragePooling2D()(i)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert from_keras(model).compiled(4)["labels"].shape == (4,)
