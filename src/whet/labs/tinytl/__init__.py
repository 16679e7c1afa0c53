"""TinyTL: freeze the weights, train biases and small branches (arXiv:2007.11622).

prepare   a CNN with a lite residual branch beside every block
blocks    how those are found
norm      group norm instead of batch norm
elastic   many backbones in one network
adapt     the best of them for a task
pruning   dynamic activation pruning, as a baseline
"""

from ..common.blocks import Block, find_blocks
from .adapt import Adapted, adapt, pretrain
from .branch import LiteResidual, branches
from .elastic import Elastic
from .prepare import prepare
from .pruning import prune_activations

__all__ = [
    "Adapted", "Block", "Elastic", "LiteResidual", "adapt", "branches", "find_blocks", "prepare",
    "pretrain", "prune_activations",
]  # fmt: skip
