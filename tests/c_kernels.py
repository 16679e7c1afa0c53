"""Build the C kernels into one library and call them through ctypes, node by node.

`execute` runs one node the way the generated program would, and can stand in for the NumPy
reference in `whet.interp.interpret`. It is stricter than the program: operands lie between NaN, so
that reading outside them shows; results start as NaN and lie between canaries, so that writing too
little or too much shows; and operands must not change. In a sanitized build (WHET_SANITIZE=1 in
the environment, see `sanitized_environment`) arrays are separate allocations instead, which the
address sanitizer watches.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import whet
from whet.ir import Arg, Array, Call, Node, Struct, Value, Workspace

KERNELS = Path(whet.__file__).parent / "kernels"
SOURCES = sorted((KERNELS / "ref").glob("*.c"))
HEADERS = sorted([*KERNELS.glob("*.h"), *KERNELS.glob("*/*.h")])
ISAS = {"ref": ("ref",), "vec": ("vec", "ref")}


def sources(isa: str) -> list[Path]:
    """The file of every kernel, from the first folder that has it."""
    folders = [KERNELS / part for part in ISAS[isa]]
    names = sorted({p.name for f in folders for p in f.glob("*.c")})
    return [next(f / n for f in folders if (f / n).exists()) for n in names]


WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -pedantic -Wshadow -Wconversion -Wdouble-promotion -Wvla "
    "-Wstrict-prototypes -Wmissing-prototypes"
).split()
SANITIZE = "-g -fsanitize=address,undefined -fno-sanitize-recover=all".split()

GUARD = 64  # bytes on either side of an array


def compile_kernels(compiler: str, isa: str, *flags: str) -> None:
    folders = [f"-I{KERNELS}", *(f"-I{KERNELS / part}" for part in ISAS[isa])]
    command = [compiler, *WARNINGS, *folders, *flags, *map(str, sources(isa))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def sanitized() -> bool:
    return os.environ.get("WHET_SANITIZE") == "1"


def sanitized_environment() -> dict[str, str]:
    """For a Python that may load a sanitized library: the runtime has to come first."""
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run(["gcc", f"-print-file-name={n}"], capture_output=True, text=True, check=True)
        for n in names
    ]
    preload = ":".join(f.stdout.strip() for f in found)
    return os.environ | {
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "WHET_SANITIZE": "1",
    }


@functools.cache
def library(isa: str = "ref") -> ctypes.CDLL:
    """Every kernel, built once per version of the sources and shared between processes."""
    flags = ["-O0", *SANITIZE] if sanitized() else ["-O2"]
    flags += ["-march=native"] if isa == "vec" else []
    digest = hashlib.sha256(" ".join([isa, *WARNINGS, *flags]).encode())
    for path in (*HEADERS, *sources(isa)):
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"whet-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"{digest.hexdigest()[:16]}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker builds, the others wait for it
        if not built.exists():
            new = built.with_suffix(".new")
            compile_kernels(
                "gcc", isa, *flags, "-fPIC", "-shared", "-o", str(new), "-lm", "-pthread"
            )
            os.replace(new, built)
    return ctypes.CDLL(str(built))


# --- what the header promises


def _header() -> str:
    text = (KERNELS / "whet_kernels.h").read_text()
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


@functools.cache
def prototypes() -> dict[str, list[str]]:
    """Parameter types of every kernel, in C: `const float *`, `int32_t`, ..."""
    found = re.findall(r"\b\w+ (whet_\w+)\(([^()]*)\);", _header())
    return {
        name: [re.sub(r"\w+$", "", p.strip()).strip() for p in params.split(",")]
        for name, params in found
    }


@functools.cache
def structs() -> dict[str, list[tuple[str, bool]]]:
    """Fields of every parameter struct: name, and whether it is an array of WHET_MAX_RANK."""
    found = {}
    for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", _header()):
        declared = re.findall(r"(\w+)(\[WHET_MAX_RANK\])?(?=[,;])", body)
        found[name] = [(field, bool(array)) for field, array in declared]
    for old, new in re.findall(r"typedef (whet_\w+) (whet_\w+);", _header()):
        found[new] = found[old]
    return found


def check_call(node: Node, call: Call) -> None:
    """The arguments of `call` are what the kernel's prototype says."""
    params = prototypes()[call.kernel]
    assert len(params) == len(call.args), f"{call.kernel} takes {params}"
    for param, arg in zip(params, call.args, strict=True):
        assert _fits(node, param, arg), f"{call.kernel}: {arg} given for {param}"


def _fits(node: Node, param: str, arg: Arg) -> bool:
    if isinstance(arg, Value):
        const = "" if arg in node.outs else "const "
        return param in (f"{const}{arg.type.dtype.c} *", f"{const}void *")
    if isinstance(arg, Struct):
        given = [(name, isinstance(v, tuple)) for name, v in arg.fields]
        return param == f"const {arg.type} *" and given == structs()[arg.type]
    if isinstance(arg, Workspace):
        return param == "float *"
    if isinstance(arg, tuple):
        if isinstance(arg[0], Struct):
            kind = f"{arg[0].type} *const"
        else:
            kind = {Value: "void *const", float: "float"}.get(type(arg[0]), "int32_t")
        return param == f"const {kind} *"
    if arg is None:
        return param.endswith("*")
    return param == "float" or (param == "int32_t" and isinstance(arg, int))


# --- calling


class Buffer:
    """The bytes of an array, fenced in."""

    def __init__(self, array: Array, fence: int) -> None:
        self.dtype, self.shape, self.fence = array.dtype, array.shape, fence
        self.guard = 0 if sanitized() else GUARD
        self.bytes = np.full(array.nbytes + 2 * self.guard, fence, np.uint8)
        self.data = self.bytes[self.guard : self.guard + array.nbytes]
        self.data[:] = np.frombuffer(array.tobytes(), np.uint8)
        self.before = self.data.copy()

    @property
    def pointer(self) -> int:
        return int(self.data.ctypes.data)

    @property
    def array(self) -> Array:
        return np.frombuffer(self.data.tobytes(), self.dtype).reshape(self.shape)

    def intact(self) -> bool:
        low, high = self.bytes[: self.guard], self.bytes[self.guard + self.data.size :]
        return bool((low == self.fence).all() and (high == self.fence).all())

    def unchanged(self) -> bool:
        return bool((self.data == self.before).all())


def execute(
    node: Node,
    arrays: Sequence[Array],
    share: Sequence[tuple[int, int]] = (),
    isa: str = "ref",
) -> tuple[Array, ...]:
    """The results of the node's kernel. Pairs (output, operand) in `share` use the same bytes."""
    call = node.op.call(node)
    if call is None:
        return (arrays[0].reshape(node.out.shape),)
    check_call(node, call)
    operands = {
        v: Buffer(np.asarray(a, v.type.dtype.numpy), 0xFF)
        for v, a in zip(node.ins, arrays, strict=True)
    }
    ins = [operands[v] for v in node.ins]
    outs = [
        Buffer(np.full(v.type.bytes, 0xFF, np.uint8).view(v.type.dtype.numpy), 0xA5)
        for v in node.outs
    ]
    for output, operand in share:
        outs[output] = ins[operand]
        outs[output].shape = node.outs[output].shape
    where: dict[Value | Workspace, Buffer] = {**operands, **dict(zip(node.outs, outs, strict=True))}
    keep: list[object] = []
    args = [
        _convert(param, arg, where, keep)
        for param, arg in zip(prototypes()[call.kernel], call.args, strict=True)
    ]
    kernel = getattr(library(isa), call.kernel)
    kernel.restype = None
    kernel(*args)
    for buffer in where.values():
        assert buffer.intact(), f"{call.kernel} writes outside its arrays"
    for buffer in ins:
        assert buffer in outs or buffer.unchanged(), f"{call.kernel} changes an operand"
    return tuple(out.array.reshape(v.shape) for v, out in zip(node.outs, outs, strict=True))


def _convert(
    param: str, arg: Arg, where: dict[Value | Workspace, Buffer], keep: list[object]
) -> Any:
    """`arg` as ctypes wants it; what it points to is put into `keep`."""
    if param == "float":
        assert isinstance(arg, int | float)
        return ctypes.c_float(arg)
    if isinstance(arg, Value):
        return ctypes.c_void_p(where[arg].pointer)
    if isinstance(arg, int):
        return ctypes.c_int32(arg)
    if arg is None:
        return None
    if isinstance(arg, Struct):
        numbers = np.concatenate([np.ravel(np.asarray(v, np.int32)) for _, v in arg.fields])
        keep.append(numbers)
        return ctypes.c_void_p(numbers.ctypes.data)
    if isinstance(arg, Workspace):
        keep.append(where.setdefault(arg, Buffer(np.full(arg.floats, np.nan, np.float32), 0xA5)))
        return ctypes.c_void_p(where[arg].pointer)
    assert isinstance(arg, tuple)
    if isinstance(arg[0], Value | Struct):
        parts = [_convert("", part, where, keep) for part in arg]
        words = np.array([0 if p is None else p.value for p in parts], np.uintp)
    else:
        words = np.array(arg, np.float32 if isinstance(arg[0], float) else np.int32)
    keep.append(words)
    return ctypes.c_void_p(words.ctypes.data)
