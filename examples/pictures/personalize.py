"""A small CNN learns to recognise the things of its owner, in int8, in C.

python personalize.py [--mcu] [--out FOLDER]
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

import whet

SIDE = 24
EPOCHS, RATE = 12, 0.01
RAM = "128K"
Mask = Callable[[np.ndarray, np.ndarray], np.ndarray]  # where a shape is, by its coordinates


def disc(u, v, r=0.6):
    return np.hypot(u, v) < r


def ring(u, v, r=0.6):
    return disc(u, v, r) & ~disc(u, v, 0.6 * r)


def box(u, v, a=0.5, b=0.5):
    return (np.abs(u) < a) & (np.abs(v) < b)


def tent(u, v, r=0.6):
    return (v < r) & (v > 2 * np.abs(u) - r)


GENERAL: Sequence[Mask] = (  # what the factory had pictures of
    disc, ring, box, tent, lambda u, v: box(u, v, 0.7, 0.2) | box(u, v, 0.2, 0.7),
    lambda u, v: box(u, v, 0.7, 0.2), lambda u, v: box(u, v, 0.6, 0.6) & (np.sin(12 * u) > 0),
    lambda u, v: disc(u, v) & (v > 0),
)  # fmt: skip
OWN: dict[str, Mask] = {
    "mug": lambda u, v: box(u + 0.15, v, 0.4, 0.5) | ring(u - 0.4, v, 0.35),
    "key": lambda u, v: ring(u + 0.5, v, 0.35) | box(u - 0.25, v, 0.5, 0.12),
    "plant": lambda u, v: tent(u, v + 0.3, 0.5) | box(u, v - 0.5, 0.3, 0.25),
    "glasses": lambda u, v: ring(u - 0.42, v, 0.4) | ring(u + 0.42, v, 0.4),
}  # fmt: skip


def photos(shapes: Sequence[Mask], each: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures [n, 3, SIDE, SIDE] in any colours and positions; the label is the shape's number."""
    random = np.random.default_rng(seed)
    v, u = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    y = random.permutation(np.repeat(np.arange(len(shapes)), each))
    x = np.empty((len(y), 3, SIDE, SIDE), np.float32)
    for picture, label in zip(x, y, strict=True):
        turn, size = random.normal(0, 0.25), random.uniform(0.75, 1.05)
        left, top = random.normal(0, 0.1, 2)
        a, b = (u - left) / size, (v - top) / size
        a, b = a * np.cos(turn) + b * np.sin(turn), b * np.cos(turn) - a * np.sin(turn)
        tone = random.choice([-1, 1])  # light before dark, or the other way round
        front, back = random.uniform(0.1, 1, (2, 3, 1, 1))
        back = back + 0.3 * random.normal(size=(3, 1, 1)) * u
        picture[:] = tone * np.where(shapes[label](a, b), front, -back)
    x += 0.1 * random.normal(size=x.shape).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def network(classes: int) -> nn.Sequential:
    def conv(i: int, o: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.ReLU()]

    return nn.Sequential(*conv(3, 16, 2), *conv(16, 32, 2), *conv(32, 32, 1), nn.Flatten(),
                         nn.Linear(32 * (SIDE // 4) ** 2, classes))  # fmt: skip


def pretrained(x: torch.Tensor, y: torch.Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    model = network(len(GENERAL))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(6):
        for rows in torch.randperm(len(y)).split(40):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def accuracy(trainer: whet.Trainer, x: torch.Tensor, y: torch.Tensor) -> float:
    return float(np.mean(trainer.predict(x).argmax(1) == y.numpy()))


def main(out: Path, mcu: bool = False) -> dict[str, float]:
    x, y = photos(GENERAL, 200, seed=1)
    model = pretrained(x, y)
    model[-1] = nn.Linear(model[-1].in_features, len(OWN))  # the owner's classes are new
    shapes = list(OWN.values())
    (learn_x, learn_y), judge = photos(shapes, 12, seed=2), photos(shapes, 25, seed=3)

    program = whet.compile(
        model, (learn_x[:4],), update="full", ram=RAM,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        dtype=whet.Int8(rounding="carry8"), calibrate=[x[:100]],
        target="cortex-m7" if mcu else "host",
    )  # fmt: skip
    print("the C program is in", program.write(out))
    trainer = program.load()  # on this machine, or on an emulated chip

    before = accuracy(trainer, *judge)
    print(f"before  {before:6.1%} of {', '.join(OWN)}")
    for epoch in range(EPOCHS):
        for rows in torch.randperm(len(learn_y)).split(4):
            trainer.step(learn_x[rows], learn_y[rows], lr=RATE * (1 - epoch / EPOCHS))
    after = accuracy(trainer, *judge)
    print(f"after   {after:6.1%}, from {len(learn_y)} photos")
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
