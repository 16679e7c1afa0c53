"""How much of a batch was recovered, in the metrics of the literature.

Images are compared on pixels from 0 to 1, clamped. A batch has no order, so reconstructions are
first assigned to originals with the least squared error in total, which
needs SciPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError, WhetError
from .recovered import Array

RECOVERED = 20.0  # dB: a picture in which the object and its details are plain to see


@dataclass(frozen=True)
class Score:
    """Of a batch; one number per original, in their order."""

    mse: Array
    psnr: Array  # dB
    ssim: Array
    baseline: Array  # dB: the constant image nearest to each original, in its mean colour
    order: Array  # order[i] is the reconstruction that was assigned to original i

    @property
    def mean(self) -> float:
        """PSNR, mean over the batch."""
        return float(self.psnr.mean())

    @property
    def best(self) -> float:
        return float(self.psnr.max())

    def recovered(self, threshold: float = RECOVERED) -> float:
        """The fraction of originals with a PSNR of at least `threshold` dB."""
        return float((self.psnr >= threshold).mean())


def score(originals: Any, images: Any, *, span: tuple[float, float] = (0.0, 1.0)) -> Score:
    """Compare reconstructions with originals, both [batch, channels, height, width]."""
    truth, guess = pixels(originals, span), pixels(images, span)
    if truth.shape != guess.shape or truth.ndim != 4:
        raise DataError(
            f"images of shape {guess.shape} against originals of shape {truth.shape}",
            why="both are [batch, channels, height, width]",
        )
    order = assign(truth, guess)
    guess = guess[order]
    errors = np.square(truth - guess).mean(axis=(1, 2, 3))
    constant = np.square(truth - truth.mean(axis=(2, 3), keepdims=True)).mean(axis=(1, 2, 3))
    alike = np.array([ssim(a, b) for a, b in zip(truth, guess, strict=True)])
    return Score(errors, psnr(errors), alike, psnr(constant), order)


def pixels(images: Any, span: tuple[float, float] = (0.0, 1.0)) -> Array:
    """From the units of a model's input to 0 for black and 1 for white, clamped."""
    low, high = span
    scaled = (np.asarray(images, np.float64) - low) / (high - low)
    return np.clip(np.nan_to_num(scaled, nan=0.5), 0, 1)


def psnr(mse: Any) -> Array:
    """10 log10(1 / MSE); 100 dB at most, so that means stay finite."""
    found: Array = -10 * np.log10(np.maximum(np.asarray(mse, np.float64), 1e-10))
    return found


def assign(truth: Array, guess: Array) -> Array:
    """Which reconstruction belongs to each original: the least squared error in total."""
    if len(truth) == 1:
        return np.zeros(1, np.int64)
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError as error:
        raise WhetError(
            "scoring a batch needs SciPy, which is not installed", try_="pip install scipy"
        ) from error
    costs = np.square(truth[:, None] - guess[None]).reshape(len(truth), len(guess), -1).mean(2)
    found: Array = linear_sum_assignment(costs)[1]
    return found


def ssim(a: Array, b: Array) -> float:
    """Structural similarity (Wang et al. 2004) of [channels, height, width], mean over channels.

    A Gaussian window of 11 x 11 with a deviation of 1.5, inside the image only; constants 0.01 and
    0.03 on a range of 1. A side that is smaller than the window has one as large as it is, so that
    signals and vectors, which are pictures of one line, are compared along it.
    """

    def smooth(image: Array) -> Array:
        for axis in (1, 2):
            window = gaussian_window(min(11, a.shape[axis]))
            parts = np.lib.stride_tricks.sliding_window_view(image, len(window), axis=axis)
            image = parts @ window
        return image

    mean_a, mean_b = smooth(a), smooth(b)
    var_a, var_b = smooth(a * a) - mean_a**2, smooth(b * b) - mean_b**2
    both = smooth(a * b) - mean_a * mean_b
    light = (2 * mean_a * mean_b + 0.01**2) / (mean_a**2 + mean_b**2 + 0.01**2)
    shape = (2 * both + 0.03**2) / (var_a + var_b + 0.03**2)
    return float((light * shape).mean())


def gaussian_window(size: int) -> Array:
    window = np.exp(-np.square(np.arange(size) - (size - 1) / 2) / (2 * 1.5**2))
    found: Array = window / window.sum()
    return found
