"""The search: real bytes, the best sum of gains, and a scheme that keeps its budget."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import small_search as small
import whet
from whet.cli import main
from whet.cli.search import SearchCommand
from whet.errors import BudgetError, DataError, SchemeError, WhetError
from whet.labs.search import charts
from whet.labs.search.choose import turns
from whet.labs.search.doubt import doubt, no_better_than_chance
from whet.labs.search.evolve import Evolution
from whet.labs.search.lesson import Pupil
from whet.labs.search.planner import Costs, Planner
from whet.labs.search.samples import Samples, split
from whet.labs.search.solve import exact
from whet.labs.search.within import (
    Found,
    Planned,
    Rival,
    evidence,
    exchanged,
    next_question,
    within,
)
from whet.models import mcunet_5fps
from whet.pipeline import Options
from whet.report import kib
from whet.scheme import parameters_of
from whet.scheme.contribution import (
    DIVERGED,
    Candidate,
    Contributions,
    Outcome,
    choices,
    depth,
)

SLOW = pytest.mark.slow


def parameters() -> Any:
    return parameters_of(small.imported().training.graph)


def made_up_gains(seed: int) -> Contributions:
    random = np.random.default_rng(seed)
    offered = choices(parameters())
    biases = (0.0, *(float(g) for g in random.normal(0.5, 1, depth(parameters()))))
    weights = {
        (i, r): float(g)
        for i, ratios in offered.items()
        for r, g in zip(ratios, np.sort(random.normal(1, 1, len(ratios))), strict=True)
    }
    return Contributions("accuracy", biases, weights)


def every_combination() -> Iterator[Candidate]:
    offered = choices(parameters())
    for k in range(depth(parameters()) + 1):
        reached = [i for i in offered if depth(parameters()) - i <= k]
        for ratios in itertools.product(*[(0.0, *offered[i]) for i in reached]):
            yield Candidate(k, tuple((i, r) for i, r in zip(reached, ratios, strict=True) if r))


# Bytes ---------------------------------------------------------------------------------------


def random_candidates(params: Any, count: int) -> list[Candidate]:
    random = np.random.default_rng(0)
    offered = choices(params)
    found = []
    for _ in range(count):
        k = int(random.integers(0, depth(params) + 1))
        layers = [i for i in offered if depth(params) - i <= k and random.random() < 0.4]
        found.append(Candidate(k, tuple((i, float(random.choice(offered[i]))) for i in layers)))
    return found


def test_predicted_memory_is_the_compiled_programs() -> None:
    """To the byte."""
    model = small.network()
    for candidate in random_candidates(parameters(), 20):
        program = whet.compile(model, (small.example(),), update=candidate.scheme(parameters()))
        assert small.planner().run(candidate).ram == program.memory["ram"]


@pytest.mark.slow
def test_predicted_memory_is_the_compiled_programs_of_mcunet() -> None:
    from whet.api import Source
    from whet.targets import target_named

    model, x = mcunet_5fps(10, folded=True).eval(), torch.zeros(1, 3, 128, 128)
    calibrate = [torch.randn(1, 3, 128, 128)]
    source = Source(model, None, None, (x,), None, None, whet.Int8(), calibrate)
    planner = Planner(source.imported(), Options(target=target_named("cortex-m7"), grow=False))
    params = parameters_of(planner.model.training.graph)
    for candidate in random_candidates(params, 100):
        program = whet.compile(
            model, (x,), update=candidate.scheme(params), target="cortex-m7", ram="4M",
            dtype="int8", calibrate=calibrate,
        )  # fmt: skip
        assert planner.run(candidate).ram == program.memory["ram"]


def test_estimates_are_near_and_of_single_parts_exact() -> None:
    costs: Costs = small.costs()
    for k, need in costs.prefixes.items():
        assert costs.estimate(Candidate(k)) == need.ram
    for part, need in costs.parts.items():
        assert costs.estimate(Candidate(costs.reaches[part[0]], (part,))) == need.ram
    for candidate in random_candidates(parameters(), 40):
        assert costs.estimate(candidate) == pytest.approx(
            small.planner().run(candidate).ram, rel=0.25
        )


# The best sum --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_solution_is_that_of_trying_everything(seed: int) -> None:
    gains, costs = made_up_gains(seed), small.costs()
    smallest = min(need.ram for need in costs.prefixes.values())
    largest = max(need.ram for need in costs.parts.values())
    for budget in np.linspace(smallest, 1.1 * largest, 5).astype(int):
        best = max(gains.score(c) for c in every_combination() if costs.estimate(c) <= budget)
        found = exact(gains, costs, int(budget))
        assert found is not None and costs.estimate(found) <= budget
        assert gains.score(found) == pytest.approx(best)
        bred = Evolution(population=30, generations=15)(gains, costs, int(budget))
        assert bred is not None and costs.estimate(bred) <= budget
        assert gains.score(bred) <= best + 1e-9
        assert bred == Evolution(population=30, generations=15)(gains, costs, int(budget))
    assert exact(gains, costs, smallest - 1000) is None
    assert Evolution()(gains, costs, smallest - 1000) is None


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_gains_of_any_size_count(scale: float) -> None:
    gains, costs = made_up_gains(1), small.costs()
    budget = sorted(need.ram for need in costs.parts.values())[8]
    scaled = replace(
        gains,
        biases=tuple(scale * gain for gain in gains.biases),
        weights={part: scale * gain for part, gain in gains.weights.items()},
    )
    assert exact(scaled, costs, budget) == exact(gains, costs, budget)


def test_evolution_comes_close() -> None:
    gains, costs = made_up_gains(1), small.costs()
    budget = sorted(need.ram for need in costs.parts.values())[8]
    found, bred = exact(gains, costs, budget), Evolution()(gains, costs, budget)
    assert found is not None and bred is not None
    assert gains.score(bred) >= 0.95 * gains.score(found)


def test_what_is_found_keeps_the_budget_and_leaves_no_room(
    capfd: pytest.CaptureFixture[str],
) -> None:
    gains, costs, planned = made_up_gains(2), small.costs(), Planned(small.planner())
    for budget in (40_000, 42_000, 45_000, 60_000, 90_000):
        found = within(budget, gains, costs, planned, exact)
        assert found.ram == small.planner().run(found.candidate).ram <= budget
        for part, gain in gains.weights.items():
            more = found.candidate.with_part(part)
            if costs.reaches[part[0]] <= found.candidate.biases and gain > 0:
                better = gains.score(more) > gains.score(found.candidate)
                assert not better or planned.ram(more) > budget
    assert capfd.readouterr().out == "", "the solver says nothing"


@pytest.mark.slow
def test_a_larger_budget_is_no_worse_and_the_best_is_found() -> None:
    """Against planning every combination there is."""
    gains, costs, planned = made_up_gains(3), small.costs(), Planned(small.planner())
    for budget in (41_000, 45_000, 50_000, 60_000):
        best = max(gains.score(c) for c in every_combination() if planned.ram(c) <= budget)
        found = within(budget, gains, costs, planned, exact)
        assert found.score == pytest.approx(best)


@pytest.mark.parametrize("seed", range(2))
def test_exchanges_keep_the_budget_and_leave_nothing_behind_evolution(seed: int) -> None:
    gains, own = made_up_gains(seed), small.costs()
    for budget in (40_000, 44_000):
        planned = Planned(small.planner())
        found = within(budget, gains, own, planned, exact)
        better = exchanged(found, own, planned)
        assert gains.score(better.candidate) == better.score >= found.score
        assert better.ram == planned.ram(better.candidate) <= budget
        bred = within(budget, gains, own, Planned(small.planner()), Evolution(20, 10, seed=seed))
        assert better.score >= bred.score - 1e-9
        again = exchanged(better, own, planned)
        assert again.candidate == better.candidate, "no change of two choices helps any more"
    poor = replace(found, candidate=Candidate(), score=0.0)
    assert exchanged(poor, own, planned).score > 0, "from the head alone"


def test_questions_follow_what_costs_are_off_by_and_end_between_yes_and_no() -> None:
    assert next_question(10_000, -300, {10_000: False}) == 9_700, "costs were 300 too low"
    assert next_question(10_000, 300, {10_000: True}) == 10_300, "or too high"
    fits = {10_000: False, 9_700: True}
    assert next_question(10_000, -300, fits) == 9_850, "that was asked: the middle"
    assert next_question(10_000, -300, {9_700: True}) == (9_700 + 10_185) // 2, "up to 5 % more"
    assert next_question(10_000, -298, {9_700: False}) == (8_730 + 9_700) // 2, "down to 10 % less"
    assert next_question(10_000, -300, {9_700: True, 9_704: False}) == 9_700, "asked: the end"


def test_a_budget_that_not_even_the_head_keeps() -> None:
    with pytest.raises(BudgetError, match="too few to train anything"):
        within(1000, made_up_gains(0), small.costs(), Planned(small.planner()), exact)


# All of it -----------------------------------------------------------------------------------


def test_splits_judge_by_other_samples() -> None:
    every = Samples((np.arange(80.0).reshape(40, 2),), np.arange(40) % 4)
    judged = [split(every, 0.25, 4, 0, turn)[1] for turn in range(4)]
    firsts = np.concatenate([samples.inputs[0][:, 0] for samples in judged])
    assert sorted(firsts.tolist()) == list(range(0, 80, 2)), "each once"
    assert all(np.bincount(samples.labels).min() >= 2 for samples in judged), "a fair share"


@pytest.mark.parametrize(("held_out", "splits"), [(0.25, 4), (0.5, 2), (0.3, 3), (0.1, 4)])
def test_no_sample_judges_for_the_second_time(held_out: float, splits: int) -> None:
    lesson = whet.Lesson(held_out=held_out)
    assert turns(whet.Search(lesson=lesson)) == splits
    assert turns(whet.Search(lesson=lesson, splits=2)) == 2
    assert turns(whet.Search(lesson=lesson, finals=0)) == 1


def test_evidence_says_what_was_measured_alone() -> None:
    outcomes = {
        Candidate(0): Outcome(50.0, 2.0, 1),
        Candidate(1): Outcome(52.0, 1.5, 1),
        Candidate(1, ((0, 1.0),)): Outcome(55.5, 1.25, 1),
    }
    measured = Contributions.of(outcomes, "accuracy", ("a.weight", "head.weight"))
    believed = replace(measured, biases=(0.0, 1.0), weights={(0, 1.0): 2.0, (0, 0.5): 1.0})
    found = Found(4096, believed, Candidate(1, ((0, 1.0),)), 3.0, 4000, 0.1, 1)
    assert evidence(found, measured) == (
        "chosen for 4,096 B, takes 4,000 B; gains +3 points of accuracy over the head alone, if "
        "gains add up; last 1 biases +1 (alone: +2.00 points, loss -0.5); "
        "a.weight, 1 of its channels +2 (alone: +3.50 points, loss -0.25)"
    )
    half = replace(found, candidate=Candidate(1, ((0, 0.5),)))
    assert evidence(half, measured).endswith("a.weight, 0.5 of its channels +1"), "not tried"
    gone = {**outcomes, Candidate(1): Outcome(0.0, DIVERGED, 1)}
    assert "(alone" not in evidence(found, Contributions.of(gone, "accuracy", ("a", "head")))
    no_classes = {c: replace(o, accuracy=float("nan")) for c, o in outcomes.items()}
    by_loss = Contributions.of(no_classes, "loss", ("a.weight", "head.weight"))
    assert "(alone: loss -0.25)" in evidence(found, by_loss)


def test_budgets_are_inside_the_picture() -> None:
    gains, candidate = made_up_gains(0), Candidate(1)
    rival = Rival(candidate, 200_000, Outcome(80.0, 1.0, 2))
    found = Found(1 << 20, gains, candidate, 1.0, 200_000, 0.1, 1, rival.outcome, {"one": rival})
    picture = ET.fromstring(charts.budgets_svg([found]))
    width = float(picture.attrib["viewBox"].split()[2])
    texts = [e for e in picture.iter() if e.text == kib(1 << 20)]
    assert texts and all(0 < float(e.attrib["x"]) < width for e in texts)


def test_what_diverged_on_one_split_has_diverged() -> None:
    fine, gone = Outcome(80.0, 1.0, 2, 3.0), Outcome(0.0, DIVERGED, 1, 1.0)
    assert Outcome.mean([fine, gone]).diverged
    assert Outcome.mean([fine, Outcome(70.0, 2.0, 2, 3.0)]) == Outcome(75.0, 1.5, 2, 6.0)


def searched(tmp_path: Path, **words: Any) -> Any:
    model = small.network()
    return whet.search(
        model,
        (small.example(),),
        (small.data().inputs[0], small.data().labels),
        ram=["1K", "41K", "48K"],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        search=whet.Search(store=tmp_path, lesson=whet.Lesson(epochs=2, head_epochs=4), **words),
    )


def test_budgets_in_schemes_out(tmp_path: Path) -> None:
    found = searched(tmp_path, draws=2, rounds=2)
    assert [row.found.budget for row in found.rows] == [41 * 1024, 48 * 1024]
    model = small.network()
    for row in found.rows:
        program = whet.compile(model, (small.example(),), update=row.scheme, ram=row.found.budget)
        assert program.memory["ram"] == row.found.ram <= row.found.budget
        assert row.found.outcome is not None and row.found.outcome.accuracy > 20
        assert "points of accuracy" in row.scheme.origin
        rivals = {rival.candidate: rival for rival in row.found.rivals.values()}
        own = rivals[row.found.candidate]
        assert len(rivals) >= 3 and (own.ram, own.outcome) == (row.found.ram, row.found.outcome)
    folder = found.write(tmp_path / "out")
    names = {"auto-41K.toml", "auto-48K.toml", "biases.svg", "budgets.svg", "contributions.json",
             "weights.svg"}  # fmt: skip
    assert {p.name for p in folder.iterdir()} == names
    for name in names:
        if name.endswith(".svg"):
            assert len(list(ET.parse(folder / name).getroot())) > 10
    again = whet.Scheme.from_toml(folder / "auto-48K.toml")
    assert again == found.scheme
    read = Contributions.from_json((folder / "contributions.json").read_text())
    assert read == found.contributions
    assert str(found).count("KiB") == 5
    assert found.missed == (1024,) and f"takes {found.least / 1024:.1f} KiB" in str(found)
    # once more from what was kept: the same schemes, to the byte
    repeated = searched(tmp_path, draws=2, rounds=2)
    assert [r.scheme.to_toml() for r in repeated.rows] == [r.scheme.to_toml() for r in found.rows]


def test_a_network_without_biases(tmp_path: Path) -> None:
    """Its candidates with biases alone train the same as the head."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8, bias=False), torch.nn.ReLU(), torch.nn.Linear(8, 3)]
    model = torch.nn.Sequential(*layers)
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 120)
    x = (random.normal(size=(3, 8))[labels] + random.normal(size=(120, 8))).astype(np.float32)
    head = whet.compile(model, (torch.zeros(4, 8),), update="last").memory["ram"]
    found = whet.search(
        model, (torch.zeros(4, 8),), (x, labels), ram=[head, head + 32, head + 4096],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        search=whet.Search(store=tmp_path, rounds=1, draws=2),
    )  # fmt: skip
    for row in found.rows:
        assert row.found.gains.biases == (0.0, 0.0), "there is no bias to gain anything"
        assert row.found.candidate.biases == 0 or row.found.candidate.weights
        assert row.found.ram <= row.found.budget


@pytest.mark.parametrize(
    "words",
    [{"by": "fisher"}, pytest.param({"by": "gradient", "method": "evolution"}, marks=SLOW)],
)
def test_other_ways_to_search(tmp_path: Path, words: dict[str, str]) -> None:
    found = searched(tmp_path, finals=0, **words)
    assert all(row.found.ram <= row.found.budget for row in found.rows)
    assert found.rows[0].found.outcome is None and "-" in str(found)
    assert not (found.write(tmp_path / "out") / "budgets.svg").exists()
    for row in found.rows:
        assert row.found.score == pytest.approx(found.contributions.score(row.found.candidate))


@pytest.mark.filterwarnings("ignore:no candidate has learned")
def test_compile_finds_a_scheme_by_itself(tmp_path: Path) -> None:
    model, x = small.network(), small.example()
    loader = [(small.data().inputs[0][i : i + 40], small.data().labels[i : i + 40])
              for i in range(0, 160, 40)]  # fmt: skip
    how = whet.Search(store=tmp_path, lesson=whet.Lesson(epochs=1, head_epochs=2), by="fisher",
                      batch=8)  # fmt: skip
    program = whet.compile(model, (x,), update=how, ram="45K", data=loader)
    assert program.memory["ram"] <= 45 * 1024
    assert program.scheme is not None and program.scheme.name == "auto-45K"
    assert np.isfinite(program.load().step(x, torch.zeros(small.BATCH, dtype=torch.int64)))


def test_what_auto_needs() -> None:
    model, x = small.network(), (small.example(),)
    pair = (small.data().inputs[0], small.data().labels)
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
    with pytest.raises(DataError, match="too few to choose by"):
        how = whet.Search(judge=(pair[0][:2], pair[1][:2]))
        whet.compile(model, x, update=how, ram="1M", data=pair)
    for wrong in (
        {"batch": 0},
        {"finals": -1},
        {"workers": 1.5},
        {"limit": 0},
        {"seed": -1},
        {"draws": 0},
        {"rounds": -1},
    ):
        with pytest.raises(WhetError, match="is no whole number"):
            whet.Search(**wrong)
    for lesson in ({"epochs": 0}, {"epochs": "3"}, {"seed": -1}, {"rate": float("nan")}):
        with pytest.raises(DataError):
            whet.Lesson(**lesson)
    with pytest.raises(WhetError, match=r"is no whet\.Search"):
        whet.search(model, x, pair, ram="1M", search={})
    with pytest.raises(WhetError, match="there is no by='magic'"):
        whet.Search(by="magic")
    with pytest.raises(BudgetError, match="no budget"):
        whet.search(model, x, pair, ram=[])


@pytest.mark.parametrize("plot", [["out"], pytest.param([], marks=SLOW)])
def test_the_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plot: list[str],
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))
    samples = small.data()
    np.savez(tmp_path / "data.npz", x=samples.inputs[0], y=samples.labels)
    words = [
        "whet", "search", "small_search:network", "--input", "4,1,12,12", "--data",
        str(tmp_path / "data.npz"), "--ram", "41K,48K", "--lr", "0.05", "--by", "fisher",
        "--workers", "1", "--epochs", "1", "--store", str(tmp_path / "store"), "--plot", *plot,
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    told = capsys.readouterr().out
    assert "auto-41K" in told and "auto-48K.toml" in told and "head alone" in told
    folder = tmp_path / (plot or ["search"])[0]
    assert (folder / "budgets.svg").exists() and (folder / "auto-48K.toml").exists()
    assert not list(tmp_path.glob("*.toml")), "schemes are where the pictures are"


@pytest.mark.parametrize("output", [None, "best.toml", "schemes"])
def test_the_command_writes_its_scheme_and_says_where_and_whether_it_learned(
    tmp_path: Path, monkeypatch: Any, capsys: Any, output: str | None
) -> None:
    """On labels of chance, which nothing can be learned from."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))
    samples = small.data()
    labels = np.random.default_rng(1).permutation(samples.labels)
    np.savez(tmp_path / "data.npz", x=np.zeros_like(samples.inputs[0]), y=labels)
    words = ["whet", "search", "small_search:network", "-i", "4,1,12,12", "--data", "data.npz",
             "--ram", "48K", "--by", "fisher", "--workers", "1", "--epochs", "1", "--splits", "1",
             "--rounds", "0", "--store", "store"]  # fmt: skip
    monkeypatch.setattr("sys.argv", words + (["-o", output] if output else []))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        main()
    told = capsys.readouterr()
    assert done.value.code == 0, told.err
    path = {None: "auto-48K.toml", "best.toml": "best.toml", "schemes": "schemes/auto-48K.toml"}
    assert f"wrote {path[output]}\n" in told.out
    assert f"next: whet compile ... --update {path[output]}\n" in told.out
    assert whet.Scheme.from_toml(tmp_path / path[output]).name == "auto-48K"
    assert "whet: warning: no candidate has learned anything: the best is right on" in told.err
    assert "try another --lr, more --epochs, or more data" in told.err


def test_a_search_without_a_place_for_its_schemes_does_not_begin(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["whet", "search", "no:model", "-i", "4,1,12,12", "--data", "no.npz", "--ram"]
    for words, message in (
        (["41K,48K", "-o", "a.toml"], "2 schemes do not go into a.toml"),
        (["41K", "-o", "no/a.toml"], "there is no folder"),
        (["41x"], "'41x' is not a number of bytes"),
    ):
        monkeypatch.setattr("sys.argv", [*common, *words])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 1 and message in capsys.readouterr().err


def test_chance_is_the_most_common_class() -> None:
    even, uneven = np.arange(100) % 4, np.where(np.arange(100) < 70, 0, 1)
    assert "25.0 %" in no_better_than_chance(30.0, even, 4), "within noise"
    assert no_better_than_chance(45.0, even, 4) == ""
    assert "70.0 %" in no_better_than_chance(72.0, uneven, 2)
    assert no_better_than_chance(90.0, uneven, 2) == ""
    assert "50.0 %" in no_better_than_chance(50.0, even[:0], 2), "nothing to judge by"


def test_a_loss_that_does_not_fall_is_in_doubt() -> None:
    bench = small.bench()
    nan = float("nan")
    before = Pupil(bench, Candidate()).outcome(0).loss
    said = doubt([Outcome(nan, before, 1)], [bench])
    assert "no candidate has learned anything: the lowest loss is" in said
    assert doubt([Outcome(nan, 0.5 * before, 1)], [bench]) == ""
    assert "lowest loss is inf" in doubt([Outcome(nan, DIVERGED, 1)], [bench])
    assert doubt([], [bench]) == ""


def test_a_bare_plot_has_a_folder() -> None:
    command: Any = SearchCommand("search", params=[])
    command.allow_extra_args = command.ignore_unknown_options = True
    for given, wanted in (
        (["--plot"], ["--plot", "search"]),
        (["--plot", "--ram", "1M"], ["--plot", "search", "--ram", "1M"]),
        (["--plot", "there", "--ram", "1M"], ["--plot", "there", "--ram", "1M"]),
        (["m", "--ram", "1M"], ["m", "--ram", "1M"]),
    ):
        context = command.make_context("search", given)
        assert context.args == wanted


def test_the_command_says_what_is_wrong_with_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))
    common = ["whet", "search", "small_search:network", "--input", "4,1,12,12", "--ram", "48K"]
    for given, word in ((str(tmp_path / "no.npz"), "cannot read"), ("nowhere:data", "cannot read")):
        monkeypatch.setattr("sys.argv", [*common, "--data", given])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 1 and word in capsys.readouterr().err
