"""One test per error: what went wrong, where, why in numbers, and what would work."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import convnet, images, mlp, vectors
from whet.errors import (
    BuildError,
    CheckError,
    CheckpointError,
    DataError,
    FrontendError,
    InternalError,
    NotFinite,
    ShapeError,
    UnsupportedOps,
    WhetError,
)
from whet.interp import interpret
from whet.text import parse_graph

SOURCE = str(Path(whet.__file__).parents[1])
X, Y = next(vectors())


class Function(nn.Module):
    """A layer, then any function of its result."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.fc(x))


def message(error: type[WhetError], call: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error, "not a more special error"
    text = str(caught.value)
    assert text.splitlines()[0] == f"{caught.value.what}  [{error.code}]"
    return text


def compiling(model: Any, inputs: Any = (X,), **options: Any) -> str:
    return message(FrontendError, lambda: whet.compile(model, inputs, **options))


@pytest.fixture(scope="module")
def trainer() -> whet.Trainer:
    return whet.compile(mlp(), (X,)).load()


# The tree ------------------------------------------------------------------------------------


def test_every_error_is_a_whet_error_with_a_code_of_its_own() -> None:
    found = [e for e in vars(whet.errors).values() if isinstance(e, type)]
    errors = [e for e in found if issubclass(e, WhetError)]
    assert len(errors) >= 10 and len({e.code for e in errors}) == len(errors)
    for error in errors:
        assert error.__name__ in whet.errors.__doc__, "the tree at the top lists it"


def test_a_message_has_four_parts() -> None:
    error = WhetError("too much", at="here", why=["a: 1", "b: 2"], try_="less")
    assert str(error) == (
        "too much  [W000]\n  at    here\n  why   a: 1\n        b: 2\n  try   less"
    )
    assert error.what == "too much"


# Bringing a model in -------------------------------------------------------------------------


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.second = nn.Sequential(nn.Linear(3, 3), Sorting())

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.cumsum(self.first(x), 1)) + torch.linalg.det(x[:, :4])


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(x, dim=1).values


def test_unsupported_operators_are_all_listed() -> None:
    text = message(UnsupportedOps, lambda: whet.compile(Unsupported(), (X,)))
    lines = text.splitlines()
    assert lines[0].startswith("3 operator(s) of this model are not supported")
    assert "at    the model's forward: aten.cumsum.default(float32[4, 3], 1): " in lines[1]
    assert "second.1: aten.sort.default(float32[4, 3], 1): " in lines[2]
    assert "the model's forward: aten.linalg_det.default(float32[4, 4]): " in lines[3]
    assert lines[-1].startswith("  try   replace them")


def test_an_operator_used_in_an_unsupported_way_says_why() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.InstanceNorm1d(4, track_running_stats=True)).train()
    text = message(UnsupportedOps, lambda: whet.compile(model, (X,), target=Y))
    assert "1: aten.instance_norm" in text and "tracks running statistics while training" in text


def test_a_batch_of_one_has_no_statistics() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).train()
    assert "Expected more than 1 value per channel when training" in compiling(model, (X[:1],))


def test_what_is_not_a_module() -> None:
    assert "the model is a str, not a torch.nn.Module" in compiling("resnet")
    assert "the model is a function, not a torch.nn.Module" in compiling(mlp)


@pytest.mark.parametrize("inputs", [X, [X], (X.numpy(),), (1, X), None], ids=type)
def test_inputs_that_are_no_tuple_of_tensors(inputs: Any) -> None:
    text = compiling(mlp(), inputs)
    assert "example inputs must be a tuple of tensors" in text
    assert f"got {type(inputs).__name__}" in text
    assert "compile(model, (torch.randn(1, 3, 128, 128),), ...)" in text


@pytest.mark.parametrize("target", [None, Y])
def test_an_example_the_model_itself_refuses(target: Tensor | None) -> None:
    text = compiling(mlp(), (torch.zeros(2, 7),), target=target)
    assert "the model itself fails on the example input of shape (2, 7)" in text
    assert "mat1 and mat2 shapes cannot be multiplied (2x7 and 5x8)" in text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_parameters_that_are_not_float32(dtype: torch.dtype) -> None:
    text = compiling(mlp().to(dtype), (X.to(dtype),))
    assert f"parameter 'fc1.weight' has dtype {dtype}; whet trains float32 models" in text
    assert "try   model.float()" in text


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64])
def test_inputs_of_a_type_that_programs_do_not_take(dtype: torch.dtype) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.real.float() if x.is_complex() else x.float())

    text = compiling(Cast(), (X.to(dtype),))
    assert f"has dtype {dtype}; use float32, or integers for ids" in text


def test_control_flow_that_depends_on_data() -> None:
    text = compiling(Function(lambda x: x * 2 if x.sum() > 0 else x))
    assert "control flow or shapes depend on the values of its input" in text
    assert "torch.where" in text


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x + torch.nonzero(x).sum(), "aten.nonzero.default(float32[4, 3])"),
        (lambda x: x + x[x.sum(1) > 0].mean(0), "aten.index.Tensor(float32[4, 3], [bool[4]])"),
    ],
    ids=["nonzero", "mask"],
)
def test_shapes_that_depend_on_data(function: Callable[[Tensor], Tensor], operator: str) -> None:
    text = message(UnsupportedOps, lambda: whet.compile(Function(function), (X,)))
    assert f"the model's forward: {operator}: the shape of its result depends on values" in text


def test_shapes_that_depend_on_data_and_are_used_as_numbers() -> None:
    text = compiling(Function(lambda x: x + torch.zeros(int(x.sum().abs()) + 1).sum()))
    assert "control flow or shapes depend on the values of its input" in text
    assert "operators of fixed shape" in text


def test_a_model_that_cannot_be_traced_says_why() -> None:
    def fail(x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise RuntimeError("the moon is in the wrong phase")
        return x

    text = compiling(Function(fail))
    assert "torch.export could not trace the model (RuntimeError)" in text
    assert "the moon is in the wrong phase" in text
    assert "make `torch.export.export(model, inputs)` work first" in text


@pytest.mark.parametrize(
    ("output", "kind"), [(lambda x: (x, x), "tuple"), (lambda x: {"a": x}, "dict"), (len, "int")]
)
def test_a_model_that_returns_no_single_tensor(output: Callable[[Tensor], Any], kind: str) -> None:
    text = compiling(Function(output))
    assert f"the model returns a {kind}, not a tensor" in text
    assert "wrap it in a module that returns the one tensor the loss is for" in text


def test_the_only_item_of_a_tuple_and_logits_are_taken() -> None:
    for output in (lambda x: (x,), lambda x: {"logits": x}):
        model = Function(output)
        right = model.fc(X).detach().numpy()
        np.testing.assert_allclose(whet.compile(model, (X,)).load().predict(X), right, rtol=1e-5)


@pytest.mark.parametrize("name", ["", "2net", "my net", "a-b", "net.h", "größe", "a/b", None])
def test_a_name_that_is_no_c_identifier(name: Any) -> None:
    text = compiling(mlp(), name=name)
    assert f"the program's name {name!r} is not a C identifier" in text
    assert "letters, digits and underscores" in text


# The loss and the optimizer ------------------------------------------------------------------


def test_a_loss_whose_targets_are_unknown() -> None:
    loss = nn.TripletMarginLoss()
    text = compiling(mlp(), loss=loss)
    assert "whet does not know what targets this loss takes" in text
    assert "the loss is TripletMarginLoss" in text
    assert "compile(..., target=torch.zeros(...))" in text


def test_a_loss_without_reduction() -> None:
    text = compiling(mlp(), loss=nn.MSELoss(reduction="none"))
    assert "the loss has shape (4, 3); training needs a single number" in text
    assert "reduction='mean' or 'sum'" in text
    loss = nn.CrossEntropyLoss(reduction="none")
    text = message(UnsupportedOps, lambda: whet.compile(mlp(), (X,), loss=loss))
    assert "aten.cross_entropy_loss" in text and "use 'mean' or 'sum'" in text


def test_a_target_that_does_not_fit_the_loss() -> None:
    text = compiling(mlp(), target=torch.zeros(9, dtype=torch.int64))
    assert "torch.export could not trace the model" in text and "9" in text


def test_nothing_to_train_because_all_is_frozen() -> None:
    model = mlp().requires_grad_(False)
    for options in ({}, {"optimizer": torch.optim.SGD(model.parameters())}):
        text = compiling(model, **options)
        assert "there is nothing to train" in text
        assert "no parameter of the model that requires a gradient is in the optimizer" in text
        assert "build the optimizer from model.parameters(), or set requires_grad" in text


def test_nothing_to_train_because_the_optimizer_is_for_another_model() -> None:
    text = compiling(mlp(), optimizer=torch.optim.SGD(mlp().parameters()))
    assert "there is nothing to train" in text


def test_nothing_to_train_because_there_are_no_parameters() -> None:
    assert "there is nothing to train" in compiling(nn.Sequential(nn.Flatten(), nn.Tanh()))


def test_nothing_to_train_because_nothing_reaches_the_loss() -> None:
    text = compiling(Function(lambda x: x.detach()))
    assert "there is nothing to train" in text
    assert "the loss depends on no parameter that is trained" in text


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: torch.optim.RMSprop(p), "the optimizer RMSprop is not supported"),
        (lambda p: torch.optim.LBFGS(p), "the optimizer LBFGS is not supported"),
        (lambda p: torch.optim.SGD(p, maximize=True), "SGD: maximising is not supported"),
        (lambda p: torch.optim.Adam(p, maximize=True), "Adam: maximising is not supported"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), "AdamW: AMSGrad is not supported"),
        (
            lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.1),
            "SGD: momentum with dampening is not supported",
        ),
    ],
    ids=["RMSprop", "LBFGS", "maximize", "Adam maximize", "AMSGrad", "dampening"],
)
def test_optimizers_that_are_not_supported(make: Callable[[Any], Any], word: str) -> None:
    model = mlp()
    text = compiling(model, optimizer=make(model.parameters()))
    assert word in text
    if "optimizer" in word:
        assert "try   SGD, Adam or AdamW of torch.optim" in text


def test_an_optimizer_whose_parameters_have_taken_different_numbers_of_steps() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.fc1.parameters())
    nn.functional.cross_entropy(model(X), Y).backward()
    optimizer.step()
    optimizer.add_param_group({"params": list(model.fc2.parameters())})
    text = compiling(model, optimizer=optimizer)
    assert "parameters have taken different numbers of steps" in text
    assert "some 0, others 1" in text or "some 1, others 0" in text


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
    text = message(BuildError, fresh.load)
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
    assert f"label holds {bad}, which is no 32-bit index" in text


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
    assert "a smaller learning rate, clip_norm=..., or a look at the input" in text


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
    for i in (0, 16, 20, len(blob) - 1):
        bad = bytes(b ^ 1 if k == i else b for k, b in enumerate(blob))
        text = unchanged(trainer, lambda bad=bad: trainer.load(bad), CheckpointError)
        assert "the checkpoint's checksum is wrong" in text
    text = unchanged(trainer, lambda: trainer.load(bytes(blob) + b"\0"), CheckpointError)
    assert "the checkpoint's checksum is wrong" in text


def test_a_checkpoint_of_another_model_or_version(
    trainer: whet.Trainer, busy: whet.Trainer
) -> None:
    text = unchanged(trainer, lambda: trainer.load(busy.save()), CheckpointError)
    assert "the checkpoint belongs to another model or version" in text
    other = whet.compile(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), (X,)).load()
    assert len(other.save()) == len(trainer.save()), "as large, but of other names"
    unchanged(trainer, lambda: trainer.load(other.save()), CheckpointError)
    blob = bytearray(trainer.save())
    blob[4] = 2
    text = unchanged(trainer, lambda: trainer.load(bytes(blob)), CheckpointError)
    assert "another model or version" in text


def test_a_checkpoint_file(trainer: whet.Trainer, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.bin"
    path.write_bytes(b"not a checkpoint, but long enough to be one")
    text = unchanged(trainer, lambda: trainer.load(path), CheckpointError)
    assert f"at    {path}, 43 bytes" in text and "checksum" in text
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
    import dataclasses

    program = dataclasses.replace(whet.compile(mlp(), (X,)), source=None)
    text = message(WhetError, program.check)
    assert "this program does not remember the model it was compiled from" in text


# Inside --------------------------------------------------------------------------------------


def test_the_interpreter_names_what_is_missing_or_misshapen() -> None:
    graph = parse_graph("graph f {\n  %x : f32[2] input\n  %y = relu %x : f32[2]\n  return %y\n}")
    assert "no value for %x : f32[2]" in message(DataError, lambda: interpret(graph, {}))
    wrong = message(DataError, lambda: interpret(graph, {"x": np.zeros(3)}))
    assert "%x has shape (3,), the graph says f32[2]" in wrong


def test_operators_without_gradient_or_kernel_say_so() -> None:
    from whet.ir import Builder, Role, f32
    from whet.ops import by_name

    b = Builder("f")
    b.emit(by_name("relu_dx"), *(b.leaf(n, f32(2), Role.INPUT) for n in "xy"))
    node = b.nodes[0]
    text = message(InternalError, lambda: node.op.vjp(b, node, (None,), (True, True)))
    assert "relu_dx has no gradient" in text


def test_a_shape_error_carries_its_operands() -> None:
    from whet.ir import Builder, Role, f32
    from whet.ops import by_name

    b = Builder("f")
    x, y = b.leaf("x", f32(2, 3), Role.INPUT), b.leaf("y", f32(4), Role.INPUT)
    text = message(ShapeError, lambda: b.emit(by_name("add"), x, y))
    assert "add: shapes (2, 3) and (4,) do not broadcast" in text
    assert "why   %x : f32[2,3], %y : f32[4]" in text


# Without PyTorch -----------------------------------------------------------------------------

BLOCKED = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import whet
{}
"""


def without_torch(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(code)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_torch_whet_can_be_imported_and_says_what_compiling_needs() -> None:
    printed = without_torch(
        "print(sorted(whet.__all__), whet.Program.__name__, whet.Trainer.__name__)\n"
        "try:\n    whet.compile\nexcept whet.errors.FrontendError as error:\n    print(error)"
    )
    assert "['Program', 'Trainer', 'WhetError', 'compile', 'errors'] Program Trainer" in printed
    assert "compiling needs PyTorch, which is not installed  [W101]" in printed
    assert 'pip install "whet[torch]"' in printed


def test_without_torch_graphs_can_be_planned_and_run() -> None:
    printed = without_torch(
        "import numpy as np\n"
        "from whet.text import parse_graph\n"
        "from whet.interp import interpret\n"
        "from whet.plan import plan\n"
        "graph = parse_graph('graph f {\\n %x : f32[2] input\\n %y = relu %x : f32[2]\\n"
        " return %y\\n}')\n"
        "print(plan(graph).arena, interpret(graph, {'x': np.array([-1.0, 2.0])})[0][0].tolist())\n"
        "assert sys.modules['torch'] is None"
    )
    assert printed.split("\n")[0] == "16 [0.0, 2.0]"


def test_importing_whet_does_not_import_torch() -> None:
    code = "import whet, sys; print('torch' in sys.modules, 'whet.frontend' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.stdout.split() == ["False", "False"]


def test_an_attribute_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'whet' has no attribute 'compiel'"):
        whet.compiel  # noqa: B018
