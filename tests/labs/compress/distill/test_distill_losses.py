"""Each formula against NumPy, written out by hand, and each gradient against differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.labs.compress.distill import losses
from whet.labs.compress.distill.adapters import WeightAdapter

Array = np.ndarray
SEEDED = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return SEEDED.normal(size=shape)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def soft_cross_entropy(s: Array, t: Array, temperature: float) -> float:
    p, q = softmax(t / temperature), softmax(s / temperature)
    return -(temperature**2) * sum(float(a @ np.log(b)) for a, b in zip(p, q, strict=True)) / len(s)


def kl(s: Array, t: Array, temperature: float) -> float:
    p, q = softmax(t / temperature), softmax(s / temperature)
    return temperature**2 * float((p * np.log(p / q)).sum()) / len(s)


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x)


def attention(s: Array, t: Array) -> float:
    maps = [[unit((image**2).sum(0).ravel()) for image in x] for x in (s, t)]
    return float(np.mean([((a - b) ** 2).sum() for a, b in zip(*maps, strict=True)]))


def mmd(s: Array, t: Array, kernel: str) -> float:
    """Two loops over channels, as the definition has it; degree 3 with an offset of 0.5."""
    total = 0.0
    for one, other in zip(s, t, strict=True):
        a, b = ([unit(channel.ravel()) for channel in image] for image in (one, other))
        width = np.mean([((x - y) ** 2).sum() for x in a for y in b])
        kernels: dict[str, Callable[[Array, Array], float]] = {
            "linear": lambda x, y: x @ y,
            "polynomial": lambda x, y: (x @ y + 0.5) ** 3,
            "gaussian": lambda x, y, width=width: np.exp(-((x - y) ** 2).sum() / (2 * width)),
        }
        k = kernels[kernel]
        for p, q, sign in ((a, a, 1), (b, b, 1), (a, b, -2)):
            total += sign * float(np.mean([[k(x, y) for y in q] for x in p]))
    return total / len(s)


def huber(x: float) -> float:
    return 0.5 * x * x if abs(x) < 1 else abs(x) - 0.5


def distances(s: Array, t: Array) -> float:
    def relative(x: Array) -> Array:
        rows = x.reshape(len(x), -1)
        d = np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])
        return d / d[~np.eye(len(x), dtype=bool)].mean()

    n, (a, b) = len(s), (relative(s), relative(t))
    return sum(huber(a[i, j] - b[i, j]) for i in range(n) for j in range(n) if i != j) / n / (n - 1)


def angles(s: Array, t: Array) -> float:
    n, found = len(s), []
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if len({i, j, k}) == 3:
                    a, b = (unit(x[j] - x[i]) @ unit(x[k] - x[i]) for x in (s, t))
                    found.append(huber(a - b))
    return float(np.mean(found))


Case = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], float], Array, Array]
LOGITS, IMAGES = (drawn(4, 5), 2 * drawn(4, 5)), (drawn(2, 3, 2, 3), drawn(2, 4, 2, 3))


def selectivity(kernel: str) -> Case:
    def ours(s: Tensor, t: Tensor) -> Tensor:
        maps = losses.channel_maps(s), losses.channel_maps(t)
        return losses.mmd(*maps, kernel=kernel, degree=3, offset=0.5)

    return ours, lambda s, t: mmd(s, t, kernel), *IMAGES


CASES: dict[str, Case] = {
    "cross-entropy": (lambda s, t: losses.soft_cross_entropy(s, t, 3.0),
                      lambda s, t: soft_cross_entropy(s, t, 3.0), *LOGITS),
    "kl": (lambda s, t: losses.kl_divergence(s, t, 3.0), lambda s, t: kl(s, t, 3.0), *LOGITS),
    "features": (losses.squared_error, lambda s, t: float(((s - t) ** 2).mean()), *LOGITS),
    "attention": (lambda s, t: losses.attention(losses.attention_map(s), losses.attention_map(t)),
                  attention, *IMAGES),
    "linear": selectivity("linear"),
    "polynomial": selectivity("polynomial"),
    "gaussian": selectivity("gaussian"),
    "distances": (losses.relational_distance, distances, drawn(4, 3), drawn(4, 6)),
    "angles": (losses.relational_angle, angles, drawn(4, 3), drawn(4, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_that_of_the_formula(name: str) -> None:
    ours, by_hand, s, t = CASES[name]
    value = ours(torch.from_numpy(s), torch.from_numpy(t)).item()
    assert value == pytest.approx(by_hand(s, t), rel=1e-6)
    assert value > 1e-3, "a formula that is zero here would show nothing"


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_formula(name: str) -> None:
    ours, _, s, t = CASES[name]
    x = torch.from_numpy(s).requires_grad_()
    assert torch.autograd.gradcheck(ours, (x, torch.from_numpy(t)))


@pytest.mark.parametrize("name", sorted(set(CASES) - {"cross-entropy"}))
def test_it_is_zero_and_flat_for_a_perfect_student(name: str) -> None:
    ours, _, s, _ = CASES[name]
    x = torch.from_numpy(s).requires_grad_()
    loss = ours(x, torch.from_numpy(s))
    loss.backward()
    assert abs(loss.item()) < 1e-12 and x.grad is not None
    assert float(x.grad.abs().max()) < 1e-7


def test_cross_entropy_is_kl_and_the_entropy_of_the_teacher() -> None:
    s, t = map(torch.from_numpy, LOGITS)
    entropy = losses.soft_cross_entropy(t, t, 3.0)
    whole = losses.kl_divergence(s, t, 3.0) + entropy
    torch.testing.assert_close(losses.soft_cross_entropy(s, t, 3.0), whole)


def test_a_high_temperature_leaves_gradients_their_size() -> None:
    """T^2 is there for this: the gradient tends to the difference of centred logits, over n c."""
    s, t = (torch.from_numpy(x - x.mean(1, keepdims=True)) for x in LOGITS)
    x = s.clone().requires_grad_()
    losses.kl_divergence(x, t, 1e4).backward()
    torch.testing.assert_close(x.grad, (s - t) / s.numel(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(CASES)))
def test_dead_channels_and_equal_samples_leave_gradients_finite(name: str) -> None:
    ours, _, s, t = CASES[name]
    x = torch.zeros(s.shape, dtype=torch.float32, requires_grad=True)
    loss = ours(x, torch.from_numpy(t).float())
    loss.backward()
    assert torch.isfinite(loss) and x.grad is not None and torch.isfinite(x.grad).all()


def test_weights_are_mapped_along_their_channels() -> None:
    torch.manual_seed(0)
    adapter = WeightAdapter((4, 3, 2, 2), (6, 5, 2, 2)).double()
    w = torch.from_numpy(drawn(4, 3, 2, 2)).requires_grad_()
    a, b = (m.detach().numpy() for m in adapter.maps)
    right = np.einsum("po,qi,oihw->pqhw", a, b, w.detach().numpy())
    np.testing.assert_allclose(adapter(w).detach().numpy(), right, rtol=1e-10)
    target = torch.from_numpy(drawn(6, 5, 2, 2))
    assert torch.autograd.gradcheck(lambda x: losses.squared_error(adapter(x), target), (w,))
