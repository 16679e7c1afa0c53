"""Moments of Adam in 16 bits: half the bytes, and losses as with 32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import whet
from tiny import convnet, images
from whet.errors import FrontendError, SchemeError
from whet.ops._bf16 import dithered, nearest, widened


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 200), nn.GELU(), nn.Linear(200, 100), nn.GELU(), nn.Linear(100, 5)
    )


def task(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(16, 20, generator=generator)
    return x, (x[:, :5] * x[:, 5:10]).argmax(1)


def losses(moments: str | None, steps: int) -> tuple[np.ndarray, whet.Program]:
    model, generator = mlp(), torch.Generator().manual_seed(1)
    x, _ = task(generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    program = whet.compile(model, (x,), optimizer=optimizer, moments=moments)
    trainer = program.load()
    return np.array([trainer.step(*task(generator)) for _ in range(steps)]), program


def test_steps_learn_as_with_moments_in_32_bits() -> None:
    (wide, program), (half, small) = losses(None, 250), losses("bf16", 250)
    assert small.memory["state"] - 4 == (program.memory["state"] - 4) / 2, "but for the step count"
    assert f"moments in bf16 {' ' * 16}{small.memory['state'] - 4:>14,} B" in small.report()
    names = {node.op.name for node in small.entries["train_step"].nodes}
    assert {"adam", "dw_adam"} <= names, "of biases, and fused"
    assert wide[-50:].mean() < 0.6 * wide[:50].mean()
    assert half[-50:].mean() == pytest.approx(wide[-50:].mean(), rel=0.02)
    assert np.abs(half - wide).max() < 0.05 * wide[0]


def test_rounding_lets_small_changes_add_up() -> None:
    """Of a number that shrinks by a thousandth a step, which is a fraction of the last place."""
    start = np.linspace(1, 2, 100, dtype=np.float32)
    fair, stuck = nearest(start), nearest(start)
    for step in range(1, 1001):
        fair = dithered(widened(fair) * np.float32(0.999), step)
        stuck = nearest(widened(stuck) * np.float32(0.999))
    np.testing.assert_allclose(widened(fair), start * 0.999**1000, rtol=0.03)
    assert widened(fair).mean() == pytest.approx((start * 0.999**1000).mean(), rel=0.003)
    np.testing.assert_array_equal(stuck, nearest(start))


def test_sixteen_bits_are_the_upper_half() -> None:
    numbers = [1.0, -2.5, 1.00390625, 1.01171875, 3.4e38, np.inf, 0.0, -0.0, np.nan]
    low = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)  # NaN, too
    x = np.concatenate([np.array(numbers, np.float32), low])
    right = torch.from_numpy(x).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(widened(nearest(x)), right)
    exact = right[np.isfinite(right)]
    np.testing.assert_array_equal(widened(dithered(exact, 12345)), exact)


def test_training_goes_on_from_moments_of_pytorch() -> None:
    model, generator = mlp(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(5):
        x, y = task(generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    trainer = whet.compile(model, (x,), optimizer=optimizer, moments="bf16").load()
    for name, parameter in model.named_parameters():
        for word, key in (("mean", "exp_avg"), ("square", "exp_avg_sq")):
            kept = widened(trainer.stored(f"{name}.{word}"))
            theirs = optimizer.state[parameter][key].numpy().ravel()
            np.testing.assert_allclose(kept, theirs, rtol=2**-8)
    assert "moments" not in optimizer.param_groups[0], "the caller's optimizer is not changed"


def test_a_checkpoint_keeps_the_bits_and_fits_no_other_moments() -> None:
    x, y = next(images())
    model = convnet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    program = whet.compile(model, (x,), optimizer=optimizer, moments="bf16")
    assert "moments are in bf16" in str(program.check())
    first, second = program.load(), program.load()
    for _ in range(3):
        first.step(x, y)
    second.load(first.save())
    assert first.step(x, y) == second.step(x, y)
    assert first.save() == second.save()
    wide = whet.compile(model, (x,), optimizer=optimizer).load()
    with pytest.raises(whet.errors.CheckpointError, match="another model or scheme"):
        wide.load(first.save())


def test_what_has_no_such_moments_says_so() -> None:
    x, _ = next(images())
    for optimizer in ("sgd", "rmsprop"):
        with pytest.raises(FrontendError, match="has no moments in bf16"):
            whet.compile(convnet(), (x,), optimizer=optimizer, moments="bf16")
    with pytest.raises(SchemeError, match='there is no moments="fp8"'):
        whet.compile(convnet(), (x,), optimizer="adam", moments="fp8")
    with pytest.raises(SchemeError, match="for a float program"):
        whet.compile(convnet(), (x,), optimizer="adam", moments="bf16", dtype="int8", calibrate=[x])
