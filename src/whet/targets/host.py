"""host: this machine, with vector kernels and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..emit.program import Program
from .portable import Portable


@dataclass(frozen=True)
class Host(Portable):
    vectors: ClassVar[bool] = True

    def files(self, program: Program) -> dict[str, str]:
        """No CMakeLists.txt: that builds a library for other machines."""
        return self.host_files(program)


HOST = Host(
    "host",
    isa=("vec", "ref"),
    flags=("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno"),
    libraries=("-lm", "-pthread"),
    shared=("matmul", "outer", "threads"),
    pool=16,  # a pointer to threads; their stacks come on top, if more than one is asked for
)
