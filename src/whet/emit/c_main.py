"""Write main programs in C: an example of a training step, and how it gets its memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ..errors import InternalError
from ..ir import Type
from .c_text import call_text, declaration


def example_c(
    prefix: str, names: Sequence[str], inside: Collection[str], arrays: Sequence[tuple[str, Type]]
) -> str:
    """A main program for a step with these arguments; those in `inside` are in the arena."""
    args = [f"{prefix}_{n}(&ram.net)" if n in inside else f"ram.{n}" for n in names]
    return "\n".join(
        [
            "/* One training step on zeros: replace them with your data. */",
            '#include "model.h"',
            "",
            "/* All of the program's memory except the stack. */",
            "static struct {",
            f"    {prefix}_t net;",
            *(f"    {declaration(t, name)};" for name, t in arrays),
            "} ram;",
            "",
            "int main(void) {",
            "    float loss;",
            f"    {prefix}_init(&ram.net);",
            f"    const float rate = {prefix.upper()}_LEARNING_RATE;",
            *call_text(f"return {prefix}_train_step", ["&ram.net", *args, "rate", "&loss"]),
            "}",
            "",
        ]
    )


def with_allocated_memory(main: str, align: int) -> str:
    """A main program whose memory is too large to be static: it allocates it at start-up."""
    main = main.replace("} ram;", "} *memory;\n#define ram (*memory)")
    lines = [
        f"    memory = aligned_alloc({align}, sizeof ram);",
        "    if (!memory) {",
        '        fprintf(stderr, "cannot allocate %zu bytes\\n", sizeof ram);',
        "        return 1;",
        "    }",
        "",
    ]
    main, count = re.subn(r"(?m)^(?=    \w+_init\(&ram\.net\);)", lambda _: "\n".join(lines), main)
    if count != 1 or "} *memory;" not in main:
        raise InternalError("main.c does not declare its memory as expected")
    own = '#include "model.h"'
    wanted = [f"#include <{name}.h>" for name in ("stdio", "stdlib")]
    missing = [line for line in wanted if line not in main]
    return main.replace(own, "\n".join([*missing, "", own]), 1) if missing else main
