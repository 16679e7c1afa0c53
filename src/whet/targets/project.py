"""The project around a model: main program and build files, from templates in kernels/main/."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources

from ..emit.c import Signature, input_buffers_of
from ..emit.c_main import example_c, with_allocated_memory
from ..emit.c_mapped import with_mapped_weights
from ..emit.c_text import WIDTH, call_text
from ..emit.program import Program
from ..ir import Role

ALLOCATED = "what main.c allocates, with data and bss,"


def has_one_input(program: Program) -> bool:
    step = program.entries["train_step"]
    return len(step.leaves_of(Role.INPUT)) == 1 and len(step.leaves_of(Role.LABEL)) > 0


def label_names(program: Program) -> list[str]:
    """What the prototypes call the labels of a training step."""
    leaves = Signature.of(program.entries["train_step"]).leaves
    return [name for name, leaf in leaves if leaf.role is Role.LABEL]


def main_c(program: Program, name: str) -> str:
    """The main program: a fixed file whose few macros say what this model is called."""
    main = static_main(program, name)
    if program.storage.mapped:
        main = with_mapped_weights(main, program.name)
    return with_allocated_memory(main, program.alignment) if program.large else main


def static_main(program: Program, name: str) -> str:
    if not has_one_input(program):
        return main_for_many(program)
    words = {"arrays": "\n".join(arrays_lines(program))}
    text = with_sending(template(name), program.delta is not None)
    text = filled(with_labels(text, label_names(program)), words)
    prefix = program.name
    return text.replace("NET_", f"{prefix.upper()}_").replace("net_", f"{prefix}_")


def with_sending(text: str, sends: bool) -> str:
    """A main program; the lines that mark where commands to send updates belong are replaced by
    those, or removed."""
    mark = re.compile(r"^ */\* send: (\w+) \*/\n", re.MULTILINE)
    parts = mark.split(template("bare-metal/send.txt"))
    code = dict(zip(parts[1::2], parts[2::2], strict=True)) if sends else {}
    return mark.sub(lambda found: code.get(found[1], ""), text)


LABEL_LINES = re.compile(  # of a main program: where it declares, reads or makes up labels
    r"^ +(?:net_label_t label|board_read\(ram\.label|for .*NET_LABEL_ELEMENTS).*\n", re.MULTILINE
)
LABEL_READ = re.compile(r"fread\(ram\.label.* == 1")
STEP = re.compile(r"^( *)(.*net_train_step)\((.*)\);\n", re.MULTILINE)


def with_labels(text: str, names: Sequence[str]) -> str:
    """A main program for a step with these labels: what it does with one, it does with each."""

    def renamed(code: str, name: str) -> str:
        code = re.sub(r"\blabel\b", name, code).replace("net_label_t", f"net_{name}_t")
        return code.replace("NET_LABEL_", f"NET_{name.upper()}_")

    def each(code: str) -> list[str]:
        return [renamed(code, name) for name in names]

    def call(found: re.Match[str]) -> str:
        args = [part for arg in found[3].split(", ") for part in each(arg)[: count(arg)]]
        return "\n".join(call_text(found[2], args, found[1])) + "\n"

    def count(arg: str) -> int:
        return len(names) if arg.endswith("label") else 1

    if len(names) == 1:
        return text
    text = LABEL_LINES.sub(lambda found: "".join(each(found[0])), text)
    text = LABEL_READ.sub(lambda found: " &&\n            ".join(each(found[0])), text)
    return STEP.sub(call, text)


def arrays_lines(program: Program) -> list[str]:
    """The order of axes of every array, as lines of a comment."""
    width = max(map(len, program.axes))
    return [f" *   {name:<{width}}  {axes}" for name, axes in program.axes.items() if axes]


def main_for_many(program: Program) -> str:
    """An example for a model with several inputs: one step on zeros."""
    plan = program.plans["train_step"]
    inside = {place.name for place in input_buffers_of(plan)}
    step, predict = (Signature.of(program.entries[name]) for name in ("train_step", "predict"))
    leaves = [(name, v.type) for name, v in step.leaves if v.role is not Role.SCALAR]
    arrays = [(name, t) for name, t in leaves if name not in inside]
    if inside:
        arrays += [(name, v.type) for name, v in predict.outputs]
    return example_c(program.name, [name for name, _ in leaves], inside, arrays)


def cmake_files(words: Mapping[str, str]) -> dict[str, str]:
    return {"CMakeLists.txt": filled(template("CMakeLists.txt"), words)}


def library_files(words: Mapping[str, str]) -> dict[str, str]:
    """What lets other projects take the folder as a library: for CMake, and for pkg-config."""
    name = words["name"]
    return cmake_files(words) | {
        f"{name}-config.cmake": filled(template("package/config.txt"), words),
        f"{name}.pc": filled(template("package/pc.txt"), words),
    }


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
        "of_memory": ALLOCATED if program.large else "data + bss",
    }


def listed(names: Sequence[str]) -> str:
    return " \\\n    ".join(textwrap.wrap(" ".join(names), WIDTH - 12))
