"""Read an ONNX file that nobody has vouched for: every number in it is checked before it is used.

Nothing in a file is run or unpickled. Data beside the file is read only from the file's own folder.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto

from ...errors import FrontendError
from .graph import parts, plain_domain, tensors

OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
LARGEST = 1 << 31  # bytes of a message of protobuf
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")
MOST_NODES = 100_000  # of a graph with its functions in place
SMALL = 1 << 16  # bytes of a tensor that the checker reads, too


def read(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The model of a file, with the data beside it, checked."""
    place = Path(path)
    try:
        if not place.is_file():
            why = "it is a folder" if place.is_dir() else "there is no such file"
            raise FrontendError(f"cannot read {place}", why=why)
        if place.stat().st_size >= LARGEST:
            raise FrontendError(
                f"cannot read {place}",
                why="an ONNX file is smaller than 2 GiB",
                try_="a model with external data",
            )
        data = place.read_bytes()
    except OSError as error:
        raise FrontendError(f"cannot read {place}", why=str(error.strerror)) from error
    return parse(data, place)


def parse(data: bytes, place: Path) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise not_onnx(place, "it is no ONNX file, or it is damaged or cut off") from error
    if not model.ir_version or not model.HasField("graph") or not model.graph.output:
        raise not_onnx(place, "it has no graph, or no version")
    if not texts_are_valid(model):
        raise not_onnx(place, "a name in it is no UTF-8")
    check_versions(model, place)
    for tensor in tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            load_external(tensor, place)
    check_functions(model, place)
    check(model, place)
    return model


def not_onnx(place: Path, why: str) -> FrontendError:
    return FrontendError(
        f"cannot read {place} as an ONNX model", why=why, try_="torch.onnx.export(model, inputs, f)"
    )


def texts_are_valid(message: Message) -> bool:
    """Whether all names are texts: of bytes that are no UTF-8, protobuf makes bytes."""
    for field, value in message.ListFields():
        several = () if isinstance(value, (str, bytes)) else value
        if field.type == field.TYPE_STRING:
            if isinstance(value, bytes) or any(isinstance(part, bytes) for part in several):
                return False
        elif field.type == field.TYPE_MESSAGE:
            parts = (value,) if isinstance(value, Message) else value
            if not all(map(texts_are_valid, parts)):
                return False
    return True


def check_versions(model: onnx.ModelProto, place: Path) -> None:
    versions = {plain_domain(opset.domain): opset.version for opset in model.opset_import}
    version = versions.get("")
    if version is None and not set(versions) & set(DOMAINS) and not model.functions:
        raise not_onnx(place, "it does not say of which operator set it is")
    if version is not None and not OLDEST <= version <= NEWEST:
        raise FrontendError(
            f"{place} has operator set {version} of ONNX",
            why=f"whet knows {OLDEST} to {NEWEST}",
            try_="onnx.version_converter.convert_version(model, 18)",
        )


def load_external(tensor: onnx.TensorProto, place: Path) -> None:
    """Read the numbers of a tensor from the file that it names, in the folder of the model."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    location, at = given.get("location", ""), f"tensor {tensor.name!r} of {place}"
    file = data_file(location, place.parent, at)
    size = file.stat().st_size
    offset, length = (number(given.get(key, ""), at) for key in ("offset", "length"))
    first = offset or 0
    count = size - first if length is None else length
    wanted = size_of(tensor, at)
    if length is not None and length != wanted:
        raise FrontendError(
            f"external data {location!r} has {length:,} bytes for a tensor of {wanted:,}", at=at
        )
    if length is None and count > wanted:
        raise FrontendError(
            f"external data {location!r} does not say where it ends",
            at=at,
            why=f"the tensor has {wanted:,} bytes, and the file {count:,} from its beginning on",
        )
    count = wanted
    if first + count > size or count < 0:
        raise FrontendError(
            f"external data {location!r} is cut off",
            at=at,
            why=f"the tensor is bytes {first:,} to {first + count:,} of {size:,}",
        )
    with open(file, "rb") as stream:
        stream.seek(first)
        tensor.raw_data = stream.read(count)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


# Bits of the types whose elements are no whole bytes.
BITS = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4,
    **{getattr(TensorProto, n): 2 for n in ("INT2", "UINT2") if hasattr(TensorProto, n)},
}  # fmt: skip


def size_of(tensor: onnx.TensorProto, at: str) -> int:
    """The bytes of a tensor, by its shape and its type."""
    if any(n < 0 for n in tensor.dims):
        raise FrontendError(f"a tensor of shape {list(tensor.dims)}", at=at)
    kind = tensor.data_type
    try:
        bits = BITS.get(kind) or 8 * onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
    except KeyError:
        raise FrontendError(f"external data of type {kind}", at=at) from None
    return -(-math.prod(tensor.dims) * bits // 8)


def data_file(location: str, folder: Path, at: str) -> Path:
    """The file of this name, if it lies in the folder; links are followed before that is asked."""
    if not location or "\0" in location:
        raise FrontendError("external data has no file name", at=at)
    home = folder.resolve()
    try:
        file = (folder / location).resolve()
        outside = Path(location).is_absolute() or not file.is_relative_to(home)
        there = not outside and file.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, a loop of links
        raise FrontendError(
            f"external data {location[:100]!r} cannot be read", at=at, why=str(error)[:200]
        ) from error
    if outside:
        raise FrontendError(
            f"external data {location!r} lies outside of the folder of the model",
            at=at,
            why="a model may only read files beside it",
        )
    if not there:
        raise FrontendError(
            f"external data {location!r} is missing", at=at, why=f"there is no such file in {home}"
        )
    return file


def number(text: str, at: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise FrontendError(f"external data begins or ends at {text[:40]!r}", at=at)
    return int(text)


def check_functions(model: onnx.ModelProto, place: Path) -> None:
    """Refuse functions that call functions until there are too many nodes.

    This is before the checks of onnx, which visit each of them.
    """
    bodies = {(plain_domain(f.domain), f.name, f.overload): f for f in model.functions}
    counts: dict[tuple[str, str, str], int] = {}
    calling: set[tuple[str, str, str]] = set()

    def count(node: onnx.NodeProto) -> int:
        key = (plain_domain(node.domain), node.op_type, node.overload)
        if key not in bodies:
            return 1
        if key in calling:
            raise FrontendError(f"function {node.op_type!r} of {place} calls itself")
        if key not in counts:
            calling.add(key)
            found = 1 + sum(map(count, parts(bodies[key], onnx.NodeProto)))
            counts[key] = min(found, 1 << 60)
            calling.remove(key)
        return counts[key]

    try:
        total = sum(map(count, parts(model.graph, onnx.NodeProto))) if bodies else 0
    except RecursionError:
        raise FrontendError(f"the functions of {place} call each other too deeply") from None
    if total > MOST_NODES:
        raise FrontendError(
            f"the functions of {place} make {total:.3g} nodes", why=f"at most {MOST_NODES:,}"
        )


# Operators of which onnx infers wrong shapes, or none: it refuses its own tests of them.
MISJUDGED = frozenset({"MeanVarianceNormalization", "STFT"})


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in parts(model, onnx.NodeProto)}


def check(model: onnx.ModelProto, place: Path) -> None:
    """What onnx checks: names, types and shapes of every node. Large tensors are left out."""
    large = {t.name for t in model.graph.initializer if len(t.raw_data) > SMALL}
    copy = without(model, large) if large else model
    try:
        if not all(o.type.tensor_type.HasField("shape") for o in model.graph.output):
            copy = onnx.shape_inference.infer_shapes(copy)  # the checker wants shapes of outputs
        onnx.checker.check_model(copy, full_check=not MISJUDGED.intersection(operators(copy)))
    except Exception as error:  # ValidationError, InferenceError, and ValueError of protobuf
        raise FrontendError(f"{place} is not a valid ONNX model", why=first_lines(error)) from error


def without(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """The model with these constants as inputs of the same type."""
    copy = onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
    )
    graph, given = copy.graph, model.graph
    graph.name = given.name
    graph.node.extend(given.node)
    graph.output.extend(given.output)
    graph.input.extend(given.input)
    graph.value_info.extend(given.value_info)
    graph.sparse_initializer.extend(given.sparse_initializer)
    declared = {value.name for value in given.input}
    for tensor in given.initializer:
        if tensor.name not in names:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(kind)
    return copy


def first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2])[:400] or type(error).__name__
