"""Texts to ids and back, as in the library and in transformers."""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agreement import LIBRARIES  # first: transformers cannot be imported before it
from made_gguf import smollm2, vocabulary, written
from whet.errors import DataError, FrontendError, WhetError
from whet.llm import Tokenizer, causal_lm_loss
from whet.models import Gguf, from_gguf

assert LIBRARIES is not None

TEXTS = (
    "", " ", "Hello, world!", "  two  spaces\n\n\nand lines\t\ttabs ", "1234567 and 3.14159e-10",
    "Grüße, 世界! 🙂 déjà vu", "def f(x):\n    return x ** 2  # it's", "I'LL we've don't",
    "a\r\nb\r\n", "\u00a0no-break\u2003space", "e\u0301 combined",
)  # fmt: skip


def made(pre: str = "gpt-2", **changes: Any) -> Tokenizer:
    return Tokenizer.from_gguf(Gguf.parse(written(vocabulary(pre, **changes), {})))


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_texts_come_back(pre: str) -> None:
    tokenizer = made(pre)
    assert len(tokenizer) == 256 + 8 + 3
    for text in TEXTS:
        back = tokenizer.decode(tokenizer.encode(text))
        assert back == (text.replace("e\u0301", "é") if pre == "qwen2" else text)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["hello", "Ġt", "1234", "5"]),
        ("smollm", ["hello", "Ġt", "1", "2", "3", "4", "5"]),
        ("qwen2", ["hello", "Ġt", "1", "2", "3", "4", "5"]),
        ("llama-bpe", ["hello", "Ġt", "123", "4", "5"]),
    ],
)
def test_digits_are_split_as_the_model_was_trained(pre: str, pieces: list[str]) -> None:
    tokenizer = made(pre)
    assert [tokenizer.inner.id_to_token(i) for i in tokenizer.encode("hello t12345")] == pieces


def test_special_tokens_have_their_ids() -> None:
    tokenizer = made()
    assert tokenizer.special == {"bos": 264, "eos": 265, "padding": 265, "unknown": 0}
    ids = tokenizer.encode("<|im_start|>hello<|im_end|><user>")
    assert ids == [264, tokenizer.inner.token_to_id("hello"), 265, 266]
    assert tokenizer.decode(ids) == "hello<user>"
    assert tokenizer.decode(ids, special=True) == "<|im_start|>hello<|im_end|><user>"
    assert made(**{"ggml.add_bos_token": True}).encode("hello")[0] == 264
    with pytest.raises(DataError, match="267 is no id: there are 267 tokens"):
        tokenizer.decode([267])


def test_a_conversation_is_marked() -> None:
    tokenizer, said = made(), [{"role": "user", "content": "hello"}]
    begin = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
    assert tokenizer.chat(said) == begin + "<|im_start|>assistant\n"
    assert tokenizer.chat(said, reply=False) == begin
    own = [{"role": "system", "content": "Sing."}, *said]
    assert tokenizer.chat(own).startswith("<|im_start|>system\nSing.<|im_end|>\n<|im_start|>user")


def test_a_lesson_has_labels_where_the_assistant_speaks() -> None:
    tokenizer = made()
    said = [
        {"role": "user", "content": "hello"}, {"role": "assistant", "content": "12\nhello"},
        {"role": "user", "content": "the"}, {"role": "assistant", "content": "é"},
    ]  # fmt: skip
    ids, labels = tokenizer.lesson(said)
    assert ids == tokenizer.encode(tokenizer.chat(said, reply=False))
    learned = [i for i in labels if i != -100]
    assert tokenizer.decode(learned, special=True) == "12\nhello<|im_end|>é<|im_end|>"
    assert all(label in (i, -100) for i, label in zip(ids, labels, strict=True))
    shifted = made(**{"ggml.add_bos_token": True}).lesson(said)
    assert shifted == ([264, *ids], [-100, *labels])


def test_what_is_no_conversation() -> None:
    with pytest.raises(FrontendError, match="are not marked by"):
        made(chat_template="[INST]").chat([{"role": "user", "content": "x"}])
    with pytest.raises(DataError, match="there are no messages"):
        made().chat([])
    with pytest.raises(DataError, match="a message has a role and a content"):
        made().chat([{"role": "user"}])


REFUSED = {
    "kind": ({"ggml.model": "llama"}, "the file's tokenizer is 'llama'"),
    "split": ({"ggml.pre": "tekken"}, "splits as in 'tekken'"),
    "no tokens": ({"ggml.tokens": None}, "no list of texts 'tokenizer.ggml.tokens'"),
    "numbers": ({"ggml.tokens": [1, 2]}, "no list of texts 'tokenizer.ggml.tokens'"),
    "no merges": ({"ggml.merges": None}, "no list of texts 'tokenizer.ggml.merges'"),
    "a merge of none": ({"ggml.merges": ["xy z"]}, "merges 'xy z', which are no tokens"),
    "half a merge": ({"ggml.merges": ["he"]}, "merges 'he', which are no tokens"),
    "types": ({"ggml.token_type": [1, 1]}, "267 tokens and 2 types"),
    "special": ({"ggml.eos_token_id": 300}, "eos token is 300; there are 267 tokens"),
    "twice": ({"ggml.tokens": ["a", "a"]}, "has a token twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_with_a_tokenizer_is_said(name: str) -> None:
    changes, text = REFUSED[name]
    with pytest.raises(FrontendError, match=text):
        made(**changes)


def test_hostile_tokenizers_load_or_are_refused() -> None:
    rng, loaded = random.Random(0), 0
    good = [written(vocabulary(pre), {}) for pre in ("smollm", "qwen2", "llama-bpe")]
    for _ in range(1000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            tokenizer = Tokenizer.from_gguf(Gguf.parse(bytes(data)))
        except WhetError:
            continue
        tokenizer.decode(tokenizer.encode("hello <|im_end|> t12 \0 é 世"), special=True)
        loaded += 1
    assert 100 < loaded < 900, "the changes reach both outcomes"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    entries = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
               "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.merges": ["a"]}  # fmt: skip
    data = written(entries | {"tokenizer.ggml.merges": ["x"]}, {})
    with pytest.raises(FrontendError, match="which are no tokens"):
        Tokenizer.from_gguf(Gguf.parse(data))
    from whet.labs.llm.tokenizer import needed

    with pytest.raises(FrontendError, match="needs the package tokenizers") as error:
        needed()
    assert "pip install tokenizers" in str(error.value)


def test_the_tokenizer_of_a_published_model() -> None:
    tokenizer = Tokenizer.from_gguf(smollm2())
    assert len(tokenizer) == 49152 and not tokenizer.bos_first
    assert tokenizer.special == {"bos": 1, "eos": 2, "unknown": 0, "padding": 2}
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    digits = [tokenizer.inner.id_to_token(i) for i in tokenizer.encode("in 2024")]
    assert digits == ["in", "Ġ", "2", "0", "2", "4"]
    said = tokenizer.chat([{"role": "user", "content": "Hi"}])
    assert said == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids, labels = tokenizer.lesson(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there!"}]
    )
    learned = [i for i in labels if i != -100]
    assert tokenizer.decode(learned, special=True) == "Hello there!<|im_end|>"
    assert ids[-1] == tokenizer.encode("\n")[0] and labels[-1] == -100


def corpus() -> str:
    path = Path(os.environ.get("WHET_DATA", ""), "llm", "tinyshakespeare.txt.gz")
    if not path.is_file():
        pytest.skip("llm/tinyshakespeare.txt.gz is not below $WHET_DATA")
    return gzip.decompress(path.read_bytes()).decode()


@pytest.mark.slow
def test_ids_are_those_of_transformers_on_a_corpus() -> None:
    """Where there are no digits, which transformers' conversion of a file does not set apart."""
    path, text = smollm2(), corpus()
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("transformers reads GGUF files with the package gguf")
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ours = Tokenizer.from_gguf(path)
    parts = [part for part in text.split("\n\n") if not any(map(str.isdigit, part))]
    assert len(parts) > 7000
    assert [ours.encode(part) for part in parts] == [theirs.encode(part) for part in parts]
    assert ours.decode(ours.encode(text)) == text


PASSAGE = (
    "The Earth is the third planet from the Sun and the only place in the universe known to harbor "
    "life. It takes about 365 days to go around the Sun, and it turns around its own axis once a "
    "day. Most of its surface is covered by water, and the rest is land: continents and islands."
)


def test_a_published_model_predicts_text() -> None:
    """Queries and keys in the wrong order raise no error: only the loss shows it."""
    path = smollm2()
    model = from_gguf(path, context=128)
    ids = torch.tensor([Tokenizer.from_gguf(path).encode(PASSAGE)])
    assert 50 <= ids.shape[1] <= 80
    with torch.no_grad():
        loss = causal_lm_loss(model(ids), ids).item()
        assert loss < 2.3
        for block in model.model.layers:
            for layer in (block.self_attn.q_proj, block.self_attn.k_proj):
                rows = layer.weight.view(-1, 2, 32, 576).transpose(1, 2)
                layer.weight.copy_(rows.reshape(layer.weight.shape).clone())
        assert causal_lm_loss(model(ids), ids).item() > loss + 1
