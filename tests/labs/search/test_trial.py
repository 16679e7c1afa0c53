"""Trials: shared features, training and validation; many of them, stored and resumed; proxies."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import small_search as small
import whet
from tiny_transformers import transformer
from whet import TrialSettings
from whet.errors import DataError, NotFinite
from whet.fit.metrics import classes_second
from whet.labs.common.data import Samples
from whet.labs.common.validate import Outcome
from whet.labs.common.workers import Workers
from whet.labs.search.candidate import HEAD, Candidate, Contributions
from whet.labs.search.proxies import by_gradients
from whet.labs.search.trials import Store, Training, Trial, analyse

# Shared features -----------------------------------------------------------------------------


@pytest.mark.parametrize(("candidate", "int8"), [(HEAD, False), (Candidate(1, ((3, 0.5),)), True)])
def test_after_a_cut_training_is_that_of_the_whole_model(candidate: Candidate, int8: bool) -> None:
    """Losses of ten steps and every trained number; int8 to the bit."""
    trial = small.trial(int8)
    assert trial.cut(candidate) is not None
    training = Training(trial, candidate)
    assert training.train.inputs[0].shape != trial.train.inputs[0].shape
    whole = trial.bench.trainer(candidate.scheme(trial.bench.parameters))
    order = np.arange(40)
    for (x, y), (features, _) in zip(
        trial.train.batches(order, small.BATCH),
        training.train.batches(order, small.BATCH),
        strict=True,
    ):
        loss = whole.step(x, y, lr=0.05)
        assert training.trainer.step(features, y, lr=0.05) == (
            loss if int8 else pytest.approx(loss, rel=1e-4)
        )
    for name, array in whole.arrays().items():
        found = training.trainer.arrays()[name]
        np.testing.assert_allclose(found, array, rtol=0 if int8 else 1e-4, atol=0 if int8 else 1e-6)


class Mixed(nn.Module):
    """Samples that depend on their neighbours, or lie along another axis, before the head."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.how == "mean":
            x = x - x.mean(0)
        if self.how == "turned":
            x = x.transpose(0, 1)
        x = torch.relu(self.second(x))
        if self.how == "turned":
            x = x.transpose(0, 1)
        return self.head(x.reshape(4, -1, 6).mean(1))


@pytest.mark.parametrize("how", ["plain", "mean", "turned"])
def test_a_cut_changes_nothing_whatever_the_model_does(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = Mixed(how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bench = whet.Workbench.of(model, (torch.zeros(4, 4, 6),), optimizer=optimizer)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 4, 6)).astype(np.float32), random.integers(0, 3, 40)
    samples = Samples.of([x], y)
    trial = Trial(bench, samples, samples, TrialSettings(epochs=2))
    found = trial.run(Candidate(1, ((1, 1.0),)))
    monkeypatch.setattr(Trial, "cut", lambda *_: None)
    whole = trial.run(Candidate(1, ((1, 1.0),)))
    assert found.loss == pytest.approx(whole.loss, rel=1e-5)


# Training and validation ---------------------------------------------------------------------


def test_training_helps_and_is_the_same_every_time() -> None:
    trial = small.trial()
    trial = dataclasses.replace(trial, head=trial.train_head())
    start = Training(trial, HEAD).outcome(0)
    everything = Candidate(4, tuple((i, 1.0) for i in range(4)))
    first, second = trial.run(everything), trial.run(everything)
    assert first.loss < start.loss and first.accuracy > start.accuracy
    assert dataclasses.replace(first, seconds=0) == dataclasses.replace(second, seconds=0)


def test_accuracy_and_loss_are_those_of_pytorch() -> None:
    trial = small.trial()
    found = Training(trial, HEAD).outcome(0)
    logits = small.network()(torch.from_numpy(trial.validation.inputs[0])).detach()
    labels = torch.from_numpy(trial.validation.labels)
    assert found.loss == pytest.approx(float(nn.CrossEntropyLoss()(logits, labels)), rel=1e-4)
    assert found.accuracy == pytest.approx(100 * float((logits.argmax(1) == labels).float().mean()))


def test_ignored_labels_do_not_count() -> None:
    trial = small.trial()
    x, y = trial.validation.inputs, trial.validation.labels
    labels = np.where(np.arange(len(y)) % 2, y, -100)
    half = dataclasses.replace(trial, validation=Samples.of(x, labels))
    kept = np.flatnonzero(labels != -100)
    alone = dataclasses.replace(trial, validation=trial.validation.take(kept))
    assert Training(half, HEAD).outcome(0) == Training(alone, HEAD).outcome(0)


def test_the_axis_of_classes_must_be_clear() -> None:
    clear = classes_second
    assert clear((4, 10), (4,)) and clear((4, 10, 6), (4, 6)) and clear((4, 10, 6, 7), (4, 6, 7))
    assert not clear((4, 6, 10), (4, 6)), "they are last"
    assert not clear((4, 6, 6), (4, 6)), "they could be either"


def test_without_classes_the_models_loss_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = nn.MSELoss()
    bench = whet.Workbench.of(model, (torch.zeros(4, 3),), loss=loss, optimizer=optimizer)
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    samples = Samples.of([x], x.sum(1, keepdims=True))
    trial = Trial(bench, samples, samples, TrialSettings(epochs=4))
    training = Training(trial, HEAD)
    before = training.trainer.save()
    found = training.outcome(0)
    assert training.trainer.save() == before, "validation changes nothing, not even momentum"
    wanted = float(loss(model(torch.from_numpy(x)), torch.from_numpy(samples.labels)).detach())
    assert found.loss == pytest.approx(wanted, rel=1e-5) and math.isnan(found.accuracy)
    assert trial.run(Candidate(1, ((0, 1.0),))).loss < found.loss


def test_a_trial_that_diverges_is_stopped() -> None:
    trial = small.trial()
    wild = dataclasses.replace(trial, settings=TrialSettings(epochs=50, lr=1e6))
    assert wild.run(Candidate(4, ((0, 1.0),))).epochs < 50
    with pytest.raises(NotFinite, match="the head alone diverges"):
        dataclasses.replace(trial, settings=TrialSettings(lr=1e38)).train_head()


@pytest.mark.parametrize(
    ("labels", "words"),
    [(np.full(40, 5), "out of range"), (np.full(40, -1), "out of range"),
     (np.zeros(40), "class numbers"), (np.zeros((40, 2), int), "shape")],
)  # fmt: skip
def test_labels_are_checked_first(labels: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        small.bench().check_samples([small.arrays(40)[0]], labels)


# Many trials ---------------------------------------------------------------------------------


def plain(gains: Contributions) -> tuple[Any, ...]:
    return gains.biases, gains.weights, {c: o.accuracy for c, o in gains.outcomes.items()}


class Stopped(Exception):
    pass


def test_a_stopped_analysis_resumes_and_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run twice; every bias and every layer is tried."""
    wanted = analyse(small.trials(tmp_path / "one go"))
    space = small.space()
    assert set(space.prefixes) | {space.single(i, 1.0) for i in space.ratios} <= set(
        wanted.outcomes
    )
    ran: list[Candidate] = []
    run = Trial.run

    def counted(self: Trial, candidate: Candidate, epochs: int) -> Outcome:
        if len(ran) == 5:
            raise Stopped
        ran.append(candidate)
        return run(self, candidate, epochs)

    monkeypatch.setattr(Trial, "run", counted)
    with pytest.raises(Stopped):
        analyse(small.trials(tmp_path / "two"))
    lines = next((tmp_path / "two").glob("*/outcomes.jsonl"))
    assert len(lines.read_text().splitlines()) == 5
    with open(lines, "a") as file:
        file.write('{"candidate": "biases-1", "epo')  # as a crash leaves it
    again: list[Candidate] = []
    monkeypatch.setattr(Trial, "run", lambda self, c, n: (again.append(c), run(self, c, n))[1])
    monkeypatch.setattr(Trial, "train_head", lambda self: pytest.fail("the head is stored"))
    found = analyse(small.trials(tmp_path / "two"))
    assert plain(found) == plain(wanted)
    assert not set(again) & set(ran) and len(again) + len(ran) == len(wanted.outcomes)


def test_other_data_and_settings_have_a_store_of_their_own(tmp_path: Path) -> None:
    one = small.trial()
    changed = dataclasses.replace(one, train=one.train.take(np.arange(100)))
    slower = dataclasses.replace(one, settings=TrialSettings(lr=0.001))
    every = (one, changed, slower, small.trial(int8=True))
    assert len({Store(tmp_path, trial).folder for trial in every}) == 4
    longer = small.trial(epochs=5)
    assert Store(tmp_path, longer).folder == Store(tmp_path, one).folder


def test_two_workers_give_the_same(tmp_path: Path) -> None:
    some = [Candidate(1), Candidate(1, ((3, 0.5),)), Candidate(2), Candidate(4, ((0, 1.0),))]
    one, two = (
        small.trials(tmp_path / str(count), Workers(count)).outcomes(some, "some", 1)
        for count in (1, 2)
    )
    assert [(o.accuracy, o.loss) for c in some for o in one[c]] == [
        (o.accuracy, o.loss) for c in some for o in two[c]
    ]


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same(tmp_path: Path) -> None:
    """A local one, of two workers."""
    one = analyse(small.trials(tmp_path / "one", int8=True))
    there = analyse(small.trials(tmp_path / "ray", Workers(2, ray="local"), int8=True))
    assert plain(one) == plain(there)


KILLED = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
import small_search as small
from whet.labs.common.workers import Workers
from whet.labs.search.trials import analyse
if __name__ == "__main__":
    analyse(small.trials(Path({folder!r}), Workers(2)))
"""


@pytest.mark.slow
def test_a_killed_analysis_loses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    tests = str(Path(__file__).parents[2] / "support")
    script.write_text(KILLED.format(tests=tests, folder=str(tmp_path / "store")))
    running = subprocess.Popen([sys.executable, script], start_new_session=True)
    deadline = time.monotonic() + 120
    lines: list[str] = []
    while len(lines) < 4 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
        for file in (tmp_path / "store").glob("*/outcomes.jsonl"):
            lines = file.read_text().splitlines()
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = [json.loads(line) for line in lines]
    assert len(kept) >= 4
    found = analyse(small.trials(tmp_path / "store"))
    outcomes = {str(c): outcome.as_dict() for c, outcome in found.outcomes.items()}
    assert all(outcomes[entry["candidate"]] == entry["outcome"] for entry in kept)
    assert plain(found) == plain(analyse(small.trials(tmp_path / "one go")))


# Proxies -------------------------------------------------------------------------------------


def test_proxies_are_made_of_the_gradients_of_pytorch() -> None:
    trial = small.trial()
    found, model = by_gradients(trial), small.network()
    order = np.random.default_rng(trial.settings.seed).permutation(len(trial.train))
    steps = []
    for x, y in trial.train.batches(order[: 32 * small.BATCH], small.BATCH):
        model.zero_grad()
        nn.CrossEntropyLoss()(model(torch.from_numpy(x[0])), torch.from_numpy(y)).backward()
        steps.append(
            {n: p.grad.double().numpy() for n, p in model.named_parameters() if p.grad is not None}
        )
    mean = {n: np.mean([s[n] for s in steps], 0) for n in steps[0]}
    square = {n: np.mean([s[n] ** 2 for s in steps], 0) for n in steps[0]}
    weights: dict[tuple[int, float], tuple[str, Any]] = {
        (3, 0.5): ("last.weight", np.s_[:, :4]), (2, 0.25): ("point.weight", np.s_[:, :2]),
        (1, 0.5): ("deep.weight", np.s_[:4]), (0, 1.0): ("first.weight", np.s_[:]),
    }  # fmt: skip
    for part, (name, place) in weights.items():
        norm = (mean[name][place] ** 2).sum()
        assert found["gradient"].weights[part] == pytest.approx(norm, rel=1e-4)
        assert found["fisher"].weights[part] == pytest.approx(square[name][place].sum(), rel=1e-4)
    biases = ["last.bias", "point.bias", "deep.bias", "first.bias"]
    for k in range(5):
        wanted = sum(square[n].sum() for n in biases[:k])
        assert found["fisher"].biases[k] == pytest.approx(wanted, rel=1e-4)


def test_proxies_of_a_transformer_with_a_tied_head() -> None:
    """Every linear layer of the blocks has a gain; what trains in place of the head has none."""
    model, (x,) = transformer("smollm2")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    bench = whet.Workbench.of(model, (x,), optimizer=optimizer)
    arrays = x.repeat(8, 1).numpy()
    labels = np.roll(arrays, -1, 1)
    samples = Samples.of(bench.check_samples([arrays], labels), labels)
    trial = Trial(bench, samples, samples, TrialSettings(epochs=1))
    found = by_gradients(trial)
    linear = [p for p in bench.parameters if p.linear]
    assert len(linear) == trial.space.depth == 14
    for gains in found.values():
        assert {layer for layer, _ in gains.weights} == set(range(14))
        assert min(gains.weights.values()) > 0
        assert not any(gains.biases), "it has no biases"
