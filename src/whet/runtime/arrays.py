"""Arrays between the caller and a program: checked, and laid out as each of them has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..emit.program import Program
from ..emit.tensor_info import TensorInfo
from ..errors import DataError, TargetError
from ..ir import Array, DType, Graph, Role, Type
from ..ir.quant import Quant
from .ids import out_of_range


def stored_batch(program: Program, x: Any, y: Any) -> tuple[Array, ...]:
    """Input and labels as they go into a training step, for a program with one input."""
    check_one_input(program)
    step = program.entries["train_step"]
    (given,) = step.leaves_of(Role.INPUT)
    quant = program.quants.get(given.name)
    feed = {given.name: accept(x, program.tensors[given.name], given.name, quant)}
    feed |= accept_labels(program, step, y)
    if wrong := out_of_range(step, feed):
        raise DataError("a label or id is out of range", why=wrong)
    return tuple(feed.values())


def sized(program: Program, entry: str, x: Any) -> str:
    """The entry point for the length of these sequences, if there are several."""
    if not program.lengths:
        return entry
    first: Any = next(iter(x), None) if isinstance(x, (tuple, list)) else x
    if np.ndim(first) != 2:
        return entry
    length, known = np.shape(first)[1], program.lengths
    if length not in known:
        fits = next((n for n in known if n > length), None)
        raise DataError(
            f"the sequences have length {length}, the program takes {', '.join(map(str, known))}",
            try_=f"whet.llm.pad(sequences, {fits})" if fits else f"cut them to {known[-1]}",
        )
    return entry if length == known[-1] else f"{entry}_{length}"


def accept_labels(program: Program, graph: Graph, y: Any) -> dict[str, Array]:
    """What the loss compares with, by name: `y`, or a tuple of as many as the loss takes."""
    leaves = graph.leaves_of(Role.LABEL)
    wanted = [(v.name, replace(program.tensors[v.name], type=v.type)) for v in leaves]
    several = isinstance(y, (tuple, list)) and (
        len(wanted) > 1 or (len(y) == 1 and np.shape(y[0]) == wanted[0][1].shape)
    )
    given = y if several else (y,)
    if len(given) != len(wanted):
        raise DataError(f"the loss takes {len(wanted)} labels, got {len(given)}")
    return {
        name: accept(array, info, name) for (name, info), array in zip(wanted, given, strict=True)
    }


def check_one_input(program: Program) -> None:
    """Boards and samples in flash are for programs with one input."""
    step = program.entries["train_step"]
    count = len(step.leaves_of(Role.INPUT))
    if count != 1 or not step.leaves_of(Role.LABEL):
        raise TargetError(
            f"a board is sent one input and its labels, not {count} inputs",
            try_="program.write(), and a main.c of your own",
        )


def to_numpy(x: Any) -> Array:
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
    return np.asarray(x)


def inputs_of(x: Any, count: int) -> Iterator[list[Array]]:
    """The inputs of a model that takes this many: those given, or of each batch of an iterable.

    A batch may have labels, as those of a DataLoader; they are left out.
    """
    if isinstance(x, (tuple, list)) and not any(isinstance(part, (tuple, list)) for part in x):
        yield [to_numpy(part) for part in x]
    elif hasattr(x, "shape") or not hasattr(x, "__iter__"):
        yield [to_numpy(x)]
    else:
        for batch in x:
            pair = isinstance(batch, (tuple, list)) and len(batch) == 2
            labelled = pair and (count == 1 or isinstance(batch[0], (tuple, list)))
            given = batch[0] if labelled else batch
            several = isinstance(given, (tuple, list))
            yield [to_numpy(part) for part in (given if several else (given,))]


def to_stored(array: Array, info: TensorInfo) -> Array:
    moved = array.transpose(info.order) if info.order else array
    return np.ascontiguousarray(moved, dtype=info.type.dtype.numpy)


def from_stored(array: Array, info: TensorInfo) -> Array:
    shaped = array.reshape(info.type.shape)
    return np.asarray(shaped.transpose(np.argsort(info.order)) if info.order else shaped).copy()


def accept(x: Any, info: TensorInfo, name: str, quant: Quant | None = None) -> Array:
    """An array from the caller, checked and laid out as the program wants it.

    An int8 input is given as int8, or as the floats that it stands for.
    """
    array = to_numpy(x)
    if quant is not None and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise DataError(f"{name} holds numbers that are not finite")
        array = quant.quantize(array)
    if tuple(array.shape) != info.shape:
        raise DataError(
            f"{name} has shape {tuple(array.shape)}, the program was compiled for {info.shape}",
            try_=other_shape(array, info.shape),
        )
    kinds = {DType.F32: "f", DType.I32: "iu", DType.I8: "i", DType.U8: "bu"}[info.type.dtype]
    wrong = info.type.dtype is DType.I8 and array.dtype != np.int8
    if array.dtype.kind not in kinds or wrong:
        raise DataError(f"{name} has dtype {array.dtype}, the program takes {describe(info.type)}")
    if info.type.dtype is DType.I32 and array.size:
        limits = np.iinfo(np.int32)
        for extreme in (int(array.min()), int(array.max())):
            if not limits.min <= extreme <= limits.max:
                raise DataError(f"{name} holds {extreme}, which is not a 32-bit index")
    return to_stored(array, info)


def other_shape(array: Array, wanted: tuple[int, ...]) -> str:
    """What may help if an array has another shape than the program takes."""
    if array.shape == wanted[1:]:
        return "x[None], if this is one sample: the first axis is that of the batch"
    if array.dtype.kind in "iu" and array.ndim == len(wanted) == 2 and len(array) == wanted[0]:
        if array.shape[1] < wanted[1]:
            return f"whet.llm.pad(sequences, {wanted[1]}), which fills shorter sequences up"
        return f"cut it to {wanted[1]}, or compile with an example of length {array.shape[1]}"
    return "compile with an example of the shape you train on"


def describe(t: Type) -> str:
    words = {DType.F32: "float32", DType.I32: "integers", DType.U8: "booleans"}
    return words.get(t.dtype, "int8, or the floats it stands for")


def finite(name: str, value: Any) -> float:
    """A rate or a factor: any other would make all parameters NaN."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = np.nan
    if not abs(found) <= float(np.finfo(np.float32).max):
        raise DataError(f"{name}={value!r} is not a finite number")
    return found
