"""The commands on tiny models: what they print, what they leave behind, and how they fail."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import whet
from whet import compress
from whet.cli import main
from whet.ir.text import parse_graph
from whet.passes.machine import BLOCKS, Machine
from whet.tune.kept import this_machine

MODELS = """
import torch
from torch import nn

def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(64, 2),
    )

def words():
    return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 3))

class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in "ab")
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))

def transformer():
    torch.manual_seed(0)
    return Blocks().train()

instance = mlp()
number = 42

def unsupported():
    class Sorting(nn.Module):
        def forward(self, x):
            return torch.sort(x).values
    return nn.Sequential(nn.Linear(4, 3), Sorting())

def frozen():
    return mlp().requires_grad_(False)

def needs(argument):
    return mlp()

def nothing():
    return None
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def models(tmp_path: Path, monkeypatch: Any) -> Path:
    (tmp_path / "tiny_models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("import torch\nmodel = torch.nn.Linear(3)\n")
    (tmp_path / "wrong_syntax.py").write_text("def model(:\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(models: Path, monkeypatch: Any, capsys: Any) -> Any:
    def run(*args: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["whet", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return Result(int(caught.value.code or 0), printed.out, printed.err)

    return run


def test_compile_writes_a_folder_that_builds_and_learns(command: Any, models: Path) -> None:
    result = command("compile", "tiny_models.py:mlp", "-i", "2,4", "-o", "out", "--lr", "0.1")
    assert result.code == 0, result.err
    assert "67 parameters, 67 of them trained (4 tensors)" in result.out
    assert re.search(r"arena +\d+ B +lower bound \d+, gap 0.0 %", result.out)
    files = len(list((models / "out").rglob("*.*"))) + 1  # and the Makefile
    assert re.search(rf"wrote {files} files to out in \d+\.\d s", result.out)
    assert "next: make -C out && out/net" in result.out
    subprocess.run(["make", "-C", "out"], check=True, capture_output=True)
    printed = subprocess.run(["out/net"], check=True, capture_output=True, text=True).stdout
    losses = [float(word) for word in re.findall(r"loss (\S+)", printed)]
    assert losses[-1] < 0.8 * losses[0]
    assert "#define NET_LEARNING_RATE 0.1f" in (models / "out" / "model.h").read_text()


def test_compile_takes_every_option(command: Any, models: Path) -> None:
    result = command(
        "compile", "tiny_models:convnet", "--input", "2,3,6,6", "--output", "deep/down/out",
        "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1", "--clip-norm", "1",
        "--loss", "mse", "--train", "--accumulate", "--name", "eye", "--rematerialize", "layers",
    )  # fmt: skip
    assert result.code == 0, result.err
    header = (models / "deep" / "down" / "out" / "model.h").read_text()
    for entry in ("train_step", "gradients", "apply", "predict"):
        assert f"eye_status_t eye_{entry}(eye_t *net" in header
        assert re.search(rf"  {entry} +\d+ ", result.out)
    assert "float _1_running_mean[4];" in header and "float _0_weight_square[108]" in header
    source = (models / "deep" / "down" / "out" / "model.c").read_text()
    assert "whet_adam_f32" in source and "whet_clip_scale_f32" in source


def test_compile_splits_off_the_frozen_layers(command: Any, models: Path) -> None:
    words = ("compile", "tiny_models:convnet", "-i", "2,3,6,6", "-o", "out", "--cache-prefix")
    result = command(*words, "--update", "last")
    assert result.code == 0, result.err
    header = (models / "out" / "model.h").read_text()
    assert "net_status_t net_prefix(net_t *net, const float *input, float *kept);" in header
    assert "net_train_step_kept(net_t *net, const float *kept, const int32_t *label" in header
    assert re.search(r"kept of a sample: \S+ B; a step from it takes \S+ % fewer", result.out)
    refused = command(*words, "--update", "full")
    assert refused.code == 1 and "no layer at the beginning is frozen" in refused.err


def test_compile_says_which_models_cannot_write(command: Any) -> None:
    result = command("compile", "tiny_models.py:mlp", "-i", "2,4", "-o", "out", "--generate")
    assert result.code == 1 and "cannot write a text token by token" in result.err
    assert "its input is f32[2,4], not ids [batch, length]" in result.err


def test_a_compressed_file_has_the_weights(command: Any, models: Path) -> None:
    """Half of each weight is left: 16 and 12 numbers, with 11 biases."""
    sys.path.insert(0, str(models))
    model = importlib.import_module("tiny_models").mlp()
    compress.prune(model, keep=0.5, scope="layer")
    compress.save(model, "small.whtc")

    def trained(*words: str) -> int:
        result = command("plan", "tiny_models.py:mlp", "-i", "2,4", "--json", *words)
        assert result.code == 0, result.err
        return int(json.loads(result.out)["memory"]["trained"])

    assert trained() == trained("--weights", "small.whtc") == 4 * 67
    assert trained("--weights", "small.whtc", "--sparse") == 4 * (16 + 12 + 11)
    wrong = command("check", "tiny_models:convnet", "-i", "2,3,6,6", "--weights", "small.whtc")
    assert wrong.code == 1 and "small.whtc" in wrong.err


def test_weights_in_bytes_are_asked_for(command: Any, models: Path) -> None:
    words = ("--update", "last", "--frozen", "int8")
    result = command("plan", "tiny_models:convnet", "--input", "2,3,6,6", *words)
    (warning,) = result.err.splitlines()
    assert warning.startswith("whet: warning: no frozen weight is stored as int8")
    assert result.code == 0 and "weights in 8 bits                            0 B" in result.out


def test_integers_are_told_how_to_move(command: Any) -> None:
    """A byte of carry for each of 56 weights and 11 biases, in a plan for a chip."""

    def state(*words: str) -> int:
        result = command(
            "plan", "tiny_models.py:mlp", "-i", "2,4", "--dtype", "int8", "--calibrate", "random",
            "--target", "cortex-m7", "--json", "--int8", "head=int8", *words,
        )  # fmt: skip
        assert result.code == 0, result.err
        return int(json.loads(result.out)["memory"]["state"])

    carried = state("--int8", "rounding=carry8", "--int8", "gradients=int16")
    assert state("--int8", "qas=no") == 0 and carried == 4 * 8 + 8 * 3 + 8 + 3


@pytest.mark.parametrize("loss", ["cross-entropy", "mse", "l1", "smooth-l1", "bce-with-logits",
                                  "nll", "kl"])  # fmt: skip
def test_every_loss_compiles(loss: str, command: Any, models: Path) -> None:
    result = command("compile", "tiny_models.py:mlp", "-i", "2,4", "-o", loss, "--loss", loss)
    assert result.code == 0, result.err
    assert (models / loss / "model.c").exists()


def test_ids_and_instances(command: Any) -> None:
    result = command("compile", "tiny_models.py:words", "-i", "2,5:7", "-o", "out")
    assert result.code == 0, result.err
    assert "typedef int32_t net_input_t;" in Path("out/model.h").read_text()
    result = command("ir", "tiny_models.py:instance", "-i", "2,4")
    assert result.code == 0 and "%label : i32[2] label" in result.out


def test_ir_prints_a_graph_that_can_be_read_back(command: Any) -> None:
    result = command("ir", "tiny_models.py:mlp", "-i", "2,4")
    assert result.code == 0
    graph = parse_graph(result.out)
    assert graph.name == "train_step" and str(graph) == result.out.strip()
    assert "%0.weight.next = sgd %0.weight" in result.out
    result = command("ir", "tiny_models.py:mlp", "-i", "2,4", "--entry", "predict")
    assert parse_graph(result.out).name == "predict" and "sgd" not in result.out


def test_ir_prints_a_graph_as_a_pass_left_it(command: Any) -> None:
    words = ["ir", "tiny_models.py:mlp", "-i", "2,4", "--after"]
    result = command(*words, "differentiate")
    assert result.code == 0, result.err
    assert str(parse_graph(result.out)) == result.out.strip()
    assert re.match(r"train_step +differentiate +nodes +\d+ +peak +[\d,]+\n", result.err)
    result = command(*words, "fold_constants", "--entry", "predict")
    assert result.err.startswith("prediction ") and "-> " in result.err
    result = command(*words, "quantize")
    assert result.code == 1 and "quantize did not run on train_step" in result.err


def test_check_compares_with_pytorch(command: Any) -> None:
    result = command("check", "tiny_models.py:mlp", "-i", "2,4", "--steps", "3", "--lr", "0.05")
    assert result.code == 0, result.err
    assert "4 gradients" in result.out and "3 steps" in result.out
    assert re.search(r"loss \d+\.\d+ -> \d+\.\d+", result.out)


LORA = whet.lora(r=2, targets=("output", "linear1"), last=1)


@pytest.mark.parametrize("update", ["sparse-1", "lora-1+last", "lora.toml"])
def test_schemes_of_transformers(command: Any, models: Path, update: str) -> None:
    (models / "lora.toml").write_text(LORA.to_toml())
    words = ("tiny_models.py:transformer", "-i", "2,4,8", "--lr", "0.05", "--update", update)
    result = command("check", *words, "--steps", "2")
    assert result.code == 0, result.err
    count = {"sparse-1": 11, "lora-1+last": 4, "lora.toml": 4}[update]
    assert f"{count} gradients" in result.out


def test_compare_knows_schemes_of_transformers(command: Any) -> None:
    names = "full,sparse-1,attention-1,ffn-1,lora,lora-1"
    result = command("compare", "tiny_models.py:transformer", "-i", "2,4,8", "--schemes", names)
    assert result.code == 0, result.err
    for name in names.split(","):
        assert re.search(rf"^ *{name} ", result.out, re.MULTILINE), result.out


def test_report_writes_a_page(command: Any) -> None:
    words = ("report", "tiny_models.py:mlp", "-i", "2,4", "--ram", "64K")
    result = command(*words, "-o", "r.html", "--against", "last", "--without", "inplace")
    assert result.code == 0 and result.out == "wrote r.html\n", result.err
    page = Path("r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "tiny_models.py:mlp" in page
    assert command(*words).out.startswith("net: ")


def test_report_refuses_what_it_cannot_do(command: Any, unloaded: None) -> None:
    words = ("report", "tiny_models.py:mlp", "-i", "2,4")
    for more, message in (
        (("-o", "r.txt"), "r.txt is not a .html file"),
        (("--trace", "t.html"), "t.html is not a .json file"),
        (("--against", "last"), "parts of a page"),
        (("-o", "nowhere/r.html"), "there is no folder"),
    ):
        result = command(*words, *more)
        assert result.code == 1 and message in result.err


FAILURES = {
    "blocks without attention": (
        ["tiny_models.py:mlp", "--update", "sparse-1"], "is for transformers",
    ),
    "LoRA without attention": (["tiny_models.py:mlp", "--update", "lora"], "no target 'query'"),
    "no such file": (["nowhere.py:mlp"], "cannot import 'nowhere.py'"),
    "no such module": (["no.such.module:mlp"], "cannot import 'no.such.module'"),
    "no such name": (["tiny_models.py:resnet"], "'tiny_models.py' has no 'resnet'"),
    "no name": (["tiny_models.py"], "'tiny_models.py' does not name a model"),
    "wrong syntax": (["wrong_syntax.py:model"], "cannot import 'wrong_syntax.py'"),
    "a file that fails": (["broken.py:model"], "cannot import 'broken.py'"),
    "no model": (["tiny_models.py:nothing"], "gives a NoneType, not a torch.nn.Module"),
    "a number": (["tiny_models.py:number"], "gives a int, not a torch.nn.Module"),
    "a function that fails": (["tiny_models.py:needs"], "needs() failed"),
    "unsupported": (["tiny_models.py:unsupported"], "1: aten.sort.default(float32[2, 3]): "),
    "frozen": (["tiny_models.py:frozen"], "there is nothing to train"),
    "not a shape": (["tiny_models.py:mlp", "-i", "2,x"], "'2,x' is not an input shape"),
    "a size of zero": (["tiny_models.py:mlp", "-i", "0,4"], "'0,4' is not an input shape"),
    "not a type": (["tiny_models.py:mlp", "-i", "2,4:half"], "'2,4:half' is not an input shape"),
    "a shape that does not fit": (["tiny_models.py:mlp", "-i", "2,5"], "of shape (2, 5)"),
    "too many inputs": (["tiny_models.py:mlp", "-i", "2,4", "-i", "2,4"], "the model itself fails"),
    "negative rate": (["tiny_models.py:mlp", "--lr", "-1"], "Invalid learning rate: -1.0"),
    "int8 of a float program": (["tiny_models.py:mlp", "--int8", "qas=no"], "is for int8 programs"),
    **{
        f"int8 {word}": (["tiny_models.py:mlp", "--dtype", "int8", "--int8", word], message)
        for word, message in {
            "rounding=up": "there is no rounding 'up'", "qas=1": "neither yes nor no",
            "seed=-1": "seed=-1 is not an integer of at least 0",
            "head": "head is not an option of whet.Int8",
            "heads=int8": "heads=int8 is not an option of whet.Int8",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_failures_end_with_status_1_and_one_message(case: str, command: Any) -> None:
    args, message = FAILURES[case]
    shape = [] if "-i" in args else ["-i", "2,4"]
    result = command("check", *args, *shape)
    assert result.code == 1
    assert result.err.startswith("whet: ") and message in result.err, result.err
    assert "Traceback" not in result.err and result.out == ""
    assert not Path("out").exists()


def test_a_bad_name_and_a_file_in_the_way(command: Any) -> None:
    args = ("compile", "tiny_models.py:mlp", "-i", "2,4", "-o", "out")
    result = command(*args, "--name", "my net")
    assert result.code == 1 and "'my net' is not a C identifier" in result.err
    Path("out").write_text("in the way")
    result = command(*args)
    assert result.code == 1 and "cannot write the program to out" in result.err


@pytest.fixture
def unloaded(monkeypatch: Any) -> None:
    def load(spec: str) -> None:
        raise AssertionError("what is wrong was known before the model is loaded")

    monkeypatch.setattr("whet.cli.models.load_model", load)


MLP = ("tiny_models.py:mlp", "-i", "2,4")
EARLY = {
    "a file in the way": ("compile", ["-o", "in_the_way"], "is a file"),
    "a file on the way": ("compile", ["-o", "in_the_way/out"], "in_the_way is a file"),
    "bytes": ("compile", ["-o", "out", "--ram", "25x"], "try   262144, 256K or 1M"),
    "flash": ("compile", ["-o", "out", "--flash", "1M"], "--flash means nothing to host"),
    "no flash": ("run", ["--flash", "much"], "'much' is not a number of bytes"),
    "scheme": ("plan", ["--update", "lst"], "did you mean last?"),
    "part of a scheme": ("check", ["--update", "last+first"], "there is no scheme 'last+first'"),
    "file of a scheme": ("plan", ["--update", "no.toml"], "cannot read the scheme no.toml"),
    "several schemes": ("compare", ["--schemes", "full,lst"], "there is no scheme 'lst'"),
    "no schemes": ("compare", ["--schemes", ","], "try   --schemes full,last"),
    "pass": ("ir", ["--without", "reord"], "'reord' is not a pass"),
    "pass to look behind": ("ir", ["--after", "reord"], "there is no pass 'reord'"),
    "pass of a comparison": ("compare", ["--without", "reord"], "'reord' is not a pass"),
    "name": ("compile", ["-o", "out", "--name", "size"], "the program cannot be called 'size'"),
    "norm": ("check", ["--clip-norm", "0"], "--clip-norm 0.0 limits nothing"),
    "frozen integers": (
        "check",
        ["--dtype", "int8", "--calibrate", "random", "--frozen", "int8"],
        "--frozen int8 is for a float program",
    ),
    "moments of integers": (
        "check",
        ["--dtype", "int8", "--calibrate", "random", "--moments", "bf16"],
        "--moments bf16 is for a float program",
    ),
    "a search": ("compile", ["-o", "out", "--update", "auto", "--ram", "1M"], "whet search ..."),
    "picture": ("plan", ["--picture", "no/arena.svg"], "there is no folder"),
    "picture of a kind": ("plan", ["--layers", "a.png"], "try   a.svg"),
    "checkpoint to write": ("run", ["--save", "no/net.bin"], "there is no folder"),
    "checkpoint that is a folder": ("run", ["--save", "."], "it is a folder"),
    "checkpoint to read": ("run", ["--load", "no.bin"], "No such file"),
    "calibration": ("check", ["--dtype", "int8", "--calibrate", "no.npy"], "No such file"),
    "data": ("run", ["--data", "no.npz"], "No such file"),
    "entry point": ("ir", ["--entry", "backward"], "train_step, predict"),
}


@pytest.mark.parametrize("case", EARLY)
def test_what_is_wrong_is_said_before_the_model_is_loaded(
    case: str, command: Any, unloaded: None
) -> None:
    Path("in_the_way").write_text("")
    name, words, message = EARLY[case]
    result = command(name, *MLP, *words)
    assert result.code == 1 and message in result.err, result.err
    assert "Traceback" not in result.err


def test_nothing_slow_is_imported_to_say_so() -> None:
    code = "import whet.cli, sys; assert 'torch' not in sys.modules\n"
    code += "import atexit; atexit.register(lambda: print('torch' in sys.modules))"
    done = python_m_whet("plan", "a:b", "-i", "1", "--ram", "x", code=code)
    assert done.returncode == 1 and done.stdout.strip() == "False", done.stderr


def test_a_folder_that_may_not_be_written(command: Any, unloaded: None, monkeypatch: Any) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # of a user who is not root
    result = command("compile", *MLP, "-o", "deep/out")
    assert result.code == 1 and "cannot be written to" in result.err
    result = command("run", *MLP, "--save", "net.bin")
    assert result.code == 1 and "cannot be written to" in result.err


def test_calibration_is_missed_before_tracing(command: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("whet.frontend.torch.export.export", lambda *_: pytest.fail("too late"))
    result = command("check", *MLP, "--dtype", "int8")
    assert result.code == 1 and "try   --calibrate FILE.npy" in result.err
    assert "or --calibrate random" in result.err


def test_rmsprop_by_name(command: Any, models: Path) -> None:
    words = ("--optimizer", "rmsprop", "--momentum", "0.9", "--weight-decay", "0.1")
    assert command("compile", *MLP, "-o", "out", *words).code == 0
    assert "whet_rmsprop_f32" in (models / "out" / "model.c").read_text()


def test_momentum_is_for_sgd_alone(command: Any) -> None:
    result = command("compile", *MLP, "-o", "out", "--optimizer", "adam", "--momentum", "0.9")
    assert result.code == 1 and "adam has no --momentum" in result.err


def test_hints_are_options_of_the_command_line(command: Any) -> None:
    result = command("compile", *MLP, "-o", "out", "--target", "cortex-m7", "--flash", "64")
    assert result.code == 1 and "--flash 1K or more, or a smaller model" in result.err
    again = command("compile", *MLP, "-o", "out", "--target", "cortex-m7", "--flash", "1K")
    assert again.code == 0


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


X, Y = np.zeros((4, 4), np.float32), np.zeros(4, np.int64)
ARRAYS = {
    "garbage": (b"garbage, and more", "it is not a .npy file"),
    "empty": (b"", "it is empty"),
    "pickle": (pickle.dumps(X), "it is not a .npy file"),
    "archive": (npz(x=X), "it is an archive"),
    "cut off": (npy(X)[:-5], "it is damaged or cut off"),
    "cut in its head": (npy(X)[:20], "it is damaged or cut off"),
    "objects": (npy(np.array([{}, {}])), "it holds Python objects"),
    "integers": (npy(Y.reshape(2, 2)), "it is int64 of shape (2, 2)"),
    "one number": (npy(np.float32(1)), "it is float32 of shape ()"),
    "nothing": (npy(X[:0]), "it is float32 of shape (0, 4)"),
}
ARCHIVES = {
    "garbage": (b"garbage, and more", "it is not an .npz file"),
    "empty": (b"", "it is empty"),
    "array": (npy(X), "it is not an .npz file"),
    "cut off": (npz(x=X, y=Y)[:200], "it is not an .npz file"),
    "damaged": (npz(x=X, y=Y).replace(npy(X), b"\xff" * len(npy(X))), "it is damaged or cut off"),
    "words": (npz(x=np.array(["a"] * 4), y=Y), "x of data.npz holds no numbers"),
    "objects": (npz(x=np.array([{}] * 4), y=Y), "it holds Python objects"),
    "no labels": (npz(x=X), "has no y"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_cannot_be_read(case: str, command: Any, unloaded: None) -> None:
    content, why = ARRAYS[case]
    Path("data.npy").write_bytes(content)
    result = command("check", *MLP, "--dtype", "int8", "--calibrate", "data.npy")
    assert result.code == 1 and why in result.err, result.err
    assert "allow_pickle" not in result.err


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_cannot_be_read(case: str, command: Any, unloaded: None) -> None:
    content, why = ARCHIVES[case]
    Path("data.npz").write_bytes(content)
    result = command("run", *MLP, "--data", "data.npz")
    assert result.code == 1 and why in result.err, result.err
    assert "allow_pickle" not in result.err


def test_run_takes_the_options_of_compile_and_goes_on_from_a_checkpoint(command: Any) -> None:
    args = ("run", *MLP, "--target", "host", "--steps", "3", "--weight-decay", "0.1",
            "--clip-norm", "1", "--train", "--without", "reorder", "--portable", "--name", "mine",
            )  # fmt: skip
    first = command(*args, "--save", "net.bin")
    assert first.code == 0, first.err
    assert "mine: 67 parameters" in first.out and "compiled without: " in first.out
    again = command(*args, "--load", "net.bin")
    assert again.code == 0 and "loaded net.bin" in again.out

    def loss(result: Result) -> float:
        return float(re.findall(r"loss \S+ -> (\S+) in", result.out)[0])

    assert loss(again) < loss(first)
    Path("net.bin").write_bytes(b"no checkpoint")
    assert command(*args, "--load", "net.bin").code == 1


def test_version(command: Any) -> None:
    result = command("--version")
    assert result.code == 0 and result.out.strip() == f"whet {whet.__version__}"


def test_an_unknown_entry_point(command: Any) -> None:
    result = command("ir", "tiny_models.py:mlp", "-i", "2,4", "--entry", "backward")
    assert result.code == 1 and "no entry point 'backward'" in result.err
    assert "train_step, predict" in result.err


@pytest.mark.parametrize(
    "args",
    [["frobnicate"], ["compile"], ["check", "m.py:m", "-i", "1", "--loss", "hinge"],
     ["check", "m.py:m", "-i", "1", "--steps", "0"]],
)  # fmt: skip
def test_wrong_usage_ends_with_status_2(args: list[str], command: Any) -> None:
    result = command(*args)
    assert result.code == 2 and "Usage:" in result.err


def python_m_whet(*args: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, in a process of its own, after some Python if given."""
    start = f"{code}\nimport runpy, sys; runpy.run_module('whet', run_name='__main__')"
    command = ["-c", start] if code else ["-m", "whet"]
    source = str(Path(whet.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *command, *args], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": source, "NO_COLOR": "1"},
    )  # fmt: skip


def test_python_m_whet_lists_the_commands() -> None:
    done = python_m_whet("--help")
    assert done.returncode == 0
    for word in ("compile", "check", "ir", "small C program"):
        assert word in done.stdout


def test_without_torch_the_command_says_what_it_needs(models: Path) -> None:
    blocked = "import sys; sys.modules['torch'] = None"
    done = python_m_whet("ir", "tiny_models.py:mlp", "-i", "2,4", code=blocked)
    assert done.returncode == 1
    assert "whet: compiling needs PyTorch, which is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_tune_measures_and_keeps(command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WHET_UNTUNED", raising=False)
    done = command("tune", "--force")  # tests keep a machine busy
    assert done.code == 0 and str(tmp_path) in done.out, done.err
    machine = this_machine()
    assert machine.tuned and 0.1 < machine.macs < 10_000, "products per ns of any machine there is"
    assert f"{2 * machine.macs:.0f}    GFLOP/s" in done.out
    assert machine.rows in BLOCKS and f"{machine.rows}    rows in a block" in done.out


def test_what_a_busy_machine_gives_is_not_kept(
    command: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WHET_UNTUNED", raising=False)
    path = tmp_path / "whet" / "machine.json"
    monkeypatch.setattr("whet.tune.measure.tune", lambda: (Machine(macs=20.0), 1.5))
    done = command("tune")
    assert done.code == 1 and "too busy to be measured" in done.err and not path.exists()
    assert "times were 150% above the quickest" in done.err and "--force" in done.err
    assert command("tune", "--force").code == 0 and this_machine().macs == 20.0
    monkeypatch.setattr("whet.tune.measure.tune", lambda: (Machine(macs=30.0), 0.05))
    assert command("tune").code == 0 and this_machine().macs == 30.0
    done = command("tune", "--reset")
    assert done.code == 0 and f"removed {path}" in done.out and not this_machine().tuned
    assert "nothing was kept" in command("tune", "--reset").out
