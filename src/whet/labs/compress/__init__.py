"""Make a model small before it is trained on a device: pruning, weight sharing, storage.

weights     which weights are pruned, and the masks that hold zeros in training
magnitude   magnitude pruning to a number of non-zeros, over the model or by layer
iterate     prune and retrain in rounds; structure: channels and blocks
sensitivity what each layer alone can lose
sharing     few values for many weights, by kmeans; centroids trains them; histogram draws them
storage     the compressed file; sizes: where its bytes are
pipeline    one call for all of it, stage by stage; result: its table; fit: training from arrays
curves      accuracy over compression rate
store       states of interrupted work
"""

from .centroids import hold_shared, release, train_centroids
from .curves import Curves, Point, curves
from .fit import fitting
from .histogram import histogram_svg, histograms
from .iterate import Iterated, Magnitude, Round, iterative
from .kmeans import kmeans
from .magnitude import Pruned, prune
from .pipeline import compress
from .result import Compressed, Stage
from .sensitivity import Sensitivity, sensitivity
from .sharing import Shared, round_to_f16, share
from .sizes import Sizes, TensorSize
from .storage import load, measure, read, save
from .structure import Channels, Dropped, Shrunk, drop_blocks, shrink
from .weights import finish, held, hold

__all__ = [
    "Channels", "Compressed", "Curves", "Dropped", "Iterated", "Magnitude", "Point", "Pruned",
    "Round", "Sensitivity", "Shared", "Shrunk", "Sizes", "Stage", "TensorSize", "compress",
    "curves", "drop_blocks", "finish", "fitting", "held", "histogram_svg", "histograms", "hold",
    "hold_shared", "iterative", "kmeans", "load", "measure", "prune", "read", "release",
    "round_to_f16", "save", "sensitivity", "share", "shrink", "train_centroids",
]  # fmt: skip
