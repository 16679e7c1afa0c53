"""Run kernel calls in a process of their own, all in one go: where ctypes cannot reach.

That is another processor, in an emulator, and a sanitizer, which must be there from the start of
a process. The calls are those of `c_kernels.prepare`; `batch.c` reads and makes them.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

import c_kernels
import cortex
from c_kernels import Buffer, Prepared
from kernel_checks import SAMPLES, check, runs
from kernel_samples import Sample

MAIN = Path(__file__).with_name("batch.c")
BYTES, POINTERS = 0, 1
NUMBER, POINTER = 0, 1
PARTS = {"stream": {"conv2d", "depthwise"}, "stream_i8": {"conv2d_i8", "depthwise_i8"}}
PARTS |= {f"dw_sgd_i8{kind}": {"settle", "sgd_step"} for kind in ("", "_i8", "_i16")}
Done = subprocess.CompletedProcess[bytes]


def check_samples(
    folder: Path,
    compiler: str,
    isa: str,
    *flags: str,
    emulator: str = "",
    guard: int = 0,
    samples: Sequence[Sample] = SAMPLES,
    cpu: str = "",
) -> None:
    """Every sample of every kernel, in one program that is built in `folder`; `cpu`: see cortex."""
    wanted = {sample.name: runs(sample, isa) for sample in samples}
    assert len(wanted) == len(samples), "two samples have the same name"
    calls = {n: [c_kernels.prepare(*run, guard) for run in of] for n, of in wanted.items()}
    kernels = sorted({call.kernel for of in calls.values() for call in of})
    only = source_files(calls, isa)
    program = build(folder, kernels, compiler, isa, *flags, f"-DGUARD={guard}", only=only)

    def run(described: bytes) -> Done:
        if cpu:
            return cortex.run(cpu, program, described)
        command = [*emulator.split(), str(program)]
        return subprocess.run(command, input=described, capture_output=True, check=False)

    run_all(run, calls, kernels)
    wrong = {}
    for name, of in calls.items():
        try:
            check(wanted[name], [call.results() for call in of])
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong, "\n".join(f"{name}: {error}" for name, error in wrong.items())


def source_files(calls: Mapping[str, Sequence[Prepared]], isa: str) -> set[str]:
    """The files that define the kernels of these calls, and those that they are made of."""
    nodes = [call.node for of in calls.values() for call in of]
    made = [call for node in nodes if (call := node.op.call(node))]
    used = {source for call in made for source in (call.source, *call.needs)}
    for source in tuple(used):
        used |= PARTS.get(source, set())
    return used | ({"matmul", "outer", "threads"} if isa == "vec" else set())


def build(
    folder: Path,
    kernels: Sequence[str],
    compiler: str,
    isa: str,
    *flags: str,
    only: Collection[str] | None = None,
) -> Path:
    """The program that can call `kernels`, which are known by their index."""
    (folder / "calls.h").write_text("\n".join([
        *(f"static void call_{i}(const arg_t *a) {{ {call_text(k)}; }}"
          for i, k in enumerate(kernels)),
        "static void (*const calls[])(const arg_t *) = {",
        *(f"    call_{i}," for i in range(len(kernels))),
        "};\n",
    ]))  # fmt: skip
    program = folder / "batch"
    link = ("-lm", *(("-pthread",) if isa == "vec" else ()), "-o", str(program))
    c_kernels.compile_kernels(compiler, isa, *flags, f"-I{folder}", str(MAIN), *link, only=only)
    return program


def call_text(kernel: str) -> str:
    member = {"float": "f", "int32_t": "i"}  # of arg_t
    params = enumerate(c_kernels.prototypes()[kernel])
    args = ", ".join(f"a[{i}].{member.get(param, 'p')}" for i, param in params)
    return f"{kernel}({args})"


def run_all(
    run: Callable[[bytes], Done],
    calls: Mapping[str, Sequence[Prepared]],
    kernels: Sequence[str],
) -> None:
    """Make the calls of every sample by `run`; what they change is then in their buffers."""
    number = {kernel: i for i, kernel in enumerate(kernels)}
    flat = [(name, call) for name, of in calls.items() for call in of]
    described = b"".join(encode(call, number[call.kernel]) for _, call in flat)
    done = run(described)
    report = done.stderr.decode(errors="replace")[:2000]
    at = 0
    for name, call in flat:
        for buffer in call.buffers:
            end = at + buffer.bytes.size
            assert end <= len(done.stdout), f"{name}: {call.kernel} stops\n{report}"
            buffer.bytes[:] = np.frombuffer(done.stdout[at:end], np.uint8)
            at = end
    assert done.returncode == 0 and at == len(done.stdout), report


def encode(call: Prepared, kernel: int) -> bytes:
    """The call, as `batch.c` says."""
    place = {None: 0} | {buffer: i for i, buffer in enumerate(call.buffers, 1)}
    blocks = [words(BYTES, b.bytes.size) + b.bytes.tobytes() for b in call.buffers]
    args = []
    for arg in call.args:
        if isinstance(arg, tuple):
            blocks.append(words(POINTERS, len(arg), *(place[buffer] for buffer in arg)))
            args.append(words(POINTER, len(blocks)))
        elif arg is None or isinstance(arg, Buffer):
            args.append(words(POINTER, place[arg]))
        else:
            args.append(words(NUMBER, int.from_bytes(bytes(arg), "little")))
    return b"".join([words(kernel, len(blocks)), *blocks, words(len(args)), *args])


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)
