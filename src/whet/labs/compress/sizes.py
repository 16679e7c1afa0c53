"""Where the bytes of a compressed file are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KINDS = ("header", "tables", "codebook", "positions", "indices", "values")
COLUMNS = ("tensor", "stored as", "elements", "not zero", *KINDS, "bytes", "bits each", "of f32")


@dataclass(frozen=True)
class TensorSize:
    """The bytes of one tensor; `dense` is what it takes in memory, floats with 32 bits.

    A tensor that is tied to one before takes no memory of its own.
    """

    name: str
    method: str
    elements: int
    nonzeros: int
    dense: int
    header: int = 0  # name, shape, counts
    tables: int = 0  # of Huffman codes
    codebook: int = 0
    positions: int = 0  # of weights that are not zero
    indices: int = 0  # into the codebook
    values: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, kind) for kind in KINDS)

    @property
    def bits(self) -> float:
        """Of a position and a value, or an index, for each weight that is stored."""
        stored = self.nonzeros if "sparse" in self.method else self.elements
        return 8 * (self.positions + self.indices + self.values) / max(stored, 1)

    @property
    def ratio(self) -> float:
        return self.dense / max(self.total, 1)


@dataclass(frozen=True)
class Sizes:
    """The bytes of a file: those of its header and of each tensor; `total` is its length."""

    header: int
    tensors: Sequence[TensorSize]

    @property
    def total(self) -> int:
        return self.header + sum(t.total for t in self.tensors)

    @property
    def dense(self) -> int:
        return sum(t.dense for t in self.tensors)

    @property
    def ratio(self) -> float:
        """How many times smaller the file is than the same numbers in f32."""
        return self.dense / self.total

    def __getitem__(self, name: str) -> TensorSize:
        return next(t for t in self.tensors if t.name == name)

    def as_dict(self) -> dict[str, int]:
        """Bytes of each kind, of all tensors; the header of the file is in `header`."""
        found = {kind: sum(getattr(t, kind) for t in self.tensors) for kind in KINDS}
        found["header"] += self.header
        return found | {"total": self.total, "dense": self.dense}

    def rows(self) -> list[list[str]]:
        rows = [row(t.name, t.method, vars(t) | {"total": t.total}, t) for t in self.tensors]
        counts = {key: sum(vars(t)[key] for t in self.tensors) for key in ("elements", "nonzeros")}
        rows.append(row("file", "", self.as_dict() | counts, self))
        return rows

    def __str__(self) -> str:
        table = [list(COLUMNS), *self.rows()]
        widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
        lines = [aligned(line, widths, "  ") for line in table]
        return "\n".join([*lines, f"{self.total:,} bytes, {self.ratio:.1f} times less than f32"])

    def markdown(self) -> str:
        rule = ["---", "---", *["--:"] * (len(COLUMNS) - 2)]
        lines = [list(COLUMNS), rule, *self.rows()]
        return "\n".join(f"| {' | '.join(cells(line))} |" for line in lines)


def row(name: str, method: str, sizes: Mapping[str, int], of: TensorSize | Sizes) -> list[str]:
    counts = (sizes[key] for key in ("elements", "nonzeros", *KINDS, "total"))
    bits = f"{of.bits:.2f}" if isinstance(of, TensorSize) else ""
    return [name, method, *(f"{n:,}" for n in counts), bits, f"{of.ratio:.1f}x"]


def aligned(line: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """Names to the left, numbers to the right."""
    pairs = list(zip(line, widths, strict=True))
    return gap.join([w.ljust(n) for w, n in pairs[:2]] + [w.rjust(n) for w, n in pairs[2:]])


def cells(line: Sequence[str]) -> list[str]:
    return [word.replace("|", r"\|") for word in line]
