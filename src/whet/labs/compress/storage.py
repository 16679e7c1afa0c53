"""The format of compressed models, and the codec that reads and writes them.

docs/compress.md describes the file byte by byte. Reading needs NumPy, not PyTorch.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...errors import CheckpointError, DataError
from ...writing import write_whole
from .coding import Array
from .fields import TYPES, Damaged, Reader, Writer
from .sizes import KINDS, Sizes, TensorSize
from .tensors import COPY, METHODS, Record, encoded, read_record

if TYPE_CHECKING:
    from torch import nn

    Model = TypeVar("Model", bound=nn.Module)

MAGIC, VERSION = b"WHTC", 1
HEADER = struct.Struct("<4sIIQ")
LONGEST_NAME = 255
LIMIT = 1 << 28  # bytes of the arrays that `read` makes, unless told otherwise


def save(model: nn.Module, path: str | Path) -> Sizes:
    """Write all parameters and buffers to a file, each in the form that takes the fewest bytes.

    Nothing is rounded: `load` gives the same bits, except that -0.0 becomes 0.0. A file of this
    name is replaced at once, when the new one is complete.
    """
    blob, sizes = encode(arrays_of(model))
    try:
        write_whole(path, blob)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}", why=str(error.strerror or error)) from error
    return sizes


def measure(model: nn.Module) -> Sizes:
    """The sizes of the file that `save` would write."""
    return encode(arrays_of(model))[1]


def load(path: str | Path, model: Model) -> Model:
    """Put the numbers of a file into a model with the same tensors, and return it.

    CheckpointError, which says why, if it is another model's file or a damaged one; the model is
    unchanged then.
    """
    import torch

    own = model.state_dict()
    try:
        records = parse(content(path))
        fit(records, {name: describe(array) for name, array in arrays_of(model).items()})
        arrays = decode_all(records)
    except Damaged as error:
        raise refused(path, str(error)) from error
    with torch.no_grad():
        for name, array in arrays.items():
            own[name].copy_(torch.from_numpy(array))
    return model


def read(path: str | Path, limit: int = LIMIT) -> dict[str, Array]:
    """The tensors of a file by name, without PyTorch and without the model.

    A small file may hold large tensors of few values: more than `limit` bytes are refused.
    """
    try:
        return decode(content(path), limit)
    except Damaged as error:
        raise refused(path, str(error)) from error


def refused(path: str | Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a compressed model, or not this one", why=why)


def content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}", why=str(error.strerror or error)) from error


def arrays_of(model: nn.Module) -> dict[str, Array]:
    """The state of a model, by name, in the memory of its tensors where that is possible.

    Tied tensors are one array.
    """
    found, tied = {}, dict[tuple[object, ...], Array]()
    state = model.state_dict()
    for name, tensor in state.items():
        if "parametrizations." in name:
            raise DataError(f"{name} is not a weight but what one is computed from",
                            try_="release(model) first")  # fmt: skip
        if name.endswith("_orig") and f"{name[:-5]}_mask" in state:
            raise DataError(f"{name} is masked", try_="finish(model) first")
        kind = str(getattr(tensor, "dtype", type(tensor).__name__)).removeprefix("torch.")
        if kind not in {np.dtype(code).name for code in TYPES}:
            raise DataError(f"{name} cannot be stored", why=f"its type is {kind}")
        place = tensor.data_ptr() or name, tensor.dtype, tensor.shape, tensor.stride()
        found[name] = tied.setdefault(place, tensor.detach().cpu().numpy())
    return found


def encode(arrays: Mapping[str, Array]) -> tuple[bytes, Sizes]:
    """The bytes of a file, and where they are."""
    payload = Writer()
    payload.number(len(arrays))
    first, tensors = HEADER.size + len(payload.data), []
    seen: dict[tuple[object, ...], int] = {}
    before = b""
    counted: set[int] = set()
    for i, (name, given) in enumerate(arrays.items()):
        array = np.asarray(given, given.dtype.newbyteorder("<"))
        twin = seen.setdefault((*describe(array), hashlib.sha256(array.tobytes()).digest()), i)
        out = Writer()
        before = put_name(out, name, before)
        out.byte(TYPES.index(array.dtype.str))
        out.byte(array.ndim)
        for size in array.shape:
            out.number(size)
        method, rest = encoded(array, twin if twin < i else None)
        out.byte(method)
        out.data += rest.data
        out.kinds.update(rest.kinds)
        payload.data += out.data
        tensors.append(size_of(name, array, method, out, tied=id(given) in counted))
        counted.add(id(given))
    crc = zlib.crc32(payload.data)
    blob = HEADER.pack(MAGIC, VERSION, crc, len(payload.data)) + payload.data
    return blob, Sizes(first, tensors)


def put_name(out: Writer, name: str, before: bytes) -> bytes:
    """How much of the name before it begins with, then the rest; returns the name's bytes."""
    word = name.encode()
    if len(word) > LONGEST_NAME:
        why = f"its name has {len(word)} bytes, at most {LONGEST_NAME} are allowed"
        raise DataError(f"{name[:40]}... cannot be stored", why=why)
    pairs = enumerate(zip(word, before, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(word), len(before)))
    out.byte(same)
    out.byte(len(word) - same)
    out.put("header", word[same:])
    return word


def size_of(name: str, array: Array, method: int, out: Writer, tied: bool) -> TensorSize:
    each = 0 if tied else 4 if array.dtype.kind == "f" else array.itemsize
    kinds = {kind: out.kinds[kind] for kind in KINDS}
    counts = array.size, int(np.count_nonzero(array))
    return TensorSize(name, METHODS[method], *counts, each * array.size, **kinds)


def decode(blob: bytes, limit: int = LIMIT) -> dict[str, Array]:
    """The tensors by name; Damaged, which says why, if these are not the bytes of a file."""
    records = parse(blob)
    size = sum(record.bytes for record in records)
    if size > limit:
        raise Damaged(f"its tensors take {size:,} bytes, the limit is {limit:,}")
    return decode_all(records)


def parse(blob: bytes) -> list[Record]:
    """Every tensor, without decoding any: memory is in proportion to the file."""
    if len(blob) < HEADER.size:
        raise Damaged(f"it has {len(blob)} bytes, the header alone has {HEADER.size}")
    magic, version, crc, size = HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise Damaged(f"it begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise Damaged(f"its version is {version}, this version of whet reads {VERSION}")
    payload = memoryview(blob)[HEADER.size :]
    if len(payload) != size:
        word = "shorter" if len(payload) < size else "longer"
        raise Damaged(f"it is {word} than it says, which is {HEADER.size + size:,} bytes")
    if zlib.crc32(payload) != crc:
        raise Damaged("its checksum is wrong: a byte of it was changed")
    try:
        return read_records(Reader(payload))
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(str(error)) from error


def read_records(data: Reader) -> list[Record]:
    count = data.number()
    records: list[Record] = []
    name, names = b"", set()
    while len(records) < count:
        same, rest = data.byte(), data.byte()
        if same > len(name) or same + rest > LONGEST_NAME:
            raise Damaged(f"the name of tensor {len(records)} is not a name")
        name = name[:same] + bytes(data.take(rest))
        record = read_record(data, name.decode())
        if record.method == COPY:
            check_copy(record, records)
        if record.name in names:
            raise Damaged(f"there are two tensors {record.name}")
        names.add(record.name)
        records.append(record)
    if data.at != len(data.data):
        raise Damaged(f"{len(data.data) - data.at:,} bytes follow the last tensor")
    return records


def check_copy(record: Record, before: list[Record]) -> None:
    if record.twin >= len(before) or (of := before[record.twin]).method == COPY:
        raise Damaged(f"{record.name} is a copy of tensor {record.twin:,}, which is none before it")
    if (of.type, of.shape) != (record.type, record.shape):
        raise Damaged(f"{record.name} is a copy of {of.name}, which has another type or shape")


def decode_all(records: list[Record]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for record in records:
        if record.method == COPY:
            found[record.name] = found[records[record.twin].name].copy()
            continue
        try:
            found[record.name] = record.array()
        except ValueError as error:
            raise Damaged(f"{record.name}: {error}") from error
    return found


def describe(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype.name, array.shape


def fit(records: list[Record], own: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Damaged, unless the file and the model have the same tensors."""
    theirs = {record.name: (record.type.name, record.shape) for record in records}
    for one, other, word in ((own, theirs, "the file"), (theirs, own, "the model")):
        missing = [name for name in one if name not in other]
        if missing:
            more = f" and {len(missing) - 4:,} more" if len(missing) > 4 else ""
            raise Damaged(f"{word} has no {', '.join(missing[:4])}{more}")
    for name, (kind, shape) in theirs.items():
        if own[name] != (kind, shape):
            mine = f"{own[name][0]}{list(own[name][1])}"
            raise Damaged(f"{name} is {kind}{list(shape)} in the file, {mine} in the model")
