"""Build the C kernels into one library and call them through ctypes, node by node.

`execute` runs one node the way the generated program would, and can stand in for the NumPy
reference in `interpret`. It is stricter than the program: operands lie between NaN, so
that reading outside them shows; results start as NaN and lie between canaries, so that writing too
little or too much shows; and operands must not change. `prepare` makes such a call without running
it: `c_batch` runs many of them in a process of their own.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import whet
from whet.ir import Arg, Array, Call, Node, Struct, Value, Workspace

KERNELS = Path(whet.__file__).parent / "kernels"
SOURCES = sorted((KERNELS / "ref").glob("*.c"))
HEADERS = sorted([*KERNELS.glob("*.h"), *KERNELS.glob("*/*.h")])
ISAS = {"ref": ("ref",), "vec": ("vec", "ref")}  # that run here
FOLDERS = ISAS | {"dsp": ("dsp", "ref"), "wasm": ("wasm", "vec", "ref")}


def sources(isa: str) -> list[Path]:
    """The file of every kernel, from the first folder that has it."""
    folders = [KERNELS / part for part in FOLDERS[isa]]
    names = sorted({p.name for f in folders for p in f.glob("*.c")})
    return [next(f / n for f in folders if (f / n).exists()) for n in names]


WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -pedantic -Wshadow -Wconversion -Wdouble-promotion -Wvla "
    "-Wstrict-prototypes -Wmissing-prototypes"
).split()

GUARD = 64  # bytes on either side of an array


def compile_kernels(
    compiler: str, isa: str, *flags: str, only: Collection[str] | None = None
) -> None:
    """Compile every kernel file, or those named, and what `flags` name; warnings are errors."""
    folders = [f"-I{KERNELS}", *(f"-I{KERNELS / part}" for part in FOLDERS[isa])]
    files = [str(p) for p in sources(isa) if only is None or p.stem in only]
    command = [compiler, *WARNINGS, *folders, *files, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def library(isa: str = "ref") -> ctypes.CDLL:
    """Every kernel, built once per version of the sources and shared between processes."""
    flags = ["-O2", "-ffp-contract=off", *(["-march=native"] if isa == "vec" else [])]
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
            link = ("-fPIC", "-shared", "-o", str(new), "-lm", "-pthread")
            compile_kernels("gcc", isa, *flags, *link)
            os.replace(new, built)
    return ctypes.CDLL(str(built))


# --- what the header promises


def _header() -> str:
    text = "".join(p.read_text() for p in sorted(KERNELS.glob("whet_kernels*.h")))
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
        return param in ("float *", "void *")
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

    def __init__(self, array: Array, guard: int, written: bool = False) -> None:
        self.guard, self.written = guard, written
        self.fence = 0xA5 if written else 0xFF
        self.bytes = np.full(array.nbytes + 2 * guard, self.fence, np.uint8)
        self.data = self.bytes[guard : guard + array.nbytes]
        self.data[:] = np.frombuffer(array.tobytes(), np.uint8)
        self.before = self.data.copy()

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.data.ctypes.data)

    def intact(self) -> bool:
        low, high = self.bytes[: self.guard], self.bytes[self.guard + self.data.size :]
        return bool((low == self.fence).all() and (high == self.fence).all())

    def unchanged(self) -> bool:
        return bool((self.data == self.before).all())


# NULL, a number, an array, or an array of pointers to such
Argument = ctypes.c_float | ctypes.c_int32 | Buffer | tuple[Buffer | None, ...] | None


@dataclass
class Prepared:
    """A call of a kernel, with all the memory that it reaches."""

    node: Node
    kernel: str
    args: list[Argument]
    outs: list[Buffer]
    buffers: list[Buffer]  # those and all others

    def results(self) -> tuple[Array, ...]:
        """What the kernel has left, if it has kept to its arrays."""
        for buffer in self.buffers:
            assert buffer.intact(), f"{self.kernel} writes outside its arrays"
            assert buffer.written or buffer.unchanged(), f"{self.kernel} changes an operand"
        return tuple(
            np.frombuffer(out.data[: v.type.bytes].tobytes(), v.type.dtype.numpy).reshape(v.shape)
            for v, out in zip(self.node.outs, self.outs, strict=True)
        )


def prepare(
    node: Node, arrays: Sequence[Array], share: Sequence[tuple[int, int]] = (), guard: int = GUARD
) -> Prepared:
    """The call of the node's kernel. Pairs (output, operand) in `share` use the same bytes."""
    call = node.op.call(node)
    assert call is not None, f"{node.op.name} has no kernel"
    check_call(node, call)
    memory = Memory(guard)
    for v, a in zip(node.ins, arrays, strict=True):
        memory.by_value[v] = Buffer(np.asarray(a, v.type.dtype.numpy), guard)
    ins = [memory.by_value[v] for v in node.ins]
    outs = [Buffer(np.full(v.type.bytes, 0xFF, np.uint8), guard, written=True) for v in node.outs]
    for output, operand in share:
        outs[output] = ins[operand]
        outs[output].written = True
    memory.by_value |= dict(zip(node.outs, outs, strict=True))
    params = prototypes()[call.kernel]
    args = [memory.argument(p, a) for p, a in zip(params, call.args, strict=True)]
    buffers = [*memory.by_value.values(), *memory.others]
    return Prepared(node, call.kernel, args, outs, list(dict.fromkeys(buffers)))


class Memory:
    """The arrays of one call."""

    def __init__(self, guard: int) -> None:
        self.guard = guard
        self.by_value: dict[Value | Workspace, Buffer] = {}
        self.others: list[Buffer] = []  # numbers that are passed by address

    def argument(self, param: str, arg: Arg) -> Argument:
        if param == "float":
            assert isinstance(arg, int | float)
            return ctypes.c_float(arg)
        if isinstance(arg, Value):
            return self.by_value[arg]
        if isinstance(arg, int):
            return ctypes.c_int32(arg)
        if arg is None:
            return None
        if isinstance(arg, Workspace):
            nothing = np.full(arg.floats, np.nan, np.float32)
            return self.by_value.setdefault(arg, Buffer(nothing, self.guard, written=True))
        if isinstance(arg, Struct):
            return self.numbers(*(np.asarray(v, np.int32) for _, v in arg.fields))
        assert isinstance(arg, tuple)
        if isinstance(arg[0], Value | Struct):
            return tuple(self.pointer(part) for part in arg)
        return self.numbers(np.array(arg, np.float32 if isinstance(arg[0], float) else np.int32))

    def pointer(self, arg: Arg) -> Buffer | None:
        found = self.argument("", arg)
        assert found is None or isinstance(found, Buffer)
        return found

    def numbers(self, *arrays: Array) -> Buffer:
        self.others.append(Buffer(np.concatenate([np.ravel(a) for a in arrays]), self.guard))
        return self.others[-1]


def execute(
    node: Node,
    arrays: Sequence[Array],
    share: Sequence[tuple[int, int]] = (),
    isa: str = "ref",
) -> tuple[Array, ...]:
    """The results of the node's kernel, see `prepare`."""
    if node.op.call(node) is None:
        return (arrays[0].reshape(node.out.shape),)
    call = prepare(node, arrays, share)
    kernel = getattr(library(isa), call.kernel)
    kernel.restype = None
    kernel(*map(_for_ctypes, call.args))
    return call.results()


def _for_ctypes(arg: Argument) -> object:
    if isinstance(arg, tuple):
        return (ctypes.c_void_p * len(arg))(*(None if b is None else b.pointer for b in arg))
    return arg.pointer if isinstance(arg, Buffer) else arg
