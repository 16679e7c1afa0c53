"""TinyTL: freeze the weights, train biases and small branches (arXiv:2007.11622).

prepare   a CNN with a lite residual branch beside every block
blocks    how those are found
norm      group norm in the place of batch norm
"""

from .blocks import Block, find_blocks
from .branch import LiteResidual, branches
from .prepare import prepare

__all__ = ["Block", "LiteResidual", "branches", "find_blocks", "prepare"]
