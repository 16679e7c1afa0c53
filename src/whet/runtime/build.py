"""Find a C compiler and build a program into a shared library, reusing compiled kernels."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..emit.c import included
from ..emit.c_trace import UNIT, trace_c
from ..emit.program import Program
from ..errors import BuildError
from .cache import kept

MODEL = "model"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


def fast(program: Program) -> tuple[str, ...]:
    """Flags for this machine."""
    return (*program.flags, "-march=native")


def find_compiler() -> list[str]:
    """$CC, or the first of cc, gcc and clang that is installed."""
    wanted = os.environ.get("CC")
    if wanted:
        command = shlex.split(wanted)
        if shutil.which(command[0]):
            return command
        raise BuildError(f"the C compiler CC={wanted} is not there", try_="unset CC")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise BuildError(
        "no C compiler found",
        why="looked for $CC, cc, gcc and clang",
        try_=("apt install gcc  (Debian, Ubuntu)", "xcode-select --install  (macOS)"),
    )


@functools.cache
def version(compiler: tuple[str, ...]) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout


def run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(
            f"{command[0]} failed with status {done.returncode}",
            at=shlex.join(command),
            why=done.stderr.strip().splitlines()[:20],
        )


def library(program: Program, flags: Sequence[str] | None, unit: str = MODEL) -> Path:
    """The program's shared library, built once and kept for as long as the program lives."""
    flags = fast(program) if flags is None else flags
    built = _built.setdefault(program, {})
    key = (unit, *flags)
    if key not in built:
        folder = tempfile.TemporaryDirectory(prefix="whet-")
        build(program, Path(folder.name), flags, unit)
        built[key] = folder
    return Path(built[key].name) / f"lib{program.name}.so"


_built: weakref.WeakKeyDictionary[
    Program, dict[tuple[str, ...], tempfile.TemporaryDirectory[str]]
] = weakref.WeakKeyDictionary()


def build(
    program: Program, folder: Path, flags: Sequence[str] | None = None, unit: str = MODEL
) -> Path:
    """Write the program to `folder` and build a shared library there.

    `unit` is what is compiled for the model: model.c, or trace.c, which measures its calls.
    """
    flags = fast(program) if flags is None else flags
    program.write(folder)
    if unit == UNIT:
        (folder / f"{unit}.c").write_text(trace_c(program))
    compiler = [*find_compiler(), *STRICT, *flags, "-fPIC", "-Ikernels", "-I."]
    kernels = sorted((folder / "kernels").rglob("*.c"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        own = [pool.submit(run, [*compiler, "-c", f"{n}.c", "-o", f"{n}.o"], folder)
               for n in (unit, "weights")]  # fmt: skip
        objects = list(pool.map(lambda p: _kernel_object(p, compiler, folder), kernels))
        for job in own:
            job.result()
    result = folder / f"lib{program.name}.so"
    parts = [f"{unit}.o", "weights.o", *map(str, objects)]
    run(
        [
            *find_compiler(),
            "-shared",
            *flags,
            *parts,
            *program.target.libraries,
            "-o",
            str(result),
        ],
        folder,
    )
    return result


def with_headers(source: Path, folder: Path) -> bytes:
    """The file, and all headers of ours that it includes: what a program has besides is not its."""
    found: dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = path.read_bytes()
            near = [path.with_name(name) for name in included(found[path].decode())]
            waiting += [p if p.exists() else folder / "kernels" / p.name for p in near]
    return b"".join(found[path] for path in sorted(found))


def _kernel_object(source: Path, compiler: Sequence[str], cwd: Path) -> Path:
    # -march=native means something else on every machine and to every version of the compiler.
    words = (platform.node(), version(tuple(find_compiler())), *compiler)
    target = source.with_suffix(".o")

    def compiled() -> bytes:
        run([*compiler, "-c", str(source), "-o", str(target)], cwd)
        return target.read_bytes()

    target.write_bytes(kept(kernel_name(source, cwd, words), compiled))
    return target


def kernel_name(source: Path, folder: Path, words: Iterable[str]) -> str:
    """What a compiled kernel is kept as: its name, its text, and all that the compiler is told."""
    key = hashlib.sha256(with_headers(source, folder) + "\0".join(words).encode())
    return f"{source.stem}-{key.hexdigest()[:24]}.kept"
