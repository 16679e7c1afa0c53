"""The format of updates that devices send, and the one codec that reads and writes them in Python.

    bytes    what
    0..3     "WHUP"
    4..7     version of the format, 1
    8..11    fingerprint of the model and of what trains, see `Program.fingerprint`
    12..15   round
    16..19   CRC-32 (IEEE 802.3) of all bytes from 20 on
    20..23   n: coordinates of the dense update
    24..27   k: coordinates sent; k = n for a dense update
    28       coding of the values: 0 f32, 1 f16, 2 i8, 3 i16, 4 i32
    29       coding of the indices: 0 none (dense), 1 gaps
    30..31   zero
    32..35   scale, f32: a value is its integer times the scale; 1 for f32 and f16
    36..     gaps: k numbers in LEB128 of at most 5 bytes, the shortest that hold them: the first
             index, then each index minus the one before minus 1
    then     k values, up to the end

Numbers are little-endian. Coordinates are the trained parameters in the order of
`Program.storage.params`, each as it lies in memory, one behind the other. Those of int8 parameters
are what the integers stand for, a folded batch norm included. The generated function net_delta
writes the same bytes in C.

The bytes come from others. `decode` checks k against the length before it allocates anything, so
that it takes time and memory in proportion to the length of what was sent. A CRC finds accidents,
not attacks: who sent an update is a matter of the transport.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UpdateError
from ..ir import Array, f32
from . import varint
from .arrays import from_stored, to_stored
from .steps import fold_scale

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..emit.tensor_info import TensorInfo

MAGIC, VERSION = b"WHUP", 1
HEADER = struct.Struct("<4sIIIIIIBBHf")
CHECKED = 20  # where the bytes that the CRC is of begin
CODINGS = {name: np.dtype(kind) for name, kind in (
    ("f32", "<f4"), ("f16", "<f2"), ("i8", "<i1"), ("i16", "<i2"), ("i32", "<i4"))}  # fmt: skip
DENSE, GAPS = 0, 1
LARGEST = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Update:
    """What one device changes: `values` at `indices` of `n` coordinates, or at all of them."""

    fingerprint: int
    round: int
    n: int
    indices: Array | None  # uint32, rising; None if the update is dense
    values: Array  # float32, as the receiver reads them
    coding: str = "f32"
    scale: float | None = None  # of integer codings; None: the largest value fills the range

    @property
    def k(self) -> int:
        """Coordinates sent."""
        return len(self.values)

    def dense(self) -> Array:
        """All coordinates, those not sent as zeros. Check `n` first: it is what the sender says."""
        if self.indices is None:
            return self.values.copy()
        found = np.zeros(self.n, np.float32)
        found[self.indices] = self.values
        return found


def quantize(values: Array, coding: str, scale: float | None = None) -> tuple[Array, float]:
    """Values as they are sent, and the scale they are sent with. Large ones are clipped.

    Integers round to the nearest, and the largest value takes the largest integer.
    """
    kind = CODINGS[coding]
    if kind.kind == "f":
        limit = np.finfo(kind).max
        return np.clip(values, -limit, limit).astype(kind), 1.0
    limits = np.iinfo(kind)
    if scale is None:
        scale = filling(float(np.max(np.abs(values), initial=0.0)), limits.max)
    scale = float(np.float32(scale))  # as it is sent
    codes = np.rint(values.astype(np.float64) / scale)
    return np.clip(codes, limits.min, limits.max).astype(kind), scale


def filling(largest: float, limit: int) -> float:
    """The scale with which `limit` stands for `largest`, rounded down so that it never overflows.

    At least the smallest normal number: a device may not have smaller ones.
    """
    scale = np.float32(largest / limit) if largest else np.float32(1.0)
    if float(scale) * limit > largest > 0:
        scale = np.nextafter(scale, np.float32(0))
    return float(max(scale, np.finfo(np.float32).tiny))


def dequantize(codes: Array, scale: float) -> Array:
    """What the receiver reads."""
    if codes.dtype.kind == "f":
        return codes.astype(np.float32)
    with np.errstate(over="ignore"):  # the caller looks for infinities
        return (codes * np.float64(scale)).astype(np.float32)


def encode(update: Update) -> bytes:
    """UpdateError if `decode` would refuse it."""
    if update.coding not in CODINGS:
        raise refused(f"there is no coding {update.coding!r}", try_=", ".join(CODINGS))
    for name in ("fingerprint", "round", "n"):
        if not 0 <= getattr(update, name) <= LARGEST:
            raise refused(f"{name}={getattr(update, name)} does not fit into 32 bits")
    values = np.asarray(update.values, np.float32).ravel()
    if not np.isfinite(values).all():
        raise refused("it holds numbers that are not finite", not_finite(values))
    if update.scale is not None:
        check_scale(update.coding, float(np.float32(update.scale)))
    codes, scale = quantize(values, update.coding, update.scale)
    if update.indices is None and len(values) != update.n:
        raise refused(f"{len(values)} values are not a dense update of {update.n}")
    index, gaps = DENSE, b""
    if update.indices is not None:
        index, gaps = GAPS, varint.encode(gaps_of(update.indices, len(values), update.n))
    numbers = (update.n, len(values), list(CODINGS).index(update.coding), index, 0, scale)
    head = HEADER.pack(MAGIC, VERSION, update.fingerprint, update.round, 0, *numbers)
    checked = head[CHECKED:] + gaps + codes.tobytes()
    return head[: CHECKED - 4] + struct.pack("<I", zlib.crc32(checked)) + checked


def gaps_of(indices: Array, count: int, n: int) -> Array:
    flat = np.asarray(indices).ravel().astype(np.int64)
    if len(flat) != count:
        raise refused(f"it has {len(flat)} indices and {count} values")
    gaps = np.diff(flat, prepend=-1) - 1
    if count and (gaps.min() < 0 or flat[-1] >= n):
        raise refused(f"its indices do not rise from 0 or more to less than {n:,}")
    return gaps


def decode(
    blob: bytes,
    fingerprint: int | None = None,
    n: int | None = None,
    round: int | None = None,
    where: str = "update",
) -> Update:
    """UpdateError, which says why, if these are not the bytes of such an update.

    `fingerprint`, `n` and `round` are what the receiver expects; None accepts any.
    """
    at = f"{where}, {len(blob)} bytes"
    if len(blob) < HEADER.size:
        raise refused("it is shorter than a header", f"a header has {HEADER.size} bytes", at)
    magic, version, model, number, crc, size, k, *codings, scale = HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise refused("it is not an update", f"it begins with {magic!r}", at)
    if version != VERSION:
        why = f"its version is {version}, this program reads {VERSION}"
        raise refused("it has another version of the format", why, at)
    if fingerprint is not None and model != fingerprint:
        why = f"its fingerprint is {model:#010x}, that of this model is {fingerprint:#010x}"
        raise refused("it belongs to another model or scheme", why, at)
    if zlib.crc32(memoryview(blob)[CHECKED:]) != crc:
        raise refused("its checksum is wrong", "a byte of it was changed, or it was cut", at)
    if round is not None and number != round:
        raise refused(f"it is of round {number}", f"this is round {round}", at)
    if n is not None and size != n:
        raise refused(f"it has {size:,} coordinates", f"this model has {n:,}", at)
    coding, dense = codings_of(codings, at)
    check_scale(coding, scale, at)
    payload = memoryview(blob)[HEADER.size :]
    indices, start = positions(payload, dense, k, size, CODINGS[coding].itemsize, at)
    values = dequantize(np.frombuffer(payload, CODINGS[coding], k, start), scale)
    if not np.isfinite(values).all():
        raise refused("it holds numbers that are not finite", not_finite(values), at)
    return Update(model, number, size, indices, values, coding, scale)


def codings_of(numbers: Sequence[int], at: str) -> tuple[str, bool]:
    """The coding of the values, and whether the update is dense."""
    value, index, zero = numbers
    if value >= len(CODINGS):
        why = f"known are 0 to {len(CODINGS) - 1}"
        raise refused(f"its values have the coding {value}", why, at)
    if index not in (DENSE, GAPS):
        raise refused(f"its indices have the coding {index}", "known are 0 and 1", at)
    if zero:
        raise refused("its reserved bytes are not zero", f"they are {zero:#06x}", at)
    return list(CODINGS)[value], index == DENSE


def positions(
    payload: memoryview, dense: bool, k: int, n: int, width: int, at: str
) -> tuple[Array | None, int]:
    """Where the values belong, and where in the payload they begin.

    They end where the payload does, so all bytes before them are gaps.
    """
    if k > n or (dense and k != n):
        kind = "a dense" if dense else "an"
        raise refused(f"it sends {k:,} coordinates as {kind} update of {n:,}", at=at)
    least, most = (0, 0) if dense else (k, varint.MOST * k)
    start = len(payload) - k * width
    if start < least:
        raise refused("it is shorter than it says", f"{least - start:,} bytes are missing", at)
    if start > most:
        raise refused("it is longer than it says", f"{start - most:,} bytes are too many", at)
    return None if dense else indices_of(payload[:start], k, n, at), start


def check_scale(coding: str, scale: float, at: str = "") -> None:
    if CODINGS[coding].kind == "f" and scale != 1.0:
        raise refused(f"its scale is {scale}", f"that of {coding} is 1", at)
    if not 0.0 < scale < np.inf:
        raise refused(f"its scale is {scale}", "a scale is a positive number", at)


def indices_of(packed: memoryview, k: int, n: int, at: str) -> Array:
    try:
        gaps = varint.decode(packed, k)
    except ValueError as error:
        raise refused("its indices are malformed", str(error), at) from None
    indices = np.cumsum(gaps + np.uint64(1), dtype=np.uint64) - np.uint64(1)
    if k and int(indices[-1]) >= n:
        raise refused(f"it has an index of {int(indices[-1]):,}", f"the last is {n - 1:,}", at)
    return indices.astype(np.uint32)


def not_finite(values: Array) -> str:
    return f"{int((~np.isfinite(values)).sum()):,} of {len(values):,} values are NaN or infinite"


# Between flat coordinates and parameters by name ----------------------------------------------


def coordinates(program: Program) -> int:
    """How many numbers a dense update of this program has."""
    return sum(kind.elements for kind in program.storage.params.values())


def by_name(program: Program, update: Update, *, real: bool = False) -> dict[str, Array]:
    """A dense update as arrays by PyTorch's names, as PyTorch has their axes.

    Of a parameter that trains in part, the channels that do. Those of integer parameters are what
    the integers stand for; with `real`, without a batch norm that became part of them.
    """
    if update.fingerprint != program.fingerprint or update.n != coordinates(program):
        why = f"it has {update.n:,} coordinates, this model {coordinates(program):,}"
        raise refused("it belongs to another model or scheme", why)
    flat, found, start = update.dense(), {}, 0
    for name, kind in program.storage.params.items():
        array = from_stored(flat[start : start + kind.elements], program.tensors[name])
        if real and name in program.integer_rules.units:
            array = (array / fold_scale(program, name)).astype(np.float32)
        found[public(program, name)] = array
        start += kind.elements
    return found


def flatten(program: Program, arrays: Mapping[str, Array], *, real: bool = False) -> Array:
    """The inverse of `by_name`: float32 coordinates. UpdateError for wrong names or shapes."""
    names = {public(program, name): name for name in program.storage.params}
    if wrong := sorted(names.keys() ^ arrays.keys()):
        word = "is missing" if wrong[0] in names else "does not train here"
        raise refused(f"{wrong[0]} {word}", f"what trains: {', '.join(names)}")
    pieces = []
    for given, name in names.items():
        array, info = np.asarray(arrays[given], np.float32), program.tensors[name]
        if array.shape != info.shape:
            raise refused(f"{given} has shape {array.shape}, not {info.shape}")
        if real and name in program.integer_rules.units:
            array = (array * fold_scale(program, name)).astype(np.float32)
        pieces.append(to_stored(array, as_float(info)).ravel())
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def public(program: Program, name: str) -> str:
    """PyTorch's name for a stored parameter, or for the one it is a part of."""
    part = program.parts.get(name)
    return part.parameter if part else name


def as_float(info: TensorInfo) -> TensorInfo:
    return replace(info, type=f32(*info.type.shape))


def refused(what: str, why: str | Sequence[str] = (), at: str = "", try_: str = "") -> UpdateError:
    return UpdateError(f"the update is refused: {what}", at=at, why=why, try_=try_)
