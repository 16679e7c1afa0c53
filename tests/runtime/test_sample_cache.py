"""What the frozen layers make of a sample is kept: the same weights, bit for bit, as without."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import agreement  # noqa: F401  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from built import losses, run
from made_gguf import smollm2
from tiny import convnet, mlp
from whet.errors import DataError, SchemeError, TargetError, WhetError
from whet.ir.interp import interpret
from whet.llm import Pairs, Task, causal_lm_loss, pad
from whet.models import Llama, LlamaConfig, from_gguf

Case = tuple[nn.Module, tuple[Tensor, ...], Tensor, dict[str, Any]]
COUNT = 8  # samples

t.logging.set_verbosity_error()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def cnn() -> Case:
    scheme = whet.Scheme([whet.Rule("grouped.*"), whet.Rule("head.*")])
    return convnet().eval(), (random(COUNT, 3, 6, 4),), torch.arange(COUNT) % 3, {"update": scheme}


def cnn_int8() -> Case:
    model, (x,), y, options = cnn()
    return model, (x,), y, options | {"dtype": "int8", "calibrate": [x]}


def llama() -> Case:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocabulary=31, width=16, hidden=24, blocks=3, heads=2, kv_heads=1, head=8, context=16,
        tied=True,
    )  # fmt: skip
    ids = torch.randint(31, (COUNT, 8))
    how = {"update": "sparse-1", "loss": causal_lm_loss, "labels": ids[:4], "optimizer": "adam"}
    return Llama(config).eval(), (ids,), ids, how


def encoder() -> t.BertConfig:
    torch.manual_seed(0)
    return t.BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=24, num_labels=3,
    )  # fmt: skip


def sentences() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = [7, 2, 5, 3, 6, 7, 1, 4]
    rows = [torch.randint(1, 31, (n,), generator=generator).tolist() for n in sizes]
    return pad(rows, 7)[:2]


def bert() -> Case:
    """The mask is read by all blocks, and so on both sides."""
    model = Task(t.BertForSequenceClassification(encoder()).eval())
    return model, sentences(), torch.arange(COUNT) % 3, {"update": "sparse-1", "optimizer": "adam"}


CASES: dict[str, Callable[[], Case]] = {
    "cnn": cnn, "int8 cnn": cnn_int8, "llama": llama, "bert": bert,
}  # fmt: skip


def batch_of(x: tuple[Tensor, ...], rows: Any) -> Any:
    found = tuple(part[rows] for part in x)
    return found if len(found) > 1 else found[0]


def same_weights(one: whet.Trainer, other: whet.Trainer) -> None:
    theirs = other.arrays()
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_epochs_from_the_cache_give_the_same_bits(case: str) -> None:
    """In other batches each time, from the second epoch on without the inputs."""
    model, x, y, options = CASES[case]()
    program = whet.compile(model, batch_of_four(x), cache_prefix=True, **options)
    plain = whet.compile(model, batch_of_four(x), **options).load()
    cached, rng = program.load(), np.random.default_rng(0)
    for epoch in range(3):
        for rows in rng.permutation(COUNT).reshape(-1, 4):
            given = None if epoch else batch_of(x, rows)
            loss = cached.step(given, y[rows], sample=rows)
            assert loss == plain.step(batch_of(x, rows), y[rows])
    same_weights(cached, plain)
    assert (cached.cache.misses, cached.cache.hits) == (COUNT, 2 * COUNT)
    assert cached.cache.bytes == COUNT * program.kept_bytes
    assert len(program.kept) == (1 if case == "llama" else 2)
    whole, rest = (macs(program, entry) for entry in ("train_step", "train_step_kept"))
    assert macs(program, "prefix") + rest == whole
    assert rest < 0.75 * whole
    words = f"a step from it takes {100 * (1 - rest / whole):.1f} % fewer multiply-accumulates"
    assert words in program.report()


def batch_of_four(x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(part[:4] for part in x)


def macs(program: whet.Program, entry: str) -> int:
    return sum(node.op.macs(node) for node in program.entries[entry].nodes)


@pytest.mark.parametrize("case", ["cnn", "llama"])
def test_the_two_parts_mean_what_the_step_does(case: str) -> None:
    model, x, y, options = CASES[case]()
    entries = whet.compile(
        model, batch_of_four(x), cache_prefix=True, target="portable", **options
    ).entries
    leaves = {v.name: v for v in entries["train_step"].leaves}
    order = (0, 2, 3, 1) if case == "cnn" else (0, 1)
    feed = {"input": batch_of_four(x)[0].permute(order).numpy(), "lr": np.float32(0.1)}
    feed |= {n: y[:4].numpy().reshape(v.shape) for n, v in leaves.items() if n.startswith("label")}
    (loss,), state = interpret(entries["train_step"], feed)
    kept, _ = interpret(entries["prefix"], {"input": feed.pop("input")})
    names = [v.name for v in entries["prefix"].outputs]
    (again,), after = interpret(
        entries["train_step_kept"], feed | dict(zip(names, kept, strict=True))
    )
    assert loss == again and state.keys() == after.keys()
    for name in state:
        np.testing.assert_array_equal(state[name], after[name])


@pytest.mark.parametrize("case", ["cnn", "int8 cnn", "bert"])
def test_gradients_are_collected_from_the_cache_too(case: str) -> None:
    model, x, y, options = CASES[case]()
    options |= {"accumulate": True, "clip_norm": 0.1, "cache_prefix": True}
    program = whet.compile(model, batch_of_four(x), **options)
    plain, cached = program.load(), program.load()
    for epoch in range(2):
        for rows in (range(4), range(4, 8)):
            given = None if epoch else batch_of(x, rows)
            loss = cached.gradients(given, y[rows], sample=rows)
            assert loss == plain.gradients(batch_of(x, rows), y[rows])
        plain.apply(scale=0.5)
        cached.apply(scale=0.5)
    same_weights(cached, plain)


def test_sentences_that_are_compared_are_kept_apart() -> None:
    """Samples meet behind the frozen layers, which is no harm."""
    model = Pairs(t.BertModel(encoder(), add_pooling_layer=False).eval())
    x, y = sentences(), torch.arange(2)
    scheme = whet.Scheme([whet.Rule("encoder.encoder.layer.2.*")])
    program = whet.compile(model, batch_of_four(x), labels=y, update=scheme, cache_prefix=True)
    plain, cached = program.load(), program.load()
    for rows in ([0, 1, 2, 3], [4, 5, 6, 7], [6, 0, 5, 2]):
        assert cached.step(batch_of(x, rows), y, sample=rows) == plain.step(batch_of(x, rows), y)
    same_weights(cached, plain)
    assert len(program.kept) == 3  # the vectors, and the mask in two forms
    assert cached.cache.hits == 4


@pytest.mark.slow
def test_a_published_model_from_the_cache() -> None:
    """With the figures of docs/llm.md."""
    model, ids = from_gguf(smollm2(), context=128), torch.arange(1000, 1128)[None]
    program = whet.compile(
        model, (ids,), loss=causal_lm_loss, labels=ids, optimizer="adam", update="sparse-2",
        cache_prefix=True,
    )  # fmt: skip
    assert program.kept_bytes == 288 * 1024
    page = (Path(__file__).parents[2] / "docs" / "llm.md").read_text()
    saved = 100 * (1 - macs(program, "train_step_kept") / macs(program, "train_step"))
    assert f"that is 288 KiB, and {saved:.1f} % of the multiply-accumulates" in page
    plain, cached = program.load(), program.load()
    for given in (ids, None, None):
        assert cached.step(given, ids, sample=0) == plain.step(ids, ids)
    same_weights(cached, plain)


# --- the cache

TAIL = whet.Scheme([whet.Rule("fc2.*")])


def small(**options: Any) -> whet.Program:
    return whet.compile(mlp(), (torch.zeros(1, 5),), update=TAIL, cache_prefix=True, **options)


@pytest.mark.parametrize("in_file", [False, True])
def test_the_sample_used_longest_ago_makes_room(in_file: bool, tmp_path: Path) -> None:
    program, x, y = small(), random(5, 1, 5), torch.tensor([1])
    assert program.kept_bytes == 8 * 4
    assert "#define NET_KEPT_BYTES 32 /* of a batch: kept */" in program.files["model.h"].decode()
    path = tmp_path / "kept.bin" if in_file else None
    trainer, plain = program.load(), program.load()
    trainer.cache = whet.SampleCache(3 * 32, path)
    for sample in (0, 1, 2, 0, 3, 4, 0, 3):  # 3 takes the place of 1, 4 that of 2
        loss = trainer.step(x[sample], y, sample=f"picture {sample}")
        assert loss == plain.step(x[sample], y)
    same_weights(trainer, plain)
    assert [n for n in range(5) if f"picture {n}" in trainer.cache] == [0, 3, 4]
    assert (trainer.cache.hits, trainer.cache.misses) == (3, 5)
    assert len(trainer.cache) == 3 and trainer.cache.bytes == 96
    if path is not None:
        assert path.stat().st_size == 96
    trainer.cache.clear()
    assert len(trainer.cache) == 0


def test_what_a_cache_refuses(tmp_path: Path) -> None:
    program, x, y = small(), random(1, 5), torch.tensor([1])
    trainer = program.load()

    def refused(what: str, given: Any, sample: Any) -> None:
        with pytest.raises(DataError, match=what):
            trainer.step(given, y, sample=sample)

    refused("sample 7 is not in the cache", None, 7)
    refused("has 2 ids for a batch of 1", x, [1, 2])
    refused("has an id that cannot be looked up", x, [[1]])
    trainer.cache = whet.SampleCache(31)
    refused("a sample takes 32 bytes, the cache has 31", x, 1)
    trainer.cache = whet.SampleCache("1K")
    trainer.step(x, y, sample=1)
    other = small().load()
    other.cache = trainer.cache
    with pytest.raises(DataError, match="another program"):
        other.step(x, y, sample=1)
    with pytest.raises(DataError, match="cannot keep samples in"):
        whet.SampleCache("1K", tmp_path / "nowhere" / "kept.bin")
    plain = whet.compile(mlp(), (x,), update=TAIL).load()
    with pytest.raises(DataError, match="keeps what the frozen layers make"):
        plain.step(x, y, sample=1)


MAIN = r"""
#include <stdio.h>
#include "model.h"
static net_t net;
static float kept[NET_KEPT_ELEMENTS];
int main(void) {
    const float x[NET_INPUT_ELEMENTS] = {1.0f, -2.0f, 0.5f, 0.25f, 3.0f};
    const int32_t label[1] = {1};
    float loss = 0.0f;
    net_init(&net);
    if (sizeof kept != NET_KEPT_BYTES || net_prefix(&net, x, kept) != NET_OK) return 1;
    for (int i = 0; i < 3; i++) {
        if (net_train_step_kept(&net, kept, label, 0.1f, &loss) != NET_OK) return 1;
        printf("loss %.9g\n", (double)loss);
    }
    return 0;
}
"""


def test_a_program_in_c_keeps_samples_where_it_wants(tmp_path: Path) -> None:
    program = small(target="portable")
    folder = program.write(tmp_path)
    (folder / "main.c").write_text(MAIN)
    subprocess.run(["make", "-C", str(folder)], check=True, capture_output=True)
    plain, x = program.load(), torch.tensor([[1.0, -2.0, 0.5, 0.25, 3.0]])
    wanted = [plain.step(x, torch.tensor([1]), lr=0.1) for _ in range(3)]
    assert losses(run(folder / "net")) == pytest.approx(wanted, rel=1e-7)


# --- what has no frozen beginning


def refused(error: type[WhetError], model: nn.Module, x: Tensor, **options: Any) -> WhetError:
    with pytest.raises(error) as caught:
        whet.compile(model, (x,), cache_prefix=True, **options)
    return caught.value


def test_programs_without_a_frozen_beginning_are_refused() -> None:
    model, x = mlp(), torch.zeros(4, 5)
    error = refused(SchemeError, model, x, update="full")
    assert "no layer at the beginning is frozen" in error.what
    assert error.why == ("fc1.weight trains",)
    error = refused(TargetError, model, x, update=TAIL, target="cortex-m7")
    assert "cortex-m7" in error.what


@pytest.mark.parametrize(
    "layer, why",
    [(nn.BatchNorm1d(6), "mixes the samples of a batch"), (nn.Dropout(0.5), "from step to step")],
    ids=["batch norm", "dropout"],
)
def test_layers_that_are_no_function_of_a_sample_are_refused(layer: nn.Module, why: str) -> None:
    layers = nn.Linear(5, 6), layer, nn.Linear(6, 60), nn.Tanh(), nn.Linear(60, 3)
    model, x = nn.Sequential(*layers), torch.zeros(4, 5)
    scheme = whet.Scheme([whet.Rule("4.*")])
    error = refused(SchemeError, model.train(), x, update=scheme)
    assert "not a function of the sample alone" in error.what
    assert why in error.why[0] and "at    1\n" in str(error)
    assert whet.compile(model.eval(), (x,), update=scheme, cache_prefix=True).kept_bytes == 240


def test_dropout_behind_the_frozen_layers_is_no_harm() -> None:
    layers = nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)
    x, y = random(4, 5), torch.tensor([0, 1, 2, 0])
    scheme = whet.Scheme([whet.Rule("3.*")])
    program = whet.compile(nn.Sequential(*layers).train(), (x,), update=scheme, cache_prefix=True)
    plain, cached = program.load(), program.load()
    for _ in range(3):
        assert cached.step(x, y, sample=range(4)) == plain.step(x, y)
    same_weights(cached, plain)


class OverBatch(nn.Module):
    """A softmax over samples, of which shapes tell nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.softmax(self.first(x), 0))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_samples_that_affect_each_other_are_found_in_the_first_batch(size: int) -> None:
    y, scheme = torch.tensor([0, 1, 2, 0])[:size], whet.Scheme([whet.Rule("last.*")])
    program = whet.compile(OverBatch(), (random(size, 5),), update=scheme, cache_prefix=True)
    for _ in range(10):
        trainer, x = program.load(), random(size, 5)
        with pytest.raises(DataError, match="is not in the cache"):
            trainer.step(None, y, sample=range(size))
        for _ in range(2):
            with pytest.raises(DataError, match="depends on the rest of its batch"):
                trainer.step(x, y, sample=range(size))
        assert len(trainer.cache) == 0


class Masked(nn.Module):
    """The mask goes through the frozen layers as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)) * mask) + mask[:, :3]


def test_an_input_is_kept_as_it_is() -> None:
    x, mask, y = random(4, 5), random(4, 6), torch.tensor([0, 1, 2, 0])
    scheme = whet.Scheme([whet.Rule("last.*")])
    program = whet.compile(Masked(), (x, mask), update=scheme, cache_prefix=True)
    plain, cached = program.load(), program.load()
    for _ in range(3):
        assert cached.step((x, mask), y, sample=range(4)) == plain.step((x, mask), y)
    same_weights(cached, plain)


def test_an_id_stands_for_one_sample_of_a_batch() -> None:
    x, mask, y = random(4, 5), random(4, 6), torch.tensor([0, 1, 2, 0])
    scheme = whet.Scheme([whet.Rule("last.*")])
    trainer = whet.compile(Masked(), (x, mask), update=scheme, cache_prefix=True).load()
    with pytest.raises(DataError, match="7 twice"):
        trainer.step((x, mask), y, sample=[1, 7, 2, 7])
