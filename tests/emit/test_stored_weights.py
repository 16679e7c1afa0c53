"""Programs whose layers read frozen weights as they are stored: numbers, bytes, and refusals."""

from __future__ import annotations

import subprocess
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from kernel_samples import Numbers
from kernel_samples_stored import long_blocks
from stored_forms import FORMS, rounded, size
from whet.errors import CheckError, SchemeError
from whet.ops._blocks import BLOCKS, decoded
from whet.targets.cortex_m import Board
from whet.verify.integer import equal_steps

IN, MIDDLE, OUT = 64, 96, 5


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            a=nn.Linear(IN, MIDDLE), act=nn.ReLU(), b=nn.Linear(MIDDLE, IN), norm=nn.LayerNorm(IN),
            c=nn.Linear(IN, OUT),
        )
    )  # fmt: skip


def compiled(model: nn.Module, *x: Tensor, **options: Any) -> whet.Program:
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    return whet.compile(model, x, optimizer=sgd, **options)


def ops_of(program: whet.Program, entry: str = "train_step") -> list[str]:
    return [node.op.name for node in program.entries[entry].nodes]


@pytest.mark.parametrize("rows", [1, 6, 12, 40])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_those_of_the_rounded_model_to_the_bit(form: str, rows: int) -> None:
    """Forward and backward: vector kernels, whatever path they take, and portable ones."""
    x, y = torch.randn(rows, IN), torch.randint(0, OUT, (rows,))
    for portable in (False, True):
        options: dict[str, Any] = dict(update="bias+last", portable=portable)
        stored = compiled(mlp(), x, frozen=form, **options)
        floats = compiled(rounded(mlp(), form, "a.weight", "b.weight"), x, **options)
        assert set(stored.rounded) == {"a.weight", "b.weight"}
        assert ops_of(stored).count("linear_stored") == 2
        assert ops_of(stored).count("linear_stored_dx") == 1
        saved = 4 * 2 * IN * MIDDLE - size(form, IN, MIDDLE) - size(form, MIDDLE, IN)
        assert floats.memory["flash"] - stored.memory["flash"] == saved
        assert stored.memory["ram"] == floats.memory["ram"] and stored.not_narrow == 0
        mine, theirs = stored.load(), floats.load()
        assert [mine.step(x, y) for _ in range(5)] == [theirs.step(x, y) for _ in range(5)]
        for name, array in theirs.arrays().items():
            if name in mine.arrays():
                np.testing.assert_array_equal(mine.arrays()[name], array, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_pytorch_with_the_rounded_weights(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(8, IN)
    program = compiled(mlp(), x, update="bias+last", frozen=form)
    assert program.check(steps=3)
    errors = {"int8": (1e-3, 1e-2), "q8_0": (1e-3, 1e-2), "q4_0": (0.04, 0.1), "q4_1": (0.04, 0.1)}
    low, high = errors[form]
    assert low < max(program.rounded.values()) < high
    assert "2 weights were rounded; the largest error is" in program.report()
    word = "weights in 8 bits" if form == "int8" else f"weights in {form} blocks"
    line = next(line for line in program.report().splitlines() if word in line)
    assert line.split()[-2] == f"{size(form, IN, MIDDLE) + size(form, MIDDLE, IN):,}"
    monkeypatch.setattr("whet.verify.check.shared_weights", lambda program, source: {})
    with pytest.raises(CheckError, match="differ"):
        program.check(steps=3)


@pytest.mark.parametrize("form", FORMS)
def test_rounding_twice_changes_nothing(form: str) -> None:
    """Floats are a lossless interface: what is made up of a form is stored as it is."""
    x = torch.randn(2, IN)
    model = rounded(mlp(), form, "a.weight", "b.weight")
    program = compiled(model, x, update="last", frozen=form)
    assert not program.rounded
    assert program.in_bytes == size(form, IN, MIDDLE) + size(form, MIDDLE, IN)


def test_gguf_is_the_smallest_format_that_a_weight_is_made_of() -> None:
    torch.manual_seed(0)
    names = ["q4_0", "q4_1", "q8_0", "other", "last"]
    layers = OrderedDict((name, nn.Linear(IN, IN)) for name in names)
    model, x = nn.Sequential(layers), torch.randn(3, IN)
    for form in BLOCKS:
        rounded(model, form, f"{form}.weight")
    program = compiled(model, x, update="last", frozen="gguf")
    sizes = {form: size(form, IN, IN) for form in BLOCKS}
    assert not program.rounded and program.narrow_forms == sizes
    assert program.not_narrow == 4 * IN * IN, "of a weight that no format holds"
    plain = compiled(model, x, update="last")
    assert plain.memory["frozen"] - program.memory["frozen"] == 3 * 4 * IN * IN - sum(
        sizes.values()
    )
    np.testing.assert_array_equal(program.load().predict(x), plain.load().predict(x))
    assert program.check(steps=2)
    lines = program.report()
    assert all(f"weights in {form} blocks" in lines for form in BLOCKS)
    assert f"weights as they are used                {4 * IN * IN:,} B" in lines


def with_long_blocks() -> nn.Module:
    """As from a file whose first layer is in q4_k."""
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict(a=nn.Linear(512, MIDDLE), act=nn.Tanh(), b=nn.Linear(MIDDLE, OUT))
    )
    data = long_blocks(Numbers("a file"), MIDDLE * 2)
    model.a.weight.data = torch.from_numpy(decoded("q4_k", data, (MIDDLE, 512)))
    own = SimpleNamespace(format="Q4_K", data=data.reshape(MIDDLE, -1))
    object.__setattr__(model, "whet_blocks", {"a.weight": own})
    return model


@pytest.mark.parametrize("portable", [False, True])
def test_q4_k_is_kept_as_a_file_has_it(portable: bool) -> None:
    model, x = with_long_blocks(), torch.randn(5, 512)
    program = compiled(model, x, update="bias+last", frozen="gguf", portable=portable)
    assert program.narrow_forms == {"q4_k": MIDDLE * 2 * 144} and not program.rounded
    floats = compiled(model, x, update="bias+last", portable=portable)
    np.testing.assert_array_equal(program.load().predict(x), floats.load().predict(x))
    assert portable or program.check(steps=2)


def test_blocks_of_other_numbers_than_the_weight_has_are_not_taken() -> None:
    for spoil in ("value", "bytes", "format"):
        model = with_long_blocks()
        own = model.whet_blocks["a.weight"]
        if spoil == "value":
            model.a.weight.data[3, 5] += 1
        elif spoil == "bytes":
            own.data = own.data[:, :-1]
        else:
            own.format = "Q6_K"
        with pytest.warns(UserWarning, match="none is made up of blocks"):
            program = compiled(model, torch.randn(2, 512), update="last", frozen="gguf")
        assert program.in_bytes == 0


@pytest.mark.parametrize("portable", [False, True])
def test_what_trains_starts_from_its_blocks(portable: bool) -> None:
    """It is in floats from then on."""
    model = rounded(mlp(), "q4_1", "a.weight", "b.weight")
    rounded(model, "q8_0", "c.weight")
    scheme = whet.Scheme([whet.Rule("b.*"), whet.Rule("c.*")])
    x, y = torch.randn(6, IN), torch.randint(0, OUT, (6,))
    stored, floats = (
        compiled(model, x, update=scheme, frozen=form, portable=portable) for form in ("gguf", None)
    )
    saved = sum(4 * o * i - size(form, o, i) for form, o, i in (
        ("q4_1", MIDDLE, IN), ("q4_1", IN, MIDDLE), ("q8_0", OUT, IN)
    ))  # fmt: skip
    assert floats.memory["flash"] - stored.memory["flash"] == saved
    assert stored.memory["trained"] == floats.memory["trained"]
    assert stored.fingerprint == floats.fingerprint
    mine, theirs = stored.load(), floats.load()
    assert mine.save() == theirs.save()
    assert [mine.step(x, y) for _ in range(3)] == [theirs.step(x, y) for _ in range(3)]
    assert mine.save() == theirs.save()


def test_gguf_without_any_such_weight_warns() -> None:
    with pytest.warns(UserWarning, match="none is made up of blocks"):
        program = compiled(mlp(), torch.randn(2, IN), update="last", frozen="gguf")
    assert program.in_bytes == 0 and not program.rounded


@pytest.mark.parametrize("form", BLOCKS)
def test_what_has_no_whole_blocks_is_stored_in_8_bits(form: str) -> None:
    """Rows of 40, and a convolution, whose weight is made right before it."""
    torch.manual_seed(0)
    layers = OrderedDict(
        a=nn.Linear(40, 288), act=nn.ReLU(), image=nn.Unflatten(1, (8, 6, 6)),
        conv=nn.Conv2d(8, 8, 3, padding=1), flat=nn.Flatten(), b=nn.Linear(288, 512),
        c=nn.Linear(512, 3),
    )  # fmt: skip
    program = compiled(nn.Sequential(layers), torch.randn(4, 40), update="last", frozen=form)
    rows = size("int8", 288, 40) + size("int8", 8, 8 * 9)
    assert program.narrow_forms == {"int8": rows, form: size(form, 512, 288)}
    assert set(program.rounded) == {"conv.weight", "a.weight", "b.weight"}
    assert ops_of(program).count("widen") == 1 and ops_of(program).count("linear_stored") == 2
    assert program.check(steps=2)


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_that_trains_in_part_has_a_frozen_rest(form: str) -> None:
    scheme = whet.Scheme([whet.Rule("b.weight", channels=0.25), whet.Rule("c.*")])
    program = compiled(mlp(), torch.randn(4, IN), update=scheme, frozen=form)
    assert "a.weight" in program.rounded and program.check(steps=3)
    assert program.in_bytes >= size(form, MIDDLE, IN)


@pytest.mark.parametrize("form", FORMS)
def test_zeros_in_a_weight_are_numbers_like_others(form: str) -> None:
    model = mlp()
    model.get_parameter("a.weight").data[::7, ::5] = 0
    program = compiled(model, torch.randn(2, IN), update="last", frozen=form)
    rows = size(form, MIDDLE, IN) + size(form, IN, MIDDLE)
    assert program.narrow_forms == {form: rows}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_not_finite_are_refused(form: str, bad: float) -> None:
    model = mlp()
    model.get_parameter("b.weight").data[3, 5] = bad
    with pytest.raises(SchemeError, match=r"b\.weight cannot be stored in fewer bits") as error:
        compiled(model, torch.randn(2, IN), update="last", frozen=form)
    assert "1 of its elements" in str(error.value)


@pytest.mark.parametrize("form", ["q8_0", "gguf"])
def test_blocks_are_for_float_programs(form: str) -> None:
    x = torch.randn(2, IN)
    with pytest.raises(SchemeError, match="is for a float program"):
        compiled(mlp(), x, dtype="int8", calibrate=[x], frozen=form)


def test_a_saved_program_keeps_its_blocks(tmp_path: Path) -> None:
    x = torch.randn(2, IN)
    program = compiled(mlp(), x, update="last", frozen="q4_1")
    again = whet.load(program.save(tmp_path / "a.whet"))
    assert again.memory == program.memory and again.rounded == program.rounded
    np.testing.assert_array_equal(again.load().predict(x), program.load().predict(x))


@pytest.mark.parametrize("form", ["int8", "q8_0", "q4_1"])
def test_the_board_has_the_losses_of_the_host(form: str) -> None:
    x, random = torch.zeros(1, IN), np.random.default_rng(0)
    here, there = (
        compiled(mlp(), x, update="bias+last", frozen=form, **options)
        for options in (dict(portable=True), dict(target="cortex-m7"))
    )
    assert here.in_bytes == there.in_bytes > 0
    shown = [
        (random.normal(size=(1, IN)).astype(np.float32), random.integers(0, OUT, 1))
        for _ in range(3)
    ]
    trainer, board = here.load(), Board(there)
    losses = [ours for _, ours in equal_steps(board, [((x,), y) for x, y in shown])[0]]
    np.testing.assert_allclose(losses, [trainer.step(x, y) for x, y in shown], rtol=1e-6)
    seen = board.close()
    assert seen is not None and seen.outside == 0


def test_a_program_with_blocks_builds_by_make(tmp_path: Path) -> None:
    program = compiled(mlp(), torch.randn(2, IN), update="last", frozen="q4_1")
    folder = program.write(tmp_path / "net")
    done = subprocess.run(["make", "-C", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
