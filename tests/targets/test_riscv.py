"""Programs on an emulated RISC-V microcontroller: the bits, the memory, and what goes wrong."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from elftools.elf.elffile import ELFFile

import tiny
import whet
from boards import batches, compiled, planted
from integer_models import DATA, needs_data
from whet import models
from whet.emit.program import Program
from whet.errors import BudgetError, BuildError, NotFinite, RunError
from whet.targets.bare_metal import Board
from whet.targets.bare_metal.chip import chip_of
from whet.targets.bare_metal.firmware import build, identity
from whet.targets.riscv import RISCV
from whet.targets.riscv.code import calls

TOOLS = ("riscv64-unknown-elf-gcc", "qemu-system-riscv32")
NAMES = [chip.name for chip in RISCV]


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    assert not missing, f"{missing} not found: `make setup-mcu` installs them"


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled("riscv32")


def same_arrays(board: Any, here: Any) -> None:
    for name, array in here.arrays().items():
        assert board.arrays()[name].tobytes() == array.tobytes(), name


def test_int8_steps_have_the_bits_of_the_host(program: Program) -> None:
    here, board = compiled("portable").load(), Board(program, watched=False)
    losses = [(board.step(x, y), here.step(x, y)) for x, y in batches(2)]
    assert all(ours == theirs for ours, theirs in losses) and len({a for a, _ in losses}) == 2
    same_arrays(board, here)
    board.close()


@pytest.mark.slow
@pytest.mark.parametrize("target", NAMES)
def test_watched_int8_steps_stay_in_the_memory_of_the_plan(target: str) -> None:
    """With every load and store watched; the stack by its paint is the stack by the stores."""
    program = compiled(target)
    here, board = compiled("portable").load(), Board(program)
    losses = [(board.step(x, y), here.step(x, y)) for x, y in batches(5)]
    assert all(ours == theirs for ours, theirs in losses) and len({a for a, _ in losses}) == 5
    same_arrays(board, here)
    x, _ = next(batches(1, seed=1))
    np.testing.assert_array_equal(board.predict(x), here.predict(x))
    seen = board.close()
    assert seen is not None and seen.outside == 0 and seen.loads > 0 < seen.stores
    assert 0 < seen.stack == program.measured["stack, by its paint"] < program.memory["stack"]
    assert board.firmware.ram == program.memory["ram"]
    assert program.memory["flash"] < board.firmware.flash < program.memory["flash"] + 64_000


@pytest.mark.parametrize(
    "target", [n if n == "riscv32" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_float_steps_have_the_bits_of_the_host(target: str) -> None:
    """With a floating-point unit and without one."""
    torch.manual_seed(0)
    model = tiny.convnet().eval()
    x, y = next(tiny.images())
    options: dict[str, Any] = {"optimizer": torch.optim.Adam(model.parameters(), lr=0.01)}
    program = whet.compile(model, (x,), target=target, **options)
    board, here = Board(program), whet.compile(model, (x,), target="portable", **options).load()
    ours, theirs = ([one.step(x, y) for _ in range(10)] for one in (board, here))
    assert ours == theirs and ours[-1] < ours[0]
    same_arrays(board, here)
    with pytest.raises(NotFinite):
        board.step(x * np.float32(np.inf), y)
    seen = board.close()
    assert seen is not None and seen.outside == 0
    assert board.firmware.ram == program.memory["ram"]


@pytest.mark.parametrize("target", NAMES)
def test_the_c_library_brings_no_memory_of_its_own(target: str, tmp_path: Path) -> None:
    """picolibc's functions of math have variables that are constants, and errno."""
    layers = [torch.nn.Tanh(), torch.nn.GELU(), torch.nn.Softplus(), torch.nn.ELU()]
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), *layers, torch.nn.Linear(8, 3))
    adam = torch.optim.Adam(model.parameters())
    program = whet.compile(model, (torch.zeros(1, 5),), optimizer=adam, target=target)
    assert build(program, tmp_path).ram == program.memory["ram"]


def test_a_budget_that_cannot_be_met_is_refused() -> None:
    x, _ = next(tiny.images())
    with pytest.raises(BudgetError, match="exceed the budget of 9,000 B"):
        whet.compile(tiny.convnet(), (x,), target="riscv32", ram=9000)


@pytest.mark.parametrize(("part", "size"), [("ram", 4096), ("flash", 8192)])
def test_the_linker_refuses_more_than_there_is(
    program: Program, part: str, size: int, tmp_path: Path
) -> None:
    options = replace(program.options, target=replace(program.target, **{part: size}))
    with pytest.raises(BuildError, match=f"does not fit into .*{size:,}"):
        build(replace(program, options=options, measured={}), tmp_path)


def test_the_linker_refuses_ram_below_the_flash(program: Program, tmp_path: Path) -> None:
    """Where nothing would protect the stack."""
    options = replace(program.options, target=replace(program.target, ram_at=0x10000000))
    with pytest.raises(BuildError, match="could not be built") as caught:
        build(replace(program, options=options, measured={}), tmp_path)
    assert "the flash must lie below the RAM" in str(caught.value)


def test_an_access_outside_of_the_memory_is_noticed(program: Program) -> None:
    """One word above the RAM, where the emulator has memory."""
    bad = planted(program, "*(volatile int *)0x80040000 = 1;")
    with pytest.raises(RunError, match="outside of the memory there is"), Board(bad) as board:
        board.step(*next(batches(1)))


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ('__asm__ volatile("unimp");', "a fault\n"),
        ("*(volatile char *)0x7FFFFFFF = 1;", "a fault\n"),
        ("{ volatile char deep[9000]; deep[0] = 1; (void)deep[0]; }", "stack left the memory"),
    ],
    ids=["undefined", "below", "stack"],
)
def test_a_fault_ends_the_run_with_a_reason(program: Program, statement: str, reason: str) -> None:
    board = Board(planted(program, statement), watched=False)
    with pytest.raises(RunError, match="stopped by itself") as caught:
        board.step(*next(batches(1)))
    assert reason in f"{caught.value}\n"


def test_costs_have_the_names_of_the_graph(program: Program) -> None:
    board = Board(program)
    for batch in batches(2):
        board.step(*batch)
    seen = board.close()
    assert seen is not None
    found = board.profile()
    nodes = [n for n in program.entries["train_step"].nodes if n.op.call(n) is not None]
    assert [c.node for c in found.costs] == nodes
    assert 0.9 * seen.instructions < 2 * found.total < seen.instructions


def test_calls_are_read_from_machine_code(tmp_path: Path) -> None:
    """Those that the assembler encodes, and no jump."""
    source, made = tmp_path / "a.s", tmp_path / "a.o"
    source.write_text(
        """
        .option norelax
        f: nop
        .option norvc
        jal ra, far
        .option rvc
        c.jal f
        c.j f
        auipc ra, 1
        jalr ra, -8(ra)
        auipc t1, 0xfffff
        jalr ra, 12(t1)
        auipc t1, 0
        c.nop
        jalr ra, 0(t1)
        jalr x0, 0(t1)
        jal x0, f
        .skip 0x700
        far: c.jal f
        .option norvc
        jal ra, f
        """
    )
    command = ["riscv64-unknown-elf-gcc", "-c", "-march=rv32imafc", "-mabi=ilp32f"]
    subprocess.run([*command, str(source), "-o", str(made)], check=True)
    with open(made, "rb") as file:
        code = bytes(ELFFile(file).get_section_by_name(".text").data())
    at = 0x1000
    far = at + len(code) - 6
    assert list(calls(code, at)) == [
        (at + 2, far),
        (at + 6, at),
        (at + 14, at + 10 + 0x1000 - 8),
        (at + 22, at + 18 - 0x1000 + 12),
        (far, at),
        (far + 2, at),
    ]


@pytest.mark.slow  # it needs ziglang
def test_the_key_of_a_kept_kernel_names_the_compiler(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ziglang, too: not only the Python that starts it."""
    chip = chip_of(program)
    assert "gcc" in identity(chip).partition("\0")[2]
    monkeypatch.setenv("CROSS", "no-such-")
    command, _, said = identity(chip).partition("\0")
    assert "-m ziglang cc" in command and "clang version" in said


@pytest.mark.slow
@pytest.mark.parametrize("target", [*NAMES, "cortex-m7"])
def test_the_compiler_in_ziglang_gives_the_same_bits(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no gcc for the chip, with its own headers of the C library."""
    monkeypatch.setenv("CROSS", "no-such-")
    torch.manual_seed(0)
    model = tiny.convnet().eval()
    x, y = next(tiny.images())
    options: dict[str, Any] = {"optimizer": torch.optim.Adam(model.parameters(), lr=0.01)}
    board = Board(whet.compile(model, (x,), target=target, **options))
    here = whet.compile(model, (x,), target="portable", **options).load()
    assert [board.step(x, y) for _ in range(5)] == [here.step(x, y) for _ in range(5)]
    same_arrays(board, here)
    seen = board.close()
    assert seen is not None and seen.outside == 0


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"])
def test_published_networks_have_the_bits_of_a_cortex_m(name: str) -> None:
    """Twenty steps; the memory is looked at in the first two, in a run of their own."""
    assert DATA is not None
    model = models.load_int8_backbone(Path(DATA) / "imagenet-backbones" / f"{name}_int8.npz").eval()
    torch.manual_seed(0)
    model.classifier[1] = torch.nn.Linear(model.classifier[1].in_features, 10)
    images = np.random.default_rng(0).integers(-128, 128, (20, 1, 3, 128, 128), dtype=np.int8)
    made = [
        whet.compile(model, (torch.zeros(1, 3, 128, 128),), dtype="int8", update=f"{name}-49kb",
                     target=target)
        for target in ("riscv32", "cortex-m7")
    ]  # fmt: skip
    here, there = (Board(one, watched=False) for one in made)
    losses = [
        [one.step(x, np.array([i % 10])) for i, x in enumerate(images)] for one in (here, there)
    ]
    assert losses[0] == losses[1]
    same_arrays(here, there)
    here.close()
    there.close()
    assert here.firmware.ram == made[0].memory["ram"] == there.firmware.ram
    board = Board(made[0])
    assert [board.step(x, np.array([i])) for i, x in enumerate(images[:2])] == losses[0][:2]
    seen = board.close()
    assert seen is not None and seen.outside == 0
    assert seen.stack == made[0].measured["stack, by its paint"] < made[0].memory["stack"]
