"""What the leakage study attacks: networks, photographs, clothes, sentences.

Photographs are those of Tiny ImageNet at 32 x 32, from `tinyimagenet/tinyimagenet_64.npz` in the
folder that $WHET_DATA names; sentences those of CoLA, from `text/cola_public.zip` there. Clothes
are Fashion-MNIST: the Debian package dataset-fashion-mnist, or the folder that $FASHION_MNIST
names.
"""

from __future__ import annotations

import functools
import io
import re
import zipfile
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common.pictures import data_path
from whet.demo.pictures import fashion_mnist_folder, read_idx

Array = np.ndarray[Any, Any]
SIDE = 32
CLASSES = 10
VOCABULARY = 1000
MASK, UNKNOWN = 0, 1  # tokens


def lenet(channels: int, width: int = 12, seed: int = 0) -> nn.Module:
    """The network of the DLG paper: three convolutions with sigmoids, one linear layer."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(channels, width, 5, 2, 2), nn.Sigmoid(),
        nn.Conv2d(width, width, 5, 2, 2), nn.Sigmoid(),
        nn.Conv2d(width, width, 5, 1, 2), nn.Sigmoid(),
        nn.Flatten(), nn.Linear(64 * width, CLASSES),
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


@functools.cache
def archive() -> dict[str, Array]:
    with np.load(data_path("tinyimagenet", "tinyimagenet_64.npz"), allow_pickle=False) as file:
        return {key: file[key] for key in ("test_data", "test_offsets", "test_labels")}


def photographs(first: int, count: int, channels: int) -> tuple[Tensor, Tensor]:
    """Pictures [count, channels, 32, 32] from 0 to 1, and classes 0 to 9."""
    from PIL import Image

    stored, found = archive(), []
    mode = "RGB" if channels == 3 else "L"
    for i in range(first, first + count):
        start, end = stored["test_offsets"][i : i + 2]
        picture = Image.open(io.BytesIO(stored["test_data"][start:end].tobytes())).convert(mode)
        small = picture.resize((SIDE, SIDE), Image.Resampling.BOX)
        found.append(np.asarray(small).reshape(SIDE, SIDE, channels).transpose(2, 0, 1))
    labels = stored["test_labels"][first : first + count].astype(np.int64) % CLASSES
    return torch.from_numpy(np.stack(found) / np.float32(255)), torch.from_numpy(labels)


def clothes(part: str, count: int) -> tuple[Tensor, Tensor]:
    """Fashion-MNIST with a margin, [count, 1, 32, 32] from 0 to 1; `part` is train or t10k."""
    folder = fashion_mnist_folder()
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:count, None]
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))) / np.float32(255)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:count].astype(np.int64)
    return torch.from_numpy(padded), torch.from_numpy(labels)


@functools.cache
def words_of_cola() -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """All sentences as lower-case words, and the vocabulary: the most frequent words."""
    with zipfile.ZipFile(data_path("text", "cola_public.zip")) as file:
        lines = file.read("cola_public/raw/in_domain_train.tsv").decode().splitlines()
    texts = [line.split("\t")[3].lower() for line in lines]
    sentences = tuple(tuple(re.findall(r"[a-z']+", text)) for text in texts)
    counts = Counter(word for sentence in sentences for word in sentence)
    frequent = [word for word, _ in counts.most_common(VOCABULARY - 2)]
    return sentences, ("[mask]", "[unknown]", *frequent)


def sentence(index: int, shortest: int = 5, longest: int = 9) -> tuple[Tensor, list[str]]:
    """A short sentence all of whose words are in the vocabulary, as tokens [1, length]."""
    sentences, vocabulary = words_of_cola()
    number = {word: i for i, word in enumerate(vocabulary)}
    known = [s for s in sentences if shortest <= len(s) <= longest and all(w in number for w in s)]
    chosen = known[(index * 97) % len(known)]
    return torch.tensor([[number[word] for word in chosen]]), list(chosen)


def relu_net(trained: bool) -> nn.Module:
    """A network as it is used: ReLU and batch norm, for clothes; in eval mode."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(2048, CLASSES),
    )  # fmt: skip
    x, y = clothes("train", 4000)
    optimizer = torch.optim.SGD(model.parameters(), 0.05 if trained else 0.0, momentum=0.9)
    for i in range(0, 4000, 40):  # at a rate of 0, only to find the statistics
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[i : i + 40]), y[i : i + 40]).backward()
        optimizer.step()
    return model.eval()
