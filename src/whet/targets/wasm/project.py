"""The project around a module: its C, a Makefile, and a package for npm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...emit.c import STATUSES, Signature
from ...emit.c_text import float_text
from ...emit.memory import up
from ...emit.program import Program
from ...errors import TargetError, option
from ...ir import DType, Role, Type
from ...runtime.checkpoint import HEADER, Layout
from ..project import arrays_lines, filled, template, words_of

PAGE = 1 << 16  # bytes that a module's memory is measured in
MOST = 1 << 32  # bytes that its addresses reach
MODULE = 1 << 30  # bytes of a module that engines accept
CONSTANTS = 64 << 10  # bytes for tables of kernels and of the C library
TYPED = {
    DType.F32: "Float32Array",
    DType.BF16: "Uint16Array",
    DType.I32: "Int32Array",
    DType.I16: "Int16Array",
    DType.I8: "Int8Array",
    DType.U8: "Uint8Array",
}
FILES = {  # of kernels/main/wasm/, by the path they are written to
    "wasm.mk": "Makefile",
    "main.c": "main.c",
    "example.mjs": "example.mjs",
    "index.js": "package/index.js",
    "index.d.ts": "package/index.d.ts",
    "package.json": "package/package.json",
}


@dataclass(frozen=True)
class Memory:
    """A module's linear memory: stack, weights, and what changes."""

    arrays: int  # bytes for those of any one call
    initial: int
    checkpoint: int
    most: int  # with room for a checkpoint

    @classmethod
    def of(cls, program: Program) -> Memory:
        memory = program.memory
        arrays = max(map(call_bytes, map(Signature.of, program.entries.values())))
        extra = max(arrays - memory["io"], 0) + 16 * len(program.storage.stored)
        initial = up(memory["ram"] + memory["flash"] + extra + CONSTANTS, PAGE)
        checkpoint = HEADER.size + Layout.of(program).size
        return cls(arrays, initial, checkpoint, initial + up(checkpoint + 1, PAGE))


def call_bytes(signature: Signature) -> int:
    """Of the arrays of one call, each of them at a multiple of 16."""
    return sum(up(kind.bytes, 16) for _, kind in (*taken(signature), *given(signature)))


def taken(signature: Signature) -> Iterator[tuple[str, Type]]:
    return ((n, v.type) for n, v in signature.leaves if v.role is not Role.SCALAR)


def given(signature: Signature) -> Iterator[tuple[str, Type]]:
    return ((n, v.type) for n, v in signature.outputs)


def project_files(program: Program) -> dict[str, str]:
    memory = checked(program)
    words = words_of(program) | memory_words(program, memory) | script_words(program)
    found = {to: filled(template(f"wasm/{name}"), words) for name, to in FILES.items()}
    main = found["main.c"].replace("net_t", f"{program.name}_t")
    main = main.replace("ARRAY_BYTES", str(memory.arrays))
    return found | {"main.c": main}


def checked(program: Program) -> Memory:
    memory = Memory.of(program)
    hint = f"a smaller batch, {option('update', 'last')}, or a smaller model"
    if memory.most > MOST:
        raise TargetError(
            "the program is too large for WebAssembly",
            why=f"it needs {memory.most:,} bytes, and 32-bit addresses reach {MOST:,}",
            try_=hint,
        )
    if program.memory["flash"] > MODULE - (1 << 24):
        raise TargetError(
            "the weights are too large for a WebAssembly module",
            why=f"they have {program.memory['flash']:,} bytes, engines accept {MODULE:,}",
            try_=(option("frozen", "int8"), "a smaller model"),
        )
    return memory


def memory_words(program: Program, memory: Memory) -> dict[str, str]:
    functions = ("init", "save", "load", *program.entries)
    return {
        "initial": str(memory.initial),
        "most": str(memory.most),
        "stack": str(program.target.stack),
        "checkpoint": str(memory.checkpoint),
        "changing": str(memory.checkpoint - HEADER.size),
        "exports": " ".join(f"{program.name}_{name}" for name in functions),
        "arrays": "\n".join(arrays_lines(program)),
    }


def script_words(program: Program) -> dict[str, str]:
    step, predict = (Signature.of(program.entries[n]) for n in ("train_step", "predict"))
    roles = {role: [v.type for _, v in step.leaves if v.role is role] for role in Role}
    errors = [[name, why] for name, why in STATUSES]
    axes = [f"// {line.removeprefix(' *').strip()}" for line in arrays_lines(program)]
    named = {name: described(Signature.of(graph)) for name, graph in program.entries.items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in named.items()]
    return {
        "package": program.name.lower().lstrip("_"),
        "entries": "{\n" + ",\n".join(lines) + "\n}",
        "statuses": json.dumps(errors),
        "rate": float_text(program.lr).removesuffix("f"),
        "axes": "\n".join(axes),
        "input": typed(roles[Role.INPUT]),
        "label": typed(roles[Role.LABEL]),
        "output": typed(kind for _, kind in given(predict)),
        "names": " | ".join(json.dumps(name) for name in named),
        "codes": " | ".join(json.dumps(name) for name, _ in (*STATUSES[1:], ("NOT_FOUND", ""))),
    }


def described(signature: Signature) -> dict[str, Any]:
    """The arrays, numbers and results of an entry point, as index.js has them."""
    scalars = [name for name, v in signature.leaves if v.role is Role.SCALAR]
    inputs = sum(v.role is Role.INPUT for _, v in signature.leaves)
    arrays, outputs = (list(map(kind_of, side(signature))) for side in (taken, given))
    return {"arrays": arrays, "inputs": inputs, "numbers": scalars, "outputs": outputs}


def kind_of(named: tuple[str, Type]) -> dict[str, Any]:
    name, kind = named
    shape = list(kind.shape)
    return {"name": name, "type": TYPED[kind.dtype], "elements": kind.elements, "shape": shape}


def typed(kinds: Iterable[Type]) -> str:
    """The type of one array, or of a tuple of several."""
    names = [TYPED[kind.dtype] for kind in kinds]
    return names[0] if len(names) == 1 else f"readonly [{', '.join(names)}]"
