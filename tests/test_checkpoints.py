"""What was learned outlives the batch size, the schedule, the kernels and the budget; a checkpoint
of another model, or of one of which something else trains, is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import convnet
from whet.emit.program import Program
from whet.errors import CheckpointError


class Tokens(nn.Module):
    """A parameter that is repeated for every sample, and one that is added to all."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.place = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 3)
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place + self.shift
        return self.head(self.layer(x)[:, 0])


def strided(stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4, 3))  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (lambda: convnet().eval(), (3, 6, 4)),
    "convolutions in training": (lambda: convnet().train(), (3, 6, 4)),
    "tokens": (Tokens, (4, 8)),
    "strided": (strided, (3, 6, 6)),
}


def program(name: str = "strided", batch: int = 2, **options: Any) -> Program:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = options.pop("model", None) or make()
    kind = options.pop("optimizer", torch.optim.SGD)
    momentum = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.1, **momentum)
    return whet.compile(model, (torch.randn(batch, *shape),), optimizer=optimizer, **options)


def learned(p: Program) -> whet.Trainer:
    trainer = p.load()
    leaf = next(v for v in p.entries["train_step"].leaves if v.role.value == "input")
    shape = p.tensors[leaf.name].shape
    trainer.step(torch.randn(shape), torch.arange(shape[0]) % 3)
    return trainer


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 3])
def test_it_outlives_the_batch_size(model: str, batch: int) -> None:
    before, after = learned(program(model, 2)), program(model, batch).load()
    after.load(before.save())
    kept = after.arrays()
    assert len(kept) > 2
    for name, array in before.arrays().items():
        assert np.array_equal(kept[name], array), name
    assert after.save() == before.save(), "optimizer state too"


@pytest.mark.parametrize(
    "options",
    [
        {"without": ["schedule", "reorder", "fuse_layers"]},
        {"target": "portable"},
        {"rematerialize": "layers"},
        {"loss": nn.NLLLoss()},
        {"clip_norm": 1.0},
        {"ram": "1M"},
    ],
    ids=str,
)
def test_it_outlives_how_the_program_is_compiled(options: dict[str, Any]) -> None:
    before, after = learned(program()), program(**options).load()
    after.load(before.save())
    assert after.save() == before.save()


def test_an_integer_program_keeps_it_too() -> None:
    images = [torch.randn(8, 3, 6, 6)]
    words: dict[str, Any] = {"model": strided().eval(), "dtype": "int8", "calibrate": images}
    before, after = learned(program(batch=2, **words)), program(batch=1, **words).load()
    after.load(before.save())
    assert after.save() == before.save()
    other = program(batch=2, **(words | {"calibrate": [5 * images[0]]})).load()
    with pytest.raises(CheckpointError):  # the same integers stand for other numbers there
        other.load(before.save())


def frozen_number() -> nn.Module:
    model = strided()
    with torch.no_grad():
        model[0].weight[0, 0, 0, 0] += 1
    return model


def other_buffer() -> nn.Module:
    model = Tokens()
    model.shift += 1
    return model


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("strided", {}, {"model": strided(2)}),
        ("strided", {"update": "last"}, {"update": "last", "model": frozen_number()}),
        ("tokens", {}, {"model": other_buffer()}),
        ("strided", {"update": "last"}, {}),
        ("strided", {}, {"optimizer": torch.optim.Adam}),
    ],
    ids=["stride", "frozen weight", "buffer", "scheme", "optimizer"],
)
def test_another_model_or_what_trains_is_refused(
    name: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    saved, trainer = learned(program(name, **ours)).save(), program(name, **theirs).load()
    before = trainer.save()
    with pytest.raises(CheckpointError, match="another model"):
        trainer.load(saved)
    assert trainer.save() == before
