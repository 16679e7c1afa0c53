"""Programs on an emulated microcontroller: the bits, the memory, and what goes wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import whet
from boards import SHAPE, batches, compiled, planted
from integer_models import DATA, needs_data
from whet import models
from whet.cli import app
from whet.emit.program import Program
from whet.errors import (
    BudgetError,
    BuildError,
    CheckpointError,
    DataError,
    NotFinite,
    RunError,
    TargetError,
)
from whet.targets.bare_metal.firmware import build
from whet.targets.cortex_m import Board
from whet.targets.cortex_m.thumb import calls
from whet.verify.integer import equal_steps

TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    assert not missing, f"{missing} not found: `make setup-mcu` installs them"


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled("cortex-m7")


@pytest.fixture(scope="module")
def board(program: Program) -> Iterator[Board]:
    made = Board(program, watched=False)
    yield made
    made.close()


@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m4", "cortex-m33"])
def test_ten_steps_have_the_bits_of_the_host_and_of_numpy(target: str) -> None:
    """With every load and store watched; the stack by its paint is the stack by the stores."""
    program = compiled(target)
    here = compiled("host").load()
    board = Board(program)
    shown = list(batches(10))
    losses = [ours for _, ours in equal_steps(board, [((x,), y) for x, y in shown])[0]]
    assert losses == [here.step(x, y) for x, y in shown]
    assert losses[-1] != losses[0]
    for name, array in here.arrays().items():
        np.testing.assert_array_equal(board.arrays()[name], array)
    x = next(batches(1, seed=1))[0]
    np.testing.assert_array_equal(board.predict(x), here.predict(x))
    seen = board.close()
    assert seen is not None and seen.outside == 0
    assert 0 < seen.stack == program.measured["stack, by its paint"] < program.memory["stack"]


def test_the_budget_is_what_the_linker_counts(program: Program, board: Board) -> None:
    assert board.firmware.ram == program.memory["ram"] == program.measured["built ram"]
    assert program.memory["flash"] < board.firmware.flash < program.memory["flash"] + 64_000
    report = program.report()
    assert f"{program.memory['ram']:,} B measured, in the built program" in report
    assert "measured" not in program.files["report.txt"].decode()


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.GELU, torch.nn.Softplus])
def test_the_c_library_brings_no_memory_of_its_own(activation: Any, tmp_path: Path) -> None:
    layers = torch.nn.Linear(5, 8), activation(), torch.nn.Linear(8, 3)
    model = torch.nn.Sequential(*layers)
    adam = torch.optim.Adam(model.parameters())
    program = whet.compile(model, (torch.zeros(1, 5),), optimizer=adam, target="cortex-m7")
    assert build(program, tmp_path).ram == program.memory["ram"]


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.head(a * b)


def test_several_inputs_have_places_but_no_channel(tmp_path: Path) -> None:
    two = whet.compile(Two(), (torch.zeros(1, 4), torch.zeros(1, 4)), target="cortex-m7")
    assert build(two, tmp_path).ram == two.memory["ram"] - 8  # the ends of the channel
    done = subprocess.run(["make", "-s", "run"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(TargetError, match="one input and its labels, not 2 inputs"):
        two.load()


def test_an_interrupted_step_is_finished_first(program: Program) -> None:
    """Ctrl-C in the middle of an exchange is raised after it, and the board goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    board, other = Board(program, watched=False), Board(program, watched=False)
    send = board._machine.send

    def interrupted(data: bytes) -> None:
        board._machine.send = send  # type: ignore[method-assign]
        send(data)
        signal.raise_signal(signal.SIGINT)

    first, second = batches(2)
    board._machine.send = interrupted  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            board.step(*first)
    finally:
        signal.signal(signal.SIGINT, before)
    other.step(*first)
    assert board.step(*second) == other.step(*second)
    assert board.save() == other.save()
    other.close()


def test_a_board_that_is_off_says_so(program: Program) -> None:
    board = Board(program, watched=False)
    board.close()
    assert board.close() is None
    with pytest.raises(RunError, match="the board is switched off"):
        board.step(*next(batches(1)))
    with pytest.raises(ZeroDivisionError), Board(program, watched=False) as other:
        raise ZeroDivisionError
    assert not other._machine.on


def test_writing_leaves_the_files_of_others_alone(program: Program, tmp_path: Path) -> None:
    own = tmp_path / "kernels" / "own.c"
    own.parent.mkdir()
    own.write_text("int mine;")
    program.write(tmp_path, library=True)
    program.write(tmp_path)
    assert own.exists()
    x, y = next(batches(1))
    with pytest.raises(TargetError, match="a library has no samples"):
        program.write(tmp_path, samples=(x, y), library=True)
    with pytest.raises(DataError, match="1 inputs and 2 labels"):
        program.write(tmp_path, samples=(x, [1, 2]))
    with pytest.raises(DataError, match="out of range"):
        program.write(tmp_path, samples=(x, np.array([5])))
    with pytest.raises(DataError, match="has one core"):
        program.load(threads=2)


def test_the_input_has_a_place_in_the_arena(program: Program) -> None:
    """It costs nothing where the arena is fuller later; elsewhere it does, and is counted."""
    outside = compiled("portable").memory
    inside = program.memory
    assert inside["io"] == 4 + 4 * 5  # a label and five outputs
    assert inside["arena"] < outside["arena"] + outside["io"]
    for plan in program.plans.values():
        (place,) = (b for b in plan.buffers if b.values[0].name == "input")
        assert place.offset == 0


@pytest.mark.parametrize(("part", "size"), [("ram", 4096), ("flash", 8192)])
def test_the_linker_refuses_more_than_there_is(
    program: Program, part: str, size: int, tmp_path: Path
) -> None:
    options = replace(program.options, target=replace(program.target, **{part: size}))
    small = replace(program, options=options, measured={})
    with pytest.raises(BuildError, match=f"does not fit into .*{size:,}"):
        build(small, tmp_path)


def test_a_budget_that_cannot_be_met_is_refused_before_that() -> None:
    with pytest.raises(BudgetError, match="exceed the budget of 6,000 B"):
        compiled("cortex-m7", ram=6000)
    with pytest.raises(BudgetError, match="of weights exceed the flash of 1,024 B"):
        compiled("cortex-m7", flash="1K")


@pytest.mark.parametrize(
    "statement",
    [
        "*(volatile int *)0x20040000 = 1;",  # one word above the RAM, which the emulator has
        "*(volatile char *)0x1FFFFFFF = 1;",
        "(void)*(volatile int *)0x000FFFFE;",  # half of it in flash
    ],
    ids=["above", "below", "across"],
)
def test_an_access_outside_of_the_memory_is_noticed(program: Program, statement: str) -> None:
    with (
        pytest.raises(RunError, match="outside of the memory there is"),
        Board(planted(program, statement)) as board,
    ):
        board.step(*next(batches(1)))


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ('__asm__ volatile("udf #0");', "a fault"),
        ("{ volatile char deep[9000]; deep[0] = 1; (void)deep[0]; }", "the stack leaves the"),
    ],
    ids=["undefined", "stack"],
)
def test_a_fault_ends_the_run_with_a_reason(program: Program, statement: str, reason: str) -> None:
    for bad in (program, compiled("cortex-m33")):
        board = Board(planted(bad, statement), watched=False)
        with pytest.raises(RunError, match="stopped by itself") as caught:
            board.step(*next(batches(1)))
        assert reason in str(caught.value)


def test_weights_go_both_ways(program: Program, board: Board) -> None:
    board.step(*next(batches(1)))
    kept, state = board.save(), board.state_dict()
    again = [board.step(*batch) for batch in batches(2, seed=3)]
    board.load(kept)
    assert [board.step(*batch) for batch in batches(2, seed=3)] == again
    board.load_state_dict(state)
    assert {n: t.tolist() for n, t in board.state_dict().items()} == {
        n: t.tolist() for n, t in state.items()
    }
    here = program.source.model
    assert set(state) <= set(here.state_dict())
    assert compiled("portable").load().save()[:8] == kept[:8]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda blob: blob[:10], "shorter"),
        (lambda blob: blob[:-1], "shorter"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "checksum"),
        (lambda blob: blob[:8] + b"abcd" + blob[12:], "another model"),
        (lambda blob: b"NOPE" + blob[4:], "not a checkpoint"),
    ],
)
def test_a_bad_checkpoint_changes_nothing(board: Board, spoil: Any, word: str) -> None:
    kept = board.save()
    with pytest.raises(CheckpointError, match=word):
        board.load(spoil(kept))
    assert board.save() == kept


def test_bad_data_is_refused_and_changes_nothing(board: Board) -> None:
    kept, (x, y) = board.save(), next(batches(1))
    with pytest.raises(DataError, match="label holds 5 to 5; allowed are 0 to 4"):
        board.step(x, y * 0 + 5)
    with pytest.raises(DataError, match="has shape"):
        board.step(x[:, :, :8], y)
    with pytest.raises(DataError, match="not finite"):
        board.step(x * np.nan, y)
    with pytest.raises(DataError, match="no entry point 'gradients'"):
        board.gradients(x, y)
    assert board.save() == kept
    assert np.isfinite(board.step(x, y))


def test_a_float_program_trains_there_too() -> None:
    """To the digits that floats have in common after ten steps: the kernels are others."""
    model = tiny.convnet().eval()
    (x, y), *_ = (next(tiny.images()),)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    options: dict[str, Any] = {"optimizer": adam}
    board = Board(whet.compile(model, (x,), target="cortex-m7", **options))
    here = whet.compile(model, (x,), **options).load()
    ours, theirs = ([one.step(x, y) for _ in range(10)] for one in (board, here))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    with pytest.raises(NotFinite):
        board.step(x * np.float32(np.inf), y)
    seen = board.close()
    assert seen is not None and seen.outside == 0


def test_a_float_convolution_of_one_tap_keeps_to_the_stack() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2))
    x, y = torch.randn(1, 3, 8, 8), torch.tensor([1])
    there = whet.compile(model, (x,), target="cortex-m7").load()
    here = whet.compile(model, (x,)).load()
    assert there.step(x, y) == pytest.approx(here.step(x, y), rel=1e-5)
    assert there.close().outside == 0


def test_costs_have_the_names_of_the_graph(program: Program) -> None:
    board = Board(program)
    for batch in batches(2):
        board.step(*batch)
    with pytest.raises(DataError, match="nothing was watched"):
        board.profile()
    seen = board.close()
    assert seen is not None
    found = board.profile()
    nodes = [n for n in program.entries["train_step"].nodes if n.op.call(n) is not None]
    assert [c.node for c in found.costs] == nodes
    assert all(c.instructions > 0 for c in found.costs)
    assert all(found.of(phase) > 0 for phase in ("forward", "backward", "update"))
    assert 0.9 * seen.instructions < 2 * found.total < seen.instructions


def test_calls_are_read_from_thumb_code() -> None:
    """A 16-bit nop, a call 6 bytes ahead, a wide move, and a call back to the beginning."""
    code = bytes.fromhex("00bf00f001f84ff00100fff7f9ff")
    assert list(calls(code, 0x100)) == [(0x102, 0x108), (0x10A, 0x100)]


def test_the_folder_builds_and_runs_by_make_alone(program: Program, tmp_path: Path) -> None:
    """Without samples on a made-up batch; with them on those, from flash."""
    x, y = next(batches(1))
    program.write(tmp_path, samples=(np.concatenate([x, x]), np.concatenate([y, y])))
    assert "NET_SAMPLES 2" in (tmp_path / "samples.h").read_text()
    done = subprocess.run(["make", "-s", "run"], cwd=tmp_path, capture_output=True, text=True)
    losses = [float(line.split()[-1]) for line in done.stderr.splitlines() if "loss" in line]
    assert done.returncode == 0 and len(losses) == 5, done.stderr
    assert len(done.stderr.splitlines()) == 5  # and no warning of compiler or linker
    here = compiled("host").load()
    assert abs(here.step(x, y) - losses[0]) < 1e-3 and losses[-1] < losses[0]
    program.write(tmp_path)
    assert "NET_SAMPLES 0" in (tmp_path / "samples.h").read_text()
    done = subprocess.run(["make", "-s", "lib"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "libnet.a").stat().st_size > 10_000


APP = r"""
#include <stdio.h>
#include "model.h"
static net_t net;
static net_input_t image[NET_INPUT_ELEMENTS];
int main(void) {
    net_label_t label = 1;
    float loss;
    net_init(&net);
    if (net_train_step(&net, image, &label, 0.05f, &loss) != NET_OK) return 1;
    printf("%a\n", (double)loss);
    return 0;
}
"""


def test_the_model_alone_drops_into_a_project(program: Program, tmp_path: Path) -> None:
    """All of it in one folder, and by CMake from a project around it."""
    x, y = np.zeros(SHAPE, np.int8), np.array([1])
    loss = compiled("host").load().step(x, y)
    flat = compiled("portable").write(tmp_path / "flat", library=True)
    assert {path.parent for path in flat.rglob("*")} == {flat} and not (flat / "main.c").exists()
    (flat / "app.c").write_text(APP)
    sources = [path.name for path in flat.glob("*.c")]
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["gcc", *flags, *sources, "-lm", "-o", "app"], cwd=flat, check=True)
    assert float.fromhex(subprocess.check_output([flat / "app"], text=True)) == loss

    compiled("portable").write(tmp_path / "project" / "net")
    project = tmp_path / "project"
    (project / "app.c").write_text(APP)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\nadd_subdirectory(net)\n"
        "add_executable(app app.c)\ntarget_link_libraries(app PRIVATE net m)\n"
    )
    subprocess.run(["cmake", "-S", ".", "-B", "b"], cwd=project, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "b"], cwd=project, check=True, capture_output=True)
    assert float.fromhex(subprocess.check_output([project / "b" / "app"], text=True)) == loss
    cpp = ["g++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I."]
    subprocess.run([*cpp, "app.c"], cwd=flat, check=True)  # as a sketch of Arduino would have it
    assert set(program.library) == {Path(name).name for name in program.library}
    with pytest.raises(TargetError, match="does not lie in one folder"):
        compiled("host").write(tmp_path, library=True)


def test_targets_that_do_not_exist() -> None:
    with pytest.raises(TargetError, match="no target 'cortex-m0'") as caught:
        compiled("cortex-m0")
    assert 'target="cortex-m7"' in str(caught.value)
    with pytest.raises(TargetError, match="flash= means nothing to host"):
        compiled("host", flash="1M")
    with pytest.raises(TargetError, match="names where the program runs") as caught:
        whet.compile(tiny.mlp(), (torch.zeros(1, 5),), target=torch.zeros(1))  # type: ignore[arg-type]
    assert "labels=" in str(caught.value)


def test_the_command_trains_and_tells(tmp_path: Path, capsys: Any) -> None:
    (x, y), data = next(batches(1)), tmp_path / "data.npz"
    np.savez(data, x=x, y=y, x_test=x, y_test=y)
    source = tmp_path / "model.py"
    source.write_text("import torch\nfrom integer_models import Residual\ntorch.manual_seed(0)\n"
                      "def make(): return Residual().eval()\n")  # fmt: skip
    words = ["run", f"{source}:make", "-i", "1,3,16,16", "--dtype", "int8", "--calibrate", "random",
             "--data", str(data), "--steps", "12", "--lr", "0.1", "--update", "bias+last",
             "--save", str(tmp_path / "kept.bin")]  # fmt: skip
    app(words, standalone_mode=False)
    told = capsys.readouterr().out
    for part in ("accuracy before", "accuracy after   100.0%", "M instructions a step", "backward",
                 "0 outside of the memory", "measured, in the built program"):  # fmt: skip
        assert part in told, told
    assert (tmp_path / "kept.bin").stat().st_size > 100
    for arrays, message in [
        ({"x": x, "y": y + 5}, "(?s)a label or id is out of range.*x, samples 0 to 0"),
        ({"x": x, "y": y, "x_test": x}, "has one of x_test and y_test"),
        ({"x": x}, "has no y"),
        ({"x": x[:, :, :8], "y": y}, "(?s)input has shape.*x, samples 0 to 0"),
    ]:
        np.savez(data, **arrays)
        with pytest.raises(DataError, match=message):
            app(words, standalone_mode=False)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"])
def test_published_networks_fit_and_have_the_bits_of_the_host(name: str) -> None:
    assert DATA is not None
    model = models.load_int8_backbone(Path(DATA) / "imagenet-backbones" / f"{name}_int8.npz").eval()
    torch.manual_seed(0)
    model.classifier[1] = torch.nn.Linear(model.classifier[1].in_features, 10)
    images = np.random.default_rng(0).integers(-128, 128, (5, 1, 3, 128, 128), dtype=np.int8)
    made = [
        whet.compile(model, (torch.zeros(1, 3, 128, 128),), dtype="int8", update=f"{name}-49kb",
                     target=target)
        for target in ("cortex-m7", "host")
    ]  # fmt: skip
    board, here = Board(made[0]), made[1].load()
    for i, x in enumerate(images):
        assert board.step(x, np.array([i])) == here.step(x, np.array([i]))
    for key, array in here.arrays().items():
        np.testing.assert_array_equal(board.arrays()[key], array)
    board.close()
    assert board.firmware.ram == made[0].memory["ram"] < 200_000
