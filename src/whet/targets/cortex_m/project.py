"""The firmware project: start-up code, linker script, Makefile, and samples in flash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...emit.c_weights import samples_c, samples_h
from ...emit.program import Program
from ...errors import DataError
from ...ir import Array
from ...runtime import stored_batch
from ..project import (
    cmake_files,
    filled,
    has_one_input,
    label_names,
    main_c,
    template,
    words_of,
)
from .chip import Chip

FILES = {  # of kernels/main/cortex-m/, by the path they are written to
    "cortex-m.mk": "Makefile",
    "startup.c": "board/startup.c",
    "board.h": "board/board.h",
    "board.c": "board/board.c",
    "link.ld": "board/link.ld",
    "libc/string.h": "board/libc/string.h",
    "libc/math.h": "board/libc/math.h",
}


def project_files(program: Program, chip: Chip) -> dict[str, str]:
    words = words_of(program) | chip_words(chip)
    found = {to: filled(template(f"cortex-m/{name}"), words) for name, to in FILES.items()}
    found["main.c"] = main_c(program, "cortex-m/main.c")
    if has_one_input(program):
        found |= samples_of(program, ())
    return found | cmake_files(words)


def chip_words(chip: Chip) -> dict[str, str]:
    return {
        "target": chip.name,
        "chip": " ".join(chip.cpu_flags),
        "zig_cpu": chip.zig_cpu,
        "machine": chip.machine,
        "ram_at": f"0x{chip.ram_at:08x}",
        "flash_at": f"0x{chip.flash_at:08x}",
        "ram": str(chip.ram),
        "flash": str(chip.flash),
        "stack": str(chip.stack),
    }


def sample_files(program: Program, inputs: Any, labels: Any) -> dict[str, str]:
    """Inputs and labels, as many as fill whole batches, as arrays in flash."""
    several = labels if isinstance(labels, tuple) else (labels,)
    counts = {len(array) for array in several}
    if counts != {len(inputs)} or not len(inputs):
        words = " and ".join(map(str, sorted(counts)))
        raise DataError(f"there are {len(inputs)} inputs and {words} labels")
    size = program.batch
    found = []
    for i in range(0, len(inputs) - size + 1, size):
        *parts, last = (array[i : i + size] for array in several)
        found.append(stored_batch(program, inputs[i : i + size], (*parts, last) if parts else last))
    return samples_of(program, found)


def samples_of(program: Program, found: Sequence[tuple[Array, ...]]) -> dict[str, str]:
    name, names = program.name, ("input", *label_names(program))
    return {
        "samples.h": samples_h(name, len(found), program.axes, names),
        "samples.c": samples_c(name, found),
    }
