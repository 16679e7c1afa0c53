"""Trainer: a built program, driven from Python with PyTorch's shapes and names."""

from __future__ import annotations

import ctypes
import functools
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..emit.blob import WEIGHTS
from ..emit.c import GENERATION, STATUSES, Signature
from ..emit.program import Program
from ..emit.tensor_info import TensorInfo
from ..errors import CheckpointError, DataError, InternalError, NotFinite, option
from ..ir import Array, DType, Graph, Part, Relation, Role, Value, f32
from ..ir.quant import Quant
from ..ops.settle import LIMITS
from ..writing import write_whole
from .arrays import (
    accept,
    accept_labels,
    finite,
    from_stored,
    inputs_of,
    sized,
    to_numpy,
    to_stored,
)
from .build import MODEL, library
from .checkpoint import Checkpoint, Layout
from .fitting import Fitting
from .ids import ranges, uncounted
from .kept import kept_values
from .mapping import map_weights
from .sample_cache import SampleCache
from .sampling import Sampling
from .steps import along, step_sizes
from .texts import Texts, numbers, written

C_TYPES: dict[DType, Any] = {
    DType.F32: ctypes.c_float,
    DType.BF16: ctypes.c_uint16,
    DType.I32: ctypes.c_int32,
    DType.I16: ctypes.c_int16,
    DType.I8: ctypes.c_int8,
    DType.U8: ctypes.c_uint8,
}
KEY = 32  # bytes of the key of the noise
STATUS = [name for name, _ in STATUSES]


class Trainer(Fitting):
    """One network in memory: its own parameters, optimizer state and arena."""

    unit: ClassVar[str] = MODEL  # the C file that is compiled for the model

    def __init__(
        self, program: Program, flags: Sequence[str] | None = None, threads: int | None = None
    ) -> None:
        self.program = program
        path = library(program, flags, self.unit)
        self._library = ctypes.CDLL(str(path))
        if program.storage.mapped:
            map_weights(self._function("map_weights"), path.with_name(WEIGHTS))
        if threads is not None:
            self._set_threads(threads)
        self._net = self._allocate()
        self._function("init", None)(self._pointer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.program!r}>"

    def close(self) -> object:
        """End the run. A program in this process has nothing to end; one in an emulator has."""
        return None

    def summary(self) -> list[str]:
        """What was measured while it ran, as lines of text, once it is closed."""
        return []

    # Training ----------------------------------------------------------------------------------

    @functools.cached_property
    def cache(self) -> SampleCache:
        """What the frozen layers made of samples; another `whet.SampleCache` may take its place."""
        return SampleCache()

    def step(self, x: Any, y: Any, lr: float | None = None, sample: Any = None) -> float:
        """One training step on a batch; returns its loss. `x` is a tuple for several inputs.

        `sample`, for programs compiled with `cache_prefix`, is the id of the sample, or a list of
        one for each of the batch. What the frozen layers make of a sample is then kept in
        `self.cache`; for samples in there, `x` may be None and is not looked at.
        Raises NotFinite, having changed nothing, if the loss is NaN or infinite.
        """
        return self._loss("train_step", x, y, {"lr": lr}, sample)

    def gradients(self, x: Any, y: Any, sample: Any = None) -> float:
        """Add this batch's gradients to those collected so far; returns its loss."""
        return self._loss("gradients", x, y, {}, sample)

    def apply(self, lr: float | None = None, scale: float = 1.0) -> None:
        """Update from the collected gradients, times `scale`, and clear them."""
        self._run("apply", {}, {"lr": lr, "scale": scale})

    def begin(self) -> None:
        """Start a round: the update to send is what changes from here on."""
        self._check_sends()
        self._run("begin", {}, {})

    def delta(self, round: int = 0, key: bytes | None = None) -> bytes:
        """The update to send, as compiled in by `send`; see `whet.runtime.update` to read it.

        `key`, 32 bytes that nobody else may know, is what noise is made from. By default it is
        random. A key must not be used for two updates of one round.
        """
        self._check_sends()
        if not 0 <= round < 2**32:
            raise DataError(f"round={round} is not a number from 0 to 2^32 - 1")
        key = secrets.token_bytes(KEY) if key is None else key
        if len(key) != KEY:
            raise DataError(f"the key has {len(key)} bytes", try_=f"secrets.token_bytes({KEY})")
        update = self._delta(round, key)
        if not update:
            raise NotFinite("there is no update: a parameter is NaN or infinite")
        return update

    def predict(self, x: Any) -> Any:
        """The model's output in eval mode, as a NumPy array (a tuple if there are several).

        Any number of samples will do: those that do not fill a batch are predicted one by one.
        Sequences of one of the shorter `lengths` come in whole batches. `x` may also be an
        iterable of such inputs or, as a DataLoader is, of pairs with labels, which are left out.
        """
        count = len(self._entry("predict").leaves_of(Role.INPUT))
        pieces = [
            self._predict(entry, piece)
            for given in inputs_of(x, count)
            for entry, piece in self._pieces(given)
        ]
        if not pieces:
            raise DataError("there is nothing to predict", why="the iterable is empty")
        results = [
            np.concatenate(parts) if len(parts) > 1 else parts[0]
            for parts in zip(*pieces, strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def _predict(self, entry: str, given: list[Array]) -> list[Array]:
        stored = self._run(entry, self._inputs(entry, given), {})
        types = [value.type for value in self._entry(entry).outputs]
        infos = [replace(o, type=t) for o, t in zip(self.program.outputs, types, strict=True)]
        return [from_stored(*pair) for pair in zip(stored, infos, strict=True)]

    def _pieces(self, given: list[Array]) -> Iterator[tuple[str, list[Array]]]:
        """Samples in portions that an entry point takes: batches, then single ones."""
        if (entry := sized(self.program, "predict", given)) != "predict":
            yield entry, given
            return
        size, rows = self.program.batch, {part.shape[0] if part.ndim else 0 for part in given}
        single = "predict_one" if size > 1 else "predict"
        known = self.program.independent and self._has(single)
        leaves = self._entry("predict").leaves_of(Role.INPUT)
        shapes = [self.program.tensors[leaf.name].shape[1:] for leaf in leaves]
        fits = [part.shape[1:] for part in given] == shapes  # if not, that is said of the whole
        if not known or not fits or len(rows) != 1 or rows <= {0, size}:
            yield "predict", given
            return
        (count,), start = rows, 0
        while start < count:
            entry, step = ("predict", size) if count - start >= size else (single, 1)
            yield entry, [part[start : start + step] for part in given]
            start += step

    # Texts -------------------------------------------------------------------------------------

    def scores(self, ids: Sequence[int]) -> Array:
        """The scores of the token behind `ids`, from a program compiled with `generate`.

        What the last call had in common with this one, from the first token on, is not computed
        again, unless the program has trained or predicted in between.
        """
        return self._texts.scores(numbers(to_numpy(ids)))

    def generate(
        self,
        ids: Sequence[int],
        count: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | Collection[int] = (),
    ) -> Iterator[int]:
        """Up to `count` tokens that follow `ids`, one by one; the first one in `stop` ends them.

        With a temperature of 0 each is the most probable one. Otherwise it is drawn: scores are
        divided by the temperature, only the `top_k` most probable tokens take part, and of these
        the fewest that have at least `top_p` of the probability. Equal seeds give equal texts.
        """
        sampling = Sampling(temperature, top_k, top_p)
        return written(self._texts, numbers(to_numpy(ids)), count, sampling, seed, stop)

    # Parameters and state ----------------------------------------------------------------------

    def arrays(self, merge: bool = False) -> dict[str, Array]:
        """Trained parameters and running statistics as NumPy arrays, by PyTorch's names.

        A parameter of which some channels train is given whole. With `merge`, a weight that factors
        train beside is given in place of those, with their product added to it.
        """
        names = [*self.program.storage.params, *self.program.storage.state]
        wanted = [n for n in names if n in self.program.tensors and n != self.program.rng]
        found = dict(self._whole(n) for n in wanted)
        for name, own in self.program.factors.items() if merge else ():
            if own.names[1] in found:  # the loss depends on it
                pair = [found.pop(n) for n in own.names]
                merged = own.merged(self.program.sliced_parameters[name], *pair)
                found[name] = from_stored(merged, self.program.tensors[name])
        return found

    def state_dict(self, merge: bool = False) -> dict[str, Any]:
        """What `model.load_state_dict(..., strict=False)` takes.

        Integers are given as the floats that they stand for, without the batch norm that is part
        of them. The factors of LoRA have names of their own; with `merge`, the weights that they
        train beside are given instead, so that the model predicts what the program does.
        """
        import torch

        found = self.arrays(merge)
        for name in found.keys() & self.program.integer_rules.units.keys():
            found[name] = self._real(name, found[name])
        return {n: torch.from_numpy(a.copy()) for n, a in found.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set trained parameters and running statistics by name; other names are passed over.

        So are the channels of a parameter that do not train.
        """
        given = {n: to_numpy(state[n]) for n in self.arrays() if n in state}
        for name, array in given.items():
            if tuple(array.shape) != (shape := self.program.tensors[name].shape):
                raise DataError(f"{name} has shape {tuple(array.shape)}, not {shape}")
        parts = {part.parameter: (name, part) for name, part in self.program.parts.items()}
        for name in given.keys() & parts.keys():
            stored = to_stored(given[name], self.program.tensors[name])
            if lost := parts[name][1].lost(stored):
                raise DataError(f"{name} does not fit this program", why=lost)
        masters, carries = self._beside(Relation.MASTER), self._beside(Relation.CARRY)
        for name, array in given.items():
            real = array
            if name in self.program.integer_rules.units and array.dtype.kind == "f":
                real = self._steps_of(name, array).astype(np.float32)
                dtype = self.program.tensors[name].type.dtype.numpy
                array = np.rint(real).astype(dtype)
            info = self.program.tensors[name]
            leaf, part = parts.get(name, (name, None))
            self._set(leaf, array, info, part)
            if leaf in masters:
                self._set(masters[leaf], real, info, part)
            if leaf in carries:
                self._set(carries[leaf], np.zeros_like(array), info, part)
        self._written()

    def stored(self, name: str) -> Array:
        """A copy of a parameter or of state as it lies in the program's memory, flat."""
        return self._view(name).copy()

    def collected(self, *, real: bool = False) -> dict[str, Array]:
        """The gradients collected by `gradients`, by parameter name.

        Of a parameter that trains in part, this holds the channels that do. Gradients of integer
        parameters are in integer steps, or with `real` in units of the numbers they stand for.
        """
        found = {}
        for name, total in self._beside(Relation.GRADIENT_SUM).items():
            part = self.program.parts.get(name)
            info = self.program.tensors[name]
            info = replace(info, type=f32(*info.type.shape))
            gradient = self._get(total, info)
            if real and name in self.program.integer_rules.units:
                gradient = gradient / self._step_sizes(name)
            found[part.parameter if part else name] = gradient
        return found

    def _beside(self, relation: Relation) -> dict[str, str]:
        """State with this relation to a parameter, by parameter name."""
        leaves = (v for graph in self.program.entries.values() for v in graph.leaves)
        links = {v.name: v.link for v in leaves if v.link and v.is_a(relation)}
        owner = {link.of: name for name, link in links.items()}
        return {name: owner[name] for name in self.program.storage.params if name in owner}

    def seed(self, seed: int) -> None:
        """Restart the random numbers of dropout; equal seeds give equal training."""
        if self.program.rng is not None:
            self._view(self.program.rng)[:] = np.array([seed & 0xFFFFFFFF, 0], np.uint32).view(
                np.int32
            )
            self._written()

    def save(self, path: str | Path | None = None) -> bytes:
        """Trained parameters and state as a checkpoint, also written to `path` if given."""
        layout = Layout.of(self.program)
        blob = layout.encode(Checkpoint(layout.model, self._read()))
        if path is not None:
            try:
                write_whole(path, blob)
            except OSError as error:
                raise CheckpointError(f"cannot write {path}", why=str(error.strerror)) from error
        return blob

    def load(self, checkpoint: bytes | str | Path) -> None:
        """Restore a checkpoint; CheckpointError, with nothing changed, if it does not fit."""
        where, blob = "checkpoint", checkpoint
        if not isinstance(blob, bytes):
            where = str(blob)
            try:
                blob = Path(blob).read_bytes()
            except OSError as error:
                raise CheckpointError(f"cannot read {where}", why=str(error.strerror)) from error
        self._write(Layout.of(self.program).decode(blob, where).arrays)

    # Below: the C side --------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """How many threads the program uses; trainers of one program share them."""
        return int(self._function("set_threads")(0)) if self.program.target.threads else 1

    def _set_threads(self, count: int) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise DataError(f"threads={count!r} is not a number of threads", try_="threads=2")
        if self.program.target.threads:
            self._function("set_threads")(count)
        elif count > 1:
            raise DataError(
                f"threads={count}: portable programs run on one thread",
                try_="compile without portable=True",
            )

    def _allocate(self) -> Any:
        size = self._function("sizeof", ctypes.c_size_t)()
        self._memory = np.zeros(size + 64, np.uint8)
        start = -self._memory.ctypes.data % 64
        self._pointer = ctypes.c_void_p(self._memory.ctypes.data + start)
        return changing(self.program).from_buffer(self._memory, start)

    def _written(self) -> None:
        """What `_view` showed has been changed, so keys and values are those of other weights."""
        self._forget()

    def _forget(self) -> None:
        """The cache of a text is no longer what it was."""
        if "_texts" in self.__dict__:
            self._texts.held = []

    @functools.cached_property
    def _texts(self) -> Texts:
        return Texts(self)

    def _read(self) -> dict[str, Array]:
        """Trained parameters and state as they lie in memory."""
        store = self.program.storage
        tables = (store.params | store.state).items()
        return {name: self._view(name).reshape(kind.shape).copy() for name, kind in tables}

    def _write(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self._view(name)[:] = array.ravel()
        self._written()

    def _function(self, name: str, result: Any = ctypes.c_int) -> Any:
        function = getattr(self._library, f"{self.program.name}_{name}")
        function.restype = result
        return function

    def _view(self, name: str) -> Array:
        store = self.program.storage
        part = self._net.params if name in store.params else self._net.state
        return np.ctypeslib.as_array(getattr(part, store.ids[name]))

    def _get(self, name: str, info: TensorInfo | None = None) -> Array:
        info = info or self.program.tensors[name]
        return from_stored(self._view(name), info)

    def _whole(self, name: str) -> tuple[str, Array]:
        """A parameter or state; a part is given as the parameter it is a part of."""
        part = self.program.parts.get(name)
        if part is None:
            return name, self._get(name)
        whole = self.program.tensors[part.parameter]
        rest = self.program.sliced_parameters.get(part.parameter, np.zeros(whole.type.shape))
        stored = rest.astype(whole.type.dtype.numpy)
        numbers = self._view(name).reshape(self.program.tensors[name].type.shape)
        return part.parameter, from_stored(part.put(numbers, stored), whole)

    def _set(self, name: str, array: Array, info: TensorInfo, part: Part | None) -> None:
        """Write a parameter or state, or a part of one, from an array as PyTorch has it."""
        store = self.program.storage
        kind = (store.params | store.state)[name]
        stored = to_stored(array, replace(info, type=replace(info.type, dtype=kind.dtype)))
        self._view(name)[:] = (stored if part is None else part.take(stored)).ravel()

    def _along(self, name: str, numbers: Array) -> Array:
        return along(self.program, name, numbers)

    def _step_sizes(self, name: str) -> Array:
        return step_sizes(self.program, name)

    def _real(self, name: str, integers: Array) -> Array:
        """What integers stand for, before a batch norm became part of them."""
        real = integers * self._step_sizes(name)
        if (fold := self.program.folds.get(name)) is not None:
            scale = np.where(fold.scale == 0, 1.0, fold.scale)  # a norm of 0 tells nothing
            real = (real - self._along(name, fold.shift)) / self._along(name, scale)
        return real.astype(np.float32)

    def _steps_of(self, name: str, array: Array) -> Array:
        """An array in units of the integers that stand for it, held in their range."""
        if not np.isfinite(array).all():
            raise DataError(f"{name} holds numbers that are not finite")
        if (fold := self.program.folds.get(name)) is not None:
            array = array * self._along(name, fold.scale) + self._along(name, fold.shift)
        low, high = LIMITS[self.program.tensors[name].type.dtype.size]
        return np.clip(array / self._step_sizes(name), low, high)

    def _has(self, name: str) -> bool:
        return name in self.program.entries

    def _entry(self, name: str) -> Graph:
        if name not in self.program.entries:
            raise DataError(
                f"the program has no entry point {name!r}",
                try_="compile(..., accumulate=True) adds gradients and apply",
            )
        return self.program.entries[name]

    def _inputs(self, entry: str, x: Any) -> dict[str, Array]:
        wanted = self._entry(entry).leaves_of(Role.INPUT)
        given = x if isinstance(x, (tuple, list)) else (x,)
        if len(given) != len(wanted):
            raise DataError(f"the model takes {len(wanted)} inputs, got {len(given)}")
        return {
            leaf.name: accept(array, *self._described(leaf))
            for leaf, array in zip(wanted, given, strict=True)
        }

    def _described(self, leaf: Value) -> tuple[TensorInfo, str, Quant | None]:
        info = replace(self.program.tensors[leaf.name], type=leaf.type)
        return info, leaf.name, self.program.quants.get(leaf.name)

    def _loss(
        self, entry: str, x: Any, y: Any, scalars: dict[str, float | None], sample: Any
    ) -> float:
        if sample is None:
            entry = sized(self.program, entry, x)
            feed = self._inputs(entry, x)
        else:
            self._entry(entry)
            if not self.program.kept:
                raise DataError(
                    "sample= is for a program that keeps what the frozen layers make of a sample",
                    try_="whet.compile(..., cache_prefix=True)",
                )
            feed = kept_values(self.program, self.cache, self._prefix, x, sample)
            entry = f"{entry}_kept"
        feed |= accept_labels(self.program, self._entry(entry), y)
        return float(self._run(entry, feed, scalars)[0])

    def _prefix(self, x: Any, places: Array) -> list[Array]:
        """What the frozen layers make of the samples at these places of a batch."""
        feed = self._inputs("prefix", x)
        return self._run("prefix", {n: a[places] for n, a in feed.items()}, {})

    def _run(
        self, entry: str, feed: dict[str, Array], scalars: dict[str, float | None]
    ) -> list[Array]:
        signature = Signature.of(self._entry(entry))
        if entry not in GENERATION:
            self._forget()
        args: list[Any] = [self._pointer]
        for name, leaf in signature.leaves:
            args.append(self._number(leaf, scalars[name]) if leaf.role is Role.SCALAR
                        else feed[leaf.name].ctypes.data_as(ctypes.c_void_p))  # fmt: skip
        outs = [np.zeros(v.shape, v.type.dtype.numpy) for _, v in signature.outputs]
        args += [out.ctypes.data_as(ctypes.c_void_p) for out in outs]
        status = self._function(entry)(*args)
        self._raise(status, entry, feed, outs)
        return outs

    def _check_sends(self) -> None:
        if self.program.delta is None:
            raise DataError("the program sends nothing", try_="compile(..., send=whet.Send())")

    def _delta(self, round: int, key: bytes) -> bytes:
        assert self.program.delta is not None
        buffer = ctypes.create_string_buffer(self.program.delta.bytes)
        function = self._function("delta", ctypes.c_size_t)
        room = ctypes.c_size_t(len(buffer))
        size = function(self._pointer, buffer, room, ctypes.c_uint32(round), key)
        return buffer.raw[:size]

    def _number(self, leaf: Value, value: float | None) -> ctypes.c_float | ctypes.c_int32:
        if leaf.type.dtype is DType.I32:
            return ctypes.c_int32(int(value or 0))
        return self._scalar(value, leaf.name)

    def _scalar(self, value: float | None, name: str = "lr") -> ctypes.c_float:
        return ctypes.c_float(finite(name, self.program.lr if value is None else value))

    def _raise(
        self,
        status: int,
        where: str,
        feed: Mapping[str, Array] | None = None,
        outs: Sequence[Array] = (),
    ) -> None:
        name = STATUS[status]
        if name == "OK":
            return
        graph, given = self.program.entries[where], feed or {}
        if name == "BAD_INDEX":
            raise DataError("a label or id is out of range", at=where, why=ranges(graph, given))
        if name == "NOT_FINITE":
            what = f"the loss is {float(outs[0])}"
            if unlabelled := uncounted(graph, given):
                raise NotFinite(what, at=where, why=unlabelled, try_="leave out such a batch")
            raise NotFinite(
                what,
                at=where,
                why="the input, the parameters or the learning rate let it overflow",
                try_=f"a smaller learning rate, {option('clip_norm', 1.0)}, or a look at the input",
            )
        raise InternalError(f"{where} ended with the status {name}")


def changing(program: Program) -> Any:
    """net_t as ctypes has it: trained parameters and state, the arena left out."""
    store = program.storage
    fields: list[tuple[str, Any]] = []
    for part, table in (("params", store.params), ("state", store.state)):
        if table:
            members = [(store.ids[n], C_TYPES[t.dtype] * t.elements) for n, t in table.items()]
            fields.append((part, type(part, (ctypes.Structure,), {"_fields_": members})))
    return type("net_t", (ctypes.Structure,), {"_fields_": fields})
