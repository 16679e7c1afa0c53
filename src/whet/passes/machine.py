"""What a machine's kernels cost: numbers that choose between variants of a kernel.

The defaults are those of a server core of 2022. `whet tune` measures this machine and keeps its
numbers in the cache folder; compiling reads them and never measures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Coefficients of the cost model, in nanoseconds of one thread."""

    macs: float = 48.0  # multiply-adds per ns of a large matrix product
    near: float = 0.2  # to bring a float into another form while it is in the cache
    far: float = 0.7  # and when it is not
    cache: int = 2_000_000  # floats that count as near
    wake: float = 1000.0  # to share work with another thread
    rows: int = 0  # of a block of a matrix product; 0 leaves them to the kernels
    lanes: int = 0  # of the vectors that they were measured with
    tuned: bool = False

    @property
    def grain(self) -> int:
        """Multiplications that are worth sharing: those of 16 times the time that it takes.

        Half of the result is then in the other core's cache, which costs the next kernel as well.
        """
        return max(1, round(16 * self.wake * self.macs))

    def direct(self, macs: int) -> float:
        """Nanoseconds of a convolution, or of one of its gradients, summed tap by tap."""
        return macs / self.macs

    def winograd(self, tiles: int, c: int, o: int) -> float:
        """The same by Winograd's method: 16 products for a tile, and changes of form."""
        weights = 16 * c * o
        forms = self.near * 16 * tiles * (c + o)
        forms += (self.near if weights < self.cache else self.far) * weights
        return tiles * weights / self.macs + forms


UNTUNED = Machine()
BLOCKS = (6, 8, 10, 12)  # rows that a block of a matrix product may have
