"""Contribution analysis: samples, shared beginnings, outcomes that are kept, proxies."""

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
from whet.errors import DataError, NotFinite, WhetError
from whet.labs.search.analysis import Trials, analyse, one_weight
from whet.labs.search.cut import behind, cut_before, cuts
from whet.labs.search.engine import Engine, next_of, stretches
from whet.labs.search.lesson import Bench, Lesson, Pupil, classes_second
from whet.labs.search.proxies import agreement, by_gradients, every_candidate, one_batch
from whet.labs.search.samples import Classes, Samples, classes_of, fit_to, gather, split
from whet.pipeline import Options, assemble
from whet.scheme import parameters_of
from whet.scheme.contribution import (
    Candidate,
    Contributions,
    Outcome,
    choices,
)


def parameters() -> Any:
    return parameters_of(small.imported().training.graph)


# Samples -------------------------------------------------------------------------------------


def test_data_come_as_arrays_or_in_batches() -> None:
    x, y = np.arange(12.0, dtype=np.float32).reshape(6, 2), np.arange(6)
    loader = [(torch.from_numpy(x[i : i + 2]), torch.from_numpy(y[i : i + 2])) for i in (0, 2, 4)]
    for given in ((x, y), loader, iter(loader), loader[::-1]):
        found = gather(given)
        order = np.argsort(found.labels)
        np.testing.assert_array_equal(found.inputs[0][order], x)
        np.testing.assert_array_equal(found.labels[order], y)
    np.testing.assert_array_equal(gather((x, y)).labels, y)
    assert gather(loader).checksum() == gather(loader[::-1]).checksum(), "in whatever order"
    assert len(gather(loader, limit=3)) == 3
    assert gather((x, y), limit=2).labels.tolist() == [0, 5], "from all over"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "no data"),
        ((np.ones((0, 2)), np.ones(0)), "no data"),
        (3, "no pairs"),
        ([(np.ones(2), np.ones(2), np.ones(2))], "no pairs"),
        ((np.ones((3, 2)), np.ones(2)), "differ in number"),
        ([(np.ones((2, 2)), np.ones(2)), (np.ones((2, 3)), np.ones(2))], "no pairs"),
        ((np.array([[np.nan]]), np.array([0])), "not finite"),
    ],
)
def test_what_are_no_data(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        gather(given)


def test_held_out_samples_are_a_fair_share_of_each_class() -> None:
    samples = small.data(200)
    train, judge = split(samples, 0.25, small.BATCH, 0)
    assert len(train) == 150 and len(judge) == 50
    for c in range(small.CLASSES):
        assert abs((judge.labels == c).sum() - (samples.labels == c).sum() / 4) < 1
    pixels = [{x.tobytes() for x in part.inputs[0]} for part in (train, judge)]
    assert not pixels[0] & pixels[1]
    again, _ = split(samples, 0.25, small.BATCH, 0)
    np.testing.assert_array_equal(again.labels, train.labels)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="too few to choose by"):
        split(small.data(12), 0.25, small.BATCH, 0)
    with pytest.raises(DataError, match="held_out=1"):
        split(small.data(), 1, small.BATCH, 0)


# Shared beginnings ---------------------------------------------------------------------------


def test_places_to_cut_are_where_one_value_passes() -> None:
    names = [cut.name for cut in small.bench().places]
    assert "add" in names and cuts(small.imported(), 1000) != small.bench().places
    # inside of the residual block two values pass
    assert not any("deep" in name or "point" in name for name in names)


@pytest.mark.parametrize(
    ("candidate", "int8"),
    [
        (Candidate(), False),
        pytest.param(Candidate(), True, marks=pytest.mark.slow),
        (Candidate(1, ((3, 0.5),)), False),
        (Candidate(1, ((3, 0.5),)), True),
    ],
)
def test_behind_a_cut_everything_is_as_in_the_whole(int8: bool, candidate: Candidate) -> None:
    """Losses of ten steps and every trained number; int8 to the bit."""
    model, samples = small.imported(int8), small.bench(int8).train
    scheme = candidate.scheme(parameters())
    cut = cut_before(model, scheme.resolve(parameters()).keys(), small.bench(int8).places)
    assert cut is not None
    pupil = Pupil(small.bench(int8), candidate)
    assert {v.name for v in behind(model, cut).training.graph.leaves} >= {cut.name}
    whole = assemble(model, scheme, Options(grow=False)).load()
    near = {} if int8 else {"rel": 1e-4}
    order = np.arange(40)
    for (x, y), (features, _) in zip(
        samples.batches(order, small.BATCH), pupil.train.batches(order, small.BATCH), strict=True
    ):
        loss = whole.step(x, y, lr=0.05)
        assert pupil.trainer.step(features, y, lr=0.05) == (
            pytest.approx(loss, **near) if near else loss
        )
    for name, array in whole.arrays().items():
        found = pupil.trainer.arrays()[name]
        np.testing.assert_allclose(found, array, rtol=0 if int8 else 1e-4, atol=0 if int8 else 1e-6)


def test_a_model_that_changes_as_it_runs_is_not_cut() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 5))
    source = whet.api.Source(model.train(), None, None, (small.example(),), None, None)
    assert cuts(source.imported(), 1 << 30) == []


class Mixed(nn.Module):
    """Samples that know of their neighbours, or lie along another axis, before the last layers."""

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
        if self.how == "flat":
            x = x.reshape(-1, 6)
        if self.how == "mode":
            x = x * (0.5 if self.training else 1.0)
        x = torch.relu(self.second(x))
        if self.how == "turned":
            x = x.transpose(0, 1)
        return self.head(x.reshape(4, -1, 6).mean(1))


@pytest.mark.parametrize("how", ["plain", "mean", "turned", "flat", "mode"])
def test_a_cut_changes_nothing_whatever_the_model_does(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = Mixed(how).train(how == "mode")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = whet.api.Source(model, None, optimizer, (torch.zeros(4, 4, 6),), None, None)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 4, 6)).astype(np.float32), random.integers(0, 3, 40)
    bench = Bench(source.imported(), Samples((x,), y), Samples((x,), y), Lesson(epochs=2))
    found = bench.run(Candidate(1, ((1, 1.0),)))
    monkeypatch.setattr(Bench, "places", [])
    whole = bench.run(Candidate(1, ((1, 1.0),)))
    assert found.loss == pytest.approx(whole.loss, rel=1e-5)


def test_labels_that_do_not_count_do_not(tmp_path: Path) -> None:
    bench = small.bench()
    graph = bench.model.training.graph
    assert classes_of(graph) == Classes(small.CLASSES, -100)
    labels = np.where(np.arange(len(bench.judge)) % 2, bench.judge.labels, -100)
    half = dataclasses.replace(bench.judge, labels=labels)
    known = dataclasses.replace(bench, judge=half)
    kept = np.flatnonzero(labels != -100)
    alone = dataclasses.replace(bench, judge=bench.judge.take(kept))
    assert Pupil(known, Candidate()).outcome(0) == Pupil(alone, Candidate()).outcome(0)


@pytest.mark.parametrize(
    ("labels", "words"),
    [(np.full(40, 5), "out of range"), (np.full(40, -1), "out of range"),
     (np.zeros(40), "numbers of classes"), (np.zeros((40, 2), int), "shape")],
)  # fmt: skip
def test_labels_are_looked_at_first(labels: Any, words: str) -> None:
    samples = Samples((small.data().inputs[0][:40],), labels)
    with pytest.raises(DataError, match=words):
        fit_to(small.imported(), samples)


# Trying candidates ---------------------------------------------------------------------------


def test_training_helps_and_is_the_same_every_time() -> None:
    bench = small.bench().with_trained_head()
    start = Pupil(bench, Candidate()).outcome(0)
    everything = Candidate(4, tuple((i, 1.0) for i in range(4)))
    first, second = bench.run(everything), bench.run(everything)
    assert first.loss < start.loss and first.accuracy > start.accuracy
    assert dataclasses.replace(first, seconds=0) == dataclasses.replace(second, seconds=0)


def test_accuracy_and_loss_are_those_of_pytorch() -> None:
    bench = small.bench()
    found = Pupil(bench, Candidate()).outcome(0)
    logits = small.network()(torch.from_numpy(bench.judge.inputs[0])).detach()
    labels = torch.from_numpy(bench.judge.labels)
    assert found.loss == pytest.approx(float(nn.CrossEntropyLoss()(logits, labels)), rel=1e-4)
    assert found.accuracy == pytest.approx(100 * float((logits.argmax(1) == labels).float().mean()))


def test_where_classes_lie_must_be_clear() -> None:
    def clear(scores: tuple[int, ...], labels: tuple[int, ...]) -> bool:
        return classes_second(np.zeros(scores), np.zeros(labels))

    assert clear((4, 10), (4,)) and clear((4, 10, 6), (4, 6)) and clear((4, 10, 6, 7), (4, 6, 7))
    assert not clear((4, 6, 10), (4, 6)), "they are last"
    assert not clear((4, 6, 6), (4, 6)), "they could be either"


def test_without_classes_the_loss_is_what_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss, inputs = nn.MSELoss(), (torch.zeros(4, 3),)
    imported = whet.api.Source(model, loss, optimizer, inputs, None, None).imported()
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    samples = Samples((x,), x.sum(1, keepdims=True))
    bench = Bench(imported, samples, samples, Lesson(epochs=4))
    pupil = Pupil(bench, Candidate())
    before = pupil.trainer.save()
    found = pupil.outcome(0)
    assert pupil.trainer.save() == before, "judging changes nothing, not even momentum"
    wanted = float(loss(model(torch.from_numpy(x)), torch.from_numpy(samples.labels)).detach())
    assert found.loss == pytest.approx(wanted, rel=1e-5) and math.isnan(found.accuracy)
    assert bench.run(Candidate(1, ((0, 1.0),))).loss < found.loss


def test_a_candidate_that_diverges_is_given_up() -> None:
    bench = small.bench()
    wild = dataclasses.replace(bench, lesson=Lesson(epochs=50, rate=1e6))
    found = wild.run(Candidate(4, ((0, 1.0),)))
    assert found.epochs < 50
    assert not found.better_than(Pupil(bench, Candidate()).outcome(0))
    with pytest.raises(NotFinite, match="the head alone diverges"):
        dataclasses.replace(bench, lesson=Lesson(rate=1e38)).with_trained_head()


# The analysis --------------------------------------------------------------------------------


def plain(gains: Contributions) -> tuple[Any, ...]:
    return gains.biases, gains.weights, {c: o.accuracy for c, o in gains.outcomes.items()}


def test_every_bias_and_every_layer_is_tried(tmp_path: Path) -> None:
    gains = analyse(small.trials(tmp_path))
    assert len(gains.biases) == small.LAYERS + 1 and gains.biases[0] == 0.0
    tried = {c for c in gains.outcomes if c.weights}
    for layer, ratios in choices(parameters()).items():
        whole = one_weight(parameters(), layer, 1.0)
        assert whole in tried
        helps = gains.outcomes[whole].better_than(gains.outcomes[Candidate(whole.biases)])
        for ratio in ratios:
            assert (one_weight(parameters(), layer, ratio) in tried) == (helps or ratio == 1.0)


class Stopped(Exception):
    pass


def test_what_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is computed twice, and the result is that of a run in one go."""
    wanted = analyse(small.trials(tmp_path / "one go"))
    ran: list[Candidate] = []
    run = Bench.run

    def counted(self: Bench, candidate: Candidate) -> Outcome:
        if len(ran) == 5:
            raise Stopped
        ran.append(candidate)
        return run(self, candidate)

    monkeypatch.setattr(Bench, "run", counted)
    with pytest.raises(Stopped):
        analyse(small.trials(tmp_path / "two"))
    lines = next((tmp_path / "two").glob("*/outcomes.jsonl"))
    assert len(lines.read_text().splitlines()) == 5
    with open(lines, "a") as file:
        file.write('{"candidate": "biases-1", "epo')  # as a crash leaves it
    again: list[Candidate] = []
    monkeypatch.setattr(Bench, "run", lambda self, c: (again.append(c), run(self, c))[1])
    heads: list[int] = []
    monkeypatch.setattr(Bench, "with_trained_head", lambda self: heads.append(1))
    found = analyse(small.trials(tmp_path / "two"))
    assert plain(found) == plain(wanted)
    assert not set(again) & set(ran) and heads == []
    assert len(again) + len(ran) == len(wanted.outcomes)


def test_other_data_are_another_analysis(tmp_path: Path) -> None:
    one = small.bench()
    changed = dataclasses.replace(one, train=one.train.take(np.arange(100)))
    from whet.labs.search.store import fingerprint

    longer = dataclasses.replace(one, lesson=Lesson(epochs=5))
    assert len({fingerprint(b) for b in (one, changed, longer, small.bench(int8=True))}) == 4
    assert fingerprint(one) == fingerprint(small.bench())


def test_two_processes_find_the_same(tmp_path: Path) -> None:
    one = analyse(small.trials(tmp_path / "one"))
    two = analyse(small.trials(tmp_path / "two", Engine(workers=2)))
    assert plain(one) == plain(two)


def test_neighbours_go_to_one_worker() -> None:
    """As far as it goes: who is done early takes from the end of the longest share."""
    shares = stretches(range(7), 3)
    assert [list(share) for share in shares] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [next_of(shares[0], shares) for _ in range(8)] == [0, 1, 6, 3, 5, 2, 4, None]
    assert [list(share) for share in stretches(range(2), 5)] == [[0], [1]]


class Dying:
    """A task: the first job ends its process, others take a minute."""

    def run(self, job: int) -> int:
        if job == 0:
            os._exit(1)
        time.sleep(60)
        return job


def test_a_worker_that_dies_ends_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(WhetError, match="a worker process ended"):
        list(Engine(workers=2).results(Dying(), [0, 1]))
    assert time.monotonic() - began < 50


UNGUARDED = """
from whet.labs.search.engine import Engine

class Large:
    def __init__(self):
        self.data = bytes(1 << 20)  # more than a pipe holds

    def run(self, job):
        return job

print(list(Engine(workers=2).results(Large(), [0, 1])))
"""


def test_a_script_that_starts_itself_again_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0 and "a worker process ended" in done.stderr
    assert "__main__" in done.stderr


@pytest.mark.slow
def test_a_ray_cluster_finds_the_same(tmp_path: Path) -> None:
    """A local one, of two workers."""
    one = analyse(small.trials(tmp_path / "one", int8=True))
    there = analyse(small.trials(tmp_path / "ray", Engine(2, ray="local"), int8=True))
    assert plain(one) == plain(there)


def test_there_is_no_cluster_there() -> None:
    with pytest.raises(WhetError, match="no Ray cluster at 127"):
        list(Engine(1, ray="127.0.0.1:1").results(small.bench(), [Candidate()]))
    with pytest.raises(WhetError, match="workers=0"):
        Engine(0)


KILLED = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
import small_search as small
from whet.labs.search.analysis import analyse
from whet.labs.search.engine import Engine
if __name__ == "__main__":
    analyse(small.trials(Path({folder!r}), Engine(workers=2)))
"""


@pytest.mark.slow
def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
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
    for entry in kept:
        outcome = found.outcomes[Candidate.parse(entry["candidate"])]
        assert dataclasses.asdict(outcome) == entry["outcome"], (
            "taken from the store, not run again"
        )
    assert plain(found) == plain(analyse(small.trials(tmp_path / "one go")))


# Proxies -------------------------------------------------------------------------------------


def ready() -> Bench:
    return small.bench().with_trained_head()


def test_gradients_are_those_of_pytorch() -> None:
    bench = ready()
    found = by_gradients(bench)
    model = small.network()
    model.load_state_dict({n: torch.from_numpy(a) for n, a in bench.head.items()}, strict=False)
    order = np.random.default_rng(bench.lesson.seed).permutation(len(bench.train))
    steps = []
    for x, y in bench.train.batches(order[: 32 * small.BATCH], small.BATCH):
        model.zero_grad()
        nn.CrossEntropyLoss()(model(torch.from_numpy(x[0])), torch.from_numpy(y)).backward()
        steps.append({n: p.grad.double().numpy() for n, p in model.named_parameters()})
    mean = {n: np.mean([s[n] for s in steps], 0) for n in steps[0]}
    square = {n: np.mean([s[n] ** 2 for s in steps], 0) for n in steps[0]}
    weights = {
        (3, 0.5): ("last.weight", np.s_[:, :4]), (2, 0.25): ("point.weight", np.s_[:, :2]),
        (1, 0.5): ("deep.weight", np.s_[:4]), (0, 1.0): ("first.weight", np.s_[:]),
    }  # fmt: skip
    for part, (name, place) in weights.items():
        norm = (mean[name][place] ** 2).sum()
        assert found["gradient"].weights[part] == pytest.approx(norm, rel=1e-4)
        assert found["gradient/byte"].weights[part] == pytest.approx(
            norm / (4 * mean[name][place].size), rel=1e-4
        )
        assert found["fisher"].weights[part] == pytest.approx(square[name][place].sum(), rel=1e-4)
    biases = ["last.bias", "point.bias", "deep.bias", "first.bias"]
    for k in range(5):
        wanted = sum(square[n].sum() for n in biases[:k])
        assert found["fisher"].biases[k] == pytest.approx(wanted, rel=1e-4)


def test_integers_have_the_gradients_of_what_they_stand_for() -> None:
    """Within what eight bits lose of the float network's."""
    real = by_gradients(ready())["fisher"]
    whole = by_gradients(small.bench(int8=True).with_trained_head())["fisher"]
    for part in ((3, 1.0), (2, 1.0), (0, 1.0)):
        assert whole.weights[part] == pytest.approx(real.weights[part], rel=0.5)


def test_one_batch_is_learned_better_the_more_trains(tmp_path: Path) -> None:
    trials = small.trials(tmp_path)
    gains = one_batch(trials)
    assert gains.biases[0] == 0.0 and gains.biases[-1] > 0
    assert len(gains.weights) == len(list(every_candidate(parameters()))) - small.LAYERS - 1
    assert gains.weights[0, 1.0] > 0
    lines = trials.store.lines.read_text()
    again = one_batch(trials)
    assert (again.biases, again.weights) == (gains.biases, gains.weights)
    assert trials.store.lines.read_text() == lines, "nothing was tried again"


def test_ranks_are_compared() -> None:
    one = Contributions("a", (0.0, 1.0, 2.0, 3.0), {(i, 1.0): float(i) for i in range(5)})
    other = Contributions("b", (9.0, 3.0, 2.0, 1.0), {(i, 1.0): float(i**3) for i in range(9)})
    assert agreement(one, other) == (pytest.approx(-1.0), pytest.approx(1.0))


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    bench = small.bench()
    from whet.labs.search.store import Store

    trials = Trials.begin(bench, Store(tmp_path, bench), Engine(), lambda *w: told.append(w))
    trials.outcomes([Candidate(1), Candidate(2)], "some")
    assert told == [
        ("training the head alone", 0, 1), ("training the head alone", 1, 1),
        ("some", 0, 2), ("some", 1, 2), ("some", 2, 2),
    ]  # fmt: skip
