"""Write the C that maps weights.bin into memory, for programs that do not link their weights."""

from __future__ import annotations

import re

from ..errors import InternalError
from .blob import Blob
from .c_text import declaration
from .tensors import Tensors, mapped_weights


def head(prefix: str) -> str:
    return f"{prefix}_status_t {prefix}_map_weights(const char *path)"


def declared(prefix: str) -> list[str]:
    upper = prefix.upper()
    return [
        "/* Map the file of weights, weights.bin, into memory; call this before anything else.",
        " * Pages are read when they are used, and shared by processes that map it; it must not",
        f" * change meanwhile. {upper}_UNMAPPED if it cannot be opened, {upper}_TRUNCATED",
        f" * if it is too short, {upper}_FOREIGN if it is not this program's. */",
        f"{head(prefix)};",
        "",
    ]  # fmt: skip


def weights_h(prefix: str, tensors: Tensors, blob: Blob) -> list[str]:
    """What weights.h declares: every array, at its place in the file."""
    start = mapped_weights(prefix)
    lines = [f"extern const unsigned char *{start}; /* what map_weights mapped */", ""]
    for name, t in tensors.stored.items():
        word = f"{prefix}_{tensors.ids[name]}"
        cast = f"(const {t.dtype.c} *)(const void *)"
        lines += [
            f"/* {declaration(t, word).replace('/* ', '(').replace(' */', ')')} */",
            f"#define {word} \\",
            f"    ({cast}({start} + {blob.offsets[name]}))",
        ]
    return lines


def weights_c(prefix: str, blob: Blob) -> str:
    upper, variable = prefix.upper(), mapped_weights(prefix)
    return f"""/* The arrays are in weights.bin, which is mapped into memory. */
#include "weights.h"

#include "model.h"
#include "whet_map.h"

const unsigned char *{variable};

{head(prefix)} {{
    if ({variable}) return {upper}_OK; /* it is mapped already */
    switch (whet_map(path, {blob.size}u, 0x{blob.identity:08x}u, &{variable})) {{
    case WHET_MAP_OK: return {upper}_OK;
    case WHET_MAP_TRUNCATED: return {upper}_TRUNCATED;
    case WHET_MAP_FOREIGN: return {upper}_FOREIGN;
    default: return {upper}_UNMAPPED;
    }}
}}
"""


BESIDE = r"""/* Map weights.bin, which lies beside the program. */
static int map_weights(const char *program) {
    const char *slash = strrchr(program, '/');
    char path[4096];
    const int folder = slash ? (int)(slash - program) + 1 : 0;
    snprintf(path, sizeof path, "%.*sweights.bin", folder, program);
    switch (net_map_weights(path)) {
    case NET_OK: return 1;
    case NET_TRUNCATED: fprintf(stderr, "%s is too short\n", path); return 0;
    case NET_FOREIGN: fprintf(stderr, "%s is not of this program\n", path); return 0;
    default: fprintf(stderr, "cannot open %s\n", path); return 0;
    }
}

"""


def with_mapped_weights(main: str, prefix: str) -> str:
    """A main program that maps the weights before anything else."""
    beside = BESIDE.replace("NET_", f"{prefix.upper()}_").replace("net_", f"{prefix}_")
    main = main.replace("int main(void) {", "int main(int argc, char **argv) {\n    (void)argc;")
    main, heads = re.subn(r"(?m)^(?=int main\()", lambda _: beside, main)
    call = "    if (!map_weights(argv[0])) return 1;\n"
    main, calls = re.subn(r"(?m)^(?=    \w+_init\(&ram\.net\);)", lambda _: call, main)
    if (heads, calls) != (1, 1):
        raise InternalError("main.c does not begin as expected")
    own = '#include "model.h"'
    wanted = [f"#include <{name}.h>" for name in ("stdio", "string")]
    missing = [line for line in wanted if line not in main]
    return main.replace(own, "\n".join([*missing, "", own]), 1) if missing else main
