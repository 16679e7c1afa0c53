"""The generated folder: builds anywhere without a warning, is reproducible, safe and readable."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from built import losses, run
from tiny import convnet, images, mlp, vectors
from whet.emit import c_weights
from whet.emit.c_text import float_text
from whet.emit.tensors import identifiers

HERE = Path(__file__).parents[1]
SOURCE = str(Path(whet.__file__).parents[1])
PATHS = os.pathsep.join((SOURCE, str(HERE / "support")))
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZE = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Words(nn.Module):
    """Ids go in, an embedding is shared with the output, attention is in between."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.table(ids))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return (x @ self.table.weight.T).transpose(1, 2)


class Awkward(nn.Module):
    """Names that mean something in C, in the generated functions, or to the compiler."""

    NAMES = (
        "net", "input", "label", "loss", "lr", "scale", "output", "init", "t", "save", "load",
        "predict", "train_step", "apply_", "sizeof", "int", "static", "params", "state", "arena",
        "one", "const", "x", "size", "buffer", "spans", "AT", "NULL", "status_t", "input_t",
        "INPUT_ELEMENTS", "OK", "größe", "_1", "memcpy", "whet_relu_f32", "reduce_1",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        for i, name in enumerate(self.NAMES):
            self.register_parameter(name, nn.Parameter(torch.full((3,), 0.01 * i)))
        self.blocks = nn.ModuleDict({"a-b": nn.Linear(3, 3), "a b": nn.Linear(3, 3)})
        self.blocks["a_b"] = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for name in self.NAMES:
            x = x + getattr(self, name)
        for block in self.blocks.values():
            x = torch.tanh(block(x))
        return x


class Careless(nn.Module):
    """Takes an input it never looks at, and infinite bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor, unused: Tensor) -> Tensor:
        border = nn.functional.pad(x, (1, 1), value=float("-inf")).amax(1, keepdim=True)
        return self.fc(torch.clamp(x, min=-0.5) + border)


def make(name: str) -> whet.Program:
    torch.manual_seed(0)
    if name == "mlp":
        return whet.compile(mlp(), next(vectors())[:1])
    if name == "convnet":
        model = convnet(dropout=0.2).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, _ = next(images())
        return whet.compile(model, (x,), optimizer=optimizer, accumulate=True, clip_norm=1.0)
    if name == "words":
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return whet.compile(model, (torch.zeros(2, 5, dtype=torch.int64),), optimizer=optimizer)
    if name == "regression":
        frozen = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2))
        frozen[0].requires_grad_(False)
        return whet.compile(frozen, (torch.zeros(3, 4),), loss=nn.MSELoss(), accumulate=True)
    assert name == "awkward"
    return whet.compile(Awkward(), (torch.zeros(2, 3),), accumulate=True)


MODELS = ("mlp", "convnet", "words", "regression", "awkward")


class Programs(dict[str, whet.Program]):
    """Every model, compiled when it is first asked for."""

    def __missing__(self, name: str) -> whet.Program:
        self[name] = make(name)
        return self[name]


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs()


def text(program: whet.Program, name: str) -> str:
    return program.files[name].decode()


def compile_c(compiler: str, folder: Path, *flags: str, main: str = "main.c") -> Path:
    """Build a written program with every warning an error; returns the executable."""
    sources = [main, "model.c", "weights.c", *sorted(map(str, folder.glob("kernels/*.c")))]
    command = [compiler, *STRICT, *flags, "-I.", "-Ikernels", *sources, "-lm", "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / "program"


def features(program: whet.Program) -> list[str]:
    """What the harness may expect of this program."""
    header = text(program, "model.h")
    return [
        *(["-DHAS_IDS"] if "typedef int32_t net_label_t;" in header else []),
        *(["-DHAS_REAL_INPUT"] if "typedef float net_input_t;" in header else []),
        *(["-DHAS_GRADIENTS"] if "gradients" in program.entries else []),
    ]


# Building ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", MODELS)
def test_builds_without_a_warning_and_learns(
    name: str, compiler: str, programs: Programs, tmp_path: Path
) -> None:
    folder = programs[name].write(tmp_path)
    printed = losses(run(compile_c(compiler, folder, "-O1")))
    assert len(printed) == 5 and np.isfinite(printed).all()
    assert printed[-1] < printed[0]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_large_program_carries_its_weights_as_bytes(
    compiler: str, programs: Programs, tmp_path: Path, monkeypatch: Any
) -> None:
    spelled = compile_c(compiler, programs["mlp"].write(tmp_path / "a"), "-O0")
    monkeypatch.setattr(c_weights, "INLINE_WEIGHTS", 0)
    binary = dataclasses.replace(programs["mlp"])
    assert "weights.bin" in binary.files and "weights.bin" not in programs["mlp"].files
    included = compile_c(compiler, binary.write(tmp_path / "b"), "-O0")
    expected = [line.rsplit("  ", 1)[0] for line in run(spelled).splitlines()]
    assert [line.rsplit("  ", 1)[0] for line in run(included).splitlines()] == expected


def test_make_builds_the_example_and_the_library(programs: Programs, tmp_path: Path) -> None:
    folder = programs["mlp"].write(tmp_path / "out")
    environment = {k: v for k, v in os.environ.items() if k not in ("CFLAGS", "MAKEFLAGS")}
    for target, product in (("net", "net"), ("lib CFLAGS=-O1", "libnet.so")):
        done = subprocess.run(
            ["make", "-C", folder, *target.split()], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        assert (folder / product).exists()
    first, *_, last = losses(run(folder / "net"))
    assert last < 0.9 * first
    subprocess.run(["make", "-C", folder, "clean"], check=True, capture_output=True)
    assert not (folder / "net").exists()


def test_another_name_goes_through_everything(tmp_path: Path) -> None:
    program = whet.compile(mlp(), next(vectors())[:1], name="digit_reader")
    folder = program.write(tmp_path)
    subprocess.run(["make", "-C", folder, "CFLAGS=-O1"], check=True, capture_output=True)
    first, *_, last = losses(run(folder / "digit_reader"))
    assert last < first
    for name in ("model.h", "model.c", "weights.h", "weights.c", "main.c"):
        assert "net_" not in text(program, name).replace("net->", ""), name
    assert program.load().predict(next(vectors())[0]).shape == (4, 3)


def test_an_input_nobody_looks_at_and_infinite_numbers_build(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Careless(), torch.randn(3, 4)
    program = whet.compile(model, (x, torch.zeros(2)))
    assert "INFINITY" in text(program, "model.c")
    for compiler in ("gcc", "clang"):
        compile_c(compiler, program.write(tmp_path / compiler), "-O0")
    right = model(x, torch.zeros(2)).detach().numpy()
    np.testing.assert_allclose(program.load().predict((x, torch.zeros(2))), right, rtol=1e-5)


def test_a_loss_that_ignores_its_target_builds() -> None:
    program = whet.compile(
        mlp(), next(vectors())[:1], loss=lambda out, _: (out**2).mean(), labels=torch.zeros(1)
    )
    trainer = program.load()
    x, _ = next(vectors())
    assert trainer.step(x, np.zeros(1, np.float32)) > trainer.step(x, np.zeros(1, np.float32))


# The example program -------------------------------------------------------------------------


def test_the_example_trains_on_a_file_and_leaves_a_checkpoint(
    programs: Programs, tmp_path: Path
) -> None:
    program = programs["mlp"]
    example = compile_c("gcc", program.write(tmp_path), "-O2")
    batches = vectors()
    pairs = [next(batches) for _ in range(3)]
    with (tmp_path / "data.bin").open("wb") as file:
        for x, y in pairs:
            file.write(x.numpy().tobytes() + y.numpy().astype(np.int32).tobytes())
    printed = run(example, "data.bin", "7", "0.05")
    assert "saved checkpoint.bin" in printed
    trainer, reference = program.load(), program.load()
    trainer.load(tmp_path / "checkpoint.bin")
    seen = [reference.step(*pairs[i % 3], lr=0.05) for i in range(7)]
    assert losses(printed)[0] == pytest.approx(seen[0], abs=2e-6)
    for name, array in reference.arrays().items():
        np.testing.assert_allclose(trainer.arrays()[name], array, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("args", "message"),
    [(["nowhere.bin"], "cannot open nowhere.bin"), (["short.bin"], "shorter than one batch")],
)
def test_the_example_says_what_is_wrong_with_its_data(
    args: list[str], message: str, programs: Programs, tmp_path: Path
) -> None:
    example = compile_c("gcc", programs["mlp"].write(tmp_path), "-O0")
    (tmp_path / "short.bin").write_bytes(b"123")
    done = subprocess.run([example, *args], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr
    assert not (tmp_path / "checkpoint.bin").exists()


# Safety --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mlp", "inline"),
        ("awkward", "inline"),
        *(
            pytest.param(name, "inline", marks=pytest.mark.slow)
            for name in MODELS
            if name not in ("mlp", "awkward")
        ),
        ("mlp", "weights.bin"),
        pytest.param("convnet", "weights.bin", marks=pytest.mark.slow),
    ],
)
def test_every_entry_point_keeps_its_promises_under_the_sanitizers(
    name: str, form: str, programs: Programs, tmp_path: Path, monkeypatch: Any
) -> None:
    """Poisoned arenas, bad labels, NaN and Inf, and broken checkpoints: see harness.c."""
    program = programs[name]
    if form == "weights.bin":
        monkeypatch.setattr(c_weights, "INLINE_WEIGHTS", 0)
        program = dataclasses.replace(program)
        assert "weights.bin" in program.files
    folder = program.write(tmp_path)
    (folder / "harness.c").write_bytes((HERE / "support" / "harness.c").read_bytes())
    harness = compile_c("clang", folder, *SANITIZE, *features(program), main="harness.c")
    size = int(run(harness).split()[0])
    memory = program.memory
    promised = memory["arena"] + memory["trained"] + memory["state"]
    assert promised <= size < promised + 32, "RAM is what the report says, up to alignment"


def test_the_example_runs_clean_under_the_sanitizers(programs: Programs, tmp_path: Path) -> None:
    example = compile_c("gcc", programs["convnet"].write(tmp_path), *SANITIZE)
    x, y = next(images())
    batch = x.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    (tmp_path / "data.bin").write_bytes(batch + y.numpy().astype(np.int32).tobytes())
    assert "saved checkpoint.bin" in run(example, "data.bin", "11", "0.01")


def test_a_poisoned_arena_does_not_change_a_step_from_python(
    programs: Programs,
) -> None:
    one, two = programs["convnet"].load(), programs["convnet"].load()
    batches = images()
    arena = programs["convnet"].arena
    for _ in range(3):
        x, y = next(batches)
        end = len(two._memory) - 64 + (-two._memory.ctypes.data % 64)
        two._memory[end - arena : end] = 0xFF
        assert one.step(x, y) == two.step(x, y)
    assert one.save() == two.save()


ALLOWED_HEADERS = {"stddef.h", "stdint.h", "string.h", "math.h", "immintrin.h"}
SYSTEM = {"main.c", "kernels/threads.c"}  # files that know it


@pytest.mark.parametrize("name", MODELS)
def test_only_main_and_threads_use_the_operating_system(name: str, programs: Programs) -> None:
    for path in programs[name].files:
        if path.endswith((".c", ".h")) and path not in SYSTEM:
            source = text(programs[name], path)
            assert set(re.findall(r"#include <(.*?)>", source)) <= ALLOWED_HEADERS, path
            code = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
            assert not re.search(r"\b(malloc|calloc|realloc|free|printf|exit|abort)\s*\(", code), (
                path
            )


def test_there_are_no_globals_that_change(programs: Programs, tmp_path: Path) -> None:
    folder = programs["convnet"].write(tmp_path)
    sources = ["model.c", "weights.c", *map(str, folder.glob("kernels/*.c"))]
    flags = ("-O1", "-I.", "-Ikernels", "-c")
    subprocess.run(["gcc", *STRICT, *flags, *sources], cwd=folder, check=True)
    objects = sorted(map(str, folder.glob("*.o")))
    listed = subprocess.run(
        ["nm", *objects], cwd=folder, capture_output=True, text=True, check=True
    )
    symbols = re.findall(r"^[0-9a-f]+ (\w) (\w+)$", listed.stdout, re.M)
    assert ("T", "net_train_step") in symbols
    assert [s for s in symbols if s[0] in "bBdDC"] == [("b", "pool")], "the threads, and no more"


# Contents ------------------------------------------------------------------------------------


def test_the_folder_holds_what_is_needed_and_nothing_else(
    programs: Programs, tmp_path: Path
) -> None:
    program = programs["mlp"]
    kernels = {"check", "checkpoint", "cross_entropy", "linear", "sgd", "sum", "tanh"}
    kernels |= {"matmul", "outer", "threads"}
    headers = ("kernels", "inline", "lanes", "matmul", "bits", "blocks", "threads", "classes")
    headers += ("columns", "panels")
    assert set(program.files) == {
        "model.h", "model.c", "weights.h", "weights.c", "main.c", "Makefile", "report.txt",
        *(f"kernels/whet_{h}.h" for h in headers),
        *(f"kernels/{k}.c" for k in kernels),
    }  # fmt: skip
    folder = program.write(tmp_path / "new" / "folder")
    written = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert written == program.files


def test_writing_again_leaves_unchanged_files_alone(programs: Programs, tmp_path: Path) -> None:
    folder = programs["mlp"].write(tmp_path)
    os.utime(folder / "model.c", (1, 1))
    (folder / "model.h").write_text("something else")
    programs["mlp"].write(tmp_path)
    assert (folder / "model.c").stat().st_mtime == 1
    assert (folder / "model.h").read_bytes() == programs["mlp"].files["model.h"]


def test_names_of_parameters_survive_into_c(programs: Programs) -> None:
    header = text(programs["convnet"], "model.h")
    for line in (
        "float stem_weight[108] /* 4x3x3x3 */;",
        "float depthwise_weight[36] /* 3x3x4x1 */;",
        "float head_bias[3];",
        "float bn_running_mean[4];",
        "float stem_weight_mean[108] /* 4x3x3x3 */;",
        "float optimizer_step[1];",
        "int32_t rng[2];",
    ):
        assert line in header, line
    parameters = "const float *input, const int32_t *label, float lr, float *loss"
    assert f"net_train_step(net_t *net, {parameters});" in " ".join(header.split())


def test_every_call_is_preceded_by_its_line_of_the_graph(
    programs: Programs,
) -> None:
    source = re.sub(r"\s*\n \*\s+", " ", text(programs["convnet"], "model.c"))
    source = re.sub(r"\s+\*\s{5}", " ", source)
    step = str(programs["convnet"].entries["train_step"]).splitlines()
    lines = [line.strip() for line in step if " = " in line and "reshape" not in line]
    calls = [line for line in lines if not line.startswith("%one :")]
    assert len(calls) > 40
    for line in calls:
        assert f"/* {line} */" in source, line


def test_an_entry_point_is_a_flat_list_of_calls(programs: Programs) -> None:
    body = text(programs["mlp"], "model.c").split(" train_step(", 1)[1].split("\n}\n")[0]
    assert not re.search(r"\b(for|while|switch|goto|malloc)\b", body)
    assert body.count("whet_") == 2 + sum(
        n.op.call(n) is not None for n in programs["mlp"].entries["train_step"].nodes
    ), "one call per node, and the two guards"


def test_lines_are_at_most_a_hundred_characters(programs: Programs) -> None:
    for name in MODELS:
        for path in ("model.c", "model.h", "weights.c", "weights.h", "main.c"):
            long = [x for x in text(programs[name], path).splitlines() if len(x) > 100]
            assert not long, (name, path, long[0])


@pytest.mark.parametrize(
    ("number", "written"),
    [(0.1, "0.1f"), (1.0, "1.0f"), (1e-8, "1e-08f"), (-0.0, "-0.0f"), (3e38, "3e+38f"),
     (float("inf"), "INFINITY"), (float("-inf"), "-INFINITY"), (float("nan"), "NAN")],
)  # fmt: skip
def test_numbers_are_written_to_be_read_back_exactly(number: float, written: str) -> None:
    assert float_text(number) == written
    rng = np.random.default_rng(0)
    for bits in rng.integers(0, 2**32, 2000, dtype=np.uint32):
        value = bits.view(np.float32)
        if np.isfinite(value):
            word = float_text(float(value))
            assert word.endswith("f") and re.search(r"[.e]", word)
            assert np.float32(word[:-1]).tobytes() == value.tobytes()


def test_identifiers_are_distinct_and_legal() -> None:
    names = ["a.b", "a_b", "a-b", "0.weight", "while", "größe", "a.b_2", "", "net"]
    words = identifiers(names)
    assert list(words) == names and len(set(words.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", w) for w in words.values())
    assert words["a.b"] == "a_b" and words["0.weight"] == "_0_weight"
    assert words["while"] == "x_while" and words["net"] == "x_net"


def test_awkward_names_train_as_in_pytorch(programs: Programs) -> None:
    torch.manual_seed(0)
    model = Awkward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    program = whet.compile(model, (torch.zeros(2, 3),), optimizer=optimizer, accumulate=True)
    trainer = program.load()
    x, y = torch.randn(2, 3), torch.tensor([0, 2])
    for turn in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if turn % 2:
            assert trainer.step(x, y) == pytest.approx(loss.item(), rel=1e-5)
        else:
            trainer.gradients(x, y)
            assert set(trainer.collected()) == {n for n, _ in model.named_parameters()}
            trainer.apply()
    ours = trainer.state_dict()
    assert ours.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-6)


# Reproducibility -----------------------------------------------------------------------------


def digest(program: whet.Program) -> str:
    whole = hashlib.sha256()
    for name, content in program.files.items():
        whole.update(name.encode() + b"\0" + content + b"\0")
    return whole.hexdigest()


def test_two_compilations_give_the_same_bytes(programs: Programs) -> None:
    for name in ("convnet", "awkward"):
        again = make(name)
        assert again.files == programs[name].files and list(again.files) == list(
            programs[name].files
        )


def test_processes_with_different_hash_seeds_give_the_same_bytes(
    programs: Programs,
) -> None:
    names = ("convnet", "words")
    script = f"import test_emit as t; print(*(t.digest(t.make(n)) for n in {names}))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=HERE / "emit", stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": PATHS},
        )
        for seed in ("1", "31337")
    ]  # fmt: skip
    expected = [digest(programs[name]) for name in names]
    for process in running:
        printed, _ = process.communicate()
        assert process.returncode == 0 and printed.split() == expected
