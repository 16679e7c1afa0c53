"""Whether an int8 program computes about what its float model does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whet
from whet.errors import CheckError
from whet.quantize.agreement import correlation
from whet.verify import integer


class Attending(nn.Module):
    """One block of attention over 12 tokens, the first of which is `far` times as large."""

    def __init__(self, far: float) -> None:
        super().__init__()
        self.project, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 5)
        sizes = torch.ones(12, 1)
        sizes[0] = far
        self.register_buffer("sizes", sizes)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).split(16, dim=-1)
        weights = F.softmax(q @ k.transpose(1, 2) / 4, dim=-1)
        y = self.out((weights @ v + x) * self.sizes)
        return self.head(torch.tanh(y).mean(1))


def compiled(model: nn.Module, *shape: int) -> whet.Program:
    x = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    return whet.compile(model.eval(), (x[:2],), dtype="int8", update="last", calibrate=[x])


@pytest.fixture
def seeded() -> None:
    torch.manual_seed(0)


def test_correlation() -> None:
    rising, falling = np.arange(6.0), -np.arange(6.0)
    assert correlation([rising], [3 * rising + 1]) == pytest.approx(1)
    assert correlation([rising[:2], rising[2:]], [falling]) == pytest.approx(-1)
    assert correlation([np.ones(3)], [np.ones(3)]) == 1
    assert correlation([np.ones(3)], [np.arange(3)]) == 0


@pytest.mark.usefixtures("seeded")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attention_that_integers_can_do_is_compiled() -> None:
    report = compiled(Attending(far=1), 12, 16).check(steps=2)
    assert isinstance(report, integer.IntegerReport)
    assert report.function is not None and 0.95 < report.function <= 1
    assert f"{report.function:.4f}" in str(report)


@pytest.mark.usefixtures("seeded")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_transformer_that_integers_lose_is_refused() -> None:
    """All tokens but one fall below the only scale of the activation."""
    with pytest.raises(whet.WhetError, match=r"correlation of .* where at least 0\.9") as caught:
        compiled(Attending(far=5000), 12, 16)
    assert 'frozen="int8"' in str(caught.value)


@pytest.mark.usefixtures("seeded")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_function_of_a_model_of_ids_is_compared() -> None:
    words = nn.Sequential(nn.Embedding(40, 16), nn.Flatten(), nn.Linear(96, 8), nn.Linear(8, 4))
    ids = torch.randint(40, (8, 6))
    program = whet.compile(words.eval(), (ids[:2],), dtype="int8", update="last", calibrate=[ids])
    report = program.check(steps=2)
    assert isinstance(report, integer.IntegerReport) and report.function is not None
    assert report.function > 0.99


@pytest.mark.usefixtures("seeded")
def test_check_refuses_a_program_that_lost_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    program = compiled(net, 3, 8, 8)
    report = program.check(steps=2)
    assert isinstance(report, integer.IntegerReport) and report.function is not None
    assert report.function > 0.99
    monkeypatch.setattr(integer, "LEAST", 2.0)
    with pytest.raises(CheckError, match="lost the function of the float model"):
        program.check(steps=2)
