"""Integer programs of one-dimensional networks, whose layers have views around them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from integer_models import compiled, examples, trained

SHAPE = (2, 6, 40)


class Signals(nn.Module):
    """Layers of signals, their norms, what clamps and adds them, and every kind of pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv1d(6, 8, 7, 2, 3, bias=False), nn.BatchNorm1d(8)
        self.deep, self.deep_norm = nn.Conv1d(8, 8, 5, 1, 2, groups=8), nn.BatchNorm1d(8)
        self.wide = nn.Conv1d(8, 12, 3)
        self.dense, self.dense_norm = nn.Linear(12, 10), nn.BatchNorm1d(10)
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool1d(torch.relu(self.stem_norm(self.stem(x))), 2)
        x = torch.relu(x + self.deep_norm(self.deep(x)))
        x = nn.functional.relu6(self.wide(nn.functional.avg_pool1d(x, 2)))
        return self.head(torch.relu(self.dense_norm(self.dense(x.mean(2)))))


@pytest.mark.parametrize("update", ["full", "bias+last"])
@pytest.mark.parametrize("portable", [True, False])
def test_gradients_are_autograds_and_steps_are_the_references(update: str, portable: bool) -> None:
    model = trained(Signals(), SHAPE)
    report = compiled(model, SHAPE, update=update, portable=portable).check(20)
    assert report.worst_gradient[1] < 2e-6
    assert "bit for bit" in str(report) and all(a == b for a, b in report.losses)


def test_everything_before_the_head_is_integers() -> None:
    """Norms are folded and clamps are the ends of the range, as for images."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing stays in float32
        program = whet.compile(
            trained(Signals(), SHAPE), (torch.zeros(SHAPE),), dtype="int8",
            calibrate=examples(SHAPE),
        )  # fmt: skip
    work = [n.op.name for n in program.entries["predict"].nodes if not n.op.view]
    assert work == [
        "transpose", "conv2d_i8_fused", "max_pool2d", "depthwise_i8_fused", "add_i8", "avg_pool_i8",
        "conv2d_i8_fused", "avg_pool_i8", "conv2d_i8_fused", "dequantize", "linear",
    ]  # fmt: skip


def test_weights_pass_through_batch_norm_and_back() -> None:
    model, x = trained(Signals(), SHAPE), examples(SHAPE)[0][:2]
    trainer = compiled(model, SHAPE).load()

    def agree() -> None:
        with torch.no_grad():
            right = model(x).numpy()
        assert np.abs(trainer.predict(x) - right).max() < 0.05 * np.abs(right).max()

    agree()
    for _ in range(5):
        trainer.step(x, torch.tensor([1, 3]), lr=0.02)
    model.load_state_dict(trainer.state_dict(), strict=False)
    agree()


def test_a_norm_over_other_channels_is_not_folded() -> None:
    """A view that splits channels ends what folding may reach through."""
    body = nn.Sequential(nn.Linear(6, 12), nn.Unflatten(1, (4, 3)), nn.BatchNorm1d(4), nn.Flatten())
    model = trained(nn.Sequential(body, nn.Linear(12, 3)), (2, 6))
    program = compiled(model, (2, 6), portable=True)
    program.check(3)
    assert "0.2.weight" in program.tensors


class Watched(nn.Module):
    """The signal between a layer and its norm has a second reader, so the norm stays."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.head((torch.relu(self.norm(y)) + y).mean(2))


def test_a_layer_with_two_readers_is_not_folded() -> None:
    program = compiled(trained(Watched(), SHAPE), SHAPE, portable=True)
    program.check(3)
    assert "norm.weight" in program.tensors
