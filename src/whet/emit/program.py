"""Program: named entry points that share parameters and one arena, and the C that runs them."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BuildError, InternalError, WhetError
from ..ir import Array, Graph, Type
from ..machine import UNTUNED, Machine
from ..ops.random import RngNext
from ..passes import Part, Recompute
from ..plan import Plan, plan
from ..scheme import Scheme
from . import c
from .memory import memory_of
from .tensors import Tensors

if TYPE_CHECKING:
    from ..report import CheckReport
    from ..runtime import Trainer


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as stored, and the order its axes have there: stored axis k is axis order[k]."""

    type: Type
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape PyTorch knows."""
        sizes = [0] * len(self.order)
        for axis, n in zip(self.order, self.type.shape, strict=True):
            sizes[axis] = n
        return tuple(sizes)


# How kernels of a folder are compiled. A fused multiply-add would make the portable ones give other
# bits on other machines; those for vectors are written for it.
FLAGS = {
    "ref": ("-O3", "-ffp-contract=off"),
    "vec": ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno"),
}

LIBRARIES = {"ref": "-lm", "vec": "-lm -pthread"}

# Files that every program with kernels of a folder needs, besides those of its kernels.
SHARED = {"ref": (), "vec": ("matmul", "outer", "threads")}
_HEADERS = ("whet_kernels.h", "whet_inline.h", "whet_lanes.h", "whet_matmul.h")
HEADERS = {
    "ref": _HEADERS,
    "vec": (*_HEADERS, *(f"whet_{name}.h" for name in ("blocks", "columns", "threads"))),
}


def kernel_file(isa: Sequence[str], name: str) -> str:
    """The text of a kernel file from the first folder that has it; shared headers lie above."""
    root = resources.files("whet") / "kernels"
    for folder in (*(root / part for part in isa), root):
        if (folder / name).is_file():
            return (folder / name).read_text()
    raise InternalError(f"there is no kernel file {name} for {', '.join(isa)}")


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled model. Making one touches no disk; `write`, `load` and `check` do."""

    name: str
    entries: Mapping[str, Graph]
    tensors: Mapping[str, TensorInfo]  # inputs, labels, parameters and state of the model
    outputs: tuple[TensorInfo, ...]
    lr: float
    scheme: Scheme | None = None
    chosen: tuple[str, ...] = ()  # parameters that the scheme trains
    parameters: int = 0  # numbers in the model, trained or not
    identity: int = 0  # a checksum of the model, see `fingerprint`
    parts: Mapping[str, Part] = field(default_factory=dict)  # trained slices of parameters
    wholes: Mapping[str, Array] = field(default_factory=dict)  # those parameters, as stored
    source: Any = None
    without: frozenset[str] = frozenset()  # passes that were left out
    isa: tuple[str, ...] = ("vec", "ref")  # folders of kernels, the first that has one wins
    recompute: Recompute | None = None  # what may be computed twice
    machine: Machine = UNTUNED  # that the kernels were chosen for
    grow: bool = True  # whether faster kernels may take a little more memory

    @functools.cached_property
    def plans(self) -> dict[str, Plan]:
        inplace = "inplace" not in self.without
        return {name: plan(graph, inplace) for name, graph in self.entries.items()}

    @functools.cached_property
    def trained(self) -> dict[str, tuple[int, tuple[int, ...]] | None]:
        """What trains, by PyTorch's names: None for all of it, or an axis and indices along it."""
        parts = self.parts
        whole = {n: None for n in self.storage.params if n not in parts}
        sliced = {
            part.whole: (self.tensors[part.whole].order[part.axis], part.indices)
            for name, part in parts.items()
            if name in self.storage.params
        }
        return {**whole, **sliced}

    @functools.cached_property
    def storage(self) -> Tensors:
        return Tensors.of(self.entries, self.isa[0] == "vec")

    @property
    def arena(self) -> int:
        return max(p.arena for p in self.plans.values())

    @property
    def rng(self) -> str | None:
        """The name of the random generator's state, if the program has one."""
        nodes = self.entries["train_step"].nodes
        return next((n.ins[0].name for n in nodes if n.op is RngNext), None)

    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes by kind: arena, lower_bound, trained, state, io, ram; frozen, flash."""
        return memory_of(self)

    @functools.cached_property
    def fingerprint(self) -> int:
        """A checksum of the model and of what trains: a checkpoint of anything else is refused."""
        store = self.storage
        layout = [f"{name} {kind}" for name, kind in (store.params | store.state).items()]
        return zlib.crc32("\n".join(layout).encode(), self.identity)

    @functools.cached_property
    def files(self) -> dict[str, bytes]:
        """The whole output folder by relative path. The same program gives the same bytes."""
        kernels = resources.files("whet") / "kernels"
        find = functools.partial(kernel_file, self.isa)
        used = sorted({*c.used_kernels(self.plans.values()), *SHARED[self.isa[0]]})
        weights, blob = c.weights_c(self.name, self.storage)
        threads = self.isa[0] == "vec"
        files = {
            "model.h": c.model_h(self.name, self.plans, self.storage, self.arena, self.lr, threads),
            "model.c": c.model_c(self.name, self.plans, self.storage, self.fingerprint, threads),
            "weights.h": c.weights_h(self.name, self.storage),
            "weights.c": weights,
            "main.c": c.main_c(self.name, (kernels / "main" / "host.c").read_text(), self.plans),
            "Makefile": c.makefile(
                self.name,
                (kernels / "main" / "host.mk").read_text(),
                used,
                FLAGS[self.isa[0]],
                LIBRARIES[self.isa[0]],
            ),
            "report.txt": self.report() + "\n",
        }
        for header in HEADERS[self.isa[0]]:
            files[f"kernels/{header}"] = find(header)
        if threads:
            header = "kernels/whet_threads.h"
            files[header] = c.grain_h(files[header], self.machine.grain)
        for source in used:
            files[f"kernels/{source}.c"] = find(f"{source}.c")
        encoded = {name: text.encode() for name, text in files.items()}
        return encoded if blob is None else encoded | {"weights.bin": blob}

    def report(self) -> str:
        """What is in the program, how many bytes, and where they lie."""
        from ..report import program_report

        return program_report(self)

    def write(self, folder: str | Path) -> Path:
        """Write the C program; it builds with `make` wherever there is a C compiler."""
        root = Path(folder)
        try:
            for name, content in self.files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists() or path.read_bytes() != content:
                    path.write_bytes(content)
            for stale in {*root.glob("kernels/*.[ch]"), *root.glob("weights.bin")}:
                if str(stale.relative_to(root)) not in self.files:
                    stale.unlink()
        except OSError as error:
            raise BuildError(
                f"cannot write the program to {root}",
                why=f"{error.strerror}: {error.filename}",
                try_="a folder that exists or can be made, with room on its disk",
            ) from error
        return root

    def load(self, threads: int | None = None) -> Trainer:
        """Build with the machine's C compiler and load it into this process.

        Any number of threads gives the same results, to the bit. Trainers of one program share
        theirs: one thread at first, and as many as was said last.
        """
        from ..runtime import Trainer

        return Trainer(self, threads=threads)

    def check(self, steps: int = 10) -> CheckReport:
        """Build, then compare every gradient and some training steps with PyTorch."""
        if self.source is None:
            raise WhetError("this program does not remember the model it was compiled from")
        from ..check import check

        return check(self, steps)
