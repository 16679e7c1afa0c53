"""The cost model: what it reads, what it measures, and what it chooses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import whet
from whet.ir import Builder, Role, f32
from whet.ops.reduce import Sum
from whet.ops.unary import Neg
from whet.passes.choose_kernels import choose_kernels, growth_of
from whet.passes.machine import BLOCKS, UNTUNED, Machine
from whet.tune.kept import keep, this_machine
from whet.tune.measure import noise, solve

MEASURED = {"direct": 2.3e6, "winograd": 1.4e6, "large": 4.4e6, "wake": 900.0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WHET_UNTUNED", raising=False)
    return tmp_path / "whet"


def test_what_was_measured_is_read_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_machine() is UNTUNED and not cache.exists(), "looking makes nothing"
    machine = solve(MEASURED)
    assert keep(machine).parent == cache
    assert this_machine() == machine and machine.tuned
    monkeypatch.setenv("WHET_UNTUNED", "1")
    assert this_machine() is UNTUNED


@pytest.mark.parametrize(
    "change",
    [{"macs": "48"}, {"macs": None}, {"macs": True}, {"near": 0}, {"near": -1.0}, {"cache": "big"},
     {"cache": -1}, {"wake": 10**400}, {"far": float("nan")}, {"macs": 1e300}, {"rows": 7},
     {"rows": 8.0}, {"rows": 14}],
    ids=str,
)  # fmt: skip
def test_nonsense_is_passed_over(cache: Path, change: dict[str, object]) -> None:
    keep(solve(MEASURED))
    path = cache / "machine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert this_machine() is UNTUNED


def test_a_file_of_an_earlier_version_still_counts(cache: Path) -> None:
    keep(solve(MEASURED))
    path = cache / "machine.json"
    old = json.loads(path.read_text())
    del old["rows"], old["lanes"]
    path.write_text(json.dumps(old))
    assert this_machine() == solve(MEASURED)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_a_broken_file_is_passed_over(cache: Path, text: str) -> None:
    cache.mkdir()
    (cache / "machine.json").write_text(text)
    assert this_machine() is UNTUNED


def test_noise_is_of_rounds_or_of_runs() -> None:
    quiet = [MEASURED | {"noise": 0.02}, MEASURED | {"noise": 0.9}, MEASURED | {"noise": 0.03}]
    assert noise(quiet) == 0.03, "one run was disturbed"
    assert noise([run | {"noise": 0.5} for run in quiet]) == 0.5
    slower = MEASURED | {"noise": 0.02, "large": 1.5 * MEASURED["large"], "wake": 9e9}
    assert noise([*quiet, slower]) == pytest.approx(0.5), "that waking takes long is no noise"


def test_a_cache_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert this_machine() is UNTUNED
    with pytest.raises(whet.WhetError, match="no folder"):
        keep(UNTUNED)


def test_coefficients_give_back_the_measured_times() -> None:
    machine = solve(MEASURED)
    assert machine.direct(784 * 9 * 128 * 128) == pytest.approx(MEASURED["direct"])
    assert machine.winograd(196, 128, 128) == pytest.approx(MEASURED["winograd"])
    assert machine.winograd(16, 512, 512) == pytest.approx(MEASURED["large"])


def program(machine: Machine = UNTUNED, **options: object) -> whet.Program:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4)]  # fmt: skip
    x = torch.randn(1, 3, 32, 32)
    return whet.compile(nn.Sequential(*layers).train(), (x,), **options)  # type: ignore[arg-type]


def winograds(entries: object) -> int:
    assert isinstance(entries, dict)
    nodes = entries["train_step"].nodes
    return sum(getattr(node.attrs, "winograd", False) for node in nodes)


def test_winograd_is_chosen_where_it_pays_and_memory_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["whet.passes.choose_kernels"]
    monkeypatch.setattr(module, "growth_of", lambda _: 1 << 30)
    plain = program(without=["choose_kernels"])
    assert winograds(plain.entries) == 0
    slow_forms, fast_forms = Machine(near=100.0, far=100.0), Machine(near=1e-6, far=1e-6)
    assert winograds(choose_kernels(plain.entries, slow_forms, grow=True)) == 0
    everything = choose_kernels(plain.entries, fast_forms, grow=True)
    assert winograds(everything) == 5, "both layers and their gradients, but for the input's"
    assert arena_of(choose_kernels(plain.entries, fast_forms)) <= plain.arena


def test_layers_give_bits_where_there_is_room_for_them() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 24, 3, padding=1), nn.ReLU6(), nn.Conv2d(24, 24, 3, 1, 1, groups=24),
              nn.ReLU6(), nn.Conv2d(24, 32, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
              nn.Linear(32, 4)]  # fmt: skip
    model, x, y = nn.Sequential(*layers).eval(), torch.randn(2, 3, 12, 11), torch.tensor([1, 2])
    plain = whet.compile(model, (x,), update="bias", without=["choose_kernels"])
    fast = whet.compile(model, (x,), update="bias")
    kinds = [[n.op.name for n in p.entries["train_step"].nodes] for p in (plain, fast)]
    masks = [n for n in fast.entries["train_step"].nodes if getattr(n.attrs, "mask", False)]
    assert kinds[0].count("within_bits") == 3 > kinds[1].count("within_bits") == 3 - len(masks)
    assert fast.arena <= plain.arena
    losses = [[t.step(x, y) for _ in range(5)] for t in (plain.load(), fast.load())]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[0][0] != losses[0][-1]


def test_bits_of_another_interval_are_taken_on_their_own() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 16, 1), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clamped = torch.clamp(torch.relu(self.conv(x)), max=0.5)
            return self.head(clamped.mean((2, 3)))

    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 8)
    program = whet.compile(Twice().eval(), (x,), update="bias")
    nodes = program.entries["train_step"].nodes
    assert [n.op.name for n in nodes].count("within_bits") == 1
    assert sum(getattr(n.attrs, "mask", False) for n in nodes) == 1
    program.check()


@pytest.mark.parametrize("rows", BLOCKS)
def test_blocks_have_the_rows_that_were_measured(rows: int) -> None:
    plain = program()
    tuned = replace(plain, options=replace(plain.options, machine=Machine(rows=rows, lanes=16)))
    header = "kernels/whet_lanes.h"
    assert "#define WHET_TUNED_ROWS 0\n" in plain.kernel_files[header]
    assert f"#define WHET_TUNED_ROWS {rows}\n" in tuned.kernel_files[header]
    assert "#define WHET_TUNED_LANES 16\n" in tuned.kernel_files[header]


def arena_of(entries: dict[str, whet.ir.Graph]) -> int:
    from whet.memory.plan import plan

    return max(plan(graph).arena for graph in entries.values())


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    ],
    ids=["sgd", "nesterov", "adamw"],
)
def test_an_update_taken_apart_for_winograd_is_the_same_update(optimizer: object) -> None:
    assert callable(optimizer)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 56, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(56, 4),
    ).train()  # fmt: skip
    x, y = torch.randn(1, 3, 8, 8), torch.tensor([2])
    apart = whet.compile(model, (x,), optimizer=optimizer(model.parameters()))
    fused = whet.compile(
        model, (x,), optimizer=optimizer(model.parameters()), without=["choose_kernels"]
    )
    names = [{node.op.name for node in p.entries["train_step"].nodes} for p in (apart, fused)]
    assert any(name.startswith("dw_") for name in names[1])
    losses = [[t.step(x, y) for _ in range(5)] for t in (apart.load(), fused.load())]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(("mebibytes", "tenth"), [(20, True), (15, False)])
def test_only_a_large_program_may_grow(mebibytes: int, tenth: bool) -> None:
    """By a tenth: a smaller one may be for a microcontroller."""
    b = Builder("train_step")
    w = b.leaf("w", f32(mebibytes << 17), Role.PARAM)  # one half of it
    graph = b.finish([b.emit(Sum, b.emit(Neg, w), axes=(0,))])  # and the other
    expected = (mebibytes << 20) // 10 if tenth else 0
    assert growth_of({"train_step": graph}) == expected
