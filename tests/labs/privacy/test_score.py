"""Metrics against values known from elsewhere, and pictures as files."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from whet.errors import DataError
from whet.labs.privacy import Recovered, Snapshot, over_iterations, score, strip
from whet.labs.privacy.score import pixels, psnr, ssim


def test_psnr_of_known_errors() -> None:
    assert psnr([1.0, 0.1, 0.01, 1e-3]).tolist() == pytest.approx([0, 10, 20, 30])
    assert psnr(0.0) == pytest.approx(100)


def test_pixels_are_clamped_and_in_the_span_of_the_input() -> None:
    assert pixels([-3.0, -1.0, 0.0, 1.0, 2.0, np.nan], (-1, 1)).tolist() == [0, 0, 0.5, 1, 1, 0.5]


def test_ssim_of_constant_images_is_the_term_of_luminance() -> None:
    a, b = np.full((1, 16, 16), 0.2), np.full((1, 16, 16), 0.6)
    expected = (2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4)
    assert ssim(a, b) == pytest.approx(expected, rel=1e-9)
    assert ssim(a, a) == pytest.approx(1)


def test_ssim_of_an_image_and_its_negative_is_that_of_the_formula() -> None:
    """By the plain formula, window by window."""
    random = np.random.default_rng(0)
    a, b = random.random((2, 13, 12)), random.random((2, 13, 12))
    offsets = np.arange(11) - 5
    line = np.exp(-(offsets**2) / 4.5)
    window = np.outer(line, line) / np.outer(line, line).sum()
    values = []
    for channel in range(2):
        for i in range(3):
            for j in range(2):
                p = a[channel, i : i + 11, j : j + 11]
                q = b[channel, i : i + 11, j : j + 11]
                m, n = (window * p).sum(), (window * q).sum()
                v, w = (window * (p - m) ** 2).sum(), (window * (q - n) ** 2).sum()
                both = (window * (p - m) * (q - n)).sum()
                values.append((2 * m * n + 1e-4) * (2 * both + 9e-4)
                              / ((m * m + n * n + 1e-4) * (v + w + 9e-4)))  # fmt: skip
    assert ssim(a, b) == pytest.approx(np.mean(values), rel=1e-9)
    assert ssim(a, 1 - a) < -0.5


def test_ssim_of_one_line_compares_its_shape() -> None:
    """A window of one number would call any two positive vectors alike."""
    random = np.random.default_rng(0)
    a, b = random.random((1, 1, 200)), random.random((1, 1, 200))
    assert ssim(a, a) == pytest.approx(1)
    assert abs(ssim(a, b)) < 0.2 and abs(ssim(a, np.full_like(a, 0.5))) < 0.1


def test_a_batch_is_assigned_before_it_is_scored() -> None:
    random = np.random.default_rng(0)
    truth = random.random((4, 3, 8, 8))
    order = [2, 0, 3, 1]
    found = score(truth, truth[order] + 0.1 * np.array([1, 0, 0, 0])[:, None, None, None])
    assert [order[i] for i in found.order] == [0, 1, 2, 3]
    assert found.psnr[[0, 1, 3]].tolist() == pytest.approx([100] * 3)
    assert found.recovered(50) == 0.75 and found.best == pytest.approx(100)
    constant = truth.mean((2, 3), keepdims=True) * np.ones((8, 8))
    assert score(truth, constant).psnr == pytest.approx(found.baseline)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(DataError, match="images of shape"):
        score(np.zeros((1, 1, 8, 8)), np.zeros((1, 8, 8)))


def test_a_strip_is_a_png_with_the_pictures_side_by_side() -> None:
    random = np.random.default_rng(0)
    images = [random.random((3, 8, 6)) for _ in range(3)]
    shown = np.asarray(Image.open(io.BytesIO(strip(images, enlarge=2))))
    assert shown.shape == (16, 2 * (3 * 6 + 2 * 2), 3)
    first = shown[::2, 0:12:2].transpose(2, 0, 1)
    assert np.array_equal(first, np.rint(images[0] * 255).astype(np.uint8))
    rows = np.asarray(Image.open(io.BytesIO(strip([random.random((2, 1, 8, 8))] * 2, enlarge=1))))
    assert rows.shape == (18, 18, 3) and (rows[8:10] == 255).all()


def test_a_strip_over_iterations_starts_and_ends_where_it_should() -> None:
    history = tuple(Snapshot(10 * i, 1.0, np.full((1, 1, 2, 2), i / 100)) for i in range(60))
    last = np.ones((1, 1, 2, 2))
    found = Recovered("dlg", last, np.zeros(1), history=history)
    shown = over_iterations(np.zeros((1, 1, 2, 2)), found, count=6)
    assert len(shown) == 8 and shown[-1] is last
    assert [round(float(s.max()) * 100) for s in shown[1:-1]] == [0, 1, 4, 11, 25, 59]
