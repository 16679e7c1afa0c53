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
from token_models import Tokens
from whet.emit.program import Program
from whet.errors import CheckpointError


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


class Layers(nn.Module):
    """Two layers, and whatever is computed between and behind them."""

    def __init__(self, between: Callable[[Tensor], Tensor], behind: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)
        self.between, self.behind = between, behind
        self.index = torch.arange(8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.between(self.a(x))
        return self.b(h if self.behind is None else self.behind(self, h, x))


def reversed_index(model: Layers, h: Tensor, x: Tensor) -> Tensor:
    return h[:, torch.arange(7, -1, -1)]


def attention(heads: int) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, heads, 8, batch_first=True, dropout=0.0)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(4 * 8, 3))


def normed(eps: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps), nn.Linear(8, 3))


OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], tuple[int, ...]]] = {
    "activation": (lambda: Layers(torch.relu), lambda: Layers(torch.tanh), (8,)),
    "no activation": (lambda: Layers(torch.relu), lambda: Layers(nn.Identity()), (8,)),
    "residual": (lambda: Layers(torch.relu),
                 lambda: Layers(torch.relu, lambda m, h, x: h + x), (8,)),
    "factor": (lambda: Layers(lambda h: h * 2), lambda: Layers(lambda h: h * 3), (8,)),
    "index": (lambda: Layers(torch.relu, lambda m, h, x: h[:, m.index]),
              lambda: Layers(torch.relu, reversed_index), (8,)),
    "epsilon": (lambda: normed(1e-5), lambda: normed(1e-1), (8,)),
    "heads": (lambda: attention(2), lambda: attention(4), (4, 8)),
    "pooling": (lambda: pooled(nn.MaxPool2d(2)), lambda: pooled(nn.AvgPool2d(2)), (3, 6, 6)),
}  # fmt: skip


def pooled(pool: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), pool, nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("case", OTHERS)
def test_a_model_that_computes_something_else_is_refused(case: str) -> None:
    *makes, shape = OTHERS[case]
    ours, theirs = (whet.compile(make(), (torch.randn(2, *shape),)) for make in makes)
    assert ours.storage.params == theirs.storage.params, "as far as parameters tell"
    assert ours.fingerprint != theirs.fingerprint
    again = whet.compile(makes[0](), (torch.randn(1, *shape),))
    assert again.fingerprint == ours.fingerprint


def test_buffers_of_the_size_of_the_batch_or_without_use_do_not_matter() -> None:
    class Buffers(nn.Module):
        def __init__(self, batch: int, unused: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.GRU(8, 4, batch_first=True)
            self.register_buffer("start", torch.zeros(1, batch, 4))
            self.register_buffer("unused", torch.tensor(unused))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, self.start)[0][:, -1]

    one, two = (
        whet.compile(Buffers(n, float(n)), (torch.randn(n, 5, 8),)).fingerprint for n in (1, 2)
    )
    assert one == two


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
