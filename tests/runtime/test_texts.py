"""Texts are written token by token with the scores that `predict` gives for the whole of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agreement import prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from made_gguf import SIZES, llama_tensors, smollm2, written
from whet.errors import DataError, FrontendError, TargetError
from whet.llm import Task, Tokenizer, causal_lm_loss, pad, token_loss
from whet.models import Llama, LlamaConfig, from_gguf
from whet.runtime.sampling import Sampling

t.logging.set_verbosity_error()

WORDS, LENGTH = 40, 12
IDS = torch.randint(0, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(0))
CONFIG = LlamaConfig(WORDS, 32, 64, 2, heads=4, kv_heads=2, head=8, context=16)
GPT = dict(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=16, use_cache=False)


def llama() -> nn.Module:
    return Llama(CONFIG)


def qwen() -> nn.Module:
    """With biases; the last layer of one block trains in part, beside factors of LoRA."""
    config = t.Qwen2Config(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, num_key_value_heads=1, use_cache=False,
    )  # fmt: skip
    return Task(t.Qwen2ForCausalLM(config), ["input_ids"])


def gpt() -> nn.Module:
    """Its table of positions trains."""
    return Task(t.GPT2LMHeadModel(t.GPT2Config(**GPT)), ["input_ids"])


PARTLY = whet.Scheme(
    [whet.Rule("*.0.mlp.down_proj.weight", channels=0.25), whet.Rule("*.q_proj.weight", lora=2)]
)
MODELS: dict[str, tuple[Callable[[], nn.Module], int, Any]] = {
    "llama": (llama, 1, None),
    "qwen2 in part": (qwen, 1, PARTLY),
    "gpt2 in batches": (gpt, 2, None),
}


def compiled(model: nn.Module, batch: int = 1, **options: Any) -> whet.Program:
    adam = torch.optim.AdamW(model.parameters(), lr=0.02)
    own = dict(loss=causal_lm_loss, labels=IDS[:batch], optimizer=adam, generate=True)
    return whet.compile(model, (IDS[:batch],), **own | options)


@pytest.fixture(scope="module")
def program() -> whet.Program:
    """A small one; each test has a trainer of its own."""
    return compiled(prepared(llama(), IDS))


def predicted(trainer: whet.Trainer, ids: Sequence[int]) -> Any:
    """The scores of every token behind those of a text, by the program's prediction."""
    padded = pad([[*ids]] * trainer.program.batch, LENGTH).ids
    return trainer.predict(padded)[0][: len(ids)]


def assert_same_scores(trainer: whet.Trainer, ids: Sequence[int]) -> None:
    """At every position, whether the text before it is read at once or one token at a time."""
    wanted = predicted(trainer, ids)
    grown = [trainer.scores(ids[:n]) for n in range(1, len(ids) + 1)]
    trainer._forget()
    fresh = []
    for n in range(1, len(ids) + 1):
        fresh.append(trainer.scores(ids[:n]))
        trainer._forget()
    for found in (grown, fresh):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_prediction(name: str) -> None:
    build, batch, update = MODELS[name]
    program = compiled(prepared(build(), IDS), batch, update=update)
    trainer, text = program.load(), IDS[1].tolist()
    assert_same_scores(trainer, text)
    before = trainer.scores(text)
    for _ in range(3):
        trainer.step(IDS[:batch], IDS[:batch])
    assert np.abs(trainer.scores(text) - before).max() > 0.01  # the weights are those of now
    assert_same_scores(trainer, text)


def test_frozen_weights_stay_in_their_blocks(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(written(SIZES, llama_tensors(np.random.default_rng(0), words=WORDS)))
    model = from_gguf(path, context=LENGTH)
    update = whet.Scheme([whet.Rule("*.o_proj.weight")])
    program = compiled(model, update=update, frozen="gguf")
    stored = {n.op.name for n in program.entries["decode"].nodes if n.op.floats_as_integers}
    assert stored == {"linear_stored", "take_stored"}
    trainer = program.load()
    trainer.step(IDS[:1], IDS[:1])
    assert_same_scores(trainer, IDS[1].tolist())


# --- the cache


def calls(trainer: whet.Trainer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The entry points that ran for texts, and their positions."""
    found, run = [], trainer._run

    def recorded(entry: str, feed: Any, scalars: Any) -> Any:
        found.append((entry, scalars.get("position", -1)))
        return run(entry, feed, scalars)

    monkeypatch.setattr(trainer, "_run", recorded)
    return found


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch, program: whet.Program) -> None:
    trainer = program.load()
    ran = calls(trainer, monkeypatch)
    text = IDS[0].tolist()
    turned = [*text[:4], (text[4] + 1) % WORDS, 5]
    trainer.scores(text[:11])
    assert ran == [("prefill", 0), ("prefill", 6), ("decode", 10)]  # of which two are padding
    del ran[:]
    trainer.scores([*text[:11], 3])
    assert ran == [("decode", 11)]
    del ran[:]
    trainer.scores(turned)
    assert ran == [("decode", 4), ("decode", 5)]
    assert trainer.scores(turned).shape == (WORDS,) and ran[-1] == ("decode", 5)
    trainer.predict(IDS[:1])
    del ran[:]
    trainer.scores(turned)
    assert ran == [("prefill", 0), ("decode", 5)]
    trainer.load_state_dict(trainer.state_dict())
    del ran[:]
    trainer.scores(text)
    assert ran == [("prefill", 0), ("prefill", 6), ("decode", 11)]


def test_a_failed_call_leaves_nothing_wrong_in_the_cache(program: whet.Program) -> None:
    trainer = program.load()
    text = IDS[0].tolist()
    wanted = predicted(trainer, text)
    trainer.scores(text[:6])
    with pytest.raises(DataError, match="id is out of range"):
        trainer.scores([*text[:3], WORDS, *text[4:]])
    np.testing.assert_allclose(trainer.scores(text), wanted[-1], rtol=1e-4, atol=1e-5)


def test_caches_lie_at_one_place_and_are_updated_there(program: whet.Program) -> None:
    read, decode = (program.plans[name] for name in ("prefill", "decode"))
    places = [
        {b.values[0].name: (b.offset, b.last) for b in plan.buffers if b.values[0].name in names}
        for plan in (read, decode)
        for names in [{leaf.name for leaf, _ in plan.graph.state}]
    ]
    assert len(places[0]) == 4 and not read.copies and not decode.copies
    assert {n: at for n, (at, _) in places[0].items()} == {
        n: at for n, (at, _) in places[1].items()
    }
    assert {last for _, last in places[1].values()} == {len(decode.graph.nodes)}
    assert not places[0].keys() & program.storage.state.keys()  # no checkpoint has them
    assert read.graph.outputs == () and "linear_cross_entropy" not in str(read.graph)


def test_a_position_without_room_is_refused_by_the_program(program: whet.Program) -> None:
    trainer = program.load()
    feed = trainer._inputs("prefill", np.zeros((1, 6), np.int32))
    trainer._run("prefill", feed, {"position": LENGTH - 6})
    for position in (LENGTH - 5, -1):
        with pytest.raises(DataError, match="out of range"):
            trainer._run("prefill", feed, {"position": position})


def test_a_saved_program_writes_the_same(tmp_path: Path, program: whet.Program) -> None:
    again = whet.load(program.save(tmp_path / "net.whet"))
    text = IDS[0].tolist()
    np.testing.assert_array_equal(again.load().scores(text), program.load().scores(text))
    header = program.files["model.h"].decode()
    assert "#define NET_CONTEXT 12 " in header and "#define NET_PREFILL 6 " in header
    assert re.search(r"net_decode\(net_t \*net, const int32_t \*input, int32_t position,", header)


def test_the_page_continues_a_text_in_c(program: whet.Program, tmp_path: Path) -> None:
    """Its function, with a prompt of eight tokens, and with more than there is room for."""
    page = (Path(__file__).parents[2] / "docs" / "llm.md").read_text()
    (code,) = (c for c in re.findall(r"```c\n(.*?)```", page, re.DOTALL) if "decode" in c)
    start = IDS[0, :8].tolist()
    main = f"""
    static net_t net;
    int main(void) {{
        int32_t text[16] = {{{", ".join(map(str, start))}}};
        net_init(&net);
        if (continue_text(&net, text, 8, 13)) return 1;
        for (int i = 8; i < 13; i++) printf("%d ", (int)text[i]);
        return continue_text(&net, text, 8, 14) ? 0 : 2;
    }}"""
    folder = program.write(tmp_path)
    (folder / "main.c").write_text(f'#include <stdio.h>\n#include "model.h"\n{code}{main}\n')
    subprocess.run(["make", "-s", "CFLAGS=-O1"], cwd=folder, check=True)
    done = subprocess.run([folder / "net"], check=True, capture_output=True, text=True)
    assert [*map(int, done.stdout.split())] == [*program.load().generate(start, 5)]


# --- texts


def test_the_most_probable_token_follows(program: whet.Program) -> None:
    trainer = program.load()
    start = IDS[0, :3].tolist()
    text = list(start)
    for _ in range(10):
        text.append(int(predicted(trainer, text)[-1].argmax()))
    assert list(trainer.generate(start, 10)) == text[3:]
    assert len(set(text[3:])) > 2
    end = text[3:].index(text[8])  # where it comes first
    assert list(trainer.generate(IDS[0, :3], 10, stop=text[8])) == text[3 : 3 + end]
    assert list(trainer.generate(start, 10, stop={text[8]})) == text[3 : 3 + end]


def test_training_between_two_tokens_is_seen_by_the_second(program: whet.Program) -> None:
    trainer, start = program.load(), IDS[0, :5].tolist()
    tokens = trainer.generate(start, 2)
    first = next(tokens)
    for _ in range(30):
        trainer.step(IDS[:1], IDS[:1])
    assert next(tokens) == int(predicted(trainer, [*start, first])[-1].argmax())


def test_equal_seeds_give_equal_texts(program: whet.Program) -> None:
    trainer = program.load()
    one, same, other = (
        list(trainer.generate([1, 2], 10, temperature=1.0, seed=seed)) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    scores = np.log(shares).astype(np.float32)
    for sampling, wanted in [
        (Sampling(1.0), shares),
        (Sampling(0.5), shares**2),
        (Sampling(1.0, top_k=2), shares * [1, 1, 0, 0]),
        (Sampling(1.0, top_p=0.79), shares * [1, 1, 0, 0]),
        (Sampling(1.0, top_p=0.81), shares * [1, 1, 1, 0]),
        (Sampling(1.0, top_k=3, top_p=0.5), [1, 0, 0, 0]),
        (Sampling(1.0, top_p=1.0), shares),
        (Sampling(), [1, 0, 0, 0]),
    ]:
        order, random = np.array([2, 0, 3, 1]), np.random.default_rng(0)
        drawn = [sampling.draw(scores[order], random) for _ in range(4000)]
        counts = np.bincount(order[drawn], minlength=4) / 4000
        np.testing.assert_allclose(
            counts, wanted / np.sum(wanted), atol=0.03, err_msg=str(sampling)
        )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (dict(temperature=-1), "temperature=-1"),
        (dict(temperature=float("nan")), "temperature=nan"),
        (dict(temperature=1, top_k=0), "top_k=0"),
        (dict(temperature=1, top_p=0), "top_p=0"),
        (dict(temperature=1, top_p=1.5), "top_p=1.5"),
        (dict(top_k=4), "no effect at a temperature of 0"),
    ],
)
def test_how_tokens_are_drawn_must_make_sense(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DataError, match=re.escape(what)):
        Sampling(**options)


def test_texts_without_room_are_refused_before_anything_is_computed(program: whet.Program) -> None:
    trainer = program.load()
    with pytest.raises(DataError, match="10 tokens and 4 more do not fit: there is room for 12"):
        trainer.generate(range(10), 4)
    assert len(list(trainer.generate(range(10), 3))) == 3
    for ids, what in [
        (range(13), "13 tokens; there is room for 12"),
        ([], "no token to go on from"),
        (IDS[:1], re.escape("not int64[1,12]")),
        ([0.5], "float64"),
    ]:
        with pytest.raises(DataError, match=what):
            trainer.scores(ids)
    with pytest.raises(DataError, match="seed=-1 is not a whole number"):
        trainer.generate([1], 1, temperature=1, seed=-1)
    with pytest.raises(DataError, match="cannot write texts") as error:
        compiled(llama(), generate=False).load().generate([1], 1)
    assert "generate=True" in str(error.value)


# --- models that cannot


class Changed(nn.Module):
    """A language model, and something that is done to the vectors of all positions."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.change = Llama(CONFIG), change

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner.lm_head(self.change(self.inner.model(ids)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))


BERT = dict(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=64,
)  # fmt: skip
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "an encoder": (
        lambda: Task(t.BertForMaskedLM(t.BertConfig(**BERT)), ["input_ids"]),
        "attention is not causal",
    ),
    "a window": (
        lambda: Task(
            t.MistralForCausalLM(
                t.MistralConfig(**BERT, num_key_value_heads=1, sliding_window=4, use_cache=False)
            ),
            ["input_ids"],
        ),
        "a mask besides",
    ),
    "no attention": (Words, "there is no attention"),
    "a mean": (lambda: Changed(lambda x: x - x.mean(1, keepdim=True)), "all positions at once"),
    "the order turned round": (lambda: Changed(lambda x: x.flip(1)), "all positions at once"),
    "neighbours": (
        lambda: Changed(lambda x: torch.cat([x[:, :1], x[:, 1:] + x[:, :-1]], 1)),
        "all positions at once",
    ),
    "a softmax over positions": (
        lambda: Changed(lambda x: torch.softmax(x, 1)), "all positions at once",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_are_refused_by_name(name: str) -> None:
    build, why = REFUSED[name]
    with pytest.raises(FrontendError, match="token by token") as error:
        compiled(build().eval())
    assert why in str(error.value)


def test_other_inputs_and_targets_are_refused() -> None:
    bert = Task(t.BertForMaskedLM(t.BertConfig(**BERT)))
    with pytest.raises(FrontendError, match="it has 2 inputs"):
        whet.compile(
            bert.eval(), (IDS, torch.ones_like(IDS)), loss=causal_lm_loss, labels=IDS, generate=True
        )
    with pytest.raises(FrontendError, match="sequences of one token"):
        whet.compile(llama(), (IDS[:, :1],), loss=token_loss, labels=IDS[:, :1], generate=True)
    with pytest.raises(TargetError, match="cannot write texts"):
        compiled(llama(), target="cortex-m7")


# --- a real model


@pytest.mark.slow
def test_smollm2_writes_what_pytorch_writes() -> None:
    path = smollm2()
    model, tokenizer = from_gguf(path, context=96), Tokenizer.from_gguf(path)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    start = tokenizer.encode(tokenizer.chat(asked))
    batch, last = pad([start], 96), f"model.layers.{model.config.blocks - 1}.self_attn"
    trainer = whet.compile(
        model, (batch.ids,), loss=causal_lm_loss, labels=batch.labels, frozen="gguf",
        update=whet.Scheme([whet.Rule(f"{last}.*")]), generate=True,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    ).load()  # fmt: skip
    for _ in range(2):
        wrote = [*trainer.generate(start, 20, stop=tokenizer.special["eos"])]
        with torch.no_grad():
            scores = model(torch.tensor([[*start, *wrote]]))[0, len(start) - 1 :]
        assert wrote == scores.argmax(1)[: len(wrote)].tolist()
        np.testing.assert_allclose(trainer.scores([*start, *wrote]), scores[-1], atol=1e-3)
        trainer.step(batch.ids, batch.labels)
        model.load_state_dict(trainer.state_dict(), strict=False)
    assert "Paris" in tokenizer.decode(wrote)
