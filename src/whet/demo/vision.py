"""The demo of `whet demo mcu --vision`: MCUNet learns flowers on an emulated microcontroller.

The network is pretrained on ImageNet, in int8 (mcunet-5fps of arXiv:2206.15472), and gets a new
classifier for the first ten flowers of Flowers-102. It trains under the published scheme of 49 KB
on their training pictures, one at a time, for one epoch. Weights and pictures are in a data folder
that the user specifies.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet

from ..models import load_int8_backbone
from ..targets.cortex_m import Board
from .screen import Steps, say
from .watch import show_costs

BACKBONE, SCHEME = "imagenet-backbones/mcunet-5fps_int8.npz", "mcunet-5fps-49kb"
PICTURES = "flowers102/flowers102_146.npz"
CLASSES, JUDGED = 10, 6  # flowers, and test pictures of each
SIZE = 128
RATE = 0.01  # decays linearly to zero
OUT = Path("out/demo-vision")

Array = np.ndarray[Any, Any]
Labelled = tuple[Array, Array]


def data_folder(asked: Path | None) -> Path:
    folder = asked or Path(os.environ.get("WHET_DATA", ""))
    missing = [name for name in (BACKBONE, PICTURES) if not (folder / name).is_file()]
    if missing or str(folder) == ".":
        raise SystemExit(
            f"The data folder lacks {' and '.join(missing or (BACKBONE, PICTURES))}:\n"
            "set --data or WHET_DATA to a folder that has them."
        )
    return folder


def pictures(path: Path, part: str, each: int | None) -> Labelled:
    """The centre crop of every picture of the first classes, as int8; at most `each` per class."""
    from PIL import Image

    with np.load(path, allow_pickle=False) as archive:
        labels = archive[f"{part}_labels"].astype(np.int64)
        stream, at = archive[f"{part}_data"], archive[f"{part}_offsets"]
    chosen = [np.flatnonzero(labels == k)[:each] for k in range(CLASSES)]
    found = []
    for i in np.concatenate(chosen):
        image = Image.open(io.BytesIO(stream[at[i] : at[i + 1]].tobytes())).convert("RGB")
        edge = (image.width - SIZE) // 2
        found.append(np.asarray(image)[edge : edge + SIZE, edge : edge + SIZE])
    shifted = (np.stack(found) ^ 0x80).view(np.int8)  # pixel - 128
    return shifted.transpose(0, 3, 1, 2), labels[np.concatenate(chosen)]


def compiled(path: Path) -> whet.Program:
    model = load_int8_backbone(path)
    torch.manual_seed(0)
    old = model.classifier[1]
    assert isinstance(old, nn.Linear)
    model.classifier[1] = nn.Linear(old.in_features, CLASSES)
    return whet.compile(
        model.eval(),
        (torch.zeros(1, 3, SIZE, SIZE),),
        update=SCHEME,
        dtype=whet.Int8(rounding="carry8"),
        target="cortex-m7",
    )


def accuracy(board: Board, judge: Labelled) -> float:
    right = 0
    with Steps("judging", len(judge[1]), stays=False) as progress:
        for x, y in zip(*judge, strict=True):
            right += int(np.argmax(board.predict(x[None]))) == y
            progress.done()
    return right / len(judge[1])


def learn(board: Board, samples: Labelled) -> None:
    x, y = samples
    order = np.random.default_rng(0).permutation(len(y))
    with Steps("learning", len(order)) as progress:
        for step, i in enumerate(order):
            rate = RATE * (1 - step / len(order))
            progress.done(board.step(x[i : i + 1], y[i : i + 1], lr=rate))


def main(data: Path | None = None) -> None:
    folder = data_folder(data)
    say("[bold]whet[/bold]: MCUNet learns flowers, in int8, in 256 KB\n")
    train, judge = (pictures(folder / PICTURES, *p) for p in (("train", None), ("test", JUDGED)))
    program = compiled(folder / BACKBONE)
    program.write(OUT)
    board = Board(program)
    say(f"  It is pretrained on ImageNet with a new classifier. It trains once on {len(train[1])}")
    say(f"  pictures of {CLASSES} flowers and is tested on {len(judge[1])}: some minutes.")
    say(f"  accuracy before  {accuracy(board, judge):6.1%}")
    learn(board, train)
    say(f"  accuracy after   {accuracy(board, judge):6.1%}   on the chip, in int8\n")
    show_costs(board)
    say(f"\nThe program is in [bold]{OUT}[/bold]: make -C {OUT} run starts it alone.")
