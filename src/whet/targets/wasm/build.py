"""Find a compiler for WebAssembly, and build a program's module with it."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...emit.program import Program
from ...errors import BuildError
from ...runtime.build import kernel_name, run, version
from ...runtime.cache import kept
from ..project import template

CLANG = ("clang", "--target=wasm32-wasi")
ZIG = ("ziglang", "cc", "-target", "wasm32-wasi", "-fno-sanitize=all")


def module(program: Program) -> Path:
    """The program's module, beside its loader: built once, kept for as long as the program is."""
    if program not in _built:
        folder = tempfile.TemporaryDirectory(prefix="whet-")
        build(program, Path(folder.name))
        _built[program] = folder
    return Path(_built[program].name) / "package" / f"{program.name}.wasm"


_built: weakref.WeakKeyDictionary[Program, tempfile.TemporaryDirectory[str]] = (
    weakref.WeakKeyDictionary()
)


def build(program: Program, folder: Path) -> Path:
    """Write the program to `folder` and run its Makefile there, which finds kernels compiled if
    they were compiled before."""
    compiler = find_compiler()
    program.write(folder)
    words = (template("wasm/wasm.mk"), *program.flags, *compiler, version(compiler))
    kernels = sorted((folder / "kernels").rglob("*.c"))

    def compile(source: Path) -> None:
        target = folder / "build" / source.relative_to(folder).with_suffix(".o")

        def compiled() -> bytes:
            make(folder, compiler, str(target.relative_to(folder)))
            return target.read_bytes()

        content = kept(kernel_name(source, folder, words), compiled)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(compile, kernels))
    built = folder / "package" / f"{program.name}.wasm"
    make(folder, compiler, str(built.relative_to(folder)))
    program.measured["module"] = built.stat().st_size
    return built


def make(folder: Path, compiler: tuple[str, ...], target: str) -> None:
    command = shlex.join(compiler).replace("$", "$$")  # for the shell, through make
    if shutil.which("make") is None:
        raise BuildError("make is not installed", try_="apt install make")
    run(["make", "-s", f"-j{os.cpu_count() or 1}", f"CC={command}", target], folder)


def find_compiler() -> tuple[str, ...]:
    """$WASM_CC, clang with a linker and a C library for WebAssembly, or the one in ziglang."""
    if wanted := os.environ.get("WASM_CC"):
        command = tuple(shlex.split(wanted))
        if shutil.which(command[0]):
            return command
        raise BuildError(f"the compiler WASM_CC={wanted} is not there", try_="unset WASM_CC")
    if shutil.which("wasm-ld") and works(CLANG):
        return CLANG
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", *ZIG)
    raise BuildError(
        "no compiler for WebAssembly found",
        why="looked for $WASM_CC, for clang with wasm-ld and wasi-libc, and for the Python "
        "package ziglang",
        try_=(
            "apt install clang lld wasi-libc libclang-rt-dev-wasm32  (Debian, Ubuntu)",
            "pip install ziglang",
        ),
    )


@functools.cache
def works(compiler: tuple[str, ...]) -> bool:
    """Whether there is a compiler with a C library."""
    try:
        done = subprocess.run(
            [*compiler, "-include", "math.h", "-E", "-x", "c", "-"], capture_output=True, input=b""
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0
