"""Write the functions that fill and save what changes: trained parameters and state."""

from __future__ import annotations

from ..ops._blocks import FORMATS
from .c_text import call_text
from .tensors import Tensors, mapped_weights


def init_function(prefix: str, tensors: Tensors) -> list[str]:
    lines = [f"void {prefix}_init({prefix}_t *net) {{", "    memset(net, 0, sizeof *net);"]
    if tensors.mapped:
        lines.append(f"    if (!{mapped_weights(prefix)}) return; /* nor does anything else run */")
    for part, table in (("params", tensors.params), ("state", tensors.state)):
        for name in table:
            word = tensors.ids[name]
            place = f"net->{part}.{word}"
            if name in tensors.starts:
                rows, columns = map(str, table[name].shape)
                form = str(FORMATS[tensors.starts[name][0]].form)
                args = [place, f"{prefix}_{word}", "NULL", "0", rows, columns, form]
                lines += call_text("whet_rows_stored_f32", args)
            elif name in tensors.stored:
                lines += call_text("memcpy", [place, f"{prefix}_{word}", f"sizeof {place}"])
    for name, of in tensors.bases.items():
        part = "params" if of in tensors.params else "state"
        place = f"net->state.{tensors.ids[name]}"
        source = f"net->{part}.{tensors.ids[of]}"
        lines += call_text("memcpy", [place, source, f"sizeof {place}"])
    return [*lines, "}", "", f"size_t {prefix}_sizeof(void) {{ return sizeof({prefix}_t); }}"]


def checkpoint_functions(prefix: str, tensors: Tensors, fingerprint: int) -> list[str]:
    """Save and load: a header, then trained parameters and state in their memory layout."""
    parts = [p for p, table in (("params", tensors.params), ("state", tensors.state)) if table]
    upper = prefix.upper()
    spans = [f"        {{&net->{p}, sizeof net->{p}}}," for p in parts] + ["    };"]
    count = len(parts)
    return [
        f"size_t {prefix}_save(const {prefix}_t *net, void *buffer, size_t size) {{",
        "    const whet_const_bytes_t spans[] = {",
        *spans,
        f"    return whet_checkpoint_save(buffer, size, 0x{fingerprint:08x}u, spans, {count});",
        "}",
        "",
        f"{prefix}_status_t {prefix}_load({prefix}_t *net, const void *buffer, size_t size) {{",
        "    const whet_bytes_t spans[] = {",
        *spans,
        f"    switch (whet_checkpoint_load(buffer, size, 0x{fingerprint:08x}u, spans, {count})) {{",
        f"    case WHET_CHECKPOINT_OK: return {upper}_OK;",
        f"    case WHET_CHECKPOINT_TRUNCATED: return {upper}_TRUNCATED;",
        f"    case WHET_CHECKPOINT_FOREIGN: return {upper}_FOREIGN;",
        f"    default: return {upper}_CORRUPT;",
        "    }",
        "}",
    ]
