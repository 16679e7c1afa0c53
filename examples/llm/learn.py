"""Teach a language model from your questions and answers, and ask it something.

python learn.py MODEL.gguf TEXTS.txt learnt.npz "What is the capital of Spain?"
"""

import random
import re
import sys

import torch

import whet
from whet.llm import Tokenizer, causal_lm_loss, pad, save_trained
from whet.models import from_gguf

LENGTH = 80  # tokens of the longest question with its answer
EPOCHS, RATE = 2, 7e-4


def main(model_file: str, texts: str, learnt: str, question: str) -> None:
    model, tokenizer = from_gguf(model_file, context=LENGTH), Tokenizer.from_gguf(model_file)

    # TEXTS has lines "Q: ..." and "A: ...". Only the answers have labels.
    lessons = []
    with open(texts, encoding="utf-8") as file:
        for asked, said in re.findall(r"^Q: (.*)\nA: (.*)$", file.read(), re.MULTILINE):
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
            ids, labels = tokenizer.lesson(turns)
            lessons.append(pad([ids], LENGTH, [labels]))

    # In the last six blocks, some layers of attention and the first ones of the feed-forward
    # network learn, of each weight the first 64 columns. All else stays as the file has it.
    layers = ("value", "output", "up")
    rule = whet.Rule("*.weight", targets=layers, last=6, channels=tuple(range(64)))
    program = whet.compile(
        model, (lessons[0].ids,), loss=causal_lm_loss, labels=lessons[0].labels,
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0),
        update=whet.Scheme([rule]), frozen="gguf", generate=True,
    )  # fmt: skip
    trainer = program.load(threads=2)

    def ask() -> str:
        ids = tokenizer.encode(tokenizer.chat([{"role": "user", "content": question}]))
        room = LENGTH + 1 - len(ids)
        return tokenizer.decode([*trainer.generate(ids, room, stop=tokenizer.special["eos"])])

    print("before:", ask())
    for epoch in range(EPOCHS):
        random.Random(epoch).shuffle(lessons)
        losses = [trainer.step(own.ids, own.labels) for own in lessons]
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")
    print("after:", ask())
    print("learnt:", save_trained(trainer, learnt))


if __name__ == "__main__":
    main(*sys.argv[1:])
