"""Write the arrays of the program image as C, or as a binary that the assembler includes."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import Array, DType
from ..memory.plan import LINE
from . import c_mapped
from .blob import Blob
from .c_text import WIDTH, comment, declaration, float_text
from .tensors import Tensors

INLINE_WEIGHTS = 1 << 20  # bytes; more than this goes to weights.bin


def blob_of(tensors: Tensors) -> Blob | None:
    """weights.bin, if the arrays are too large for C source."""
    if not tensors.mapped and sum(t.bytes for t in tensors.stored.values()) <= INLINE_WEIGHTS:
        return None
    arrays = {n: functools.partial(image, tensors, n) for n in tensors.stored}
    return Blob(arrays, tensors.stored, LINE if tensors.mapped else 1, tensors.mapped)


def weights_h(prefix: str, tensors: Tensors, blob: Blob | None) -> str:
    lines = [
        "/* Arrays of the program image: frozen parameters, constants, and initial values. */",
        f"#ifndef {prefix.upper()}_WEIGHTS_H",
        f"#define {prefix.upper()}_WEIGHTS_H",
        "",
        "#include <stdint.h>",
        "",
    ]
    if blob is not None and blob.mapped:
        lines += c_mapped.weights_h(prefix, tensors, blob)
    else:
        words = {n: f"{prefix}_{tensors.ids[n]}" for n in tensors.stored}
        lines += [f"extern const {declaration(t, words[n])};" for n, t in tensors.stored.items()]
    return "\n".join([*lines, "", "#endif"]) + "\n"


def weights_c(prefix: str, tensors: Tensors, blob: Blob | None) -> str:
    if blob is not None:
        mapped = c_mapped.weights_c(prefix, blob)
        return mapped if blob.mapped else weights_included(prefix, tensors, blob)
    lines = ['#include "weights.h"', "", "#include <math.h>", ""]
    for name, t in tensors.stored.items():
        flat = image(tensors, name).ravel()
        words = [float_text(x) for x in flat] if t.dtype is DType.F32 else [str(x) for x in flat]
        rows = textwrap.wrap(", ".join(words), WIDTH - 4) or ["0"]
        lines.append(f"const {declaration(t, f'{prefix}_{tensors.ids[name]}')} = {{")
        lines += [f"    {row}" for row in rows] + ["};", ""]
    return "\n".join(lines)


def image(tensors: Tensors, name: str) -> Array:
    """An array as it lies in the program image."""
    dtype = np.dtype(tensors.stored[name].dtype.numpy).newbyteorder("<")
    return np.ascontiguousarray(tensors.content(name), dtype=dtype)


INCLUDE_BINARY = r"""/* The arrays are in weights.bin, which the assembler includes verbatim. */
#include "weights.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define SYMBOL(name) TEXT(__USER_LABEL_PREFIX__) #name
#if defined(__APPLE__)
#define READ_ONLY(name) ".section __TEXT,__const\n"
#define SIZE(name, bytes)
#elif defined(__wasm__)
#define READ_ONLY(name) ".section .rodata." #name ",\"\",@\n.type " #name ",@object\n"
#define SIZE(name, bytes) ".size " #name ", " #bytes "\n"
#else
#define READ_ONLY(name) ".section .rodata\n"
#define SIZE(name, bytes)
#endif
#define TENSOR(name, offset, bytes)                                                                \
    __asm__(READ_ONLY(name) ".balign 16\n"                                                         \
                            ".globl " SYMBOL(name) "\n" SYMBOL(name) ":\n"                         \
                            ".incbin \"weights.bin\", " #offset ", " #bytes "\n"                   \
                            SIZE(name, bytes) ".text\n")

"""


def weights_included(prefix: str, tensors: Tensors, blob: Blob) -> str:
    lines = [
        f"TENSOR({prefix}_{tensors.ids[name]}, {blob.offsets[name]}, {t.bytes});"
        for name, t in tensors.stored.items()
    ]
    return INCLUDE_BINARY + "\n".join(lines) + "\n"


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
