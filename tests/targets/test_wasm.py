"""WebAssembly modules in Node: the bits of the same C in this process, and what goes wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from integer_models import Residual
from whet import models
from whet.emit.program import Program
from whet.errors import BuildError, CheckpointError, DataError, NotFinite, RunError, TargetError
from whet.runtime import Trainer
from whet.runtime.build import version
from whet.targets import wasm
from whet.targets.wasm.build import find_compiler, works
from whet.targets.wasm.node import Node
from whet.targets.wasm.project import TYPED, Memory

# Vectors of 128 bits, as WebAssembly has them, whatever this processor has.
NARROW = ("-O3", "-ffp-contract=off")


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    missing = [tool for tool in ("clang", "wasm-ld", "node") if not shutil.which(tool)]
    assert not missing, f"{missing} not found: `make system-wasm` installs them"


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.ReLU6(), nn.Flatten(), nn.Linear(72, 5),
    )  # fmt: skip


X, Y = torch.randn(3, 2, 10, 10, generator=torch.Generator().manual_seed(1)), torch.arange(3)


def compiled(**options: Any) -> Program:
    return whet.compile(small(), (X,), target="wasm", **options)


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled(portable=True)


@pytest.fixture(scope="module")
def node(program: Program) -> Iterator[Node]:
    with Node(program) as made:
        yield made


def assert_equal_steps(ours: Trainer, theirs: Trainer, x: Any, y: Any, steps: int) -> None:
    losses = [(ours.step(x, y), theirs.step(x, y)) for _ in range(steps)]
    assert [a for a, _ in losses] == [b for _, b in losses]
    assert losses[-1] != losses[0], "it trains"
    assert ours.save() == theirs.save()
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))


def test_a_float_program_has_the_bits_of_the_portable_one(node: Node) -> None:
    theirs = whet.compile(small(), (X,), target="portable").load()
    node.load(theirs.save())
    assert_equal_steps(node, theirs, X, Y, 10)


@pytest.mark.slow
def test_vector_kernels_have_the_bits_of_the_same_c_with_vectors_of_this_width() -> None:
    program = compiled()
    assert "kernels/whet_lanes.h" in program.files
    with program.load() as ours:  # type: ignore[attr-defined]
        assert_equal_steps(ours, Trainer(program, NARROW), X, Y, 10)


def flat() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(196, 5))


def integer(model: nn.Module, target: str, portable: bool = False) -> Program:
    model.eval()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    example, shown = (torch.zeros(1, 3, 16, 16),), [torch.randn(8, 3, 16, 16)]
    return whet.compile(model, example, optimizer=sgd, dtype="int8", calibrate=shown,
                        target=target, portable=portable)  # fmt: skip


@pytest.mark.parametrize(
    ("build", "portable", "host"),
    [(flat, True, "portable"), pytest.param(Residual, False, "host", marks=pytest.mark.slow)],
)
def test_an_integer_program_has_the_bits_of_the_host(
    build: Callable[[], nn.Module], portable: bool, host: str
) -> None:
    made = []
    for target, scalar in (("wasm", portable), (host, False)):
        torch.manual_seed(0)
        made.append(integer(build(), target, scalar))
    x, y = torch.randn(1, 3, 16, 16), torch.tensor([2])
    with made[0].load() as ours:  # type: ignore[attr-defined]
        assert_equal_steps(ours, made[1].load(), x, y, 10)


def test_checkpoints_go_both_ways_and_others_are_refused(node: Node, program: Program) -> None:
    before = node.save()
    node.step(X, Y)
    after = node.save()
    assert after != before
    node.load(before)
    assert node.save() == before
    state = node.state_dict()
    node.load(after)
    node.load_state_dict(state)
    assert {n: a.tolist() for n, a in node.state_dict().items()} == {
        n: a.tolist() for n, a in state.items()
    }
    with pytest.raises(CheckpointError, match="checksum"):
        node.load(before[:-1] + bytes([before[-1] ^ 1]))
    assert len(before) == Memory.of(program).checkpoint


def test_the_module_has_the_memory_of_the_plan_and_imports_nothing(
    node: Node, program: Program
) -> None:
    memory = Memory.of(program)
    assert f"for wasm: {memory.initial:,} bytes of linear memory" in program.report()
    node.step(X, Y)
    assert node.summary()[0].endswith(f"{memory.initial:,} of memory")
    text = f"""
        import {{ readFileSync }} from "node:fs";
        const module = new WebAssembly.Module(readFileSync({json.dumps(str(node.module))}));
        const {{ exports }} = new WebAssembly.Instance(module, {{}});
        const before = exports.memory.buffer.byteLength;
        exports.memory.grow({(memory.most - memory.initial) >> 16});
        let beyond = "grew";
        try {{ exports.memory.grow(1); }} catch {{ beyond = "refused"; }}
        console.log(WebAssembly.Module.imports(module).length, before, beyond);
    """
    assert script(text, node.module.parent).split() == ["0", str(memory.initial), "refused"]


def stack_top(module: Path) -> int:
    """Where the stack begins, which grows down: the first global's value, in section 6."""
    data, at = module.read_bytes(), 8

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while data[at] != 6:
        at += 1
        size = number()  # moves `at` behind itself
        at += size
    at += 1
    number(), number()  # the section's size, how many globals
    assert data[at : at + 3] == b"\x7f\x01\x41", "a variable, i32.const"
    at += 3
    return number()


def test_a_stack_overflow_leaves_the_memory(node: Node, program: Program) -> None:
    """The stack is at the bottom, with nothing below it to overwrite."""
    assert stack_top(node.module) == program.target.stack


def script(text: str, folder: Path) -> str:
    """What a script prints that lies beside the module."""
    path = folder / "script.mjs"
    path.write_text(text)
    done = subprocess.run(["node", path.name], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADER = """
import { load, NetworkError, ENTRIES } from "./index.js";
const network = await load();
const x = new Float32Array(600).fill(0.5), y = new Int32Array([0, 1, 2]);
const first = network.trainStep(x, y, 0.1), saved = network.save();
for (let i = 0; i < 5; i++) network.trainStep(x, y, 0.1);
const trained = network.predict(x);
network.load(saved);
const back = network.predict(x);
const errors = [];
const attempt = (call) => { try { call(); errors.push("none"); }
                            catch (e) { errors.push([e.name, e.code ?? null, e.message]); } };
attempt(() => network.trainStep(x, new Int32Array([0, 1, 9])));
attempt(() => network.trainStep(new Float32Array(600).fill(NaN), y));
attempt(() => network.trainStep(new Float32Array(3), y));
attempt(() => network.trainStep([...x], y));
attempt(() => network.trainStep(x, y, NaN));
attempt(() => network.load(saved.subarray(0, 40)));
attempt(() => network.load(new Uint8Array(1e7)));
attempt(() => network.run("learn"));
const kept = network.predict(x).every((value, i) => value === back[i]);
network.reset();
console.log(JSON.stringify({ first, again: network.trainStep(x, y, 0.1), errors, kept,
  trained: [...trained], saved: [...saved.slice(0, 4)], codes: NetworkError.name,
  names: Object.keys(ENTRIES) }));
"""


def test_the_loader_trains_and_its_errors_change_nothing(node: Node, program: Program) -> None:
    found = json.loads(script(LOADER, node.module.parent))
    theirs = whet.compile(small(), (X,), target="portable").load()
    x, y = torch.full((3, 2, 10, 10), 0.5), torch.arange(3)
    assert found["first"] == found["again"] == theirs.step(x, y, lr=0.1)
    for _ in range(5):
        theirs.step(x, y, lr=0.1)
    assert found["trained"] == theirs.predict(x).ravel().tolist()
    assert bytes(found["saved"]) == b"WHET" and found["kept"]
    assert found["names"] == list(program.entries)
    assert [(name, code) for name, code, _ in found["errors"]] == [
        ("NetworkError", "BAD_INDEX"), ("NetworkError", "NOT_FINITE"), ("RangeError", None),
        ("TypeError", None), ("RangeError", None), ("NetworkError", "TRUNCATED"),
        ("NetworkError", "CORRUPT"), ("TypeError", None),
    ]  # fmt: skip
    assert "input has 3 elements, not 600 (3 x 10 x 10 x 2)" in found["errors"][2][2]


HIGH = """
import { ENTRIES, Network } from "./index.js";
const base = 0x9000_0000, pages = base / 65536 + 1;
const memory = new WebAssembly.Memory({ initial: pages, maximum: pages + 16 });
const seen = [], at = (address) => new Float32Array(memory.buffer, address >>> 0, 4);
const exports = {
  memory,
  net: () => base | 0,
  arrays: () => (base + 4096) | 0,
  net_init: (net) => at(net).fill(7),
  net_train_step: (net, x, y, rate, loss) => {
    seen.push(net, x, y, loss);
    at(loss)[0] = at(x)[0] + rate;
    return 0;
  },
  net_save: (net, to, room) => { at(to).fill(at(net)[0]); return 16; },
};
const network = new Network(exports), { arrays } = ENTRIES.train_step;
const x = new Float32Array(arrays[0].elements).fill(3), y = new Int32Array(arrays[1].elements);
const loss = network.trainStep(x, y, 0.5), saved = new Float32Array(network.save().buffer);
console.log(JSON.stringify({ loss, saved: [...saved], seen: seen.map((n) => n - base),
  changing: network.changing.byteOffset - base }));
"""


def test_addresses_above_two_gibibytes_are_not_negative(program: Program, tmp_path: Path) -> None:
    """Functions that answer as a module of that size does; only pages that are used take memory."""
    (tmp_path / "index.js").write_bytes(program.files["package/index.js"])
    (tmp_path / "package.json").write_text('{"type": "module"}')
    found = json.loads(script(HIGH, tmp_path))
    arrays = 4096
    assert found["loss"] == 3.5 and found["saved"] == [7, 7, 7, 7] and found["changing"] == 0
    assert found["seen"] == [0, arrays, arrays + 2400, arrays + 2416]


def test_every_array_of_an_entry_has_a_type_in_typescript(program: Program) -> None:
    text = program.files["package/index.d.ts"].decode()
    union = text[text.index("AnyArray =") : text.index(";", text.index("AnyArray ="))]
    assert set(re.findall(r"\w+Array\b", union)) - {"AnyArray"} == set(TYPED.values())


def test_the_key_of_a_kept_kernel_names_the_compiler_behind_a_front(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as ccache, or Python: it is asked for the version of what it runs."""
    keys: list[str] = []

    def stop(name: str, make: object) -> bytes:
        keys.append(name)
        return b""

    monkeypatch.setattr(wasm.build, "kept", stop)
    monkeypatch.setattr(wasm.build, "make", lambda folder, _, target: (folder / target).touch())
    front, fake = tmp_path / "front", tmp_path / "cc"
    front.write_text('#!/bin/sh\n[ "$1" = --version ] && echo front 1 && exit\nexec "$@"\n')
    for number in (1, 2):
        fake.write_text(f"#!/bin/sh\necho {number}\n")
        front.chmod(0o755)
        fake.chmod(0o755)
        monkeypatch.setenv("WASM_CC", f"{front} {fake}")
        version.cache_clear()
        wasm.build.build(program, tmp_path / "made")
    kernels = len(list((tmp_path / "made" / "kernels").rglob("*.c")))
    assert len(set(keys)) == len(keys) == 2 * kernels


@pytest.mark.slow
def test_the_loader_runs_in_a_worker(node: Node) -> None:
    text = """
        import { Worker, isMainThread, parentPort } from "node:worker_threads";
        import { load } from "./index.js";
        if (isMainThread) {
          const worker = new Worker(new URL(import.meta.url));
          worker.on("message", (loss) => { console.log(loss); worker.terminate(); });
        } else {
          const network = await load();
          const y = new Int32Array([0, 1, 2]);
          parentPort.postMessage(network.trainStep(new Float32Array(600), y));
        }
    """
    theirs = whet.compile(small(), (X,), target="portable").load()
    loss = theirs.step(torch.zeros(3, 2, 10, 10), torch.arange(3))
    assert float(script(text, node.module.parent)) == loss


def test_the_package_and_its_example(node: Node) -> None:
    package = json.loads((node.module.parent / "package.json").read_text())
    assert all((node.module.parent / name).exists() for name in package["files"])
    types = (node.module.parent / "index.d.ts").read_text()
    assert "export type Input = Float32Array;" in types and "@" not in types
    assert 'type Entry = "train_step" | "predict"' in types
    done = subprocess.run(
        ["node", "example.mjs"], cwd=node.module.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[3]) for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2


def test_errors_of_steps_are_those_of_every_trainer(node: Node, program: Program) -> None:
    before = node.save()
    with pytest.raises(DataError, match="out of range"):
        node.step(X, torch.tensor([0, 1, 7]))
    with pytest.raises(NotFinite, match="the loss is nan"):
        node.step(X * torch.nan, Y)
    assert node.save() == before
    with pytest.raises(DataError, match="one thread"):
        program.load(threads=2)
    closed = program.load()
    closed.close()
    with pytest.raises(RunError, match="closed"):
        closed.step(X, Y)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.head(a * b)


@pytest.mark.slow
def test_several_inputs_collected_gradients_and_large_weights(tmp_path: Path) -> None:
    a, b, y = torch.randn(2, 4), torch.randn(2, 4), torch.tensor([0, 2])
    with monkeypatched_inline(16):
        program = whet.compile(Two(), (a, b), target="wasm", portable=True, accumulate=True)
        assert "weights.bin" in program.files
        with program.load() as ours:  # type: ignore[attr-defined]
            theirs = Trainer(program, NARROW)
            assert ours.gradients((a, b), y) == theirs.gradients((a, b), y)
            ours.apply(lr=0.1, scale=0.5)
            theirs.apply(lr=0.1, scale=0.5)
            assert ours.save() == theirs.save()
    assert "readonly [Float32Array, Float32Array]" in program.files["package/index.d.ts"].decode()


def monkeypatched_inline(limit: int) -> Any:
    """Weights of more bytes go to weights.bin, which the assembler includes."""
    patch = pytest.MonkeyPatch()
    patch.setattr("whet.emit.c_weights.INLINE_WEIGHTS", limit)

    class Patched:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            patch.undo()

    return Patched()


def test_what_is_missing_is_named(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fresh = compiled(portable=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    works.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BuildError, match="no compiler for WebAssembly found") as caught:
        fresh.load()
    assert "wasi-libc" in str(caught.value) and "pip install ziglang" in str(caught.value)
    with pytest.raises(BuildError, match="node is not installed"):
        program.load()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find_compiler()[1:3] == ("-m", "ziglang")
    monkeypatch.setenv("WASM_CC", "nowhere --target=wasm32-wasi")
    with pytest.raises(BuildError, match="WASM_CC=nowhere --target=wasm32-wasi is not there"):
        find_compiler()
    monkeypatch.setenv("WASM_CC", f"{sys.executable} --target=wasm32-wasi")
    assert find_compiler() == (sys.executable, "--target=wasm32-wasi")
    works.cache_clear()


@pytest.mark.slow
def test_a_program_beyond_32_bits_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(12_000, 12_000) for _ in range(8)))
    options = {"target": "wasm", "update": "last", "loss": nn.MSELoss()}
    program = whet.compile(model, (torch.zeros(1, 12_000),), **options)
    with pytest.raises(TargetError, match="too large for WebAssembly") as caught:
        program.target.files(program)
    assert "4,294,967,296" in str(caught.value)
    fewer = whet.compile(model[:4], (torch.zeros(1, 12_000),), **options)
    with pytest.raises(TargetError, match="weights are too large for a WebAssembly module"):
        fewer.target.files(fewer)
    with pytest.raises(TargetError, match="mapped"):
        compiled(mapped=True)


@pytest.mark.slow
def test_twenty_steps_of_mobilenet() -> None:
    torch.manual_seed(0)
    model = models.mobilenet_v2(num_classes=10, width=0.35)
    x, y = torch.randn(1, 3, 96, 96), torch.tensor([3])
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    program = whet.compile(model.eval(), (x,), optimizer=sgd, target="wasm")
    with program.load() as ours:  # type: ignore[attr-defined]
        assert_equal_steps(ours, Trainer(program, NARROW), x, y, 20)
    program = whet.compile(model, (x,), optimizer=sgd, target="wasm", portable=True)
    here = whet.compile(model, (x,), optimizer=sgd, target="portable").load()
    with program.load() as ours:  # type: ignore[attr-defined]
        assert_equal_steps(ours, here, x, y, 20)


@pytest.mark.slow
def test_twenty_steps_of_an_integer_mcunet() -> None:
    torch.manual_seed(0)
    model = models.mcunet_5fps(num_classes=10).eval()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(1, 3, 96, 96), torch.tensor([3])
    made = [
        whet.compile(model, (x,), optimizer=sgd, dtype="int8", calibrate=[x], target=target)
        for target in ("wasm", "host")
    ]
    with made[0].load() as ours:  # type: ignore[attr-defined]
        assert_equal_steps(ours, made[1].load(), x, y, 20)


@pytest.mark.slow
def test_the_module_of_zig_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    zig = " ".join((sys.executable, "-m", *wasm.build.ZIG))
    monkeypatch.setenv("WASM_CC", zig)
    program = compiled()
    with program.load() as ours:  # type: ignore[attr-defined]
        assert stack_top(ours.module) == program.target.stack
        assert_equal_steps(ours, Trainer(program, NARROW), X, Y, 10)
