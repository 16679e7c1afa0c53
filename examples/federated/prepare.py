"""Where PyTorch is installed: compile the model once, and make samples to try it with.

python prepare.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import whet

CLASSES, LENGTH = 4, 32


def waves(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy waves; the class is their frequency."""
    random = np.random.default_rng(seed)
    y = random.integers(0, CLASSES, count)
    phase, time = random.uniform(0, 6.28, (count, 1)), np.arange(LENGTH)[None]
    x = np.sin(phase + 0.25 * (y[:, None] + 1) * time) + 0.3 * random.normal(size=(count, LENGTH))
    return x[:, None].astype(np.float32), y


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv1d(8, 16, 5, 2, 2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    ).eval()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    program = whet.compile(model, (torch.zeros(8, 1, LENGTH),), optimizer=optimizer)
    folder.mkdir(parents=True, exist_ok=True)
    program.save(folder / "net.whet")
    (x, y), (x_test, y_test) = waves(1200, 1), waves(400, 2)
    np.savez(folder / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    print(f"wrote net.whet and data.npz to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
