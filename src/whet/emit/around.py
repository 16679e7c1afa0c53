"""What lies around a model in its folder: a main program, how it is built, start-up code.

All of it are fixed files with a few words filled in.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from ..ir import Array, Role
from ..targets import Chip
from .c import WIDTH, Signature, places_of
from .c_main import example_c, with_allocated_memory
from .c_weights import samples_c, samples_h

if TYPE_CHECKING:
    from .program import Program

FIRMWARE = {  # where a file of main/cortex-m/ comes to lie
    "cortex-m.mk": "Makefile",
    "startup.c": "board/startup.c",
    "board.h": "board/board.h",
    "board.c": "board/board.c",
    "link.ld": "board/link.ld",
    "libc/string.h": "board/libc/string.h",
    "libc/math.h": "board/libc/math.h",
}

ALLOCATED = "what main.c allocates, with data and bss,"


def around(program: Program) -> dict[str, str]:
    """Those files by path."""
    words = words_of(program)
    if program.target.chip is None:
        found = {
            "main.c": main_c(program, "host.c"),
            "Makefile": filled(template("host.mk"), words),
        }
    else:
        words |= chip_words(program, program.target.chip)
        found = {to: filled(template(f"cortex-m/{name}"), words) for name, to in FIRMWARE.items()}
        found["main.c"] = main_c(program, "cortex-m/main.c")
        if has_one_input(program):
            found |= flash_samples(program, ())
    if not program.target.threads:
        found["CMakeLists.txt"] = filled(template("CMakeLists.txt"), words)
    return found


def has_one_input(program: Program) -> bool:
    step = program.entries["train_step"]
    return all(len(step.leaves_of(role)) == 1 for role in (Role.INPUT, Role.LABEL))


def main_c(program: Program, name: str) -> str:
    """The main program: a fixed file whose few macros say what this model is called."""
    if program.large:
        return with_allocated_memory(static_main(program, name), program.alignment)
    return static_main(program, name)


def static_main(program: Program, name: str) -> str:
    if not has_one_input(program):
        return main_for_many(program)
    text = filled(template(name), {"arrays": "\n".join(arrays_lines(program))})
    prefix = program.name
    return text.replace("NET_", f"{prefix.upper()}_").replace("net_", f"{prefix}_")


def arrays_lines(program: Program) -> list[str]:
    """The order of axes of every array, as lines of a comment."""
    width = max(map(len, program.axes))
    return [f" *   {name:<{width}}  {axes}" for name, axes in program.axes.items() if axes]


def main_for_many(program: Program) -> str:
    """An example for a model with several inputs: one step on zeros."""
    plan = program.plans["train_step"]
    inside = {place.name for place in places_of(plan)}
    step, predict = (Signature.of(program.entries[name]) for name in ("train_step", "predict"))
    leaves = [(name, v.type) for name, v in step.leaves if v.role is not Role.SCALAR]
    arrays = [(name, t) for name, t in leaves if name not in inside]
    if inside:
        arrays += [(name, v.type) for name, v in predict.outputs]
    return example_c(program.name, [name for name, _ in leaves], inside, arrays)


def flash_samples(program: Program, pairs: Sequence[tuple[Array, Array]]) -> dict[str, str]:
    """The samples that a microcontroller has in its flash."""
    name, axes = program.name, program.axes
    return {"samples.h": samples_h(name, len(pairs), axes), "samples.c": samples_c(name, pairs)}


def template(name: str) -> str:
    return (resources.files("whet") / "kernels" / "main" / name).read_text()


def filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def words_of(program: Program) -> dict[str, str]:
    sources = [name for name in program.kernel_files if name.endswith(".c")]
    return {
        "name": program.name,
        "upper": program.name.upper(),
        "kernels": listed(sources),
        "kernel_lines": "\n    ".join(sources),
        "flags": " ".join(program.flags),
        "libraries": " ".join(program.target.libraries),
        "far": " -fPIC -Wl,--no-relax" if program.far else "",  # whole addresses
        "of_memory": ALLOCATED if program.large else "data + bss",
    }


def listed(names: Sequence[str]) -> str:
    return " \\\n    ".join(textwrap.wrap(" ".join(names), WIDTH - 12))


def chip_words(program: Program, chip: Chip) -> dict[str, str]:
    return {
        "target": program.target.name,
        "chip": " ".join(chip.flags),
        "zig_cpu": chip.zig_cpu,
        "machine": chip.machine,
        "ram_at": f"0x{chip.ram_at:08x}",
        "flash_at": f"0x{chip.flash_at:08x}",
        "ram": str(chip.ram),
        "flash": str(chip.flash),
        "stack": str(chip.stack),
    }
