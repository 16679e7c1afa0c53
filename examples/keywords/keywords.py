"""A keyword spotter learns the voice of its owner, in int8, in C.

python keywords.py [--mcu] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import whet
from whet.models import ds_cnn

WORDS = ("yes", "no", "up", "down", "stop", "go")
FRAMES, BANDS, COEFFICIENTS = 49, 20, 10
STEPS, RATE = 150, 0.02
RAM = "192K"


def recordings(count: int, voices: int, accent: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up words as cepstra, [count, 1, FRAMES, COEFFICIENTS], and which word each is.

    A word is a path of two formants. A voice shifts all paths, has a tempo and an `accent`, which
    moves the sounds of each word.
    """
    paths = np.random.default_rng(7).uniform(3, BANDS - 3, (len(WORDS), 4, 2))
    random = np.random.default_rng(seed)
    shift, tempo = random.normal(0, 1, voices), random.uniform(0.8, 1.25, voices)
    own = paths + accent * random.normal(size=(voices, *paths.shape))
    voice, y = random.integers(0, voices, count), random.integers(0, len(WORDS), count)
    time = np.arange(FRAMES) - random.normal(9, 2, (count, 1))
    at = time / (28 * tempo[voice][:, None] * random.uniform(0.9, 1.1, (count, 1)))  # 0 to 1
    loud = np.where((at > 0) & (at < 1), np.sin(np.pi * np.clip(at, 0, 1)) ** 0.5, 0)
    place = np.clip(3 * at, 0, 2.999)
    low, part = place.astype(int), (place % 1)[..., None]
    sounds, rows = own[voice, y], np.arange(count)[:, None]
    formants = (1 - part) * sounds[rows, low] + part * sounds[rows, low + 1]
    formants += shift[voice][:, None, None]
    distance = np.arange(BANDS)[:, None] - formants[:, :, None]
    energy = loud[..., None] * np.exp(-(distance**2) / 3).sum(-1)
    logs = np.log(energy + 0.1 * random.random(energy.shape) + 0.02)
    order = np.arange(COEFFICIENTS) * (np.arange(BANDS)[:, None] + 0.5)
    x = logs @ np.cos(np.pi / BANDS * order) / BANDS
    return x[:, None].astype(np.float32), y


def pretrained(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """The DS-CNN of MLPerf Tiny, trained on many voices in PyTorch."""
    torch.manual_seed(0)
    model, inputs, labels = ds_cnn(len(WORDS)), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(3):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return model.eval()


def accuracy(trainer: whet.Trainer, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(trainer.predict(x).argmax(1) == y))


def main(out: Path, mcu: bool = False) -> dict[str, float]:
    x, y = recordings(1500, voices=30, accent=0.6, seed=1)
    model = pretrained(x, y)
    own = recordings(150, voices=1, accent=3.2, seed=10)  # one voice, and a strong accent
    (learn_x, judge_x), (learn_y, judge_y) = ((a[:60], a[60:]) for a in own)

    program = whet.compile(
        model, (torch.from_numpy(x[:1]),), update="bias+last", ram=RAM,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        dtype=whet.Int8(rounding="carry8"), calibrate=[torch.from_numpy(x[:100])],
        target="cortex-m7" if mcu else "host",
    )  # fmt: skip
    print("the C program is in", program.write(out))
    trainer = program.load()  # on this machine, or on an emulated chip

    before = accuracy(trainer, judge_x, judge_y)
    print(f"before  {before:6.1%} of the owner's words")
    random = np.random.default_rng(0)
    for step in range(STEPS):
        i = random.integers(len(learn_y))
        trainer.step(learn_x[i : i + 1], learn_y[i : i + 1], lr=RATE * (1 - step / STEPS))
    after = accuracy(trainer, judge_x, judge_y)
    print(f"after   {after:6.1%}, {STEPS} steps of one word each")
    print(f"RAM {program.memory['ram']:,} bytes of {RAM}, flash {program.memory['flash']:,}")
    trainer.close()
    for line in trainer.summary():
        print(line)
    return {"before": before, "after": after}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mcu", action="store_true", help="train on an emulated Cortex-M7")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the C program")
    main(**vars(parser.parse_args()))
