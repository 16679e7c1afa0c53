"""Traces for Perfetto: every kernel call once, in order, with the bytes of the arena."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import whet
from whet.emit.program import Program
from whet.errors import DataError
from whet.report.program import kernel_calls
from whet.report.trace import Slice, Timeline, bytes_in_use, chrome_trace


@pytest.fixture(scope="module")
def mlp() -> Program:
    x, _ = next(tiny.vectors())
    return whet.compile(tiny.mlp(), (x,), update="full")


def events(trace: Any, kind: str) -> list[Any]:
    return [event for event in trace["traceEvents"] if event["ph"] == kind]


def test_slices_and_counter_are_those_of_the_timeline(mlp: Program) -> None:
    plan = mlp.plans["train_step"]
    nodes = [n for n in plan.graph.nodes if n.op.call(n) is not None]
    step = tuple(Slice(n, 5000.0 + 100 * i, 40.0 + i) for i, n in enumerate(nodes))
    trace = chrome_trace(plan, Timeline((step,), "nanoseconds"), "net")
    whole, *calls = events(trace, "X")
    assert (whole["ts"], whole["dur"]) == (0, (100 * (len(nodes) - 1) + 40 + len(nodes) - 1) / 1000)
    times = [(call["ts"], call["dur"]) for call in calls]
    assert times == [(100 * i / 1000, (40 + i) / 1000) for i in range(len(nodes))]
    assert [call["args"]["kernel"] for call in calls] == [c.kernel for c in kernel_calls(plan)]
    used = [event["args"]["bytes in use"] for event in events(trace, "C")]
    assert max(used) <= max(bytes_in_use(plan)) == plan.lower_bound and used[-1] == 0
    assert {call["cat"] for call in calls} >= {"forward", "backward"}


@pytest.mark.parametrize("target", ["host", "portable"])
def test_every_call_of_a_step_is_measured(target: str, tmp_path: Path) -> None:
    x, _ = next(tiny.vectors())
    program = whet.compile(tiny.mlp(), (x,), update="full", target=target)
    trace = json.loads(program.trace(tmp_path / "t.json", steps=3).read_text())
    slices = events(trace, "X")
    steps = [s for s in slices if s["cat"] == "step"]
    calls = [s for s in slices if s["cat"] != "step"]
    kernels = [c.kernel for c in kernel_calls(program.plans["train_step"])]
    assert [c["args"]["kernel"] for c in calls] == kernels * 3 and len(steps) == 3
    ends = np.array([(c["ts"], c["ts"] + c["dur"]) for c in calls]).ravel()
    assert (np.diff(ends) >= -1e-6).all(), "one call begins after the other has ended"
    assert all(c["dur"] >= 0 for c in calls) and trace["otherData"]["unit"] == "nanoseconds"


def test_what_is_measured_is_model_c_itself(mlp: Program, tmp_path: Path) -> None:
    from whet.runtime.trace import TracingTrainer, made_up

    plain, traced, feed = mlp.load(threads=1), TracingTrainer(mlp), made_up(mlp)
    for trainer in (plain, traced):
        trainer._run("train_step", feed, {"lr": 0.1})
    for name, array in plain.arrays().items():
        assert np.array_equal(array, traced.arrays()[name])
    before = traced.arrays()
    traced.trace(feed)
    assert all(np.array_equal(before[name], array) for name, array in traced.arrays().items())


def test_a_number_of_steps_is_checked(mlp: Program, tmp_path: Path) -> None:
    for steps in (0, -1, True, 1.5):
        with pytest.raises(DataError, match="is not a number of steps"):
            mlp.trace(tmp_path / "t.json", steps=steps)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_board_counts_instructions(tmp_path: Path) -> None:
    x, _ = next(tiny.vectors(batch=1))
    program = whet.compile(tiny.mlp(), (x,), update="full", target="cortex-m7")
    trace = json.loads(program.trace(tmp_path / "t.json", steps=2).read_text())
    calls = [s for s in events(trace, "X") if s["cat"] != "step"]
    kernels = [c.kernel for c in kernel_calls(program.plans["train_step"])]
    assert [c["args"]["kernel"] for c in calls] == kernels * 2
    counted = sum(c["dur"] for c in calls) * 1000
    assert 100 < counted < program.measured["instructions"]  # which has main and its channel, too
    assert program.measured["steps"] == 2 and trace["otherData"]["unit"] == "instructions"
