"""What every target must say, and that a program needs nothing else from one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import whet
from whet.emit.c import Signature
from whet.emit.program import Program
from whet.emit.target import Target
from whet.errors import TargetError
from whet.ir import Type
from whet.pipeline import Options, assemble
from whet.runtime import Trainer
from whet.targets import HOST, PORTABLE, TARGETS, target_named

FLOAT = 4  # bytes; a class label has as many


def compiled(target: str, **options: Any) -> Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return whet.compile(model, (torch.zeros(2, 6),), target=target, **options)


def test_names_are_those_of_the_table() -> None:
    assert list(TARGETS)[:4] == ["host", "portable", "cortex-m7", "cortex-m4"]
    assert all(target_named(name).name == name for name in TARGETS)
    with pytest.raises(TargetError, match="there is no target 'cortex-m99'"):
        target_named("cortex-m99")


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_says_how_memory_is_counted(name: str) -> None:
    target, memory = TARGETS[name], compiled(name).memory
    given, label, output = 2 * 6 * FLOAT, 2 * FLOAT, 2 * 3 * FLOAT
    words = {
        "input and label": given + label,
        "label and output": label + output,
        "input, label and output": given + label + output,
    }
    assert memory["io"] == words[target.io_words]
    assert memory["stack"] == target.stack
    parts = sum(memory[part] for part in ("arena", "trained", "state", "io", "stack"))
    assert 0 <= memory["ram"] - parts - target.pool < 3 * 64  # what alignment adds


@pytest.mark.parametrize("name", TARGETS)
def test_a_program_has_a_project_around_it(name: str) -> None:
    target, program = TARGETS[name], compiled(name)
    files = target.files(program)
    assert {"main.c", "Makefile"} <= files.keys() <= program.files.keys()
    left = [word for text in files.values() for word in re.findall(r"@[a-z_]+@", text)]
    assert left == [], "every word of a template is filled in"
    assert str(program.name) in target.run_command(Path("net"), program.name)


@pytest.mark.parametrize("name", TARGETS)
def test_its_variants_are_targets_too(name: str) -> None:
    target = TARGETS[name]
    assert target.portable().isa == ("ref",) and not target.portable().vectors
    assert (target.portable().ram, target.portable().flash) == (target.ram, target.flash)
    here = target.on_this_machine
    assert here in (HOST, PORTABLE) and here.on_this_machine is here


@dataclass(frozen=True)
class Elsewhere(Target):
    """A target that whet has never heard of."""

    inside_inputs: ClassVar[bool] = True
    io_words: ClassVar[str] = "nothing"

    def portable(self) -> Target:
        return self

    @property
    def on_this_machine(self) -> Target:
        return PORTABLE

    def arrays(self, step: Signature, predict: Signature) -> list[Type]:
        return []

    def files(self, program: Program) -> dict[str, str]:
        return {"main.js": f"load('{program.name}.wasm')\n"}

    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Trainer:
        same = assemble_for(self.on_this_machine)
        return Trainer(same)

    def run_command(self, folder: Path, name: str) -> str:
        return f"node {folder}/main.js"

    def report_lines(self, program: Program) -> list[str]:
        return ["for a place far away"]


def assemble_for(target: Target) -> Program:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    program = whet.compile(model, (torch.zeros(2, 6),))
    assert program.scheme is not None
    return assemble(program.source.imported(), program.scheme, Options(target=target))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Program]:
    yield assemble_for(Elsewhere("elsewhere", isa=("ref",), flags=("-O1",), pool=8, stack=100))


def test_a_new_target_needs_nothing_but_its_class(elsewhere: Program) -> None:
    memory, portable = elsewhere.memory, assemble_for(PORTABLE).memory
    assert (memory["io"], memory["stack"]) == (0, 100)
    assert memory["trained"] == portable["trained"] == FLOAT * (6 * 5 + 5 + 5 * 3 + 3)
    assert elsewhere.files["main.js"] == b"load('net.wasm')\n"
    assert "Makefile" not in elsewhere.files and "model.c" in elsewhere.files
    report = elsewhere.report()
    assert "for a place far away" in report and "    nothing      " in report
    assert "    stack      " in report


def test_a_new_target_is_loaded_as_it_says(elsewhere: Program, tmp_path: Path) -> None:
    x, y = torch.ones(2, 6), torch.tensor([0, 1])
    assert elsewhere.load().step(x, y) == assemble_for(PORTABLE).load().step(x, y)
    with pytest.raises(TargetError, match="for a microcontroller"):
        elsewhere.write(tmp_path, samples=(x, y))


def test_memory_of_a_target_can_be_changed() -> None:
    target = compiled("cortex-m4", ram="64K", flash="128K", portable=True).target
    changed = replace(TARGETS["cortex-m4"], ram=65536, flash=131072, isa=("ref",))
    assert target == changed
    assert compiled("host", ram="64K").target == HOST
    assert compiled("host", portable=True).target == PORTABLE
