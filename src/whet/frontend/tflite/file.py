"""Read a TFLite file that nobody has vouched for: every number is checked before it is used."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import FrontendError
from ...ir import Array

T = TypeVar("T")
LARGEST = 1 << 30  # bytes of a file
MOST_AXES = 8
MARK = b"TFL3"
DAMAGED = (
    struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, KeyError,
    MemoryError,
)  # fmt: skip
TYPES = {"FLOAT32": np.float32, "INT32": np.int32, "INT64": np.int64, "INT8": np.int8}


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor of the file: its numbers if it is a constant, and what they stand for."""

    name: str
    shape: tuple[int, ...]
    kind: str  # INT8, for example
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int  # along which there is more than one scale
    data: Array | None  # bytes, where whet does not know the type


@dataclass(frozen=True, eq=False)
class Operation:
    code: str  # CONV_2D, for example
    inputs: tuple[int, ...]  # -1 where there is none
    outputs: tuple[int, ...]
    options: Any  # a table of flatbuffers, or None
    options_type: str  # Conv2DOptions, for example


@dataclass(frozen=True, eq=False)
class TfliteGraph:
    tensors: tuple[Stored, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int  # of the file in bytes

    @cached_property
    def becomes(self) -> dict[int, int]:
        """What the first QUANTIZE makes of each input that has one."""
        found: dict[int, int] = {}
        inputs = set(self.inputs)
        for operation in self.operations:
            if operation.code == "QUANTIZE" and inputs.issuperset(operation.inputs):
                found.setdefault(operation.inputs[0], operation.outputs[0])
        return found


def schema(name: str) -> Any:
    """A class of the package that holds the schema."""
    try:
        return getattr(importlib.import_module(f"tflite.{name}"), name)
    except ModuleNotFoundError as error:
        if error.name != "tflite":
            raise
        raise FrontendError(
            "reading TFLite files needs the package tflite, which is not installed",
            try_="pip install tflite",
        ) from None


def read(place: Path) -> TfliteGraph:
    try:
        if not place.is_file():
            why = "it is a folder" if place.is_dir() else "there is no such file"
            raise FrontendError(f"cannot read {place}", why=why)
        if place.stat().st_size >= LARGEST:
            raise FrontendError(f"cannot read {place}", why="it is larger than 1 GiB")
        data = place.read_bytes()
    except OSError as error:
        raise FrontendError(f"cannot read {place}", why=str(error.strerror)) from error
    return parse(data, place)


def parse(data: bytes, place: Path) -> TfliteGraph:
    if data[4:8] != MARK:
        raise not_tflite(place, "it does not begin as one, or it is cut off")
    try:
        return Reader(data).graph()
    except FrontendError:
        raise
    except DAMAGED as error:
        raise not_tflite(place, f"it is damaged: {type(error).__name__}: {error}"[:200]) from error


def not_tflite(place: Path, why: str) -> FrontendError:
    return FrontendError(
        f"cannot read {place} as a TFLite model", why=why, try_="a .tflite file of int8"
    )


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.model = schema("Model").GetRootAs(data, 0)
        self.codes = names_of(schema("BuiltinOperator"))
        self.kinds = names_of(schema("TensorType"))
        self.options = names_of(schema("BuiltinOptions"))
        self.left = len(data)

    def each(self, count: Callable[[], int], get: Callable[[int], T]) -> list[T]:
        """A vector, if the file is large enough to hold it."""
        length = count()
        if not 0 <= length <= len(self.data) // 4:
            raise ValueError(f"a list of {length} items")
        self.spend(length)
        return [get(i) for i in range(length)]

    def spend(self, count: int) -> None:
        """Count what is read: a byte is worth one item, although many tables may share a list.

        Time is proportional to the file's size that way. An item takes four bytes or more.
        """
        self.left -= count
        if self.left < 0:
            raise ValueError("its lists together are longer than the file")

    def graph(self) -> TfliteGraph:
        if self.model.SubgraphsLength() != 1:
            raise FrontendError(
                f"the TFLite file has {self.model.SubgraphsLength()} graphs",
                why="whet reads those with one, without control flow",
            )
        graph = self.model.Subgraphs(0)
        tensors = self.each(graph.TensorsLength, lambda i: self.tensor(graph.Tensors(i)))
        operations = self.each(graph.OperatorsLength, lambda i: self.operation(graph.Operators(i)))
        found = TfliteGraph(
            tuple(tensors),
            tuple(operations),
            tuple(self.each(graph.InputsLength, graph.Inputs)),
            tuple(self.each(graph.OutputsLength, graph.Outputs)),
            len(self.data),
        )
        check_order(found)
        return found

    def operation(self, given: Any) -> Operation:
        code = self.model.OperatorCodes(self.index(given.OpcodeIndex(), "OperatorCodes"))
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        return Operation(
            self.codes.get(number, f"operator {number}"),
            tuple(self.each(given.InputsLength, given.Inputs)),
            tuple(self.each(given.OutputsLength, given.Outputs)),
            given.BuiltinOptions(),
            self.options.get(given.BuiltinOptionsType(), "an unknown type"),
        )

    def index(self, i: int, what: str) -> int:
        if not 0 <= i < getattr(self.model, f"{what}Length")():
            raise ValueError(f"{what} has no item {i}")
        return i

    def tensor(self, given: Any) -> Stored:
        if given.ShapeLength() > MOST_AXES:
            raise ValueError(f"a tensor of {given.ShapeLength()} axes")
        shape = tuple(map(int, self.each(given.ShapeLength, given.Shape)))
        if any(size < 1 for size in shape) or prod(shape) >= 1 << 31:
            raise ValueError(f"a tensor of shape {shape}")
        name = given.Name() or b""
        self.spend(len(name))
        scales, zeros, axis = self.quantization(given.Quantization())
        return Stored(
            name=name.decode(errors="replace"),
            shape=shape,
            kind=self.kinds.get(given.Type(), str(given.Type())),
            scales=scales,
            zeros=zeros,
            axis=axis,
            data=self.numbers(given, shape),
        )

    def quantization(self, given: Any) -> tuple[tuple[float, ...], tuple[int, ...], int]:
        if given is None:
            return (), (), 0
        scales = tuple(map(float, self.each(given.ScaleLength, given.Scale)))
        zeros = tuple(map(int, self.each(given.ZeroPointLength, given.ZeroPoint)))
        if not all(0 < scale < 1e30 for scale in scales):
            raise ValueError("a scale that is no positive number")
        if len(zeros) not in (0, len(scales)):
            raise ValueError(f"{len(scales)} scales and {len(zeros)} zero points")
        return scales, zeros or (0,) * len(scales), int(given.QuantizedDimension())

    def numbers(self, given: Any, shape: tuple[int, ...]) -> Array | None:
        buffer = self.model.Buffers(self.index(given.Buffer(), "Buffers"))
        length = buffer.DataLength()
        if not length:
            return None
        stored = np.asarray(buffer.DataAsNumpy(), np.uint8)
        kind = TYPES.get(self.kinds.get(given.Type(), ""))
        if kind is None:
            return stored
        if stored.size != prod(shape) * np.dtype(kind).itemsize:
            raise ValueError(f"{stored.size:,} bytes for a tensor of shape {shape}")
        return stored.view(kind).reshape(shape)


def names_of(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


def check_order(graph: TfliteGraph) -> None:
    """Every operation reads what is there before it, and writes what nobody else does."""
    there = {i for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    there.update(graph.inputs)
    if not graph.inputs or not graph.outputs:
        raise ValueError("a graph without inputs or outputs")
    for operation in graph.operations:
        for i in operation.inputs:
            if i != -1 and i not in there:
                raise ValueError(f"{operation.code} reads tensor {i}, which nothing computes")
        for i in operation.outputs:
            if not 0 <= i < len(graph.tensors) or i in there:
                raise ValueError(f"{operation.code} writes tensor {i}")
            there.add(i)
    for i in (*graph.inputs, *graph.outputs):
        if not 0 <= i < len(graph.tensors) or i not in there:
            raise ValueError(f"tensor {i} is no input and no output")
