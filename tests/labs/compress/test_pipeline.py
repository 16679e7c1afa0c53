"""The pipeline: stages, their table, files that reload, runs that resume; and the curves."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import whet
from blobs import DATA, MODEL, OPTIONS, TEST, judge, net, same, samples
from whet import compress
from whet.cli import app
from whet.errors import CheckpointError, DataError, SchemeError


def test_every_stage_says_accuracy_and_bytes_and_the_file_reloads_to_them(tmp_path: Path) -> None:
    model, seen = net(), []
    untouched = copy.deepcopy(model)
    made = compress.compress(model, DATA, **OPTIONS, half=True, watch=seen.append)
    assert same(model, untouched)
    assert [s.name for s in made.stages] == ["start", "train", "prune", "kmeans", "f16"]
    assert list(made.stages) == seen
    start, trained, pruned, shared, last = made.stages
    assert start.bytes == trained.bytes == 4 * (8 * 24 + 24 + 24 * 4 + 4)
    assert start.accuracy == judge(model) < 60 < 85 < trained.accuracy
    assert pruned.nonzeros == shared.nonzeros == round(0.4 * 288) + 28
    assert start.bytes > pruned.bytes > shared.bytes > last.bytes
    assert made.accuracy == judge(made.model) > 80
    for name in ("0.weight", "2.weight"):
        weight = made.model.get_parameter(name)
        assert len(weight[weight != 0].unique()) <= 8
    written = made.write(tmp_path / "out")
    assert [p.name for p in written] == [
        "model.whtc", "weights.npz", "compression.txt", "0.weight.svg", "2.weight.svg",
    ]  # fmt: skip
    assert written[0].stat().st_size == made.bytes
    again = compress.load(written[0], net(seed=3))
    assert same(again, made.model) and judge(again) == made.accuracy
    arrays = np.load(written[1], allow_pickle=False)
    assert np.array_equal(arrays["0.weight"], again[0].weight.detach().numpy())
    text = written[2].read_text()
    assert "prune: 0.6" in text and f"a file of {made.bytes:,}" in text and str(made) in text


def test_batches_that_can_be_read_once_are_enough() -> None:
    batches = [(DATA[0][i : i + 50], DATA[1][i : i + 50]) for i in range(0, len(DATA[0]), 50)]
    once = compress.compress(net(), iter(batches), **OPTIONS)
    assert same(once.model, compress.compress(net(), batches, **OPTIONS).model)


def test_tables_add_up() -> None:
    made = compress.compress(net(), DATA, **OPTIONS)
    rows = [line.split() for line in made.layer_table().splitlines()]
    assert rows[0][3:8] == ["start", "train", "prune", "kmeans", "bits"]
    layers, total = rows[1:-1], rows[-1]
    assert [row[0] for row in layers] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for column in (4, 5, 6, 7):
        bytes_ = [int(row[column].replace(",", "")) for row in layers]
        header = made.stages[column - 4].sizes.header if column > 5 else 0
        assert sum(bytes_) + header == int(total[column].replace(",", ""))
    assert made.stage_table().splitlines()[-1].split()[-1] == f"{made.ratio:.1f}x"


def test_the_model_compiles() -> None:
    made = compress.compress(net(), DATA, **OPTIONS)
    program = whet.compile(made.model, (torch.zeros(1, 8),))
    found = program.load().predict(TEST[0]).argmax(1)
    assert 100 * float((found == TEST[1]).mean()) == pytest.approx(made.accuracy)


def test_functions_instead_of_data_and_layers_of_their_own() -> None:
    rounds = []
    made = compress.compress(
        net(), train=lambda m: rounds.append(1), evaluate=judge, prune={"0": 0.5},
        kmeans={"2": 2}, rounds=2, settle=0, centroid_rounds=1,
    )  # fmt: skip
    assert len(rounds) == 3
    assert made.model[0].weight.count_nonzero() == 96
    assert len(made.model[2].weight.unique()) == 4
    assert len(made.model[0].weight.unique()) > 90


def test_zeros_of_layers_without_codebooks_stay_while_centroids_train() -> None:
    made = compress.compress(net(), DATA, **OPTIONS | dict(kmeans={"2": 2}, layers=None))
    assert sum(int(p.count_nonzero()) for p in made.model.parameters() if p.ndim > 1) == 115
    names = [name for name, _ in made.model.named_parameters()]
    assert names == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_channels_are_a_stage() -> None:
    made = compress.compress(net(), DATA, **OPTIONS | dict(channels=0.5, kmeans=None))
    assert [s.name for s in made.stages] == ["start", "train", "channels", "prune"]
    assert made.model[0].out_features == 12
    assert made.stages[2].numbers == 8 * 12 + 12 + 12 * 4 + 4
    assert made.accuracy == judge(made.model)


class Stopped(Exception):
    pass


def test_a_stopped_run_resumes_at_every_stage(tmp_path: Path) -> None:
    """To the numbers of a run that nobody stopped; what was done is not done again."""
    options = OPTIONS | dict(channels=0.5, first=2)
    del options["test"]
    train = compress.fitting(DATA, TEST, epochs=1, batch=32)[0]
    calls: list[int] = []

    def once_more(limit: int) -> Any:
        def run(model: nn.Module) -> None:
            if len(calls) >= limit:
                raise Stopped
            calls.append(1)
            train(model)

        return run

    def whole(limit: int, folder: Path | None) -> compress.Compressed:
        return compress.compress(
            net(), DATA, **options, train=once_more(limit), evaluate=judge, folder=folder
        )

    wanted = whole(99, None)
    total = len(calls)
    assert total == 2 + 3 + 3 + 1
    calls.clear()
    for limit in range(total):
        with pytest.raises(Stopped):
            whole(limit, tmp_path)
        assert len(calls) == limit
    found = whole(99, tmp_path)
    assert len(calls) == total
    assert same(wanted.model, found.model)
    assert [s.accuracy for s in wanted.stages] == [s.accuracy for s in found.stages]
    assert same(whole(total, tmp_path).model, found.model)
    with pytest.raises(CheckpointError, match=r"start\.npz is of another run"):
        compress.compress(net(), DATA, **options | dict(seed=1), folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"start\.npz is of another run"):
        compress.compress(net(), samples(300), **options, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"start\.npz is of another run"):
        compress.compress(net(), DATA, **options, test=TEST, folder=tmp_path)


def test_other_options_of_a_stage_leave_earlier_stages_as_they_are(tmp_path: Path) -> None:
    compress.compress(net(), DATA, **OPTIONS, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"prune.start\.npz is of another run"):
        compress.compress(net(), DATA, **OPTIONS | dict(prune=0.5), folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"kmeans.round-000\.npz is of another run"):
        compress.compress(net(), DATA, **OPTIONS | dict(kmeans=2), folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(prune=1.0), "prune=1.0 is not a share"),
        (dict(prune=90), "prune=0.9"),
        (dict(prune={"0": -0.1}), "prune=-0.1"),
        (dict(prune={"fc": 0.1}), "'fc' matches no weight"),
        (dict(kmeans=0), "bits=0"),
        (dict(kmeans={"fc": 3}), "fc"),
        (dict(prune=None, kmeans=None, first=0), "nothing to do"),
        (dict(kmeans={}), "bits={} is for no layer"),
        (dict(layers=[]), "layers=[] is no layer"),
        (dict(rounds=0), "rounds=0"),
        (dict(first=-1), "first=-1"),
        (dict(centroid_rounds=-1), "centroid_rounds=-1"),
        (dict(seed=-1), "seed=-1"),
        (dict(epochs=1.5), "epochs=1.5"),
        (dict(lr=0.0), "lr=0.0"),
        (dict(channels=2.0), "not a share"),
        (dict(distill=net(), train=lambda m: None), "train= is given"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_any_training(
    arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.labs.compress.fit.fit", lambda *_: pytest.fail("it trained"))
    with pytest.raises(SchemeError) as caught:
        compress.compress(net(), DATA, **OPTIONS | dict(first=0) | arguments)
    assert words in str(caught.value)


def test_data_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(DataError, match="nothing to train or judge by"):
        compress.compress(net())
    with pytest.raises(DataError, match="not classes"):
        compress.compress(net(), (DATA[0], DATA[0]))
    for shift in (-1, 1):
        with pytest.raises(DataError, match="do not fit the scores"):
            compress.compress(net(), (DATA[0], DATA[1] + shift))
    with pytest.raises(DataError, match=r"(?s)does not run on the samples.*shape \(3,\)"):
        compress.compress(net(), (DATA[0][:, :3], DATA[1]))
    with pytest.raises(DataError, match="does not run on the samples"):
        compress.compress(net(), DATA, test=(DATA[0][:, :3], DATA[1]))
    broken = net()
    with torch.no_grad():
        broken[0].weight[0, 0] = float("nan")
    with pytest.raises(DataError, match=r"(?s)1 of 192 numbers.*0\.weight"):
        compress.compress(broken, DATA)


# --- Curves ---------------------------------------------------------------------------------------


def test_curves_have_the_rates_that_were_asked_for(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 4)).eval()
    train, evaluate, _ = compress.fitting(DATA, TEST, epochs=1, lr=5e-3, batch=32)
    train(model)
    untouched = copy.deepcopy(model)
    calls: list[int] = []
    options: dict[str, Any] = dict(
        rates=(2, 4, 8), rounds=1, settle=0, scope="layer", folder=tmp_path
    )
    found = compress.curves(
        model, lambda m: (calls.append(1), train(m)) and None, evaluate, **options
    )
    assert same(model, untouched) and found.base == evaluate(model)
    rates = {way: [p.rate for p in found.of(way)] for way in ("prune", "kmeans", "both")}
    assert rates["prune"] == pytest.approx([2, 4, 8], rel=0.15)
    assert rates["kmeans"] == pytest.approx([4, 8], rel=0.25)  # 2 takes more than 8 bits
    assert rates["both"] == pytest.approx([8], rel=0.15)  # at 4, nothing is pruned
    assert all(p.bytes == round(found.bytes / p.rate) for p in found.points)
    svg = found.svg()
    assert svg.count("<polyline") == 3 and svg.count("<circle") == len(found.points)
    assert "pruning and k-means" in str(found)
    done = len(calls)
    again = compress.curves(model, lambda m: calls.append(1), evaluate, **options)
    assert again == found and len(calls) == done


def test_a_rate_at_which_a_layer_vanishes_is_left_out() -> None:
    model = net()
    with torch.no_grad():
        model[2].weight.mul_(0.001)
    found = compress.curves(
        model, lambda m: None, judge, rates=(1.2, 2), ways=("prune", "kmeans"), rounds=1
    )
    assert [p.rate for p in found.points] == pytest.approx([1.2], rel=0.15)
    assert len(found.left_out) == 1
    assert "left out: pruning, " in str(found) and "a layer would vanish" in str(found)


def test_curves_refuse_rates_and_ways_that_make_no_sense() -> None:
    for arguments in (dict(rates=()), dict(rates=(0.5,)), dict(ways=("zip",)), dict(ways="prune")):
        with pytest.raises(SchemeError):
            compress.curves(net(), lambda m: None, judge, **arguments)
    with pytest.raises(SchemeError, match="none of the rates"):
        compress.curves(net(), lambda m: None, judge, rates=(1000.0,))


# --- The command ----------------------------------------------------------------------------------

WORDS = "compress net.py:make --input 1,8 --data data.npz -o out "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    np.savez("data.npz", x=DATA[0], y=DATA[1], x_test=TEST[0], y_test=TEST[1])
    return tmp_path


def run(words: str) -> str:
    done = CliRunner().invoke(app, (WORDS + words).split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_writes_a_file_that_reloads(folder: Path) -> None:
    words = "--prune 0.6 --kmeans 0:4,2:3 --first 8 --rounds 2 --lr 0.01 --half"
    output = run(words)
    stages = [line.split() for line in output.splitlines()[1:6]]
    assert [row[0] for row in stages] == ["start", "train", "prune", "kmeans", "f16"]
    model = compress.load("out/model.whtc", net())
    assert judge(model) == float(stages[-1][1]) > 75
    assert Path("out/model.whtc").stat().st_size == int(stages[-1][3])
    assert "kmeans: {'0': 4, '2': 3}" in Path("out/compression.txt").read_text()
    assert run(words) == output, "and resumes"


def test_the_command_refuses_numbers_that_are_no_samples(folder: Path) -> None:
    np.savez("data.npz", x=np.float32(1), y=np.int64(1))
    with pytest.raises(DataError, match="not samples"):
        run("--prune 0.6")


def test_the_command_refuses_what_makes_no_sense(folder: Path) -> None:
    for words, kind, text in (
        ("--prune lots", SchemeError, "gives no number"),
        ("--kmeans 0:four", SchemeError, "gives no number"),
        ("--prune 0.5 --input 1,9", DataError, "do not fit"),
        ("", SchemeError, "nothing to do"),
    ):
        with pytest.raises(kind, match=text):
            run(words)
    assert not Path("out/model.whtc").exists()
