"""What the observed gradients determine, whatever the optimiser: a bound near the original.

An attack that fails may have had a bad optimiser. Around the true image the gradients are linear
in it, g = J x, and an attacker who knew where to look would have a problem of least squares: with
noise of deviation s on each coordinate and pixels of deviation p around what is expected, the
error along a singular vector of J with singular value v has the variance 1 / (1 / p^2 + v^2 / s^2).
Directions with v = 0 keep the variance p^2: the update says nothing about them. This is a yardstick
for the owner of the data, who knows the image; images have more structure than independent pixels,
so an attacker with a good prior can do better.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

from .gradients import Matching, Observation, one_thread
from .recovered import Array

PIXEL = 0.25  # deviation of a pixel around mid-grey, as a share of the span
FLOAT = 1e-6  # relative rounding of a gradient in float32, for updates without noise
CHUNK = 64  # directions at a time


@dataclass(frozen=True)
class Determined:
    unknowns: int
    coordinates: int
    directions: int  # of the unknowns that come out more exactly than they were known before
    noise: float  # deviation of what was observed from the attacker's model, per coordinate
    psnr: float  # dB, of the linear estimate
    values: Array  # singular values, in descending order


def determined(observation: Observation, x: Tensor, y: Tensor) -> Determined:
    """At the original batch `x` with labels `y`.

    The noise is what the observed gradients differ by from those of the attacker's model there: a
    defence, int8 arithmetic, or at least the rounding of float32.
    """
    with one_thread():
        matching = Matching(observation, dtype=torch.float64)
        jacobian = jacobian_of(observation, matching, x.double(), y)
        width = observation.span[1] - observation.span[0]
        values = torch.linalg.eigvalsh(jacobian.T @ jacobian).flip(0).clamp_min(0).sqrt() * width
        exact, seen = matching.gradients(x.double(), y).detach(), matching.target
    if observation.scaled:
        seen = seen * ((exact @ exact) / (exact @ seen))
    size = exact.square().mean().sqrt()
    noise = max(float((seen - exact).square().mean().sqrt()), FLOAT * float(size))
    variance = 1 / (1 / PIXEL**2 + (values / noise).square())
    return Determined(
        unknowns=x.numel(),
        coordinates=len(jacobian),
        directions=int((variance < PIXEL**2 / 2).sum()),
        noise=noise,
        psnr=float(-10 * torch.log10(variance.mean())),
        values=values.numpy(),
    )


def jacobian_of(observation: Observation, matching: Matching, x: Tensor, y: Tensor) -> Tensor:
    """Of the observed coordinates with regard to the batch: [coordinates, unknowns]."""
    named = {n: p.detach() for n, p in matching.model.named_parameters()}
    order = list(observation.gradients)

    def loss(parameters: dict[str, Tensor], batch: Tensor) -> Tensor:
        output = functional_call(matching.model, {**named, **parameters}, (batch,))
        found: Tensor = observation.loss(output, y)
        return found

    def gradients(batch: Tensor) -> Tensor:
        found = grad(loss)({n: named[n] for n in order}, batch)
        flat = [found[n].reshape(-1) for n in order]
        parts = zip(flat, matching.places, strict=True)
        return torch.cat([g if place is None else g[place] for g, place in parts])

    def along(direction: Tensor) -> Tensor:
        found: Tensor = jvp(gradients, (x,), (direction.reshape(x.shape),))[1]
        return found

    unit = torch.eye(x.numel(), dtype=x.dtype)
    return torch.cat([vmap(along)(part) for part in unit.split(CHUNK)]).T
