"""A cost model of a machine, to choose between variants of a kernel.

The defaults are those of a server core of 2022. `whet tune` measures this machine and stores the
results in the cache folder; compiling reads them and never measures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Coefficients of the cost model, in nanoseconds on one thread."""

    macs: float = 48.0  # multiply-adds per ns in a large matrix product
    near: float = 0.2  # to transform a float that is in the cache
    far: float = 0.7  # and one that is not
    cache: int = 2_000_000  # floats that fit into the cache
    wake: float = 1000.0  # to share work with another thread
    rows: int = 0  # per block of a matrix product; 0 lets the kernels decide
    lanes: int = 0  # lanes of the vectors that `rows` was measured with
    tuned: bool = False

    @property
    def grain(self) -> int:
        """The number of multiplications worth sharing: those of 16 times the overhead.

        Half of the result is then in the other core's cache, which also costs the next kernel time.
        """
        return max(1, round(16 * self.wake * self.macs))

    def direct(self, macs: int) -> float:
        """Nanoseconds of a direct convolution, or of one of its gradients."""
        return macs / self.macs

    def winograd(self, tiles: int, c: int, o: int) -> float:
        """The same with Winograd's method: 16 products per tile, and the transforms."""
        weights = 16 * c * o
        forms = self.near * 16 * tiles * (c + o)
        forms += (self.near if weights < self.cache else self.far) * weights
        return tiles * weights / self.macs + forms


UNTUNED = Machine()
BLOCKS = (6, 8, 10, 12)  # possible rows per block of a matrix product
