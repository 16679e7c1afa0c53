"""What compression did, stage by stage: accuracy, and bytes of every tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ... import __version__
from ...errors import BuildError
from ...writing import write_whole
from .sizes import Sizes
from .storage import save
from .store import arrays_of, write
from .tables import aligned, percent

FILES = ("model.whtc", "weights.npz", "compression.txt")
PLAIN = ("start", "train")  # stages whose numbers are counted as 32-bit floats
HEAD = ("stage", "accuracy", "numbers", "not zero", "bytes", "smaller")


@dataclass(frozen=True)
class Stage:
    """The model after one stage. `sizes` are those of the file that would be written of it."""

    name: str
    accuracy: float
    numbers: int
    nonzeros: int
    bytes: int
    sizes: Sizes = field(repr=False)
    seconds: float = 0.0

    @classmethod
    def of(cls, name: str, accuracy: float, sizes: Sizes, seconds: float) -> Stage:
        numbers = sum(t.elements for t in sizes.tensors)
        nonzeros = sum(t.nonzeros for t in sizes.tensors)
        size = sizes.dense if name in PLAIN else sizes.total
        return cls(name, accuracy, numbers, nonzeros, size, sizes, round(seconds, 2))

    def tensors(self) -> dict[str, int]:
        """Bytes by name."""
        plain = self.name in PLAIN
        return {t.name: t.dense if plain else t.total for t in self.sizes.tensors}


@dataclass(frozen=True)
class Compressed:
    """The compressed model, a plain module, and the stages that led to it.

    `pictures` are histograms of shared weights by name, as SVG: before, after, and retrained.
    """

    model: nn.Module = field(repr=False)
    stages: tuple[Stage, ...]
    options: Mapping[str, Any]
    pictures: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def sizes(self) -> Sizes:
        return self.stages[-1].sizes

    @property
    def accuracy(self) -> float:
        return self.stages[-1].accuracy

    @property
    def bytes(self) -> int:
        return self.stages[-1].bytes

    @property
    def ratio(self) -> float:
        """How many times smaller than the model at the start, in 32-bit floats."""
        return self.stages[0].bytes / self.bytes

    def stage_table(self) -> str:
        lines: list[tuple[str, ...]] = [HEAD]
        lines += [stage_row(stage, self.stages[0].bytes) for stage in self.stages]
        return aligned(lines)

    def layer_table(self) -> str:
        """Bytes of every tensor after each stage, and the bits of a weight at the end."""
        head = ["tensor", "numbers", "kept", *(s.name for s in self.stages), "bits", "of the start"]
        tables = [stage.tensors() for stage in self.stages]
        lines = [head]
        start, end = self.stages[0], self.stages[-1]
        for name, last in ((t.name, t) for t in end.sizes.tensors):
            each = [table[name] for table in tables]
            kept = last.nonzeros / max(start.sizes[name].elements, 1)
            lines.append([
                name, f"{start.sizes[name].elements:,}", percent(kept), *(f"{n:,}" for n in each),
                f"{last.bits:.1f}", percent(each[-1] / max(each[0], 1)),
            ])  # fmt: skip
        lines.append([
            "file", f"{start.numbers:,}", percent(end.nonzeros / start.numbers),
            *(f"{s.bytes:,}" for s in self.stages), "", percent(end.bytes / start.bytes),
        ])  # fmt: skip
        return aligned(lines)

    def __str__(self) -> str:
        return f"{self.stage_table()}\n\n{self.layer_table()}"

    def text(self) -> str:
        """What was done, for the file beside the model."""
        words = [f"{name}: {value}" for name, value in self.options.items() if value is not None]
        took = ", ".join(f"{s.name} {s.seconds:.1f} s" for s in self.stages)
        start, end = self.stages[0], self.stages[-1]
        summary = (
            f"{start.bytes:,} bytes of 32-bit floats became a file of {end.bytes:,} "
            f"({self.ratio:.1f} times smaller); accuracy {start.accuracy:.2f} to {end.accuracy:.2f}"
        )
        parts = [f"whet {__version__}", *words, "", summary, "", str(self), "", f"time: {took}"]
        return "\n".join(parts) + "\n"

    def write(self, path: str | Path) -> list[Path]:
        """The compressed file, if `path` has a suffix; else a folder.

        In the folder are the compressed file, the weights by name, a text of what was done, and
        histograms.
        """
        path = Path(path)
        if path.suffix and not path.is_dir():
            save(self.model, path)
            return [path]
        packed, arrays, text = (path / name for name in FILES)
        try:
            path.mkdir(parents=True, exist_ok=True)
            save(self.model, packed)
            write(arrays, arrays_of(self.model))
            write_whole(text, self.text())
            pictures = [path / f"{file_name(name)}.svg" for name in self.pictures]
            for picture, svg in zip(pictures, self.pictures.values(), strict=True):
                write_whole(picture, svg)
        except OSError as error:
            raise BuildError(f"cannot write to {path}", why=str(error.strerror)) from error
        return [packed, arrays, text, *pictures]


def file_name(name: str) -> str:
    """Of a weight; names of modules may hold any characters."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)


def stage_row(stage: Stage, start: int) -> tuple[str, ...]:
    return (
        stage.name, f"{stage.accuracy:.2f}", f"{stage.numbers:,}", f"{stage.nonzeros:,}",
        f"{stage.bytes:,}", f"{start / stage.bytes:.1f}x",
    )  # fmt: skip
