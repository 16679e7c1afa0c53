"""Write the arrays of the program image as C, or as a binary that the assembler includes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import Array, DType, Type
from .c_text import WIDTH, comment, declaration, float_text
from .tensors import Tensors

INLINE_WEIGHTS = 1 << 20  # bytes; more than this goes to weights.bin


def weights_h(prefix: str, tensors: Tensors) -> str:
    lines = [
        "/* Arrays of the program image: frozen parameters, constants, and initial values. */",
        f"#ifndef {prefix.upper()}_WEIGHTS_H",
        f"#define {prefix.upper()}_WEIGHTS_H",
        "",
        "#include <stdint.h>",
        "",
    ]
    for name, t in tensors.stored.items():
        lines.append(f"extern const {declaration(t, f'{prefix}_{tensors.ids[name]}')};")
    return "\n".join([*lines, "", "#endif"]) + "\n"


def weights_c(prefix: str, tensors: Tensors, far: bool = False) -> tuple[str, bytes | None]:
    """weights.c, and weights.bin if the arrays are too large for C source."""
    head = ['#include "weights.h"', "", "#include <math.h>", ""]
    arrays = {n: image(tensors.content(n), t) for n, t in tensors.stored.items()}
    if sum(a.nbytes for a in arrays.values()) > INLINE_WEIGHTS:
        return weights_included(prefix, tensors, arrays, far)
    lines = list(head)
    for name, array in arrays.items():
        t = tensors.stored[name]
        flat = array.ravel()
        words = [float_text(x) for x in flat] if t.dtype is DType.F32 else [str(x) for x in flat]
        rows = textwrap.wrap(", ".join(words), WIDTH - 4) or ["0"]
        lines.append(f"const {declaration(t, f'{prefix}_{tensors.ids[name]}')} = {{")
        lines += [f"    {row}" for row in rows] + ["};", ""]
    return "\n".join(lines), None


def image(array: Array, t: Type) -> Array:
    return np.ascontiguousarray(array, dtype=np.dtype(t.dtype.numpy).newbyteorder("<"))


INCLUDE_BINARY = r"""/* The arrays are in weights.bin, which the assembler includes verbatim. */
#include "weights.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define SYMBOL(name) TEXT(__USER_LABEL_PREFIX__) #name
#ifdef __APPLE__
#define READ_ONLY ".section __TEXT,__const\n"
@far@#else
#define READ_ONLY ".section .rodata\n"
#endif
#define TENSOR(name, offset, bytes)                                                                \
    __asm__(READ_ONLY ".balign 16\n"                                                               \
                      ".globl " SYMBOL(name) "\n" SYMBOL(name) ":\n"                               \
                      ".incbin \"weights.bin\", " #offset ", " #bytes "\n"                         \
                      ".text\n")

"""

FAR = r"""#elif defined __x86_64__ /* after all other sections, which must be within 2 GiB */
#define READ_ONLY ".section .lrodata, \"a\"\n"
"""


def weights_included(
    prefix: str, tensors: Tensors, arrays: Mapping[str, Array], far: bool
) -> tuple[str, bytes]:
    lines, blob, offset = [], [], 0
    for name, array in arrays.items():
        lines.append(f"TENSOR({prefix}_{tensors.ids[name]}, {offset}, {array.nbytes});")
        blob.append(array.tobytes())
        offset += array.nbytes
    head = INCLUDE_BINARY.replace("@far@", FAR if far else "")
    return head + "\n".join(lines) + "\n", b"".join(blob)


def samples_h(prefix: str, count: int, axes: Mapping[str, str], names: Sequence[str]) -> str:
    """The type of a sample: `names` are its arrays, the input and then its labels."""
    upper = prefix.upper()
    return "\n".join(
        [
            "/* Samples in the program image, to train on without a host connection. */",
            f"#ifndef {upper}_SAMPLES_H",
            f"#define {upper}_SAMPLES_H",
            "",
            '#include "model.h"',
            "",
            f"#define {upper}_SAMPLES {count}",
            "",
            "typedef struct {",
            *(
                line
                for name in names
                for line in (
                    *(comment(axes[name]) if axes[name] else ()),
                    f"    {prefix}_{name}_t {name}[{upper}_{name.upper()}_ELEMENTS];",
                )
            ),
            f"}} {prefix}_sample_t;",
            "",
            *([f"extern const {prefix}_sample_t {prefix}_samples[{upper}_SAMPLES];", ""]
              if count else []),
            "#endif",
        ]
    ) + "\n"  # fmt: skip


def samples_c(prefix: str, samples: Sequence[tuple[Array, ...]]) -> str:
    """Inputs with their labels, in their stored form."""
    lines = ['#include "samples.h"', ""]
    if samples:
        lines.append(f"const {prefix}_sample_t {prefix}_samples[{prefix.upper()}_SAMPLES] = {{")
        for sample in samples:
            rows = ["{" + ", ".join(map(number, array.ravel())) + "}," for array in sample]
            wrapped = [line for row in rows for line in textwrap.wrap(row, WIDTH - 8)]
            lines += ["    {", *(f"        {line}" for line in wrapped), "    },"]
        lines.append("};")
    return "\n".join(lines) + "\n"


def number(x: Any) -> str:
    return float_text(float(x)) if isinstance(x, np.floating) else str(x)
