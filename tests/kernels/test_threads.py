"""Threads, and numbers too small to be normal: the same results, whatever the machine does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tiny
import whet
from whet.errors import DataError
from whet.models import mcunet_5fps, resnet18
from whet.runtime import Trainer
from whet.runtime.build import fast

Case = tuple[nn.Module, torch.Tensor, str]


def convnet() -> Case:
    return tiny.convnet().train(), next(tiny.images())[0], "full"


def mcunet() -> Case:
    return mcunet_5fps(10).train(), torch.randn(2, 3, 48, 48), "full"


def sparse() -> Case:
    return mcunet_5fps(10, folded=True).eval(), torch.randn(1, 3, 64, 64), "mcunet-5fps-99kb"


def resnet() -> Case:
    return resnet18(10).train(), torch.randn(1, 3, 72, 72), "full"


def tall() -> Case:
    """Windows of many rows, of which an odd number fits into a chunk of pointers."""
    layers = [nn.Conv2d(3, 8, (13, 3), padding=(6, 1)), nn.Conv2d(8, 8, (16, 5), padding=(8, 2))]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return model, torch.randn(1, 3, 30, 41), "full"


def pooled() -> Case:
    """Whole vectors of channels into max pooling, and layers that give bits."""
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
              nn.Conv2d(16, 24, 1), nn.ReLU6(), nn.Conv2d(24, 24, 3, 1, 1, groups=24),
              nn.ReLU6()]  # fmt: skip
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return model.eval(), torch.randn(2, 3, 33, 41), "bias"


class Attends(nn.Module):
    """Two heads of keys for six of queries, and blocks of queries that are not whole."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 10 * 8)
        self.head = nn.Sequential(nn.Linear(48, 300), nn.GELU(), nn.Linear(300, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.layer(x).unflatten(-1, (10, 8)).transpose(1, 2).split((6, 2, 2), 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        scores: torch.Tensor = self.head(y.transpose(1, 2).flatten(2)).mean(1)
        return scores


def attention() -> Case:
    return Attends(), torch.randn(2, 150, 12), "full"


def program_of(make: Callable[[], Case]) -> tuple[whet.Program, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model, x, scheme = make()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return whet.compile(model, (x,), optimizer=sgd, update=scheme), x, torch.arange(len(x)) % 2


def eager(program: whet.Program, threads: int, *flags: str) -> Trainer:
    """A trainer that shares the least work; with -O1, which compiles faster and shares the same."""
    return Trainer(program, (*fast(program), "-O1", "-DWHET_GRAIN=1", *flags), threads)


@pytest.mark.parametrize(
    "make",
    [
        convnet,
        pytest.param(mcunet, marks=pytest.mark.slow),
        sparse,
        resnet,
        tall,
        pooled,
        attention,
    ],
)
def test_any_number_of_threads_gives_the_same_bits(make: Callable[[], Case]) -> None:
    program, x, y = program_of(make)
    results = []
    for threads in (1, 2, 3):
        trainer = eager(program, threads)
        assert trainer.threads == threads
        losses = [trainer.step(x, y) for _ in range(4)]
        results.append((losses, trainer.save(), trainer.predict(x).tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("rows", [6, pytest.param(10, marks=pytest.mark.slow), 12])
def test_so_do_blocks_of_any_height(rows: int) -> None:
    program, x, y = program_of(tall)
    flag, usual = f"-DWHET_TUNED_ROWS={rows}", eager(program, 1)
    right = [usual.step(x, y) for _ in range(3)]
    saved = []
    for threads in (1, 2, 3):
        trainer = eager(program, threads, flag)
        losses = [trainer.step(x, y) for _ in range(3)]
        saved.append((losses, trainer.save()))
    assert saved[0] == saved[1] == saved[2]
    assert saved[0][0] == pytest.approx(right, rel=1e-5) and right[0] != right[-1]


def test_so_do_integers() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), nn.Conv2d(16, 16, 3, 1, 1, groups=16),
              nn.ReLU6(), nn.Conv2d(16, 40, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
              nn.Linear(40, 4)]  # fmt: skip
    model, x, y = nn.Sequential(*layers).eval(), torch.randn(2, 3, 33, 35), torch.tensor([1, 2])
    program = whet.compile(model, (x,), dtype=whet.Int8(rounding="carry8"), calibrate=[x])
    saved = []
    for threads in (1, 2, 3):
        trainer = eager(program, threads)
        losses = [trainer.step(x, y) for _ in range(3)]
        saved.append((losses, trainer.save()))
    assert saved[0] == saved[1] == saved[2]


def test_few_heads_are_differentiated_in_parts() -> None:
    program, _, _ = program_of(attention)
    (node,) = (n for n in program.entries["train_step"].nodes if n.op.name == "attention_dx")
    assert node.attrs.parts == 3, "12 units: 2 samples, 2 heads of keys, 3 parts"


def test_the_resnet_uses_winograd_s_method() -> None:
    program, _, _ = program_of(resnet)
    nodes = program.entries["train_step"].nodes
    used = {n.op.name for n in nodes if getattr(n.attrs, "winograd", False)}
    assert used == {"conv2d", "conv2d_dx", "conv2d_dw"}


def test_two_programs_at_once_share_the_threads_or_do_without() -> None:
    program, x, y = program_of(convnet)
    right = eager(program, 1)
    losses = [right.step(x, y) for _ in range(5)]
    trainers = [eager(program, 2) for _ in range(3)]
    found: list[list[float]] = [[] for _ in trainers]

    def train(i: int) -> None:
        found[i] = [trainers[i].step(x, y) for _ in range(5)]

    workers = [threading.Thread(target=train, args=(i,)) for i in range(len(trainers))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [losses] * 3


def test_changing_the_number_of_threads_while_others_work() -> None:
    program, x, y = program_of(convnet)
    first = eager(program, 1)
    losses = [first.step(x, y) for _ in range(20)]
    trainer = eager(program, 2)
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for count in (1, 3, 2):
                trainer._set_threads(count)

    changer = threading.Thread(target=change)
    changer.start()
    found = [trainer.step(x, y) for _ in range(20)]
    done.set()
    changer.join()
    assert found == losses
    trainer._set_threads(1)
    assert trainer.threads == first.threads == 1, "trainers of one program share their threads"


def test_a_child_process_goes_on_alone() -> None:
    """It has none of its parent's threads, and must not wait for them."""
    program, x, y = program_of(convnet)
    trainer = eager(program, 2)
    start = trainer.save()
    loss = trainer.step(x, y)
    trainer.load(start)
    child = os.fork()
    if child == 0:
        os._exit(0 if trainer.step(x, y) == loss else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_number_of_threads_is_refused() -> None:
    program, _, _ = program_of(convnet)
    wrong: list[Any] = [0, -1, 1.5, "2", True]
    for threads in wrong:
        with pytest.raises(DataError, match="number of threads"):
            program.load(threads=threads)


def test_portable_programs_have_one_thread() -> None:
    program = whet.compile(tiny.convnet(), (next(tiny.images())[0],), portable=True)
    assert program.load().threads == 1
    with pytest.raises(DataError, match="one thread"):
        program.load(threads=2)


class Product(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


def test_subnormal_numbers_count_as_zero_during_a_step_only() -> None:
    tiny_number = np.float32(1e-30) * np.float32(1e-10)
    assert 0 < tiny_number < np.finfo(np.float32).tiny
    x = torch.full((4, 3), 1e-10)
    for portable, expected in ((False, 0.0), (True, tiny_number)):
        program = whet.compile(Product(1e-30), (x,), loss=nn.MSELoss(), portable=portable)
        trainer = program.load()
        assert (trainer.predict(x) == expected).all()
        assert np.float32(1e-30) * np.float32(1e-10) == tiny_number, "as it was before"
