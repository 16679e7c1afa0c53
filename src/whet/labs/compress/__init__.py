"""Make a model small before it is trained on a device: pruning, weight sharing, storage."""

from .centroids import hold_shared, release, train_centroids
from .histogram import histogram_svg, histograms
from .kmeans import kmeans
from .sharing import Shared, round_to_f16, share
from .sizes import Sizes, TensorSize
from .storage import load, measure, read, save

__all__ = [
    "Shared", "Sizes", "TensorSize", "histogram_svg", "histograms", "hold_shared", "kmeans", "load",
    "measure", "read", "release", "round_to_f16", "save", "share", "train_centroids",
]  # fmt: skip
