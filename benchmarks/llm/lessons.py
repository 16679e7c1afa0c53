"""Lessons that SmolLM2-135M-Instruct learns: 1,100 instructions with answers, in programs of whet.

A cell is one training on lessons of at most LENGTH tokens, one in a step, in an order given by the
seed; losses are means over what the assistant says. As in sentences.py, the rate rises and falls,
and PyTorch judges lessons that were held out, with the program's weights.
"""

from __future__ import annotations

import functools
import gzip
import json
import time
from typing import Any

import numpy as np
import torch

import whet
from benchmarks.common.pictures import data_path
from benchmarks.llm.packages import smollm2
from benchmarks.llm.sentences import schedule
from whet.llm import causal_lm_loss, pad
from whet.models import from_gguf

LENGTH, STEPS, EVERY = 80, 200, 100
RATE_STEPS = 60
HELD, TEST = 30, 80
SCHEMES = ("sparse-2", "lora", "full")
RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
FIRST = {"sparse-2": 1e-4, "lora": 1e-3, "full": 3e-5}

Lesson = tuple[list[int], list[int]]


@functools.cache
def lessons() -> dict[str, list[Lesson]]:
    """To train on, held out of these, and to report."""
    path = data_path("llm", "instruction_1100.json.gz")
    records = json.loads(gzip.decompress(path.read_bytes()))
    tokenizer = whet.llm.Tokenizer.from_gguf(smollm2())
    found = []
    for r in records:
        asked = r["instruction"] + (f"\n\n{r['input']}" if r["input"] else "")
        talk = [{"role": "user", "content": asked}, {"role": "assistant", "content": r["output"]}]
        lesson = tokenizer.lesson(talk)
        if len(lesson[0]) <= LENGTH:
            found.append(lesson)
    order = np.random.default_rng(0).permutation(len(found))
    mixed = [found[i] for i in order]
    return {
        "test": mixed[:TEST], "held": mixed[TEST : TEST + HELD], "train": mixed[TEST + HELD :]
    }  # fmt: skip


@torch.no_grad()
def judged(model: torch.nn.Module, rows: list[Lesson]) -> dict[str, float]:
    """The mean loss of all tokens that the assistant says."""
    total = count = 0.0
    for ids, labels in rows:
        given = torch.tensor([labels])
        spoken = int((given[:, 1:] != -100).sum())
        total += spoken * causal_lm_loss(model(torch.tensor([ids])), given).item()
        count += spoken
    return {"loss": total / count}


def train(scheme: str, rate: float, seed: int, steps: int, rows: str, every: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    own = lessons()
    model = from_gguf(smollm2(), context=LENGTH).eval()
    curve = [{"step": 0, **judged(model, own[rows])}] if every < steps else []
    example = pad([own["train"][0][0]], LENGTH, [own["train"][0][1]])
    program = whet.compile(
        model, (example.ids,), loss=causal_lm_loss, labels=example.labels,
        optimizer=torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0), update=scheme,
    )  # fmt: skip
    trainer = program.load(threads=1)
    rng, losses, cpu = np.random.default_rng(seed), [], 0.0
    order = np.concatenate(
        [rng.permutation(len(own["train"])) for _ in range(1 + steps // len(own["train"]))]
    )
    for i in range(steps):
        ids, labels = own["train"][order[i]]
        padded = pad([ids], LENGTH, [labels])
        start = time.process_time()
        losses.append(trainer.step(padded.ids, padded.labels, lr=rate * schedule(i, steps)))
        cpu += time.process_time() - start
        if (i + 1) % every == 0:
            model.load_state_dict(trainer.state_dict(merge=True), strict=False)
            curve.append({"step": i + 1, **judged(model, own[rows])})
    trainer.close()
    parts = np.array_split(losses, 6)
    return {
        "curve": curve, "losses": [float(np.mean(part)) for part in parts], "cpu": cpu,
        "ram": program.memory["ram"], "trained": program.memory["trained"],
    }  # fmt: skip
