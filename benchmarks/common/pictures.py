"""Picture sets for studies of training: archives of WebP, decoded once, cropped and flipped.

$WHET_DATA names the folder that holds them: `flowers102/flowers102_146.npz` with `train_data` (one
stream of WebP pictures, 146 pixels square), `train_offsets`, `train_labels`, and the same for
`test`. What was decoded is kept in whet's cache folder.
"""

from __future__ import annotations

import io
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.runtime.cache import cache_folder

Array = np.ndarray[Any, Any]
STORED, TAKEN = 146, 128  # pixels of a side
MARGIN = STORED - TAKEN
LEAST = 0.25  # of a picture's area that a random part covers
CLASSES = {"flowers102": 102, "pets37": 37}


@dataclass(frozen=True)
class Pictures:
    images: Array  # uint8 [n, 146, 146, 3], on disk until they are looked at
    labels: Array  # int64 [n]

    def __len__(self) -> int:
        return len(self.labels)

    def every(self, step: int, turn: int = 0) -> Pictures:
        """One of each `step`: the first, or another in its turn."""
        return Pictures(self.images[turn::step], self.labels[turn::step])

    def without_every(self, step: int, turn: int = 0) -> Pictures:
        """The others."""
        others = np.arange(len(self)) % step != turn
        return Pictures(self.images[others], self.labels[others])


def data_path(*parts: str) -> Path:
    root = os.environ.get("WHET_DATA")
    if not root:
        raise SystemExit("WHET_DATA is not set: it names the folder with pictures and weights")
    path = Path(root, *parts)
    if not path.exists():
        raise SystemExit(f"{Path(*parts)} is not below $WHET_DATA")
    return path


def source(name: str) -> Path:
    return data_path(name, f"{name}_{STORED}.npz")


def load(name: str, part: str) -> Pictures:
    """The `train` or `test` part of a set."""
    path = source(name)
    stamp = f"{path.stat().st_size}-{int(path.stat().st_mtime)}"
    kept = cache_folder() / "pictures" / f"{name}-{part}-{stamp}.npy"
    with np.load(path, allow_pickle=False) as archive:
        labels = archive[f"{part}_labels"].astype(np.int64)
        if not kept.exists():
            keep(kept, decoded(archive[f"{part}_data"], archive[f"{part}_offsets"]))
    return Pictures(np.load(kept, mmap_mode="r"), labels)


def decoded(stream: Array, offsets: Array) -> Array:
    from PIL import Image

    images = np.empty((len(offsets) - 1, STORED, STORED, 3), np.uint8)
    for i, (start, end) in enumerate(itertools.pairwise(offsets)):
        images[i] = np.asarray(Image.open(io.BytesIO(stream[start:end].tobytes())).convert("RGB"))
    return images


def keep(path: Path, images: Array) -> None:
    """Under its name only when it is whole, as another process may be about to read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    with open(partial, "wb") as file:
        np.save(file, images)
    os.replace(partial, path)


def centre(images: Array, side: int = TAKEN) -> Array:
    """The middle of each picture, made smaller if it is larger than what is wanted."""
    low = MARGIN // 2
    middle = images[:, low : low + TAKEN, low : low + TAKEN]
    return integers(middle if side == TAKEN else resized(middle, side))


def resized(images: Array, side: int) -> Array:
    from PIL import Image

    bilinear = Image.Resampling.BILINEAR
    pictures = (Image.fromarray(image).resize((side, side), bilinear) for image in images)
    return np.stack([np.asarray(picture) for picture in pictures])


def cut_at_random(images: Array, random: np.random.Generator) -> Array:
    """A window of each picture, pixel by pixel as `centre` shows it; half of them are mirrored."""
    windows = np.empty((len(images), TAKEN, TAKEN, 3), np.uint8)
    for i, image in enumerate(images):
        top, left = random.integers(0, MARGIN + 1, 2)
        window = image[top : top + TAKEN, left : left + TAKEN]
        windows[i] = window[:, ::-1] if random.random() < 0.5 else window
    return integers(windows)


def resized_at_random(images: Array, random: np.random.Generator, taken: int = TAKEN) -> Array:
    """A part of each picture, of any size and place, made as large as the network wants it.

    It covers LEAST to all of the picture's area and is up to a third longer than wide, or the
    other way around; half of them are mirrored.
    """
    from PIL import Image

    windows = np.empty((len(images), taken, taken, 3), np.uint8)
    for i, image in enumerate(images):
        side = STORED * np.sqrt(random.uniform(LEAST, 1.0))
        stretch = np.exp(random.uniform(-1, 1) * np.log(4 / 3) / 2)
        w, h = min(side * stretch, STORED), min(side / stretch, STORED)
        left, top = random.uniform(0, STORED - w), random.uniform(0, STORED - h)
        picture = Image.fromarray(image)
        box = (left, top, left + w, top + h)
        window = np.asarray(picture.resize((taken, taken), Image.Resampling.BILINEAR, box))
        windows[i] = window[:, ::-1] if random.random() < 0.5 else window
    return integers(windows)


WINDOWS = {"cut": cut_at_random, "resized": resized_at_random}


def integers(images: Array) -> Array:
    """What an int8 network takes: pixel - 128, NCHW."""
    return np.ascontiguousarray((images ^ 0x80).view(np.int8).transpose(0, 3, 1, 2))


def reals(integers: Array) -> Array:
    """The same for a float network, which takes (pixel / 255 - 0.5) / 0.5."""
    return (integers.astype(np.float32) + np.float32(0.5)) * np.float32(2 / 255)
