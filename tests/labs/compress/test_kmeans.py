"""K-means on sorted values, against the definition of it."""

import numpy as np
import pytest

from whet.errors import DataError, SchemeError
from whet.labs.compress.kmeans import INITS, Sums, kmeans, start


def normal(count: int = 5000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, count).astype(np.float32)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("clusters", [1, 2, 7, 32])
def test_values_go_to_the_nearest_centroid_which_is_their_mean(init: str, clusters: int) -> None:
    values = normal()
    centroids, index = kmeans(values, clusters, init)
    assert len(centroids) == clusters and (np.diff(centroids) > 0).all()
    distances = np.abs(values[:, None].astype(np.float64) - centroids)
    chosen = np.take_along_axis(distances, index[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, distances.min(1), atol=1e-8)
    for i in range(clusters):
        mean = values[index == i].astype(np.float64).mean()
        np.testing.assert_allclose(centroids[i], mean, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("init", INITS)
def test_no_cluster_is_empty_where_there_is_a_hole(init: str) -> None:
    """Pruned weights have none around zero, where linear initialization puts centroids."""
    values = normal(50_000)
    values = values[np.abs(values) > 0.2]
    centroids, index = kmeans(values, 32, init)
    assert np.bincount(index, minlength=32).min() > 0
    assert np.mean((values - centroids[index]) ** 2) < 4 * np.ptp(values) ** 2 / 12 / 32**2


def test_linear_starts_at_equal_distances_and_density_at_equal_counts() -> None:
    """Points with these counts, and the borders of the first three clusters."""
    points, counts = np.array([0.0, 1.0, 2.0, 3.0, 7.0, 10.0]), np.array([4, 1, 3, 1, 1, 2])
    sums = Sums(points, counts)
    assert start(sums, 3, "linear", 0).tolist() == [0, 3, 5, 6]  # around 0, 5 and 10
    assert start(sums, 3, "density", 0).tolist() == [0, 1, 3, 6]  # 4 values each
    values = np.repeat(points, counts)
    far = kmeans(np.append(values, 10.5), 2, "linear")[0]
    np.testing.assert_allclose(far, [10 / 9, 37.5 / 4])


def test_few_distinct_values_are_kept_as_they_are() -> None:
    values = np.array([[0.3, -0.1], [0.3, 7.0]], np.float32)
    centroids, index = kmeans(values, 4)
    np.testing.assert_array_equal(centroids, np.array([-0.1, 0.3, 7.0], np.float32))
    np.testing.assert_array_equal(centroids[index], values)


def test_the_seed_decides_the_random_start() -> None:
    values = normal(2000)
    first, same, other = (kmeans(values, 16, "random", seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_large_offsets_do_not_spoil_the_sums() -> None:
    values = normal(3000).astype(np.float64)
    centroids, index = kmeans(values, 8)
    moved, again = kmeans(values + 1e6, 8)
    np.testing.assert_allclose(moved - 1e6, centroids, atol=1e-4)
    assert (index == again).mean() > 0.99


def test_bad_input_is_refused() -> None:
    with pytest.raises(DataError, match="must be finite"):
        kmeans(np.array([1.0, np.nan]), 2)
    with pytest.raises(SchemeError, match="way to start"):
        kmeans(normal(), 2, "middle")  # type: ignore[arg-type]
    with pytest.raises(SchemeError, match="0 clusters"):
        kmeans(normal(), 0)
