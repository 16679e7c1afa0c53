"""Errors of built programs: no compiler, wrong data, losses that explode, broken checkpoints."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from messages import message
from tiny import convnet, images, mlp, vectors
from whet.errors import BuildError, CheckError, CheckpointError, DataError, NotFinite, WhetError

X, Y = next(vectors())


@pytest.fixture(scope="module")
def trainer() -> whet.Trainer:
    return whet.compile(mlp(), (X,)).load()


# Building ------------------------------------------------------------------------------------


@pytest.fixture
def fresh() -> whet.Program:
    """A program that nobody has built yet."""
    return whet.compile(mlp(), (X,))


def test_no_compiler_at_all(fresh: whet.Program, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    text = message(BuildError, fresh.load)
    assert "no C compiler found" in text
    assert "looked for $CC, cc, gcc and clang" in text and "apt install gcc" in text


def test_a_compiler_that_is_not_there(fresh: whet.Program, monkeypatch: Any) -> None:
    monkeypatch.setenv("CC", "/nowhere/gcc -m32")
    text = message(BuildError, fresh.load)
    assert "the C compiler CC=/nowhere/gcc -m32 is not there" in text and "unset CC" in text


def test_a_compiler_that_refuses(fresh: whet.Program, monkeypatch: Any, tmp_path: Path) -> None:
    refuses = tmp_path / "cc"
    refuses.write_text("#!/bin/sh\necho 'no space left on the moon' >&2\nexit 3\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("CC", str(refuses))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = message(BuildError, fresh.load)
    assert list((tmp_path / "cache" / "whet").iterdir()) == [], "no half-made kernels stay"
    assert f"{refuses} failed with status 3" in text
    assert "why   no space left on the moon" in text and "-std=c11 -Wall" in text
    monkeypatch.setenv("CC", "gcc")
    assert fresh.load().predict(X).shape == (4, 3), "afterwards it works"


def test_a_folder_that_cannot_be_written(fresh: whet.Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    text = message(BuildError, lambda: fresh.write(tmp_path / "file" / "folder"))
    assert f"cannot write the program to {tmp_path / 'file' / 'folder'}" in text
    assert "Not a directory" in text
    (tmp_path / "other" / "model.h").mkdir(parents=True)
    text = message(BuildError, lambda: fresh.write(tmp_path / "other"))
    assert "Is a directory" in text and "model.h" in text


# Running -------------------------------------------------------------------------------------


def unchanged(trainer: whet.Trainer, call: Callable[[], Any], error: type[WhetError]) -> str:
    """The message of a call that must fail and change nothing."""
    before = trainer.save()
    text = message(error, call)
    assert trainer.save() == before
    return text


def test_an_input_of_the_wrong_shape(trainer: whet.Trainer) -> None:
    text = unchanged(trainer, lambda: trainer.step(X[:2], Y), DataError)
    assert "input has shape (2, 5), the program was compiled for (4, 5)" in text
    assert "compile with an example of the shape you train on" in text
    assert "(4, 5, 1)" in unchanged(trainer, lambda: trainer.predict(X[..., None]), DataError)


def test_a_label_of_the_wrong_shape(trainer: whet.Trainer) -> None:
    text = unchanged(trainer, lambda: trainer.step(X, Y[:, None]), DataError)
    assert "label has shape (4, 1), the program was compiled for (4,)" in text


@pytest.mark.parametrize("x", [X.long(), X > 0, X.to(torch.complex64)], ids=lambda x: str(x.dtype))
def test_an_input_of_the_wrong_type(x: Tensor, trainer: whet.Trainer) -> None:
    text = unchanged(trainer, lambda: trainer.step(x, Y), DataError)
    assert f"input has dtype {x.numpy().dtype}, the program takes float32" in text


def test_labels_of_the_wrong_type(trainer: whet.Trainer) -> None:
    text = unchanged(trainer, lambda: trainer.step(X, Y.float()), DataError)
    assert "label has dtype float32, the program takes integers" in text


def test_the_wrong_number_of_inputs(trainer: whet.Trainer) -> None:
    text = unchanged(trainer, lambda: trainer.step((X, X), Y), DataError)
    assert "the model takes 1 inputs, got 2" in text
    assert "got 0" in unchanged(trainer, lambda: trainer.predict(()), DataError)


@pytest.mark.parametrize("bad", [3, -1, -100000, 2**31 - 1])
def test_a_label_out_of_range(bad: int, trainer: whet.Trainer) -> None:
    labels = Y.clone()
    labels[2] = bad
    text = unchanged(trainer, lambda: trainer.step(X, labels), DataError)
    assert "a label or id is out of range" in text and "at    train_step" in text
    assert f"label holds {int(labels.min())} to {int(labels.max())}" in text


@pytest.mark.parametrize("bad", [2**31, -(2**31) - 1, 2**40])
def test_a_label_that_is_no_32_bit_number(bad: int, trainer: whet.Trainer) -> None:
    labels = Y.clone()
    labels[0] = bad
    text = unchanged(trainer, lambda: trainer.step(X, labels), DataError)
    assert f"label holds {bad}, which is not a 32-bit index" in text


def test_an_ignored_label_is_no_error(trainer: whet.Trainer) -> None:
    labels = Y.clone()
    labels[1] = -100
    right = nn.functional.cross_entropy(torch.from_numpy(trainer.predict(X)), labels).item()
    assert trainer.step(X, labels, lr=0.0) == pytest.approx(right, rel=1e-5)


def test_an_id_out_of_range_in_prediction() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 3))
    program = whet.compile(model, (torch.zeros(2, 2, dtype=torch.int64),))
    trainer = program.load()
    ids = torch.tensor([[0, 6], [7, 1]])
    text = unchanged(trainer, lambda: trainer.predict(ids), DataError)
    assert "a label or id is out of range" in text and "at    predict" in text
    assert "input holds 0 to 7" in text
    assert "label holds 3 to 3" in unchanged(
        trainer, lambda: trainer.step(ids % 7, torch.tensor([3, 3])), DataError
    )


class CallC:
    """The C functions of a trainer, called on its memory as C would."""

    def __init__(self, trainer: whet.Trainer) -> None:
        self.trainer = trainer

    def step(self, x: np.ndarray, y: np.ndarray) -> tuple[int, float]:
        loss = ctypes.c_float(42.0)
        status = self.trainer._function("train_step")(
            self.trainer._pointer,
            np.ascontiguousarray(x, np.float32).ctypes.data_as(ctypes.c_void_p),
            np.ascontiguousarray(y, np.int32).ctypes.data_as(ctypes.c_void_p),
            ctypes.c_float(0.1),
            ctypes.byref(loss),
        )
        return status, loss.value


@pytest.fixture(scope="module")
def busy() -> whet.Trainer:
    """Everything that can change: parameters, moments, a clock, statistics and random numbers."""
    model = convnet(dropout=0.3).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = next(images())
    trainer = whet.compile(model, (x,), optimizer=optimizer, accumulate=True).load()
    trainer.seed(3)
    trainer.step(x, y)
    trainer.gradients(x, y)
    assert {"rng", "bn.running_mean", "optimizer.step"} <= set(trainer.program.storage.state)
    return trainer


@pytest.mark.parametrize("bad", [3, -1, 2**31 - 1, -(2**31)])
def test_in_c_a_bad_label_gives_a_status_and_touches_no_byte(bad: int, busy: whet.Trainer) -> None:
    x, y = next(images())
    labels = y.numpy().copy()
    labels[-1] = bad
    before = busy._memory.copy()
    assert CallC(busy).step(x.permute(0, 2, 3, 1).numpy(), labels) == (1, 42.0)
    np.testing.assert_array_equal(busy._memory, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("entry", ["step", "gradients"])
def test_a_loss_that_is_not_finite_changes_nothing(
    entry: str, bad: float, busy: whet.Trainer
) -> None:
    x, y = next(images())
    x = x.clone()
    x[1, 2, 3, 1] = bad
    text = unchanged(busy, lambda: getattr(busy, entry)(x, y), NotFinite)
    assert text.startswith(("the loss is nan", "the loss is inf"))
    assert f"at    {'train_step' if entry == 'step' else entry}" in text
    assert "a smaller learning rate, clip_norm=1.0, or a look at the input" in text


def test_after_an_abandoned_step_training_goes_on_as_if_it_had_not_been(
    busy: whet.Trainer,
) -> None:
    twin = busy.program.load()
    twin.load(busy.save())
    x, y = next(images())
    with pytest.raises(NotFinite):
        busy.step(x * float("nan"), y)
    assert busy.step(x, y) == twin.step(x, y)
    assert busy.save() == twin.save()


def test_a_buffer_that_is_used_after_it_changed_is_not_changed_by_an_abandoned_step() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 3)
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            return self.fc(x - self.mean)

    trainer = whet.compile(Centred(), (X,)).load()
    trainer.step(X, Y)
    unchanged(trainer, lambda: trainer.step(X * float("inf"), Y), NotFinite)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e39, "fast"])
def test_a_rate_that_is_no_finite_number_changes_nothing(bad: Any, trainer: whet.Trainer) -> None:
    before = trainer.save()
    assert f"lr={bad!r} is not a finite number" in message(
        DataError, lambda: trainer.step(X, Y, lr=bad)
    )
    assert trainer.save() == before


def test_an_entry_point_that_was_not_compiled(trainer: whet.Trainer) -> None:
    for call in (lambda: trainer.gradients(X, Y), trainer.apply):
        text = unchanged(trainer, call, DataError)
        assert "the program has no entry point" in text
        assert "compile(..., accumulate=True) adds gradients and apply" in text


def test_a_state_dict_of_another_shape_changes_nothing(trainer: whet.Trainer) -> None:
    state = {**mlp(seed=4).state_dict(), "fc2.bias": torch.zeros(4)}
    text = unchanged(trainer, lambda: trainer.load_state_dict(state), DataError)
    assert "fc2.bias has shape (4,), not (3,)" in text


# Checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_that_is_too_short(trainer: whet.Trainer) -> None:
    blob = trainer.save()
    for n in (0, 1, 19, 20, len(blob) - 1):
        part = blob[:n]
        text = unchanged(trainer, lambda part=part: trainer.load(part), CheckpointError)
        assert "the checkpoint is refused: the checkpoint is shorter than it says" in text
        assert f"at    checkpoint, {n} bytes" in text


def test_a_checkpoint_with_a_wrong_byte(trainer: whet.Trainer) -> None:
    blob = bytearray(trainer.save())
    for i in (12, 24, len(blob) - 1):  # checksum, content
        bad = bytes(b ^ 1 if k == i else b for k, b in enumerate(blob))
        text = unchanged(trainer, lambda bad=bad: trainer.load(bad), CheckpointError)
        assert "the checkpoint's checksum is wrong" in text
    text = unchanged(trainer, lambda: trainer.load(bytes(blob) + b"\0"), CheckpointError)
    assert "the checkpoint is longer than it says" in text


def test_a_checkpoint_of_another_model_or_version(
    trainer: whet.Trainer, busy: whet.Trainer
) -> None:
    text = unchanged(trainer, lambda: trainer.load(busy.save()), CheckpointError)
    assert "the checkpoint belongs to another model or scheme" in text
    assert "bytes of parameters and state, this program" in text
    other = whet.compile(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), (X,)).load()
    assert len(other.save()) == len(trainer.save()), "as large, but of other names"
    text = unchanged(trainer, lambda: trainer.load(other.save()), CheckpointError)
    assert "it holds as many bytes" in text
    blob = bytearray(trainer.save())
    blob[4] = 2
    text = unchanged(trainer, lambda: trainer.load(bytes(blob)), CheckpointError)
    assert "it has another version of the format" in text
    assert "its version is 2, this program reads 1" in text


def test_a_checkpoint_file(trainer: whet.Trainer, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.bin"
    path.write_bytes(b"not a checkpoint, but long enough to be one")
    text = unchanged(trainer, lambda: trainer.load(path), CheckpointError)
    assert f"at    {path}, 43 bytes" in text and "not a checkpoint" in text
    missing = tmp_path / "missing.bin"
    text = unchanged(trainer, lambda: trainer.load(str(missing)), CheckpointError)
    assert f"cannot read {missing}" in text and "No such file or directory" in text
    text = message(CheckpointError, lambda: trainer.save(tmp_path))
    assert f"cannot write {tmp_path}" in text and "Is a directory" in text


# Comparing with PyTorch ----------------------------------------------------------------------


def test_a_program_that_disagrees_with_pytorch() -> None:
    program = whet.compile(mlp(), (X,), accumulate=True)
    kernel = program.files["kernels/tanh.c"]
    program.files["kernels/tanh.c"] = kernel.replace(b"1.0f - ", b"1.1f - ")
    assert program.files["kernels/tanh.c"] != kernel
    text = message(CheckError, lambda: program.check(steps=1))
    assert "differ from PyTorch" in text and "fc1.weight" in text and "fc2.weight" not in text


def test_a_program_that_does_not_know_where_it_comes_from() -> None:
    program = dataclasses.replace(whet.compile(mlp(), (X,)), source=None)
    text = message(WhetError, program.check)
    assert "this program does not remember the model it was compiled from" in text
