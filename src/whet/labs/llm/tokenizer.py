"""The tokenizer in a GGUF file, run by the library `tokenizers`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DataError, FrontendError
from ...models import Gguf
from .tasks import IGNORED

if TYPE_CHECKING:
    import tokenizers

Message = Mapping[str, str]  # "role": "system", "user" or "assistant"; "content"

KIND, PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
CONTROL, USER_DEFINED = 3, 4  # types of tokens that are found in a text before it is split
START, END = "<|im_start|>", "<|im_end|>"

# How a text is split before pairs are merged, as the models were trained. Digits stand alone, or
# in groups of up to three.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = ("gpt-2", "smollm", "qwen2", "llama-bpe")


class Tokenizer:
    """Texts to ids and back. `inner` is the tokenizer of the library."""

    def __init__(
        self, inner: tokenizers.Tokenizer, special: Mapping[str, int], bos_first: bool = False,
        template: str = "",
    ) -> None:  # fmt: skip
        self.inner = inner
        self.special = dict(special)  # ids by role: "bos", "eos", "padding", "unknown"
        self.bos_first = bos_first  # whether a text starts with the token for that
        self.template = template

    @classmethod
    def from_gguf(cls, file: str | os.PathLike[str] | Gguf) -> Tokenizer:
        """That of a file whose tokens are made by merging pairs of bytes, as in GPT-2."""
        held = file if isinstance(file, Gguf) else Gguf.open(file)
        facts = held.metadata
        if facts.get(KIND) != "gpt2" or facts.get(PRE) not in SPLITS:
            raise FrontendError(
                f"the file's tokenizer is {facts.get(KIND)!r} with splits as in {facts.get(PRE)!r}",
                why=f"whet knows 'gpt2' with splits as in {', '.join(SPLITS)}",
                try_="AutoTokenizer of transformers, with gguf_file=",
            )
        tokens = texts(facts, "tokenizer.ggml.tokens")
        if len(set(tokens)) < len(tokens):
            raise FrontendError("the file's tokenizer has a token twice")
        special = special_ids(facts, len(tokens))
        first = facts.get("tokenizer.ggml.add_bos_token") is True and "bos" in special
        template = facts.get("tokenizer.chat_template")
        made = built(tokens, pairs(facts, set(tokens)), kinds(facts, len(tokens)), str(facts[PRE]))
        return cls(made, special, first, template if isinstance(template, str) else "")

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Special tokens written out in it count as such."""
        return self.started(self.inner.encode(text, add_special_tokens=False).ids)

    def started(self, ids: list[int]) -> list[int]:
        return [self.special["bos"], *ids] if self.bos_first else ids

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; special tokens are left out unless asked for."""
        numbers = [int(i) for i in ids]
        if wrong := [i for i in numbers if not 0 <= i < len(self)]:
            raise DataError(f"{wrong[0]} is no id: there are {len(self)} tokens")
        return str(self.inner.decode(numbers, skip_special_tokens=not special))

    # Conversations ------------------------------------------------------------------------------

    def chat(self, messages: Sequence[Message], *, reply: bool = True) -> str:
        """A conversation as the model was trained on it, up to where it is to reply.

        For models that mark turns by <|im_start|> and <|im_end|> (SmolLM, Qwen). The template in
        the file is a program, which is not run; only its default system message is looked up.
        """
        return "".join(self._turns(messages)) + (f"{START}assistant\n" if reply else "")

    def lesson(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """The ids of a conversation, and labels: what the assistant says, with its end, and -100.

        For `causal_lm_loss`, which shifts labels itself.
        """
        turns = self._turns(messages)
        learned, at = [], 0
        for turn in turns:
            head = f"{START}assistant\n"
            if turn.startswith(head):
                learned.append((at + len(head), at + len(turn) - 1))  # without the last line end
            at += len(turn)
        encoded = self.inner.encode("".join(turns), add_special_tokens=False)
        labels = [
            i if any(first <= start and end <= last for first, last in learned) else IGNORED
            for i, (start, end) in zip(encoded.ids, encoded.offsets, strict=True)
        ]
        return self.started(encoded.ids), [IGNORED] * self.bos_first + labels

    def _turns(self, messages: Sequence[Message]) -> list[str]:
        if START not in self.template or END not in self.template:
            raise FrontendError(
                f"the model's conversations are not marked by {START} and {END}",
                try_="encode(text), with the marks that the model was trained on",
            )
        if not messages:
            raise DataError("there are no messages")
        found = re.search(r"<\|im_start\|>system(?:\\n|\n)([^<{}]*)<\|im_end\|>", self.template)
        given = list(messages)
        if found and given[0].get("role") != "system":
            given.insert(0, {"role": "system", "content": found[1]})
        for message in given:
            if {*message} != {"role", "content"}:
                raise DataError(f"a message has a role and a content, not {sorted(message)}")
        return [f"{START}{m['role']}\n{m['content']}{END}\n" for m in given]


def texts(facts: Mapping[str, Any], key: str) -> list[str]:
    found = facts.get(key)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise FrontendError(f"the file's metadata has no list of texts {key!r}")
    return found


def pairs(facts: Mapping[str, Any], tokens: set[str]) -> list[tuple[str, str]]:
    """Which two tokens are merged, in order."""
    found = []
    for merge in texts(facts, "tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= tokens:
            raise FrontendError(f"the file's tokenizer merges {merge!r}, which are no tokens")
        found.append((left, right))
    return found


def kinds(facts: Mapping[str, Any], count: int) -> list[int]:
    """The type of every token; all of them are ordinary if the file has no types."""
    found = facts.get("tokenizer.ggml.token_type")
    if found is None:
        return [1] * count
    if len(listed := list(found) if hasattr(found, "__len__") else []) != count:
        raise FrontendError(f"the file has {count} tokens and {len(listed)} types of tokens")
    return [int(kind) if not isinstance(kind, (str, list)) else 1 for kind in listed]


def special_ids(facts: Mapping[str, Any], count: int) -> dict[str, int]:
    found = {}
    for role in ("bos", "eos", "padding", "unknown"):
        number = facts.get(f"tokenizer.ggml.{role}_token_id")
        if number is None:
            continue
        if not isinstance(number, int) or not 0 <= number < count:
            raise FrontendError(f"the file's {role} token is {number!r}; there are {count} tokens")
        found[role] = number
    return found


def built(
    tokens: list[str], merges: list[tuple[str, str]], types: list[int], split: str
) -> tokenizers.Tokenizer:
    library = needed()
    vocabulary = {token: i for i, token in enumerate(tokens)}
    whole = split == "llama-bpe"  # a word that is a token is taken before any merge
    made = library.Tokenizer(
        library.models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=whole)
    )
    if split == "qwen2":
        made.normalizer = library.normalizers.NFC()
    made.pre_tokenizer = splitter(library, split)
    made.decoder = library.decoders.ByteLevel()
    marked = [
        library.AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (CONTROL, USER_DEFINED) and token
    ]
    made.add_tokens(marked)
    return made


def splitter(library: Any, split: str) -> Any:
    parts = library.pre_tokenizers
    whole = parts.ByteLevel(add_prefix_space=False)
    if split == "gpt-2":
        return whole
    if split == "smollm":
        return parts.Sequence([parts.Digits(individual_digits=True), whole])
    words = library.Regex(WORDS % ("{1,3}" if split == "llama-bpe" else ""))
    bytes_only = parts.ByteLevel(add_prefix_space=False, use_regex=False)
    return parts.Sequence([parts.Split(words, "isolated"), bytes_only])


def needed() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise FrontendError(
            "a tokenizer needs the package tokenizers, which is not installed",
            try_="pip install tokenizers",
        ) from None
    return tokenizers
