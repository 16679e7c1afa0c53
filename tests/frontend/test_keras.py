"""Keras models against Keras: outputs, gradients, losses, optimizers, weights back, bad files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import whet
from whet.errors import FrontendError, WhetError
from whet.frontend.keras.backend import keras as keras_on_torch
from whet.frontend.keras.weights import check_datasets
from whet.frontend.torch.interpreted import Input
from whet.models import from_keras, to_keras

keras = keras_on_torch()
L = keras.layers


def small(softmax: bool = False, inputs: int = 1) -> Any:
    """A convolution, batch norm and a dense layer, with statistics that are not 0 and 1."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = L.Conv2D(4, 3, strides=2, padding="same", name="conv")(image)
    x = L.BatchNormalization(name="norm")(x)
    x = L.DepthwiseConv2D(3, padding="same", activation="relu", name="depthwise")(x)
    x = L.GlobalAveragePooling2D()(x)
    x = L.Dense(5, activation="softmax" if softmax else None, name="head")(x)
    model = keras.Model(image, x)
    rng = np.random.default_rng(0)
    for variable in model.get_layer("norm").non_trainable_variables:
        variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    return model


def batch(count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 8, 8, 3, generator=generator), torch.arange(count) % 5


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_small_model_is_what_keras_computes(train: bool) -> None:
    model = small()
    module, (x, _) = from_keras(model).train(train), batch()
    with torch.no_grad():
        theirs, ours = model(x, training=False), module.eval()(x)
    assert torch.equal(ours, theirs)
    module.train(train)
    names = [name for name, _ in module.named_parameters()]
    assert names[0] == "conv.kernel" and [n for n, _ in module.named_buffers()] == [
        "norm.moving_mean",
        "norm.moving_variance",
    ]
    before = [v.numpy().copy() for v in model.variables]
    report = whet.compile(module, (x,)).check(steps=3)
    assert max(report.gradients.values()) < 1e-4 or train  # a bias before batch norm has none
    for old, variable in zip(before, model.variables, strict=True):
        assert np.array_equal(old, variable.numpy()), "Keras' own variables stay as they are"


def test_weights_go_back_to_keras() -> None:
    model, (x, y) = small(), batch()
    module = from_keras(model)
    trainer = whet.compile(module, (x,)).load()
    for _ in range(3):
        trainer.step(x, y, lr=0.1)
    module.load_state_dict(trainer.state_dict(), strict=False)
    assert to_keras(module) is model
    theirs = model(x, training=False).detach().numpy()
    assert np.abs(theirs - trainer.predict(x)).max() < 1e-5
    with pytest.raises(FrontendError, match="did not come from Keras"):
        to_keras(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def losses() -> dict[str, tuple[Any, bool, Callable[[], torch.Tensor]]]:
    """By name: the loss, whether it takes what a softmax made, and labels."""
    k = keras.losses
    classes, numbers, spread = (
        lambda: batch()[1],
        lambda: torch.rand(4, 5),
        lambda: torch.softmax(torch.randn(4, 5), 1),
    )
    return {
        "sparse logits": (k.SparseCategoricalCrossentropy(from_logits=True), False, classes),
        "sparse": ("sparse_categorical_crossentropy", True, classes),
        "logits": (k.CategoricalCrossentropy(True, label_smoothing=0.1), False, spread),
        "categorical": (k.CategoricalCrossentropy(label_smoothing=0.1), True, spread),
        "binary logits": (k.BinaryCrossentropy(True, label_smoothing=0.1), False, numbers),
        "binary": ("binary_crossentropy", True, numbers),
        "mse": ("mse", False, numbers),
        "mae": (k.MeanAbsoluteError(), False, numbers),
        "huber": (k.Huber(delta=0.3), False, numbers),
    }


@pytest.mark.parametrize("name", sorted(losses()))
def test_a_loss_is_that_of_keras(name: str) -> None:
    given, softmax, labels = losses()[name]
    model, (x, _) = small(softmax), batch()
    model.compile("sgd", given)
    told = from_keras(model).compiled(batch=4)
    y, output = labels(), model(x, training=False).detach().requires_grad_()
    ours = told["loss"](output, y)
    theirs = model.compute_loss(x, y, output)
    assert told["labels"].shape == y.shape and told["labels"].dtype == y.dtype
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    gradients = [torch.autograd.grad(loss, output)[0] for loss in (ours, theirs)]
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: o.SGD(0.1),
        lambda o: o.SGD(0.1, momentum=0.9),
        lambda o: o.SGD(0.1, momentum=0.9, nesterov=True),
        lambda o: o.SGD(0.1, weight_decay=0.05),
        lambda o: o.Adam(0.01, epsilon=1e-12),  # where it is added differs, so that it is small
        lambda o: o.AdamW(0.01, weight_decay=0.1, epsilon=1e-12),
        lambda o: o.SGD(0.1, global_clipnorm=0.05),
    ],
    ids=["sgd", "momentum", "nesterov", "decay", "adam", "adamw", "clipped"],
)
def test_an_optimizer_steps_as_keras_does(make: Callable[[Any], Any]) -> None:
    """Five steps in PyTorch with the translated optimizer, and five of Keras."""
    model, (x, y) = small(), batch()
    model.get_layer("norm").trainable = False  # Keras trains in its own training mode
    model.compile(make(keras.optimizers), losses()["sparse logits"][0])
    module = from_keras(model)
    told = module.compiled()
    for _ in range(5):
        told["optimizer"].zero_grad()
        told["loss"](module(x), y).backward()
        if told["clip_norm"]:
            torch.nn.utils.clip_grad_norm_(list(module.parameters()), told["clip_norm"])
        told["optimizer"].step()
        model.train_on_batch(x, y)
    for variable in model.trainable_variables:
        ours = module.tensor(variable.path).detach().numpy()
        assert np.abs(ours - variable.numpy()).max() < 2e-5, variable.path


@pytest.mark.parametrize(
    ("optimizer", "loss", "words"),
    [
        (lambda o: o.RMSprop(), "mse", "the optimizer RMSprop"),
        (lambda o: o.SGD(0.1, momentum=0.9, weight_decay=0.1), "mse", "momentum and weight_decay"),
        (lambda o: o.Adam(amsgrad=True), "mse", "amsgrad"),
        (lambda o: o.SGD(clipnorm=1.0), "mse", "clipnorm"),
        (lambda o: o.SGD(keras.optimizers.schedules.CosineDecay(0.1, 5)), "mse", "schedule"),
        (lambda o: o.SGD(), "cosine_similarity", "cosine_similarity"),
        (lambda o: o.SGD(), lambda a, b: a, "the loss <lambda>"),
        (lambda o: o.SGD(), None, "no loss"),
    ],
)
def test_what_has_no_equivalent_is_an_error(optimizer: Any, loss: Any, words: str) -> None:
    model = small()
    model.compile(optimizer(keras.optimizers), loss)
    with pytest.raises(FrontendError, match=words):
        from_keras(model).compiled()


def test_frozen_layers_are_parameters_that_do_not_train() -> None:
    model = small()
    model.get_layer("conv").trainable = False
    module = from_keras(model)
    assert not module.tensor("conv/kernel").requires_grad
    assert module.tensor("head/kernel").requires_grad
    assert "conv.kernel" in dict(module.named_parameters())


def test_several_inputs_keep_their_names() -> None:
    a, b = keras.Input((3,), name="a"), keras.Input((4,), name="b")
    model = keras.Model({"b": b, "a": a}, L.Dense(2)(L.Concatenate()([a, b])))
    module = from_keras(model)
    x = dict(zip((i.name for i in module.declared), module.example(2), strict=True))
    ours = module(*x.values())
    assert torch.equal(ours, model({"a": x["a"], "b": x["b"]}))


def test_a_sequential_model_declares_what_a_functional_one_does() -> None:
    for dtype in ("float32", "float16", "int32"):
        i = keras.Input((3,), name="x", dtype=dtype)
        dense = L.Dense(2)
        declared = [
            from_keras(model).declared
            for model in (keras.Model(i, dense(i)), keras.Sequential([i, dense]))
        ]
        assert declared[0] == declared[1]
        assert declared[0][0] == Input("x", getattr(torch, dtype), (None, 3))


def embedded(sequential: bool, dtype: str = "float32") -> Any:
    i = keras.Input((50,), name="ids", dtype=dtype)
    layers = [L.Embedding(6, 4), L.GlobalAveragePooling1D(), L.Dense(3)]
    if sequential:
        return keras.Sequential([i, *layers])
    inner = keras.Sequential([keras.Input((50,)), *layers])
    return keras.Model(i, inner(i) + L.Dense(3)(L.Flatten()(L.Embedding(9, 2)(i))))


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_an_embedding_reads_are_ids(sequential: bool, dtype: str) -> None:
    model = embedded(sequential, dtype)
    module = from_keras(model)
    (declared,) = module.declared
    assert declared.count == 6 and not declared.dtype.is_floating_point
    (x,) = module.example(20)
    assert sorted(set(x.flatten().tolist())) == list(range(6))
    assert torch.equal(module(x), model(x))


def test_float_ids_are_whole_numbers() -> None:
    (x,) = ({*Input("ids", torch.float32, (50,), 6).example(1, {}).tolist()},)
    assert x == set(range(6))


def test_what_is_no_model_that_can_be_read() -> None:
    with pytest.raises(FrontendError, match="is not a Keras model"):
        from_keras(torch.nn.Linear(2, 2))
    with pytest.raises(FrontendError, match="has no weights yet"):
        from_keras(keras.Sequential([L.Dense(3)]))


@pytest.mark.slow
@pytest.mark.parametrize("given", ["jax", "numpy"])
def test_another_backend_is_refused_before_keras_is_imported(given: str) -> None:
    code = "from whet.models import from_keras\ntry: from_keras(1)\nexcept Exception as e: print(e)"
    environment = os.environ | {"KERAS_BACKEND": given}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert f"Keras runs on '{given}'" in done.stdout and "KERAS_BACKEND=torch" in done.stdout


# --- files


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = small(softmax=True)
    model.compile("sgd", "sparse_categorical_crossentropy")
    path = tmp_path_factory.mktemp("keras") / "net.keras"
    model.save(path)
    return path


def test_a_file_is_the_model_that_was_saved(saved: Path) -> None:
    module, (x, _) = from_keras(saved), batch()
    assert torch.equal(module(x), small(softmax=True)(x, training=False))
    assert set(module.compiled(2)) == {"loss", "labels", "optimizer", "clip_norm"}


def rewritten(saved: Path, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file with another configuration."""
    made = io.BytesIO()
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                config = json.loads(data)
                change(config)
                data = json.dumps(config).encode()
            new.writestr(name, data)
    return made.getvalue()


def test_code_in_a_file_is_not_run(saved: Path, tmp_path: Path) -> None:
    """A Lambda layer holds Python code; safe mode refuses it, and classes of other packages."""
    marker = tmp_path / "ran"
    i = keras.Input((2,))
    model = keras.Model(i, L.Lambda(lambda x: x + 1)(i))
    path = tmp_path / "lambda.keras"
    model.save(path)
    with pytest.raises(FrontendError, match="arbitrary code execution"):
        from_keras(path)

    def call_the_system(config: dict[str, Any]) -> None:
        config["config"]["layers"][1] |= {
            "module": "os", "class_name": "system", "registered_name": None,
            "config": {"command": f"touch {marker}"},
        }  # fmt: skip

    path.write_bytes(rewritten(saved, call_the_system))
    with pytest.raises(FrontendError, match="cannot read"):
        from_keras(path)
    assert not marker.exists()


def test_bad_files(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bad.keras"
    whole = saved.read_bytes()
    more = io.BytesIO(whole)
    with zipfile.ZipFile(more, "a") as archive:
        archive.writestr("../outside.pkl", b"x")
    bomb = io.BytesIO(whole)
    with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("assets/zeros", bytes(1 << 21))
    monkeypatch.setattr("whet.frontend.keras.load.LARGEST", 1 << 20)
    cases = {
        b"": "not a zip", whole[:-200]: "not a zip", b"\x80\x04cos\nsystem\n": "not a zip",
        more.getvalue(): "that Keras does not write", bomb.getvalue(): "unpacks to",
    }  # fmt: skip
    for data, words in cases.items():
        path.write_bytes(data)
        with pytest.raises(FrontendError, match=words):
            from_keras(path)
    with pytest.raises(FrontendError, match="no such file"):
        from_keras(tmp_path / "missing.keras")
    with pytest.raises(FrontendError, match=r"is no \.keras file"):
        from_keras(tmp_path / "model.h5")
    assert os.listdir(tmp_path) == ["bad.keras"], "nothing is unpacked to the disk"


def fuzz(saved: Path, count: int, seed: int, path: Path) -> int:
    """Bytes of the archive, or of what is in it, are changed at random; how many are refused."""
    rng, refused = np.random.default_rng(seed), 0
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for i in range(count):
        if i % 2:
            path.write_bytes(changed(saved.read_bytes(), rng))
        else:
            chosen = str(rng.choice(["config.json", "model.weights.h5"]))
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in members.items():
                    archive.writestr(name, changed(data, rng) if name == chosen else data)
        try:
            from_keras(path)
        except WhetError:
            refused += 1
    return refused


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        made[int(rng.integers(len(made)))] = int(rng.integers(256))
    return bytes(made)


def test_changed_bytes_give_an_error_or_a_model(saved: Path, tmp_path: Path) -> None:
    assert 50 < fuzz(saved, 200, 0, tmp_path / "fuzzed.keras") < 200


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_file_that_asks_for_too_much_memory(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dense layer of 8 GB in 32 KB, stopped by the limit, and before Keras makes it."""
    path = tmp_path / "large.keras"
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            data = archive.read(name)
            made.writestr(name, data.replace(b'"units": 5', b'"units": 500000000'))
    with monkeypatch.context() as patch:
        patch.setattr("whet.frontend.keras.load.check_weights", lambda archive: None)
        with pytest.raises(FrontendError, match="memory"):
            from_keras(path)
    with pytest.raises(FrontendError, match=r"its layers have .* bytes of weights"):
        from_keras(path)


def with_weights(saved: Path, change: Callable[[Any], None], path: Path) -> Path:
    """The file with other weights."""
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            data = io.BytesIO(archive.read(name))
            if name == "model.weights.h5":
                with h5py.File(data, "a") as file:
                    change(file)
            made.writestr(name, data.getvalue())
    return path


def unwritten(file: Any) -> None:
    file.create_dataset("large", (1 << 31,), "f4", chunks=(1 << 10,))


def compressed(file: Any) -> None:
    file.create_dataset("large", data=np.zeros(1 << 16, "f4"), compression="gzip")


def soft_link(file: Any) -> None:
    file["link"] = h5py.SoftLink("/layers")


def external_link(file: Any) -> None:
    file["link"] = h5py.ExternalLink("/etc/passwd", "/")


def external_data(file: Any) -> None:
    file.create_dataset("large", (16,), "u1", external=[("/etc/passwd", 0, 16)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "data", (4,))
    file.create_virtual_dataset("large", layout)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (unwritten, "8,589,934,592 bytes, of which 0 are there"),
        (compressed, "262,144 bytes, of which"),
        (soft_link, "'link' among its weights is of type SoftLink"),
        (external_link, "'link' among its weights is of type ExternalLink"),
        (external_data, "'large' among its weights is in another file"),
        (virtual, "'large' among its weights is in another file"),
    ],
)
def test_weights_that_are_not_in_the_file(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, words: str
) -> None:
    """Keras is not asked."""
    monkeypatch.setattr(keras.saving, "load_model", None)
    with pytest.raises(FrontendError, match=words):
        from_keras(with_weights(saved, change, tmp_path / "net.keras"))


def test_datasets_that_share_their_bytes_are_larger_than_the_file() -> None:
    """The address of the first is written into the second, and the file ends before that."""
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for name in "ab":
            file.create_dataset(name, (1 << 14,), "f4")
        for name in "ab":
            file[name][:] = 1
        first, second = (file[name].id.get_offset() for name in "ab")
    a, b, end = (n.to_bytes(8, "little") for n in (first, second, len(made.getvalue())))
    data = made.getvalue()[:second].replace(b, a).replace(end, b)
    with pytest.raises(ValueError, match="its weights have 131,072 bytes, and their file"):
        check_datasets(data)


def test_groups_may_hold_each_other(saved: Path, tmp_path: Path) -> None:
    def cycle(file: Any) -> None:
        file["layers/again"] = file["layers"]

    from_keras(with_weights(saved, cycle, tmp_path / "net.keras"))


@pytest.mark.slow
def test_many_changed_bytes(saved: Path, tmp_path: Path) -> None:
    assert fuzz(saved, 30_000, 1, tmp_path / "fuzzed.keras") > 15_000


# --- models of keras.applications

MODELS = {
    "MobileNet": (dict(alpha=0.25), 64),
    "MobileNetV2": (dict(alpha=0.35), 64),
    "MobileNetV3Small": (dict(alpha=0.75, minimalistic=True), 64),
    "EfficientNetB0": ({}, 32),
    "ResNet50": ({}, 32),
    "DenseNet121": ({}, 32),
    "ConvNeXtTiny": ({}, 32),
    "VGG16": ({}, 32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_of_keras_applications(name: str) -> None:
    options, size = MODELS[name]
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, name)
    model = make(
        weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None, **options
    )
    module, x = from_keras(model), torch.randn(1, size, size, 3)
    report = whet.compile(module, (x,)).check(steps=2)
    assert max(report.gradients.values()) < 1e-4
