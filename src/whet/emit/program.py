"""Program: named entry points that share parameters and one arena, and the C that runs them."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..errors import BuildError, InternalError, TargetError, WhetError, option
from ..ir import Array, DType, Factors, Graph, Node, Part, Places, Role, Type
from ..ir.quant import Fold, Quant
from ..memory.plan import Plan, alignment
from ..names import entry_kind
from ..ops.random import RngNext
from ..passes.frozen_forms import Blocks, form_named
from ..passes.narrow_frozen import bytes_by_form, wide_weights
from ..report import program_report
from ..report.html import program_html
from ..scheme import Scheme
from ..training import IntegerRules
from ..writing import replacing
from . import c, c_header, c_mapped, c_threads, c_weights, saving
from .blob import WEIGHTS, Blob
from .c_delta import Delta, delta_of
from .memory import STATIC, memory_of
from .reports import write_page, write_trace
from .tensor_info import PartView, TensorInfo
from .tensors import Tensors

if TYPE_CHECKING:
    from ..pipeline import Options
    from ..report import CheckReport
    from ..report.energy import Factors as EnergyFactors
    from ..runtime import Trainer
    from ..verify.integer import IntegerReport
    from .target import Target


def kernel_file(isa: Sequence[str], name: str) -> str:
    """The text of a kernel file from the first folder that has it; shared headers lie above."""
    root = resources.files("whet") / "kernels"
    for folder in (*(root / part for part in isa), root):
        if (folder / name).is_file():
            return (folder / name).read_text()
    raise InternalError(f"there is no kernel file {name} for {', '.join(isa)}")


def has_kernel(folder: str, source: str) -> bool:
    return (resources.files("whet") / "kernels" / folder / f"{source}.c").is_file()


def headers_of(isa: Sequence[str], texts: Iterable[str]) -> dict[str, str]:
    """Every header that these texts include, and those that the headers do, by name."""
    found: dict[str, str] = {}
    waiting = list(texts)
    while waiting:
        for name in c.included(waiting.pop()):
            if name not in found:
                found[name] = kernel_file(isa, name)
                waiting.append(found[name])
    return dict(sorted(found.items()))


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled model. Making one touches no disk; `write`, `load` and `check` do."""

    options: Options
    entries: Mapping[str, Graph]
    plans: Mapping[str, Plan]
    tensors: Mapping[str, TensorInfo]  # inputs, labels, parameters and state of the model
    outputs: tuple[TensorInfo, ...]
    lr: float
    scheme: Scheme | None = None
    chosen: tuple[str, ...] = ()  # parameters that the scheme trains
    parameters: int = 0  # numbers in the model, trained or not
    identity: int = 0  # a checksum of the model, see `fingerprint`
    parts: Mapping[str, Part] = field(default_factory=dict)  # trained in place of parameters
    rounded: Mapping[str, float] = field(default_factory=dict)  # weights shared, and the errors
    sliced_parameters: Mapping[str, Array] = field(
        default_factory=dict
    )  # those parameters, as stored
    factors: Mapping[str, Factors] = field(default_factory=dict)  # beside weights that are so, too
    source: Any = None
    quants: Mapping[str, Quant] = field(default_factory=dict)  # what int8 inputs stand for
    folds: Mapping[str, Fold] = field(default_factory=dict)  # norms in integer parameters
    integer_rules: IntegerRules = field(default_factory=IntegerRules)  # of int8 parameters
    independent: bool = False  # whether samples may be predicted one by one
    meta: bool = False  # weights have no values: the program cannot be written
    measured: dict[str, int] = field(default_factory=dict, repr=False)  # of it built, and run

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def target(self) -> Target:
        """Where it runs."""
        return self.options.target

    @property
    def in_lines(self) -> bool:
        """Whether the arena may have gaps so that vectors do not cross lines of the cache."""
        return self.target.vectors

    @property
    def alignment(self) -> int:
        """Of the arena, in bytes."""
        return alignment(self.arena, self.in_lines)

    @property
    def isa(self) -> tuple[str, ...]:
        return self.target.isa

    @functools.cached_property
    def trained(self) -> dict[str, Places | None]:
        """What trains, by PyTorch's names: None for all of it, or an axis and indices along it."""
        parts = self.parts
        whole = {n: None for n in self.storage.params if n not in parts}
        sliced = {
            name: view.part.places(self.tensors[name].type.shape, view.whole)
            for name, view in self.views.items()
        }
        return {**whole, **sliced}

    @property
    def views(self) -> dict[str, PartView]:
        """Parameters of which a part trains, by PyTorch's names."""
        return {
            part.parameter: PartView(part, self.tensors[part.parameter].order)
            for name, part in self.parts.items()
            if name in self.storage.params
        }

    @functools.cached_property
    def storage(self) -> Tensors:
        form = form_named(self.options.frozen, {})
        blocks = form.blocks if isinstance(form, Blocks) else None
        store = Tensors.of(self.entries, self.target.vectors, blocks)
        large = self.target.maps_files and store.image > STATIC
        return replace(store, mapped=self.options.mapped or large)

    @property
    def arena(self) -> int:
        """On a device whose inputs lie inside, an update is written here, too."""
        updates = self.delta.bytes if self.delta and self.target.inside_inputs else 0
        return max(updates, *(p.arena for p in self.plans.values()))

    @functools.cached_property
    def delta(self) -> Delta | None:
        """The update that the program sends, if it was compiled with `send`."""
        return delta_of(self)

    @functools.cached_property
    def narrow_forms(self) -> dict[str, int]:
        """Bytes of frozen weights that are stored in fewer bits, by their form."""
        return bytes_by_form(self.entries)

    @functools.cached_property
    def in_bytes(self) -> int:
        """Bytes of frozen weights that are stored in fewer bits than they are used in."""
        return sum(self.narrow_forms.values())

    @functools.cached_property
    def not_narrow(self) -> int:
        """Bytes of frozen weights of layers, small ones aside, that are stored as they are used."""
        return sum(wide_weights(self.entries).values())

    @functools.cached_property
    def rounded_products(self) -> dict[str, list[Node]]:
        """Products of a step that round their operands, by what they multiply."""
        found: dict[str, list[Node]] = {word: [] for word in self.options.products}
        for node in self.entries["train_step"].nodes:
            if (word := node.op.multiplies) in found:
                found[word].append(node)
        return found

    @property
    def batch(self) -> int:
        """Samples in a batch: the length of the first input."""
        shape = self.tensors[self.entries["predict"].leaves_of(Role.INPUT)[0].name].shape
        return shape[0] if shape else 1

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Of sequences that it takes, if it was compiled for several."""
        shorter = sorted({n for entry in self.entries if (n := entry_kind(entry)[1])})
        longest = self.tensors[self.entries["predict"].leaves_of(Role.INPUT)[0].name].shape[1:2]
        return (*shorter, *longest) if shorter else ()

    @property
    def kept(self) -> tuple[Type, ...]:
        """What `prefix` gives of a batch, to train from; empty without `cache_prefix`."""
        known = "prefix" in self.entries
        return tuple(v.type for v in self.entries["prefix"].outputs) if known else ()

    @property
    def kept_bytes(self) -> int:
        """Of one sample."""
        return sum(kind.bytes for kind in self.kept) // self.batch

    @property
    def rng(self) -> str | None:
        """The name of the random generator's state, if the program has one."""
        nodes = self.entries["train_step"].nodes
        return next((n.ins[0].name for n in nodes if n.op is RngNext), None)

    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes by kind: arena, lower_bound, trained, state, io, ram; frozen, flash."""
        return memory_of(self)

    @property
    def large(self) -> bool:
        """Whether it is more than can be reached from code in an ordinary C program."""
        linked = 0 if self.storage.mapped else self.memory["flash"]
        return self.memory["ram"] + linked > STATIC

    @functools.cached_property
    def axes(self) -> dict[str, str]:
        """How the arrays of a training step and of a prediction lie, by their names in model.h."""
        step, predict = (c.Signature.of(self.entries[n]) for n in ("train_step", "predict"))
        arrays = [(n, v) for n, v in step.leaves if v.role is not Role.SCALAR]
        found = {name: self.tensors[value.name].axes for name, value in arrays}
        outputs = zip(predict.outputs, self.outputs, strict=True)
        rows = f"{self.batch} samples, one behind the other" if self.batch > 1 else ""
        found |= dict.fromkeys(c.kept_names(len(self.kept)), rows)
        return found | {name: info.axes for (name, _), info in outputs}

    @functools.cached_property
    def fingerprint(self) -> int:
        """A checksum of the model and of what trains: a checkpoint of anything else is refused."""
        store = self.storage
        layout = [f"{name} {kind}" for name, kind in (store.params | store.state).items()]
        return zlib.crc32("\n".join(layout).encode(), self.identity)

    @functools.cached_property
    def files(self) -> dict[str, bytes | Blob]:
        """The whole output folder by relative path. The same program gives the same bytes."""
        self.require_values()
        blob = c_weights.blob_of(self.storage)
        threads = self.target.threads
        sources, places = self.kernel_files, c.input_buffers_of(self.plans["train_step"])
        files = {
            "model.h": c_header.model_h(
                self.name,
                self.plans,
                self.storage,
                self.arena,
                self.alignment,
                self.batch if self.independent else 0,
                self.lr,
                threads,
                self.quants,
                self.axes,
                places,
                self.more_declared,
            ),
            "model.c": c.model_c(
                self.name,
                self.plans,
                self.storage,
                self.fingerprint,
                threads,
                self.declaring,
                places,
                self.delta.defined() if self.delta else (),
            ),
            "weights.h": c_weights.weights_h(self.name, self.storage, blob),
            "weights.c": c_weights.weights_c(self.name, self.storage, blob),
            "report.txt": self._report({}) + "\n",
            **self.target.files(self),
        }
        found: dict[str, bytes | Blob] = {n: t.encode() for n, t in (files | sources).items()}
        return found if blob is None else found | {WEIGHTS: blob}

    @functools.cached_property
    def statements(self) -> dict[str, dict[Node, list[str]]]:
        """The lines of model.c that call a kernel, by entry point and node."""
        return c.statements(self.name, self.plans, self.storage)

    @property
    def more_declared(self) -> list[str]:
        """What model.h declares besides the usual."""
        mapping = c_mapped.declared(self.name) if self.storage.mapped else []
        return [*mapping, *(self.delta.declared() if self.delta else ())]

    @functools.cached_property
    def integer(self) -> bool:
        """Whether some of it computes in int8, and so all of it has the same bits everywhere."""
        nodes = (n for g in self.entries.values() for n in g.nodes)
        nodes = (n for n in nodes if not n.op.floats_as_integers)
        return any(v.type.dtype is DType.I8 for n in nodes for v in n.ins)

    @property
    def dtype(self) -> str:
        """Numbers of the network."""
        return "int8" if self.integer else "float32"

    @property
    def flags(self) -> tuple[str, ...]:
        """What the compiler is told, warnings aside."""
        flags = self.target.flags
        if self.integer:
            flags = (*(f for f in flags if "contract" not in f), "-ffp-contract=off")
        return flags

    @functools.cached_property
    def kernel_files(self) -> dict[str, str]:
        """Kernels and their headers by path.

        An integer program has those for vectors in a folder of their own, with their own headers.
        """
        used = {*c.used_kernels(self.plans.values()), *self.target.shared}
        used |= {"delta"} if self.delta else set()
        used |= {"stored"} if self.storage.starts else set()
        used |= {"map"} if self.storage.mapped else set()
        if not self.integer or not self.target.vectors:
            return self._in_folder("kernels", self.isa, used)
        same = {"threads", *c.same_bits(self.plans.values())}
        fast = {s for s in used & same if has_kernel("vec", s)}
        plain = used - fast - set(self.target.shared)
        portable = self._in_folder("kernels", ("ref",), plain)
        return portable | self._in_folder("kernels/vec", self.isa, fast)

    @property
    def declaring(self) -> list[str]:
        """The headers that declare the kernels."""
        names = {path.rpartition("/")[2] for path in self.kernel_files}
        return sorted(name for name in names if name.startswith("whet_kernels"))

    def _in_folder(self, folder: str, isa: Sequence[str], used: Iterable[str]) -> dict[str, str]:
        sources = {f"{source}.c": kernel_file(isa, f"{source}.c") for source in sorted(used)}
        headers = headers_of(isa, [c.kernel_headers(self.integer), *sources.values()])
        machine = self.options.machine
        if (name := "whet_threads.h") in headers:
            headers[name] = c_threads.grain_h(headers[name], machine.grain)
        if (name := "whet_lanes.h") in headers:
            headers[name] = c_threads.rows_h(
                headers[name], self.options.machine.rows, self.options.machine.lanes
            )
        return {f"{folder}/{name}": text for name, text in (headers | sources).items()}

    @overload
    def report(self) -> str: ...

    @overload
    def report(
        self,
        path: str | Path,
        *,
        title: str = "",
        against: Program | str | Scheme | None = None,
        budget: int | None = None,
        without: Collection[str] = (),
        history: Any = None,
        energy: EnergyFactors | None = None,
    ) -> Path: ...

    def report(self, path: str | Path | None = None, **extras: Any) -> str | Path:
        """What is in the program, how many bytes, and where they lie.

        Once it was built or run for a microcontroller, with what was measured there.

        With a path, as one page of HTML: the arena step by step, layers, scheme and energy.
        `against` is another program, or a scheme to compile, whose arena is shown beside it.
        `budget` is drawn into the arena; by default it is the RAM of the target. `without` names
        passes, to show the arena without each of them. `history` has curves of a training, as
        {"val_accuracy": [...]}. `energy` are other figures than those of `whet.report.energy`.
        """
        if path is None:
            return self._report(self.measured)
        return write_page(self, path, **extras)

    def trace(self, path: str | Path, steps: int = 5) -> Path:
        """Run some training steps, and write what every kernel call costs for Perfetto.

        Times are measured on this machine, or instructions counted by the emulator of a board. The
        steps are on made-up samples and change no parameter.
        """
        self.require_values()
        return write_trace(self, path, steps)

    def require_source(self) -> Any:
        if self.source is None:
            raise WhetError("this program does not remember the model it was compiled from")
        return self.source

    def __repr__(self) -> str:
        scheme = f" by {self.scheme.name!r}" if self.scheme is not None else ""
        return (
            f"<Program {self.name} for {self.target.name}: {self.dtype}, {self.parameters:,} "
            f"parameters, {len(self.chosen)} tensors train{scheme}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return program_html(self)

    def _report(self, measured: Mapping[str, int]) -> str:
        return program_report(self, measured)

    @property
    def library(self) -> dict[str, bytes | Blob]:
        """The model alone, all in one folder: what a project with a main of its own adds to it."""
        flat = {Path(name).name: name for name in self.kernel_files}
        if len(flat) < len(self.kernel_files):
            raise TargetError(
                "a program with kernels for vectors does not lie in one folder",
                try_=f"{option('target', 'portable')}, or one for a microcontroller",
            )
        own = {name: name for name in self.files if name.partition(".")[0] in ("model", "weights")}
        return {short: self.files[name] for short, name in (own | flat).items()}

    def write(
        self,
        folder: str | Path,
        samples: tuple[Any, Any] | None = None,
        library: bool = False,
    ) -> Path:
        """Write the C program; it builds with `make` wherever there is a C compiler.

        `samples`, inputs and labels one behind the other, go into a microcontroller's flash.
        `library` writes the model alone, all in one folder.
        """
        root, files = Path(folder), self.library if library else self.files
        ours = not library and (root / "report.txt").exists() and (root / "model.h").exists()
        if samples is not None and library:
            raise TargetError("a library has no samples", try_="write() without library=True")
        if samples is not None:
            texts = self.target.samples(self, *samples)
            files = files | {name: text.encode() for name, text in texts.items()}
        try:
            with ExitStack() as together:  # all files are replaced when the last one is complete
                for name, content in files.items():
                    self._write_new(root / name, content, together)
            for stale in root.glob("kernels/**/*.[ch]") if ours else ():
                if str(stale.relative_to(root)) not in files:
                    stale.unlink()
        except OSError as error:
            raise BuildError(
                f"cannot write the program to {root}",
                why=f"{error.strerror}: {error.filename}",
                try_="a folder that exists or can be made, with room on its disk",
            ) from error
        return root

    @staticmethod
    def _write_new(path: Path, content: bytes | Blob, together: ExitStack) -> None:
        """Write a file that is not there with this content."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Blob):
            if not content.is_in(path):
                content.write(together.enter_context(replacing(path)))
        elif not path.exists() or path.read_bytes() != content:
            together.enter_context(replacing(path)).write(content)

    def require_values(self) -> None:
        """Refuse to build a program of a model that has none."""
        if self.meta:
            raise BuildError(
                "this program can only be planned: its weights have no values",
                why="it was compiled from a model on the meta device",
                try_="compile the model with its weights: model.to_empty(device='cpu'), then "
                "model.load_state_dict(...)",
            )

    def save(self, path: str | Path) -> Path:
        """Write the program to one file; `whet.load` reads it back, without PyTorch."""
        self.require_values()
        return saving.save(self, path)

    def load(self, threads: int | None = None) -> Trainer:
        """Build with the machine's C compiler and load it into this process.

        A program for a microcontroller is built for that, and runs in an emulator of it.
        Any number of threads gives the same results, to the bit. Trainers of one program share
        theirs: one thread at first; the last call sets their number.
        """
        self.require_values()
        return self.target.load(self, threads)

    def check(self, steps: int = 10) -> CheckReport | IntegerReport:
        """Build, then compare every gradient and some training steps with PyTorch.

        An integer program's steps are compared with its NumPy reference instead, bit for bit.
        """
        self.require_values()
        return self.require_source().check(self, steps)
