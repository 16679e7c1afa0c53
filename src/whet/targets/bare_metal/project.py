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

FILES = {  # of kernels/main/bare-metal/, by the path they are written to
    "firmware.mk": "Makefile",
    "board.h": "board/board.h",
    "board.c": "board/board.c",
    "link.ld": "board/link.ld",
    "libc/string.h": "board/libc/string.h",
    "libc/math.h": "board/libc/math.h",
}


def project_files(program: Program, chip: Chip) -> dict[str, str]:
    words = words_of(program) | chip_words(chip)
    texts = {to: template(f"bare-metal/{name}") for name, to in FILES.items()}
    texts["board/startup.c"] = template(f"{chip.folder}/startup.c")
    ask = template(f"{chip.folder}/ask.txt")  # how it stops for the debugger
    texts["board/board.c"] = texts["board/board.c"].replace("/* ask */\n", ask)
    found = {to: filled(text, words) for to, text in texts.items()}
    found["main.c"] = main_c(program, "bare-metal/main.c")
    if has_one_input(program):
        found |= samples_of(program, ())
    return found | cmake_files(words)


def chip_words(chip: Chip) -> dict[str, str]:
    return {
        "target": chip.name,
        "chip": " ".join(chip.cpu_flags),
        "architecture": chip.architecture,
        "cross": chip.cross,
        "link": " ".join(chip.link_flags),
        "sections": chip.sections,
        "zig_target": chip.zig_target,
        "zig_cpu": chip.zig_cpu,
        "emulator": chip.emulator,
        "machine": chip.machine,
        "start": " ".join(chip.start),
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
