"""The search as a whole: budgets in, schemes out, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import small_search as small
import whet
from whet.cli import main
from whet.errors import BudgetError, DataError, SchemeError, WhetError
from whet.labs.common.validate import DIVERGED, Outcome
from whet.labs.search.candidate import HEAD, Candidate
from whet.labs.search.run import choose, doubt
from whet.labs.search.trials import Training, Trials

QUICK = whet.TrialSettings(epochs=1, head_epochs=2)


def searched(store: Path, **words: Any) -> Any:
    model = small.network()
    settings = whet.TrialSettings(epochs=2, head_epochs=4)
    return whet.search(
        model,
        (small.example(),),
        small.arrays(),
        ram=["1K", "41K", "48K"],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        search=whet.Search(store=store, trial=settings, **words),
    )


def test_budgets_in_schemes_out(tmp_path: Path) -> None:
    found = searched(tmp_path, finalists=5, splits=2)
    assert [row.budget for row in found.rows] == [41 * 1024, 48 * 1024]
    model = small.network()
    for row in found.rows:
        program = whet.compile(model, (small.example(),), update=row.scheme, ram=row.budget)
        assert program.memory["ram"] == row.ram <= row.budget
        assert row.outcome.accuracy > 30 and row.outcome.epochs == 4
        assert "points of accuracy" in row.scheme.origin
        assert 3 <= len(row.finalists) <= 6, "five, and the best if it is another budget's"
        assert row.candidate in [finalist.candidate for finalist in row.finalists.values()]
        assert all(finalist.ram <= row.budget for finalist in row.finalists.values())
        assert row.outcome.accuracy >= row.finalists["head alone"].outcome.accuracy
    paths = found.write(tmp_path / "out")
    assert [path.name for path in paths] == ["auto-41K.toml", "auto-48K.toml", "contributions.json"]
    assert whet.Scheme.from_toml(paths[1]) == found.scheme
    assert paths[2].read_text() == found.contributions.to_json()
    assert found.missed == (1024,) and f"takes {found.least / 1024:.1f} KiB" in str(found)
    again = searched(tmp_path, finalists=5, splits=2)
    assert [r.scheme.to_toml() for r in again.rows] == [r.scheme.to_toml() for r in found.rows]


def test_a_single_finalist_is_the_best_sum_of_gains(tmp_path: Path) -> None:
    """The head alone is trained too, for comparison, and does not count."""
    (_, one), (_, none) = (searched(tmp_path, finalists=n, splits=1).rows for n in (1, 0))
    assert list(one.finalists) == ["pooled gains"]
    assert one.finalists["pooled gains"].ram == none.ram


def test_the_layer_that_matters_is_found(tmp_path: Path) -> None:
    """The first layer loses what tells the classes apart; its successors cannot bring it back."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 8), nn.Identity(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    ).eval()
    with torch.no_grad():
        model[0].weight[:, :2] = 0.0  # the two features below are not seen
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 8)).astype(np.float32)
    labels = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    x[:, :2] *= 2
    found = whet.search(
        model, (torch.zeros(4, 8),), (x, labels), ram="64K",
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        search=whet.Search(store=tmp_path, finalists=5, splits=2),
    )  # fmt: skip
    (row,) = found.rows
    gains = found.contributions.weights
    assert gains[0, 1.0] == max(gains.values()) > 20 > gains[1, 1.0] + 10
    assert (0, 1.0) in row.candidate.weights
    assert row.outcome.accuracy > 90 > 70 > row.finalists["head alone"].outcome.accuracy


def test_a_network_without_biases(tmp_path: Path) -> None:
    """Its candidates that train biases alone train the same as the head."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 3))
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 120)
    x = (random.normal(size=(3, 8))[labels] + random.normal(size=(120, 8))).astype(np.float32)
    least = whet.plan(model, (torch.zeros(4, 8),), "last").ram
    found = whet.search(
        model, (torch.zeros(4, 8),), (x, labels), ram=[least, least + 32, least + 4096],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        search=whet.Search(store=tmp_path, trial=QUICK, finalists=4, splits=1),
    )  # fmt: skip
    for row in found.rows:
        assert found.contributions.biases == (0.0, 0.0)
        assert row.candidate.biases == 0 or row.candidate.weights
        assert row.ram <= row.budget


@pytest.mark.parametrize(
    "words",
    [
        {"by": "fisher"},
        pytest.param({"by": "gradient", "method": "evolution"}, marks=pytest.mark.slow),
    ],
)
def test_proxies_and_evolution(tmp_path: Path, words: dict[str, str], monkeypatch: Any) -> None:
    monkeypatch.setattr("whet.labs.search.solve.GENERATIONS", 5)
    found = searched(tmp_path, finalists=0, **words)
    assert all(row.ram <= row.budget for row in found.rows)
    assert found.rows[0].outcome is None and "-" in str(found)
    for row in found.rows:
        assert row.score == pytest.approx(found.contributions.score(row.candidate))


def test_contributions_alone(tmp_path: Path) -> None:
    model = small.network()
    gains = whet.contributions(
        model, (small.example(),), small.arrays(),
        search=whet.Search(store=tmp_path, by="fisher", trial=QUICK),
    )  # fmt: skip
    assert gains.measure == "fisher" and len(gains.biases) == small.LAYERS + 1
    assert list(gains.biases) == sorted(gains.biases) and len(gains.weights) == 13


@pytest.mark.filterwarnings("ignore:no candidate has learned")
def test_compile_finds_a_scheme_by_itself(tmp_path: Path) -> None:
    model, x, (images, labels) = small.network(), small.example(), small.arrays()
    loader = [(images[i : i + 40], labels[i : i + 40]) for i in range(0, 160, 40)]
    how = whet.Search(store=tmp_path, trial=QUICK, by="fisher", batch=8, splits=1)
    program = whet.compile(model, (x,), update=how, ram="45K", data=loader)
    assert program.memory["ram"] <= 45 * 1024
    assert program.scheme is not None and program.scheme.name == "auto-45K"
    assert np.isfinite(program.load().step(x, torch.zeros(small.BATCH, dtype=torch.int64)))


@pytest.mark.parametrize("cache", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_search_leaves_a_frozen_beginning_to_keep(tmp_path: Path, cache: bool) -> None:
    """Where memory is no limit, training the first layer gains most."""
    how = whet.Search(store=tmp_path, trial=QUICK, by="fisher", finalists=0)
    program = whet.compile(
        small.network(), (small.example(),), update=how, ram="1M", data=small.arrays(),
        cache_prefix=cache,
    )  # fmt: skip
    assert any(name.startswith("first") for name in program.trained) != cache
    assert any(name.startswith("last") for name in program.trained)
    assert bool(program.kept) == cache


def test_the_best_mean_score_that_fits_is_chosen() -> None:
    plans = small.plans()
    small_one, large = Candidate(1), Candidate(4, ((0, 1.0), (3, 1.0)))
    outcomes = {HEAD: Outcome(50.0, 1.0, 2), small_one: Outcome(55.0, 0.9, 2),
                large: Outcome(60.0, 0.8, 2)}  # fmt: skip
    assert choose(plans.ram(large), outcomes, plans) == large
    assert choose(plans.ram(large) - 1, outcomes, plans) == small_one
    outcomes[large] = Outcome(0.0, DIVERGED, 1)
    assert choose(plans.ram(large), outcomes, plans) == small_one
    outcomes[small_one] = Outcome(49.0, 1.1, 2)
    assert choose(plans.ram(large), outcomes, plans) == HEAD


def test_what_a_search_needs() -> None:
    model, x, pair = small.network(), (small.example(),), small.arrays()
    with pytest.raises(SchemeError, match='update="auto" needs ram='):
        whet.compile(model, x, update="auto", data=pair)
    with pytest.raises(SchemeError, match='update="auto" needs data='):
        whet.compile(model, x, update="auto", ram="1M")
    with pytest.raises(SchemeError, match="data= is for a search"):
        whet.compile(model, x, update="last", data=pair)
    with pytest.raises(BudgetError, match="too few to train anything"):
        whet.compile(model, x, update="auto", ram="1K", data=pair)
    with pytest.raises(DataError, match="shape"):
        whet.compile(model, x, update="auto", ram="1M", data=(pair[0][:, :, :5], pair[1]))
    with pytest.raises(DataError, match="too few to search by"):
        how = whet.Search(validation=(pair[0][:2], pair[1][:2]))
        whet.compile(model, x, update=how, ram="1M", data=pair)
    with pytest.raises(DataError, match="the data are empty"):
        whet.compile(model, x, update="auto", ram="1M", data=[])
    wrong: dict[str, Any]
    for wrong in ({"batch": 0}, {"finalists": -1}, {"workers": 1.5}, {"splits": 0}):
        with pytest.raises(WhetError, match="is not an integer of at least"):
            whet.Search(**wrong)
    for wrong in ({"epochs": 0}, {"epochs": "3"}, {"seed": -1}, {"lr": float("nan")}):
        with pytest.raises(DataError):
            whet.TrialSettings(**wrong)
    nothing: Any = {}
    with pytest.raises(WhetError, match=r"is not a whet\.Search"):
        whet.search(model, x, pair, ram="1M", search=nothing)
    with pytest.raises(WhetError, match="there is no by='magic'"):
        whet.Search(by="magic")
    with pytest.raises(BudgetError, match="no budget"):
        whet.search(model, x, pair, ram=[])


def test_a_search_that_learned_nothing_says_so() -> None:
    trial, nan = small.trial(), float("nan")
    count = len(trial.validation)
    common = 100 * np.bincount(trial.validation.labels).max() / count
    assert f"{common:.1f} %" in doubt([Outcome(common + 5, 1.0, 1)], [trial]), "within noise"
    assert doubt([Outcome(common + 30, 1.0, 1)], [trial]) == ""
    assert doubt([], [trial]) == ""
    before = Training(trial, HEAD).outcome(0).loss
    assert "the lowest loss is" in doubt([Outcome(nan, before, 1)], [trial])
    assert doubt([Outcome(nan, 0.5 * before, 1)], [trial]) == ""
    assert "lowest loss is inf" in doubt([Outcome(nan, DIVERGED, 1)], [trial])


def command(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))
    monkeypatch.chdir(folder)
    common = ["whet", "search", "small_search:network", "-i", "4,1,12,12"]
    monkeypatch.setattr("sys.argv", [*common, *words])
    with pytest.raises(SystemExit) as done:
        main()
    return int(done.value.code or 0)


def test_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    x, y = small.arrays()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    words = ["--data", "data.npz", "--ram", "41K,48K", "--lr", "0.05", "--by", "fisher",
             "--workers", "1", "--epochs", "2", "--splits", "1", "--store", "store", "-o",
             "out"]  # fmt: skip
    assert command(monkeypatch, tmp_path, *words) == 0
    told = capsys.readouterr().out
    assert "auto-41K" in told and "head alone" in told
    assert "wrote out/auto-41K.toml, out/auto-48K.toml, out/contributions.json\n" in told
    assert "next: whet compile ... --update out/auto-48K.toml\n" in told
    assert whet.Scheme.from_toml(tmp_path / "out" / "auto-48K.toml").name == "auto-48K"
    assert command(monkeypatch, tmp_path, *words, "--json") == 0, "outcomes are those stored"
    found = json.loads(capsys.readouterr().out)
    assert [row["scheme"] for row in found["rows"]] == ["auto-41K", "auto-48K"]
    assert all(row["ram"] <= row["budget"] for row in found["rows"]) and found["missed"] == []
    assert found["files"][-1] == "out/contributions.json"


def test_the_best_finalist_is_starred_also_if_it_is_of_another_budget(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """Here the finalist of the smaller budget is the best of both."""
    x, y = small.arrays()
    np.savez(tmp_path / "data.npz", x=x, y=y)

    def outcomes(self: Trials, candidates: Any, *_: Any) -> dict[Candidate, list[Outcome]]:
        small_ones = {c for c in candidates if c != HEAD and small.plans().ram(c) <= 41 * 1024}
        return {c: [Outcome(60.0 if c in small_ones else 50.0, 1.0, 1)] for c in candidates}

    monkeypatch.setattr(Trials, "outcomes", outcomes)
    words = ["--data", "data.npz", "--ram", "41K,48K", "--lr", "0.05", "--by", "fisher",
             "--workers", "1", "--splits", "1", "--finalists", "1", "--store", "store"]  # fmt: skip
    assert command(monkeypatch, tmp_path, *words) == 0
    found = [line.split() for line in capsys.readouterr().out.splitlines() if "loss 1.0000" in line]
    own, others, starred = (line for line in found if "trained" not in line)
    assert own[:3] == ["*", "pooled", "gains"] and others[:2] == ["pooled", "gains"]
    assert starred[:6] == ["*", "pooled", "gains", "for", "41.0", "KiB"]
    assert starred[6:] == own[3:] != others[2:]


def test_the_command_writes_one_scheme_and_says_if_nothing_was_learned(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    x, y = small.arrays()
    np.savez(tmp_path / "data.npz", x=np.zeros_like(x), y=y)
    words = ["--data", "data.npz", "--ram", "48K", "--by", "fisher", "--workers", "1", "--epochs",
             "1", "--splits", "1", "--store", "store", "-o", "best.toml"]  # fmt: skip
    assert command(monkeypatch, tmp_path, *words) == 0
    told = capsys.readouterr()
    assert "wrote best.toml\n" in told.out
    assert whet.Scheme.from_toml(tmp_path / "best.toml").name == "auto-48K"
    assert "whet: warning: no candidate has learned anything: the best is right on" in told.err
    assert "try another --lr, more --epochs, or more data" in told.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.npz", "--ram", "41K,48K", "-o", "a.toml"], "2 schemes do not go into a.toml"),
        (["no.npz", "--ram", "41K", "-o", "no/a.toml"], "there is no folder"),
        (["no.npz", "--ram", "41x"], "'41x' is not a number of bytes"),
        (["no.npz", "--ram", "48K"], "cannot read"),
        (["nowhere:data", "--ram", "48K"], "cannot read"),
    ],
)
def test_the_command_refuses_before_it_begins(
    tmp_path: Path, monkeypatch: Any, capsys: Any, words: list[str], message: str
) -> None:
    assert command(monkeypatch, tmp_path, "--data", *words) == 1
    assert message in capsys.readouterr().err
