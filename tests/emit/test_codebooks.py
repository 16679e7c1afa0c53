"""Frozen weights by codebooks: to the bit where they have few values, and by k-means elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import CheckError, SchemeError
from whet.passes.narrow_frozen import narrow_weights
from whet.quantize.codebook import codebook, few_values, nearest
from whet.targets.cortex_m import Board
from whet.verify.integer import equal_steps

SHAPE = (1, 3, 28, 28)


def block(inputs: int, outputs: int, kernel: int, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs)
    with torch.no_grad():
        assert norm.running_mean is not None and norm.running_var is not None
        norm.weight.copy_(torch.linspace(-1.5, 2.0, outputs))
        norm.bias.normal_(0, 0.1)
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 2)
    return [layer, norm, nn.ReLU()]


def network(bits: int | None = None) -> nn.Module:
    """If `bits` are given, weights of convolutions have that many values at most."""
    torch.manual_seed(0)
    first, *rest = block(3, 32, 3), block(32, 32, 5, 32), block(32, 24, 1), block(24, 24, 3)
    layers = [*first, nn.MaxPool2d(2), *(layer for layers in rest for layer in layers)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 5)).eval()
    for layer in model if bits is not None else ():
        if isinstance(layer, nn.Conv2d):
            w = layer.weight.detach().numpy()
            book = np.linspace(w.min(), w.max(), 2**bits, dtype=np.float32)
            layer.weight.data = torch.from_numpy(book[nearest(w, book)])
    return model


def compiled(model: nn.Module, **options: Any) -> whet.Program:
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    return whet.compile(model, (torch.zeros(SHAPE),), optimizer=sgd, **options)


def integers(model: nn.Module, **options: Any) -> whet.Program:
    torch.manual_seed(1)
    return compiled(model, dtype="int8", calibrate=[torch.randn(8, *SHAPE[1:])], **options)


def batches(count: int) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    shown = (random.normal(size=SHAPE).astype(np.float32) for _ in range(count))
    return [(x, random.integers(0, 5, 1)) for x in shown]


@pytest.mark.parametrize("bits", [2, 4, 5])
def test_weights_of_few_values_are_stored_as_indices_and_keep_their_numbers(bits: int) -> None:
    """Behind them come norms, folded into the weights: there is a scale for each channel then."""
    model = network(bits)
    plain = compiled(model, update="last")
    shared = compiled(model, update="last", frozen=f"kmeans{bits}")
    assert not shared.rounded and shared.check(steps=2)
    assert {"lookup_scaled"} == {
        n.op.name for n in shared.entries["predict"].nodes if n.op.name.startswith("lookup")
    }
    before, after = plain.memory, shared.memory
    assert after["ram"] <= before["ram"] and shared.not_narrow == 0
    saved = sum(w.numel() for n, w in model.named_parameters() if w.ndim == 4) * (32 - bits) / 8
    assert before["flash"] - after["flash"] > 0.9 * saved
    x, _ = batches(1)[0]
    assert shared.load().predict(x) == pytest.approx(plain.load().predict(x), rel=1e-5, abs=1e-6)


def test_weights_of_many_values_are_shared_by_k_means_and_checked_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = compiled(network(), update="last", frozen="kmeans3")
    assert set(shared.rounded) == {"0.weight", "4.weight", "7.weight", "10.weight"}
    assert 0.05 < max(shared.rounded.values()) < 0.3
    assert "4 weights were shared by k-means" in shared.report()
    assert shared.check(steps=2)
    monkeypatch.setattr("whet.verify.check.shared_weights", lambda program, source: {})
    with pytest.raises(CheckError, match="differ"):  # from a model that has its own weights
        shared.check(steps=2)


@pytest.mark.parametrize("update", ["last", "bias+last"])
def test_an_integer_program_has_the_bits_of_its_decoded_weights(update: str) -> None:
    plain = integers(network(), update=update)
    shared = integers(network(), update=update, frozen="kmeans4")
    assert shared.memory["ram"] <= plain.memory["ram"]
    assert shared.memory["frozen"] < plain.memory["frozen"]
    assert shared.rounded.keys() == narrow_weights(shared.entries).keys()
    assert shared.check(steps=3)


def test_a_weight_that_trains_in_part_keeps_its_zeros() -> None:
    """The frozen rest has zeros in place of what trains, which the codebook must have."""
    scheme = whet.Scheme([whet.Rule("10.weight", channels=0.25), whet.Rule("15.*")])
    for program in (
        compiled(network(), update=scheme, frozen="kmeans4"),
        integers(network(), update=scheme, frozen="kmeans4"),
    ):
        assert "10.weight" in program.rounded and program.check(steps=3)


def test_the_board_has_the_bits_of_the_host_and_less_flash() -> None:
    shown = batches(3)
    here, there = (
        integers(network(), update="bias+last", frozen="kmeans4", target=target)
        for target in ("host", "cortex-m7")
    )
    trainer, board = here.load(), Board(there)
    losses = [ours for _, ours in equal_steps(board, [((x,), y) for x, y in shown])[0]]
    assert losses == [trainer.step(x, y) for x, y in shown]
    assert board.arrays()["15.weight"].tobytes() == trainer.arrays()["15.weight"].tobytes()
    seen = board.close()
    assert seen is not None and seen.outside == 0
    plain = integers(network(), update="bias+last", target="cortex-m7")
    with Board(plain, watched=False) as other:
        assert board.firmware.flash < other.firmware.flash - 2_000
        assert board.firmware.ram <= other.firmware.ram


def test_what_no_layer_has_room_for_stays_as_it_was() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    model = nn.Sequential(*layers).eval()
    x = torch.ones(1, 16, 2, 2)
    with pytest.warns(UserWarning, match="no room"):
        program = whet.compile(model, (x,), update="last", frozen="kmeans4")
    assert not program.rounded and program.not_narrow == 4 * 16 * 16 * 9
    right = pytest.approx(model(x).detach().numpy(), rel=1e-5)
    assert program.load().predict(x) == right


@pytest.mark.parametrize("update", ["last", "bias+last"])
def test_linear_layers_read_the_indices(update: str) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 3)
    model, x = nn.Sequential(*layers), torch.randn(2, 64)
    plain = whet.compile(model, (x,), update=update)
    program = whet.compile(model, (x,), update=update, frozen="kmeans4")
    assert set(program.rounded) == {"0.weight", "2.weight"} and program.not_narrow == 0
    assert program.memory["ram"] <= plain.memory["ram"]
    assert plain.memory["flash"] - program.memory["flash"] == 2 * (64 * 64 * 7 // 2 - 64)
    ops = [node.op.name for node in program.entries["train_step"].nodes]
    assert ops.count("linear_stored") == 2
    assert ops.count("linear_stored_dx") == (update == "bias+last")
    assert program.check(steps=3)


def test_a_saved_program_keeps_its_codebooks(tmp_path: Path) -> None:
    program = compiled(network(), update="last", frozen="kmeans4")
    again = whet.load(program.save(tmp_path / "a.whet"))
    assert again.memory == program.memory and again.rounded == program.rounded
    x, _ = batches(1)[0]
    assert np.array_equal(again.load().predict(x), program.load().predict(x))


@pytest.mark.parametrize("frozen", ["kmeans", "kmeans1", "kmeans9", "kmeans4 ", "int4"])
def test_other_forms_are_refused(frozen: str) -> None:
    with pytest.raises(SchemeError, match="there is no frozen="):
        compiled(network(), update="last", frozen=frozen)


def test_bytes_are_no_smaller_by_indices_of_eight_bits() -> None:
    with pytest.raises(SchemeError, match='frozen="kmeans8" is for a float program'):
        integers(network(), frozen="kmeans8")


def test_k_means_of_sorted_values() -> None:
    """No assignment and no mean can be better by itself; integers stay integers."""
    random = np.random.default_rng(0)
    x = random.normal(size=4000).astype(np.float32)
    counts = random.uniform(0.5, 2.0, 4000)
    book = codebook(x, counts, 16)
    places = nearest(x, book)
    assert len(book) == 16 and np.all(np.diff(book) > 0)
    assert np.array_equal(places, np.abs(x[:, None] - book).argmin(1))
    means = [np.average(x[places == k], weights=counts[places == k]) for k in range(16)]
    assert book == pytest.approx(means, abs=1e-5)
    grid = np.linspace(x.min(), x.max(), 16)
    error, plain = (np.square(x - b[nearest(x, b)]).mean() for b in (book, grid))
    assert error < 0.6 * plain
    whole = codebook(np.rint(x * 40).astype(np.int8), counts, 16)
    assert whole.dtype == np.int8 and len(whole) == 16


def test_an_entry_without_values_moves_to_where_the_error_is() -> None:
    x = np.concatenate([np.linspace(0, 1, 50), [100.0]])
    book = codebook(x, np.ones(51), 4)
    assert len(np.unique(nearest(x, book))) == 4


def test_few_values_stay_and_zeros_of_a_pruned_weight_stay_zero() -> None:
    random = np.random.default_rng(1)
    few = random.choice(np.array([-3.0, 0.5, 2.0], np.float32), (10, 30))
    everywhere, ones = np.ones((10, 30), bool), np.ones((10, 30))
    assert np.array_equal(few_values(few, everywhere, 2, ones), few)
    pruned = np.where(random.random((10, 30)) < 0.8, 0, random.normal(size=(10, 30)))
    shared = few_values(pruned, everywhere, 3, ones)
    assert not shared[pruned == 0].any() and len(np.unique(shared)) == 8
    broken = np.where(pruned > 1, np.nan, pruned)
    assert few_values(broken, everywhere, 3, ones) is broken
