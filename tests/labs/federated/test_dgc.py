"""Deep Gradient Compression: what is sent, what is kept, and that it trains."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whet
from tiny import mlp
from whet.errors import DataError, NotFinite, UpdateError
from whet.labs.federated.dgc import Compression, Compressor, largest
from whet.labs.federated.distributed import Server, batches, distributed
from whet.runtime.update import Update, coordinates, decode, encode

RNG = np.random.default_rng(0)


@given(st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0]), min_size=1), st.integers(0, 9))
def test_the_largest_are_exactly_k_and_of_equals_the_first(given: list[float], k: int) -> None:
    values = np.array(given, np.float32)
    order = sorted(range(len(given)), key=lambda i: (-abs(given[i]), i))
    assert largest(values, k).tolist() == sorted(order[:k])


def test_sparsity_rises_in_the_warm_up() -> None:
    settings = Compression(0.999, warm_up=8)
    found = [settings.sparsity_at(r) for r in range(10)]
    assert found == [0.75, 0.75, 0.9375, 0.9375, 0.984375, 0.984375, 0.996, 0.996, 0.999, 0.999]
    assert [settings.count(10_000, r) for r in (0, 2, 4, 6, 8)] == [2500, 625, 157, 40, 10]
    assert Compression(0.9, warm_up=4).sparsity_at(3) == 0.9, "never above what was asked for"
    assert Compression(0.0).count(7, 0) == 7 and Compression(0.999).count(7, 0) == 1
    with pytest.raises(DataError, match=r"sparsity=1\.0"):
        Compression(1.0)


WRONG = {"warm_up": -1, "clip_norm": -2.0, "coding": "f8", "momentum": 1.0}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_mean_nothing_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=str(WRONG[name])):
        Compression(**{name: WRONG[name]})


@pytest.mark.parametrize("coding", ["f32", "f16", "i8", "i16"])
def test_what_is_sent_and_what_is_kept_is_what_was_accumulated(coding: str) -> None:
    """Rounding included: without momentum, all gradients add up to all that was sent or is kept."""
    worker = Compressor(1000, 1, Compression(0.99, 0.0, coding=coding))
    total, sent = np.zeros(1000), np.zeros(1000)
    for number in range(50):
        gradient = RNG.standard_normal(1000).astype(np.float32)
        total += gradient
        update = decode(encode(worker.compress(gradient, number)), 1, 1000, number)
        assert update.k == 10 and update.coding == coding
        sent += update.dense()
    np.testing.assert_allclose(sent + worker.kept, total, atol=2e-5)
    assert np.abs(worker.kept).max() > 1, "much is kept, and yet nothing is lost"


def test_momentum_is_corrected_and_masked() -> None:
    """Two coordinates, of which the larger is sent, by hand."""
    worker = Compressor(2, 1, Compression(0.5, 0.5))
    first = worker.compress(np.array([4.0, 1.0], np.float32), 0)
    assert first.indices.tolist() == [0] and first.values.tolist() == [4.0]
    assert worker.velocity.tolist() == [0.0, 1.0] and worker.kept.tolist() == [0.0, 1.0]
    second = worker.compress(np.array([1.0, 1.0], np.float32), 1)
    assert second.indices.tolist() == [1] and second.values.tolist() == [1.0 + 1.5]
    assert worker.velocity.tolist() == [1.0, 0.0] and worker.kept.tolist() == [1.0, 0.0]
    unmasked = Compressor(2, 1, Compression(0.5, 0.5, masking=False))
    unmasked.compress(np.array([4.0, 1.0], np.float32), 0)
    assert unmasked.velocity.tolist() == [4.0, 1.0]


def test_a_worker_clips_to_its_share_of_the_norm() -> None:
    worker = Compressor(2, 1, Compression(0.0, 0.0, clip_norm=2.0), workers=4)
    assert worker.compress(np.array([3.0, 4.0], np.float32), 0).values.tolist() == pytest.approx(
        [0.6, 0.8]
    )
    assert worker.compress(np.array([0.3, 0.4], np.float32), 1).values.tolist() == pytest.approx(
        [0.3, 0.4]
    )


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    worker = Compressor(2, 1)
    with pytest.raises(NotFinite):
        worker.compress(np.array([np.nan, 1.0], np.float32), 0)
    with pytest.raises(DataError, match=r"shape \(3,\), not \(2,\)"):
        worker.compress(np.zeros(3, np.float32), 0)
    assert not worker.kept.any() and not worker.velocity.any()


# On programs ---------------------------------------------------------------------------------


@functools.cache
def program(**options: object) -> whet.Program:
    return whet.compile(mlp(), (torch.zeros(4, 5),), accumulate=True, **options)


def shards(count: int, samples: int = 40) -> list[tuple[np.ndarray, np.ndarray]]:
    """Three classes that a linear map tells apart."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((count * samples, 5)).astype(np.float32)
    y = (x @ rng.standard_normal((5, 3))).argmax(1)
    return list(zip(np.split(x, count), np.split(y, count), strict=True))


def test_at_sparsity_0_it_is_momentum_sgd() -> None:
    """As PyTorch does it, on the batches of all workers together."""
    parts, rounds, model = shards(3), 30, mlp()
    run = distributed(program(), parts, rounds, settings=Compression(0.0, 0.9), lr=0.05, seed=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    streams = [batches(part, 4, 2 * 3 + i) for i, part in enumerate(parts)]
    for _ in range(rounds):
        x, y = (torch.from_numpy(np.concatenate(p)) for p in zip(*map(next, streams), strict=True))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    for name, array in run.trainers[0].arrays().items():
        theirs = model.state_dict()[name].numpy()
        np.testing.assert_allclose(array, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("coding", ["f32", "f16", "i8"])
def test_sparse_training_learns_and_all_workers_agree(coding: str) -> None:
    settings = Compression(0.95, 0.9, warm_up=20, coding=coding)
    run = distributed(program(), shards(4), 200, settings=settings, lr=0.05)
    assert np.mean(run.losses[-20:]) < 0.5 * np.mean(run.losses[:5])
    first, *others = ({n: a.tobytes() for n, a in t.arrays().items()} for t in run.trainers)
    assert all(other == first for other in others), "bit for bit"


def test_a_part_of_a_parameter_is_moved_and_nothing_else() -> None:
    scheme = whet.Scheme([whet.Rule("fc1.weight", (1, 3))])
    made = whet.compile(mlp(), (torch.zeros(4, 5),), accumulate=True, update=scheme)
    run = distributed(made, shards(2), 5, settings=Compression(0.5), lr=0.1)
    before, after = mlp().state_dict(), run.trainers[1].arrays()
    moved = (after["fc1.weight"] != before["fc1.weight"].numpy()).any(axis=0)
    assert moved.tolist() == [False, True, False, True, False] and after.keys() == {"fc1.weight"}


def test_connections_carry_every_byte() -> None:
    """Two workers up and down; sizes follow from the format."""
    sizes: list[int] = []

    def carry(blob: bytes) -> bytes:
        sizes.append(len(blob))
        return bytes(bytearray(blob))

    settings, n = Compression(0.9, coding="i8"), coordinates(program())
    both = [carry] * 2
    distributed(program(), shards(2), 3, settings=settings, up=both, down=both)
    k = settings.count(n, 0)
    assert n == 75 and k == 8 and len(sizes) == 12
    assert [sizes[i] for i in (0, 1, 4, 5, 8, 9)] == [36 + k * 2] * 6, "gaps below 128"
    assert all(36 + 2 * k <= sizes[i] <= 36 + 4 * k for i in (2, 3, 6, 7, 10, 11))


def test_the_server_takes_one_round_at_a_time_and_its_own_model_only() -> None:
    server = Server(1, 4)
    sparse = encode(Update(1, 5, 4, np.array([2]), np.array([3.0])))
    dense = encode(Update(1, 5, 4, None, np.arange(4.0)))
    mean = decode(server.merge([sparse, sparse], 5))
    assert mean.indices.tolist() == [2] and mean.values.tolist() == [3.0]
    assert decode(server.merge([sparse, dense], 5)).values.tolist() == [0, 0.5, 2.5, 1.5]
    with pytest.raises(UpdateError, match="worker 1"):
        server.merge([sparse, encode(Update(1, 4, 4, None, np.arange(4.0)))], 5)
    with pytest.raises(UpdateError, match="another model"):
        server.merge([encode(Update(2, 5, 4, None, np.arange(4.0)))], 5)


@pytest.mark.filterwarnings("ignore:1 operator of the network")
def test_int8_programs_are_refused() -> None:
    x = torch.zeros(4, 5)
    made = whet.compile(mlp(), (x,), accumulate=True, dtype="int8", calibrate=[x + 1])
    with pytest.raises(DataError, match="int8"):
        distributed(made, shards(2), 1)
    with pytest.raises(DataError, match="3 samples, a batch 4"):
        next(batches((np.zeros((3, 5)), np.zeros(3)), 4, 0))
