"""What a budget error proposes: for random models, schemes, numbers and budgets, every hint
compiles within the budget and takes the RAM it says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whet
from whet import api
from whet.budget.hints import Advisor
from whet.emit.program import Program
from whet.errors import BudgetError, for_the_shell
from whet.frontend.model import Model
from whet.frontend.torch.export import import_model

CASES = 220  # in all; the first few run in `make test`
FEW = 12


class Excite(nn.Module):
    """Squeeze and excitation: floats in the middle of an integer network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(torch.relu(self.down(y))))


class Block(nn.Module):
    def __init__(self, rng: random.Random, channels: int, wide: int) -> None:
        super().__init__()
        stride = rng.choice([1, 1, 2])
        groups = rng.choice([1, 1, channels])
        self.conv = nn.Conv2d(
            channels, wide, 3, stride, 1, groups=groups if wide == channels else 1
        )
        self.norm = rng.choice([nn.BatchNorm2d, nn.BatchNorm2d, nn.Identity])(wide)
        self.act = rng.choice([nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU])()
        self.excite = Excite(wide) if rng.random() < 0.25 else nn.Identity()
        self.same = stride == 1 and wide == channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.excite(self.act(self.norm(self.conv(x))))
        return x + y if self.same else y


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool, width: int) -> None:
        super().__init__()
        self.layer, self.first = nn.GRU(4, width, batch_first=batch_first), batch_first
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1] if self.first else self.layer(x)[0][-1])


def random_model(rng: random.Random) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(rng.randrange(1 << 30))
    batch = rng.choice([1, 2, 3, 4, 6])
    if rng.random() < 0.1:
        first = rng.random() < 0.5
        shape = (batch, 3, 4) if first else (3, batch, 4)
        return Recurrent(first, rng.choice([4, 8])).eval(), torch.randn(shape)
    if rng.random() < 0.25:
        sizes = [rng.choice([6, 12, 24]) for _ in range(rng.randint(2, 5))]
        pairs = pairwise(sizes)
        layers: list[nn.Module] = [m for a, b in pairs for m in (nn.Linear(a, b), nn.Tanh())]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], 4)).eval(), torch.randn(batch, sizes[0])
    widths = [rng.choice([4, 8, 8, 12]) for _ in range(rng.randint(2, 5))]
    blocks = [Block(rng, a, b) for a, b in pairwise(widths)]
    model = nn.Sequential(
        nn.Conv2d(3, widths[0], 3, 1, 1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(widths[-1], 4),
    )  # fmt: skip
    side = rng.choice([6, 8, 12])
    return model.eval(), torch.randn(batch, 3, side, side)


class Case:
    """A model, and what is asked for."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.model, self.x = random_model(rng)
        self.optimizer = rng.choice([None, None, torch.optim.Adam])
        self.settings: dict[str, Any] = {
            "update": rng.choice([None, "full", "bias+last", "last-1", "norm+last"]),
            "target": rng.choice(["host", "portable", "cortex-m7"]),
        }
        convolutional = self.x.ndim == 4
        if self.settings["update"] == "norm+last" and not any(
            isinstance(m, nn.BatchNorm2d) for m in self.model.modules()
        ):
            self.settings["update"] = "full"
        if convolutional and rng.random() < 0.4:
            form = rng.choice(["float32", "int16"])
            rounding = rng.choice(["nearest", "carry8"])
            self.settings["dtype"] = whet.Int8(gradients=form, rounding=rounding)
            self.settings["calibrate"] = [torch.randn(4, *self.x.shape[1:])]
        self.share = rng.uniform(0.2, 0.99)

    def compiled(self, ram: int | None, **change: Any) -> Program:
        """With a change made as the hint says, through the front door."""
        settings = dict(self.settings)
        x = self.x[: change.pop("batch", len(self.x))]  # whatever the first axis is
        if form := change.pop("gradients", None):
            settings["dtype"] = replace(settings["dtype"], gradients=form)
        kind = torch.optim.SGD if change.pop("optimizer", None) else self.optimizer
        optimizer = kind(self.model.parameters(), lr=0.01) if kind else None
        return whet.compile(self.model, (x,), optimizer=optimizer, ram=ram, **settings | change)


@pytest.fixture(autouse=True)
def imported_once(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Beyond the first cases, the same model at the same shape is traced once: that saves time."""
    if request.node.get_closest_marker("slow") is None:
        return
    known: dict[tuple[Any, ...], Model] = {}

    def cached(model: nn.Module, inputs: tuple[Tensor, ...], loss: Any, optimizer: Any, *rest: Any):
        key = (tuple(tuple(x.shape) for x in inputs), type(optimizer))
        if key not in known:
            known[key] = import_model(model, inputs, loss, optimizer, *rest)
        return known[key]

    monkeypatch.setattr("whet.source.import_model", cached)


def program_of(case: Case) -> Program:
    return case.compiled(1 << 24)


def budgets(case: Case) -> tuple[int, int]:
    """The RAM of the program as it is, and less than computing everything twice would take."""
    large = 1 << 24
    free, least = case.compiled(large), case.compiled(large, rematerialize="layers")
    ram, fixed = min(p.memory["ram"] for p in (free, least)), free.memory["stack"]
    return free.memory["ram"], fixed + int((ram - fixed) * case.share)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "seed", [n if n < FEW else pytest.param(n, marks=pytest.mark.slow) for n in range(CASES)]
)
def test_every_hint_compiles(seed: int, record_property: Any) -> None:
    case = Case(seed)
    free, budget = budgets(case)
    try:
        program = case.compiled(budget)
    except BudgetError as error:
        hints = error.hints
    else:
        assert program.memory["ram"] <= budget < free, "rarely, placing is better than was planned"
        return
    assert hints
    if hints[0].ram > budget:  # nothing fits; then this is what would
        (hint,) = hints
        assert case.compiled(hint.ram, **hint.change).memory["ram"] <= hint.ram
        with pytest.raises(BudgetError):
            case.compiled(budget, **hint.change)
        record_property("hints", 1)
        return
    for hint in hints:
        assert "batch" not in hint.change or program_of(case).independent, "samples come first"
        program = case.compiled(budget, **hint.change)
        assert program.memory["ram"] == hint.ram <= budget, hint.words
        if (flash := program.target.flash) is not None:
            assert program.memory["flash"] <= flash
    record_property("hints", len(hints))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_hints_are_in_the_words_of_who_asked() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 4)).eval()
    x = torch.randn(4, 3, 4, 4)
    adam = torch.optim.Adam(model.parameters())
    words: dict[str, Any] = {"dtype": "int8", "calibrate": [x], "optimizer": adam}
    source = api.Source(model, None, adam, (x,), None, None, whet.Int8(), [x])
    imported = source.imported()
    program = whet.compile(model, (x,), **words)
    assert program.scheme is not None
    advisor = Advisor(imported, program.scheme, api.Options(), 1, source)
    change = {"update": whet.Scheme.of(["1.bias"], name="last"), "gradients": "int16", "batch": 2,
              "optimizer": "sgd"}  # fmt: skip
    assert advisor.words(change) == (
        "update=\"last\" and dtype=whet.Int8(gradients='int16') and plain SGD, which has no state "
        "and a batch of 2"
    )
    with for_the_shell():
        assert advisor.words(change) == (
            "--update last and --int8 gradients=int16 and --optimizer sgd --momentum 0 and "
            "--input 2,3,4,4"
        )
