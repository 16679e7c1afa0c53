"""A budget is kept or refused with advice that holds; RAM is what the linker says, to the byte."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whet
from schemes import Ready
from tiny import TwoUses, convnet
from tiny import images as pictures
from whet.budget.hints import Hint
from whet.emit.program import Program
from whet.errors import BudgetError, FrontendError, SchemeError
from whet.models import mcunet_5fps
from whet.passes import SWITCHES
from whet.report import kib
from whet.report.compare import comparison_table
from whet.scheme import Parameter, Rule, Scheme
from whet.settings import parse_bytes
from whet.verify.check import with_gradients

# Numbers of bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (262144, 262144), ("262144", 262144), ("256K", 262144), ("256k", 262144),
        ("256 KiB", 262144), ("256KB", 262144), ("0.25M", 262144), (" 1.5 M ", 1572864),
        ("1G", 1073741824), ("2 GiB", 2147483648), ("100B", 100), (1, 1), ("0.5K", 512),
    ],
)  # fmt: skip
def test_bytes_can_be_written_in_many_ways(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "K", "a lot", "-1", -5, 0, "0K", "1T", "1,5K", "1K5", "nan"])
def test_what_is_no_number_of_bytes(text: int | str) -> None:
    with pytest.raises(FrontendError, match="is not a number of bytes"):
        parse_bytes(text)
    with pytest.raises(FrontendError, match="is not a number of bytes"):
        whet.compile(convnet().eval(), next(pictures())[:1], ram=text)


# Budgets -------------------------------------------------------------------------------------


class Wide(nn.Module):
    """Activations larger than weights, made by functions whose operand the gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.narrow = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.norm(self.stem(x)))
        x = x + nn.functional.gelu(self.middle(x))
        return self.head(torch.tanh(self.narrow(x)).mean((2, 3)))


@functools.cache
def wide() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Wide().eval(), torch.randn(2, 1, 12, 12)


@functools.cache
def parameters_of_wide() -> list[Parameter]:
    model, x = wide()
    return Ready.of(model, x).parameters


def compiled(**settings: Any) -> Program:
    model, x = wide()
    if "optimizer" in settings:
        settings["optimizer"] = settings["optimizer"](model.parameters(), lr=0.01)
    return whet.compile(model, (x[: settings.pop("batch", 2)],), **settings)


def again(program: Program) -> list[str]:
    """What the training step computes a second time."""
    values = [v.name for n in program.entries["train_step"].nodes for v in n.outs]
    return [name for name in values if ".again" in name]


@pytest.mark.parametrize("update", [None, "bias+last", "last"])
def test_a_budget_that_fits_changes_nothing(update: str | None) -> None:
    free = compiled(update=update)
    exact = compiled(update=update, ram=free.memory["ram"])
    roomy = compiled(update=update, ram="1M")
    assert exact.files == roomy.files == free.files


def test_a_budget_that_needs_it_computes_things_twice() -> None:
    free, small = compiled(), compiled(rematerialize=True)
    assert len(again(small)) > len(again(free)), "more than a norm that is computed again anyway"
    assert small.memory["ram"] < free.memory["ram"]
    for budget in (free.memory["ram"] - 1, small.memory["ram"]):
        program = compiled(ram=budget)
        assert program.memory["ram"] <= budget and len(again(program)) > len(again(free))
        program.check(5)
    small.check(5)


def test_element_wise_work_is_done_twice_before_layers_are() -> None:
    small = compiled(rematerialize=True)
    program = compiled(ram=small.memory["ram"] - 1, accumulate=True)
    macs = {p: sum(n.op.macs(n) for n in p.entries["train_step"].nodes) for p in (small, program)}
    assert macs[small] == sum(n.op.macs(n) for n in compiled().entries["train_step"].nodes)
    assert macs[program] > macs[small], "a layer is computed twice"
    program.check(5)
    layers = compiled(rematerialize="layers")
    assert layers.memory["ram"] <= program.memory["ram"], "as far as it goes"
    layers.check(5)
    with pytest.raises(SchemeError, match='no rematerialize="blocks"'):
        compiled(rematerialize="blocks")


@pytest.mark.parametrize(
    "settings",
    [{}, {"rematerialize": True}, {"ram": "50K"}, {"without": ["fuse_layers"], "update": "last-1"}],
    ids=["plain", "twice", "budget", "scheme"],
)
def test_a_check_is_about_the_same_training_step(settings: dict[str, Any]) -> None:
    """It adds an entry point for gradients; what is checked must be what was compiled."""
    program = compiled(**settings)
    checked = with_gradients(program)
    assert set(checked.entries) - set(program.entries) == {"gradients", "apply"}
    for name, graph in program.entries.items():
        assert str(checked.entries[name]) == str(graph)


def test_computing_things_twice_changes_no_bit_of_the_result() -> None:
    """The same kernels on the same numbers, so even float32 agrees exactly."""
    program, small = compiled(), compiled(rematerialize=True)
    ours, theirs = program.load(), small.load()
    _, x = wide()
    y = torch.tensor([1, 3])
    for _ in range(3):
        assert ours.step(x, y) == theirs.step(x, y)
    first, second = ours.state_dict(), theirs.state_dict()
    assert all(torch.equal(first[n], second[n]) for n in first)


def refused(ram: int, **settings: Any) -> Sequence[Hint]:
    with pytest.raises(BudgetError) as error:
        compiled(ram=ram, **settings)
    return error.value.hints


def refusal(ram: int, **settings: Any) -> dict[str, list[str]]:
    """The parts of the error for a budget that is too small, by their labels."""
    with pytest.raises(BudgetError) as error:
        compiled(ram=ram, **settings)
    parts: dict[str, list[str]] = {"what": []}
    label = "what"
    for line in str(error.value).splitlines():
        if match := re.match(r"  (at|why|try) ", line):
            label = match[1]
        parts.setdefault(label, []).append(line[8:].strip() if label != "what" else line)
    return parts


def test_a_refusal_says_what_where_and_why() -> None:
    parts = refusal(20_000)
    assert re.fullmatch(
        r"[\d.]+ KiB of RAM exceed the budget of 19\.5 KiB by [\d.,]+ K?i?B  \[W301\]",
        parts["what"][0],
    )
    assert parts["at"][0].startswith("%") and "train_step, " in parts["at"][1]
    assert "test_budget.py:" in parts["at"][1], "the line of the model that is to blame"
    assert "KiB arena" in parts["why"][0] and "trained parameters" in parts["why"][0]
    assert all(re.search(r"%\S+, alive for \d+ calls", line) for line in parts["why"][1:4])


def applied(change: Mapping[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with a piece of advice followed, to the letter."""
    found = settings | {k: v for k, v in change.items() if k in ("update", "batch")}
    if "optimizer" in change:
        found["optimizer"] = torch.optim.SGD
    return found


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "everything": ({}, 0.5),
    "everything, tight": ({}, 0.35),
    "adam": ({"optimizer": torch.optim.Adam}, 0.6),
    "adam, tight": ({"optimizer": torch.optim.Adam}, 0.4),
    "adam on the head's half": (
        {"optimizer": torch.optim.Adam, "update": Scheme([Rule("head.weight", 0.5), Rule("n*")])},
        0.6,
    ),
    "collecting gradients": ({"accumulate": True}, 0.55),
    "blocks": ({"update": "last-2"}, 0.7),
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if "tight" in c else c for c in CASES]
)
def test_what_a_refusal_advises_fits_and_needs_what_it_says(case: str) -> None:
    settings, share = CASES[case]
    budget = int(compiled(**settings).memory["ram"] * share)
    hints, lines = refused(budget, **settings), refusal(budget, **settings)["try"]
    assert hints
    unnamed = [i for i, h in enumerate(hints) if "update" in h.change
               and " " in h.change["update"].name]  # fmt: skip
    if unnamed:
        i = unnamed[0]
        said = f'update= of {hints[i].words!r} is error.hints[{i}].change["update"]'
        assert lines.pop() == said
    for hint, line in zip(hints, lines, strict=True):
        assert line == f"{kib(hint.ram)}  {hint.words}"
        program = compiled(**applied(hint.change, settings), ram=budget)
        assert program.memory["ram"] == hint.ram <= budget, hint.words


def test_if_nothing_fits_the_least_is_told() -> None:
    (line,), (hint,) = refusal(1000)["try"], refused(1000)
    assert line == f"nothing fits; the least is {kib(hint.ram)}, by {hint.words}"
    assert hint.words == 'update="last" and a batch of 1'
    assert compiled(update="last", batch=1, ram=hint.ram).memory["ram"] <= hint.ram
    with pytest.raises(BudgetError):
        compiled(update="last", batch=1, ram=hint.ram - 1)


def test_a_weight_that_cannot_train_by_channels_does_not_spoil_the_advice() -> None:
    with pytest.raises(BudgetError, match="try "):
        whet.compile(TwoUses().eval(), (torch.randn(2, 6),), ram=100)


# Schemes side by side ------------------------------------------------------------------------


def test_compare_has_the_memory_of_every_scheme_and_of_every_pass_left_out() -> None:
    model, x = wide()
    unnamed = Scheme([Rule("head.*"), Rule("narrow.weight", 0.25)])
    updates: list[str | Scheme] = ["full", "bias+last", unnamed]
    passes = ["inplace", "reorder"]
    rows = whet.compare(model, (x,), updates, without=passes)
    assert [row.scheme for row in rows] == ["full, no passes", "full", "bias+last", "scheme 3"]
    for row, update in zip(rows[1:], updates, strict=True):
        assert row.memory == compiled(update=update).memory
        for name, (arena, ram) in row.without.items():
            memory = compiled(update=update, without=[name]).memory
            assert (arena, ram) == (memory["arena"], memory["ram"])
        assert list(row.without) == passes
    plain, full, *fewer = rows
    assert plain.memory == compiled(without=SWITCHES).memory
    assert plain.memory["ram"] > full.memory["ram"] > max(row.memory["ram"] for row in fewer)
    assert full.kept > max(row.kept for row in fewer) > 0
    assert json.loads(json.dumps(full.as_dict()))["memory"] == full.memory

    head, *lines = comparison_table(rows).splitlines()
    assert head.split()[0] == "scheme" and "without reorder" in head
    assert [re.split(r"  +", line)[0] for line in lines] == [row.scheme for row in rows]
    assert len({len(line) for line in (head, *lines)}) == 1, "columns line up"


@pytest.mark.parametrize("make", [whet.compare, whet.compile])
def test_a_pass_that_is_not_there_cannot_be_left_out(make: Callable[..., Any]) -> None:
    model, x = wide()
    more: dict[str, Any] = {"schemes": ["last"]} if make is whet.compare else {}
    with pytest.raises(FrontendError, match="'sorcery' is not a pass"):
        make(model, (x,), without=["sorcery"], **more)


# To the byte ---------------------------------------------------------------------------------


class TwoInputs(nn.Module):
    """Ids and a picture of odd size, so that arrays end where the next may not begin."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.conv = nn.Conv2d(1, 3, 3, bias=False)
        self.head = nn.Linear(5 + 3, 3)

    def forward(self, ids: Tensor, picture: Tensor) -> Tensor:
        features = torch.relu(self.conv(picture)).mean((2, 3))
        return self.head(torch.cat([self.embed(ids).mean(1), features], 1))


def program_of(
    model: nn.Module, *inputs: Tensor, optimizer: Callable[..., Any] | None = None, **more: Any
) -> Program:
    chosen = optimizer(model.parameters()) if optimizer else None
    return whet.compile(model, inputs, optimizer=chosen, **more)


momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
adam = functools.partial(torch.optim.Adam, lr=0.1)


PARTS = Scheme([Rule("stem.weight", [0, 2]), Rule("depthwise.weight", 0.5), Rule("head.bias")])


PROGRAMS: dict[str, Callable[[], Program]] = {
    "plain": lambda: program_of(convnet(), torch.randn(1, 3, 6, 4)),
    "batch of 3": lambda: program_of(convnet(), torch.randn(3, 3, 6, 4)),
    "last": lambda: program_of(convnet().eval(), torch.randn(1, 3, 6, 4), update="last"),
    "channels, adam": lambda: program_of(
        convnet().eval(), torch.randn(3, 3, 6, 4), optimizer=adam, update=PARTS
    ),
    "momentum": lambda: program_of(convnet(), torch.randn(3, 3, 6, 4), optimizer=momentum),
    "collected": lambda: program_of(convnet(), torch.randn(1, 3, 6, 4), accumulate=True),
    "dropout": lambda: program_of(convnet(dropout=0.5).train(), torch.randn(3, 3, 6, 4)),
    "two inputs": lambda: program_of(
        TwoInputs().eval(), torch.randint(7, (1, 3)), torch.randn(1, 1, 5, 3), optimizer=adam
    ),
    "two inputs, bias": lambda: program_of(
        TwoInputs().eval(), torch.randint(7, (3, 3)), torch.randn(3, 1, 5, 3), update="bias"
    ),
    "one number": lambda: program_of(
        nn.Linear(3, 1).eval(), torch.randn(1, 3), loss=nn.MSELoss(), update="bias"
    ),
    "twice": lambda: program_of(Wide().train(), torch.randn(3, 1, 7, 7), rematerialize=True),
}


def linked_ram(folder: Path, *settings: str) -> int:
    """data + bss of all objects together, as `size` reports them."""
    command = ["make", "-s", "-B", "-C", str(folder), "size", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    head, numbers = (line.split() for line in done.stdout.strip().splitlines()[-2:])
    sections = dict(zip(head, numbers, strict=True))
    return int(sections["data"]) + int(sections["bss"])


def network_bytes(program: Program, folder: Path) -> int:
    """The size of the struct, by a program that is linked with nothing of the written one."""
    (folder / "size.c").write_text(
        '#include <stdio.h>\n#include "model.h"\n'
        f'int main(void) {{ printf("%zu", sizeof({program.name}_t)); }}\n'
    )
    subprocess.run(["gcc", "-std=c11", "-o", "size", "size.c"], cwd=folder, check=True)
    return int(subprocess.run([folder / "size"], capture_output=True, check=True).stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ram_is_what_the_linker_finds(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    memory = program.memory
    assert linked_ram(program.write(tmp_path), "CFLAGS=-O0") == memory["ram"]
    report = (tmp_path / "report.txt").read_text()
    assert re.search(rf"RAM +{memory['ram']:,} B", report)
    network = network_bytes(program, tmp_path)
    padding = memory["ram"] - network - memory["io"] - program.target.pool
    assert 0 <= padding < 16 + 4 * 2, "the network, the caller's arrays, and alignment"
    parts = memory["arena"] + memory["trained"] + memory["state"]
    assert parts <= network < parts + 2 * 16 + 1


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="as it is"),
        pytest.param(("CFLAGS=-Os",), id="small", marks=pytest.mark.slow),
        pytest.param(("CC=clang",), id="clang", marks=pytest.mark.slow),
    ],
)
def test_ram_does_not_depend_on_the_compiler(settings: tuple[str, ...], tmp_path: Path) -> None:
    """Constant tables of pointers, which streams have, are no data that changes."""
    program = program_of(
        mcunet_5fps(10, folded=True).eval(), torch.randn(1, 3, 64, 64), update="last"
    )
    assert any(node.op.name == "stream" for node in program.entries["train_step"].nodes)
    assert linked_ram(program.write(tmp_path), *settings) == program.memory["ram"]
