"""A run that is killed anywhere goes on to the same bits; anything else in its folder is refused.

Every run is killed at every event there is, and resumed by the same call.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whet
from fitted import Asking, Bomb, Drawn, Killed, Stepping, program, samples
from whet.callbacks import CSVLogger, EarlyStopping
from whet.errors import CheckpointError, DataError
from whet.fit.resume import packed, unpacked

Options = Callable[[], tuple[Any, dict[str, Any]]]  # the data, and what else `fit` is told


def arrays() -> tuple[Any, dict[str, Any]]:
    """A last batch in three passes, metrics of training, and an end before all epochs."""
    stopping = EarlyStopping("loss", patience=1, min_delta=9.0, restore_best_weights=True)
    return samples(11), {"train_metrics": True, "callbacks": [stopping], "lr": 0.05}


def loader() -> tuple[Any, dict[str, Any]]:
    """An order and noise from PyTorch's global generator, and a rate that follows the loss."""
    torch.manual_seed(0)
    np.random.seed(0)
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    by_loss = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, patience=0, threshold=0.5)
    data = torch.utils.data.DataLoader(Drawn(10), batch_size=4, shuffle=True)
    return data, {"lr": by_loss, "validation_data": samples(6, seed=1), "callbacks": [Asking()]}


def own_generator() -> tuple[Any, dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(sgd, 0.2, total_steps=20)
    torch.manual_seed(0)
    np.random.seed(0)
    data = torch.utils.data.DataLoader(Drawn(10), 4, shuffle=True, generator=generator)
    return data, {"lr": cycle, "save_steps": 2}


def stream() -> tuple[Any, dict[str, Any]]:
    np.random.seed(0)
    return Stepping(10), {"lr": lambda step: 0.1 / (1 + step), "partial": "wrap", "save_steps": 1}


RUNS = {"arrays": arrays, "loader": loader, "own generator": own_generator, "stream": stream}


def fitted(options: Options, folder: Path | None, bomb: Bomb, **more: Any) -> whet.Trainer:
    """A trainer as a new process would make it: numbers drawn before are others."""
    trainer = program(**more).load()
    data, words = options()
    if folder is not None and folder.exists():  # a resumed run begins with other random numbers
        torch.manual_seed(99)
        np.random.seed(99)
    words = {"epochs": 3 if "callbacks" in words else 2, "verbose": 0, **words}
    words["callbacks"] = [*words.get("callbacks", ()), bomb]
    trainer.fit(data, resume=folder, **words)
    return trainer


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_at_any_event_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path
) -> None:
    bomb = Bomb(10**9)
    whole = fitted(RUNS[name], None, bomb)
    assert whole.history is not None
    weights, history = whole.save(), whole.history.history
    saving = Bomb(10**9)
    assert fitted(RUNS[name], tmp_path / "whole", saving).save() == weights
    events = 10**9 - saving.left
    assert events > 20
    for at in range(events):
        folder = tmp_path / str(at)
        with pytest.raises(Killed):
            fitted(RUNS[name], folder, Bomb(at))
        again = fitted(RUNS[name], folder, Bomb(10**9))
        assert again.save() == weights, f"killed at event {at}"
        assert again.history is not None and again.history.history == history


def test_a_run_may_be_killed_again_and_again(tmp_path: Path) -> None:
    weights = fitted(own_generator, None, Bomb(10**9)).save()
    for _ in range(100):
        try:
            trainer = fitted(
                own_generator, tmp_path / "run", Bomb(9)
            )  # two or three steps at a time
        except Killed:
            continue
        assert trainer.save() == weights
        return
    raise AssertionError("it came no further")


def test_integers_and_their_fractions_go_on_too(tmp_path: Path) -> None:
    model, inputs = small_convolution()
    made = whet.compile(model, inputs, calibrate=[torch.randn(8, 3, 6, 6)], **INT8)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(9, 3, 6, 6)).astype(np.float32), np.arange(9) % 3
    whole = made.load()
    whole.fit(data, epochs=2, lr=0.1, verbose=0)
    for at in (8, 13):
        folder = tmp_path / str(at)
        words = {"epochs": 2, "lr": 0.1, "verbose": 0, "resume": folder, "save_steps": 1}
        with pytest.raises(Killed):
            made.load().fit(data, callbacks=[Bomb(at)], **words)
        again = made.load()
        again.fit(data, **words)
        assert again.save() == whole.save()


INT8: dict[str, Any] = {"dtype": whet.Int8(rounding="carry8"), "update": "last-1"}


def small_convolution() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 36, 3))
    return model.eval(), (torch.randn(4, 3, 6, 6),)


def test_what_was_trained_on_is_not_loaded_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    dataset = Drawn(16)
    data = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    words: dict[str, Any] = {"epochs": 1, "resume": tmp_path, "save_steps": 1, "verbose": 0}
    with pytest.raises(Killed):
        program().load().fit(data, callbacks=[Bomb(10)], **words)
    seen = len(dataset.read)
    assert seen == 12, "three batches, the last of them not saved"
    done = dataset.read[:8]
    dataset.read.clear()
    program().load().fit(data, **words)
    assert len(dataset.read) == 8 and not set(dataset.read) & set(done)


SCRIPT = """
import sys, os, signal
import numpy as np, whet
from whet.callbacks import Callback
sys.modules["torch"] = None

class Kill(Callback):
    def on_step_end(self, state):
        if state.step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

x = np.random.default_rng(0).normal(size=(10, 5)).astype("f")
trainer = whet.load(sys.argv[1]).load()
trainer.fit((x, np.arange(10) % 3), epochs=2, lr=0.1, resume=sys.argv[2], save_steps=1, verbose=0,
            callbacks=[Kill()])
open(sys.argv[2] + "/weights", "wb").write(trainer.save())
"""


def test_processes_without_pytorch_that_are_killed(tmp_path: Path) -> None:
    file = program().save(tmp_path / "net.whet")

    def run(folder: str, step: int) -> int:
        words = [sys.executable, "-c", SCRIPT, str(file), str(tmp_path / folder), str(step)]
        return subprocess.run(words, env=os.environ, check=False).returncode

    assert run("whole", -1) == 0
    assert run("killed", 2) == -signal.SIGKILL
    assert run("killed", 5) == -signal.SIGKILL
    assert run("killed", -1) == 0
    weights = [(tmp_path / folder / "weights").read_bytes() for folder in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_kill_while_the_file_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"epochs": 2, "resume": tmp_path, "save_steps": 1, "verbose": 0}
    whole = program().load()
    whole.fit(samples(8), epochs=2, verbose=0)
    replace, left = os.replace, [3]

    def failing(source: Any, target: Any) -> None:
        left[0] -= 1
        if not left[0]:
            Path(source).write_bytes(b"half")
            raise Killed
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(Killed):
        program().load().fit(samples(8), **words)
    again = program().load()
    again.fit(samples(8), **words)
    assert again.save() == whole.save()
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


def test_a_finished_run_is_loaded_and_not_repeated(tmp_path: Path) -> None:
    first, other = program().load(), program().load()
    history = first.fit(samples(8), epochs=2, resume=tmp_path, verbose=0)
    assert other.fit(samples(8), epochs=2, resume=tmp_path, verbose=0) == history
    assert other.save() == first.save()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"epochs": 3}, "epochs was 2, and is 3 now"),
        ({"seed": 1}, "seed was 0, and is 1 now"),
        ({"data": samples(12)}, "samples was 8, and is 12 now"),
        ({"program": {"optimizer": "sgd"}}, "the program is another"),
        ({"program": {"dropout": 0.5}}, "the program is another"),
        ({"validation_data": samples(4)}, "validation samples was None, and is 4 now"),
        ({"callbacks": [EarlyStopping("loss")]}, "callbacks was [], and is ['EarlyStopping'] now"),
        ({"metrics": None, "train_metrics": True}, "metrics was"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_another_run_is_refused(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    own = {"epochs": 2, "train_metrics": True, "verbose": 0, "resume": tmp_path}
    program().load().fit(samples(8), **own)
    change = dict(change)
    data, words = change.pop("data", samples(8)), change.pop("program", {})
    trainer = program(**words).load()
    before = trainer.save()
    with pytest.raises(CheckpointError, match="holds another run") as raised:
        trainer.fit(data, **{**own, **change})
    assert why in str(raised.value)
    assert trainer.save() == before


def test_another_rate_or_order_is_refused(tmp_path: Path) -> None:
    def run(data: Any, lr: float, bomb: int) -> None:
        words: dict[str, Any] = {"epochs": 2, "resume": tmp_path, "save_steps": 1, "verbose": 0}
        program().load().fit(data, lr=lr, callbacks=[Bomb(bomb)], **words)

    x, y = samples(12)
    batches = [(x[at : at + 4], y[at : at + 4]) for at in (0, 4, 8)]
    with pytest.raises(Killed):
        run(batches, 0.1, 8)
    with pytest.raises(DataError, match=r"(?s)learning rate.*it was 0.1, and is 0.2"):
        run(batches, 0.2, 10**9)
    trainer = program().load()
    before = trainer.save()
    with pytest.raises(DataError, match="another order"):
        words: dict[str, Any] = {"epochs": 2, "resume": tmp_path, "lr": 0.1, "verbose": 0}
        trainer.fit(batches[1:] + batches[:1], **words)
    assert trainer.save() == before
    run(batches, 0.1, 10**9)
    with pytest.raises(DataError, match=r"(?s)learning rate.*it was 0.1, and is 0.2"):
        run(batches, 0.2, 10**9)  # of a run that is finished, too


def test_damaged_files_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    words: dict[str, Any] = {"epochs": 2, "resume": tmp_path, "verbose": 0}
    program().load().fit(samples(8), **words)
    blob = (tmp_path / "run.zip").read_bytes()
    content = unpacked(blob)
    assert packed(content) == blob
    cases = [b"", blob[:-10], blob[: len(blob) // 2], b"PK" + blob[2:100], compressed(blob)]
    cases += [packed({**content, name: None}) for name in ("place", "history", "trainer", "rate")]
    cases += [packed({**content, "place": {**content["place"], "position": -1}})]
    cases += [packed({**content, "trainer": content["trainer"][:-1]})]
    trainer = program().load()
    before = trainer.save()
    for case in cases:
        (tmp_path / "run.zip").write_bytes(case)
        with pytest.raises(CheckpointError):
            trainer.fit(samples(8), **words)
        assert trainer.save() == before


@pytest.mark.parametrize("broken", [None, 7, {}, {"now": {}}, {"now": {"python": 3}}])
def test_random_numbers_that_are_none_are_refused(broken: Any, tmp_path: Path) -> None:
    words: dict[str, Any] = {"resume": tmp_path, "save_steps": 1, "verbose": 0}
    with pytest.raises(Killed):
        program().load().fit(Stepping(8), callbacks=Bomb(6), **words)
    content = unpacked((tmp_path / "run.zip").read_bytes())
    assert content["place"]["position"] == 1 and {"now", "before"} < content["data"].keys()
    (tmp_path / "run.zip").write_bytes(packed({**content, "data": broken or [1]}))
    trainer = program().load()
    before = trainer.save()
    with pytest.raises(DataError, match="random numbers of the run"):
        trainer.fit(Stepping(8), **words)
    assert trainer.save() == before


def compressed(blob: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("run.json", json.dumps({"format": 1, "run": unpacked(blob)["about"]}))
    return buffer.getvalue()


def test_a_table_has_a_row_for_each_epoch_however_often_it_was_killed(tmp_path: Path) -> None:
    history = program().load().fit(samples(8), epochs=3, verbose=0)
    table = tmp_path / "log.csv"
    words: dict[str, Any] = {"epochs": 3, "resume": tmp_path / "run", "verbose": 0}
    for at in (8, 7, 8, 7):  # at the end of epochs, before and after they are saved
        with pytest.raises(Killed):
            program().load().fit(samples(8), callbacks=[CSVLogger(table), Bomb(at)], **words)
    program().load().fit(samples(8), callbacks=[CSVLogger(table)], **words)
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert rows[0] == ["epoch", "loss", "lr"]
    assert [float(row[1]) for row in rows[1:]] == history.history["loss"]
