"""Write model.h: what a program declares, and what it says about the arrays in its prototypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Role, Value
from ..ir.quant import Quant
from ..memory.plan import Plan
from ..names import entry_kind
from .c import GENERATION, STATUSES, InputBuffer, Signature, kept_names
from .c_text import comment, declaration, float_text, wrap_prototype
from .c_threads import threads_h
from .tensors import Tensors

OTHER_SIZES = ("predict_one", *GENERATION)  # entry points with arrays that are smaller

ENTRY_DOCS = {
    "train_step": "Forward pass, backward pass and update, on one batch.",
    "gradients": "Forward and backward pass; adds to the accumulated gradients.",
    "apply": "Update from the accumulated gradients, times `scale`, and clear them.",
    "predict": "Forward pass only, in eval mode. Outputs must not overlap inputs.",
    "begin": "The start of a round: from here on, the changes to be sent are counted.",
    "prefix": "The frozen layers: what train_step_kept takes, always the same for the same input.",
    "train_step_kept": "train_step, bit for bit, behind the frozen layers.",
    "gradients_kept": "gradients, bit for bit, behind the frozen layers.",
    "predict_one": "predict on one sample instead of a batch.",
    "prefill": "Read the next tokens of a text, which are at `position` and behind it.",
    "decode": "Read one token, the one at `position`; the output is the scores of the next.",
}


def model_h(
    prefix: str,
    plans: Mapping[str, Plan],
    tensors: Tensors,
    arena: int,
    align: int,
    batch: int,
    lr: float,
    threads: bool,
    quants: Mapping[str, Quant],
    axes: Mapping[str, str],
    places: Sequence[InputBuffer],
    more: Sequence[str] = (),
) -> str:
    upper = prefix.upper()
    lines = [
        f"/* {prefix}: a model that trains where it runs. report.txt describes its contents. */",
        f"#ifndef {upper}_MODEL_H",
        f"#define {upper}_MODEL_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        f"#define {upper}_ALIGNED alignas({align})",
        'extern "C" {',
        "#else",
        f"#define {upper}_ALIGNED _Alignas({align})",
        "#endif",
        "",
        *sizes(upper, plans, axes),
        *batch_h(upper, batch, plans),
        *generation_h(upper, plans),
        *meanings(upper, plans, quants),
        f"#define {upper}_ARENA_BYTES {max(arena, 1)}",
        f"#define {upper}_LEARNING_RATE {float_text(lr)} /* the optimizer's, at compile time */",
        "",
        *caller_types(prefix, plans),
        "",
        "typedef enum {",
        *(
            f"    {upper}_{name} = {i}, /* {why} */"
            for i, (name, why) in enumerate(STATUSES[: None if tensors.mapped else -1])
        ),
        f"}} {prefix}_status_t;",
        "",
        "/* All mutable data. The caller owns it; several instances train independently. */",
        "typedef struct {",
    ]
    for part, table in (("params", tensors.params), ("state", tensors.state)):
        if table:
            lines.append("    struct {")
            lines += [f"        {declaration(t, tensors.ids[n])};" for n, t in table.items()]
            lines.append(f"    }} {part};")
    lines += [
        f"    {upper}_ALIGNED unsigned char arena[{upper}_ARENA_BYTES];",
        f"}} {prefix}_t;",
        "",
        "/* Load the compiled-in weights and reset the optimizer state. */",
        f"void {prefix}_init({prefix}_t *net);",
        "",
    ]
    for entry, plan in plans.items():
        kind, length = entry_kind(entry)
        size = f" For sequences of {length}." if length else ""
        lines += [f"/* {ENTRY_DOCS[kind]}{size} */"]
        head = wrap_prototype(Signature.of(plan.graph).text(prefix, entry))
        lines += [*head[:-1], f"{head[-1]};", ""]
    lines += [
        "/* Write trained parameters and state to a buffer, or read them back. save returns the",
        " * number of bytes written, or the number needed if the buffer is NULL or too small. */",
        f"size_t {prefix}_save(const {prefix}_t *net, void *buffer, size_t size);",
        f"{prefix}_status_t {prefix}_load({prefix}_t *net, const void *buffer, size_t size);",
        "",
        f"size_t {prefix}_sizeof(void);",
        "",
        *more,
        *(line for place in places for line in place.declared(prefix)),
        *(threads_h(prefix) if threads else ()),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def sizes(upper: str, plans: Mapping[str, Plan], axes: Mapping[str, str]) -> list[str]:
    """The axes and number of elements of every array in the prototypes, by name."""
    found: dict[str, Value] = {}
    others = {name for name in plans if name in OTHER_SIZES or entry_kind(name)[1]}
    for plan in (plan for name, plan in plans.items() if name not in others):
        signature = Signature.of(plan.graph)
        found |= {n: v for n, v in signature.leaves if v.role is not Role.SCALAR}
        found |= {n: v for n, v in signature.outputs if n != "loss"}
    lines = []
    for name, v in found.items():
        lines += comment(f"{name}: {axes[name]}", "") if axes[name] else []
        lines.append(f"#define {upper}_{name.upper()}_ELEMENTS {v.type.elements}")
    return lines


def batch_h(upper: str, batch: int, plans: Mapping[str, Plan]) -> list[str]:
    """The batch size, and whether a single sample can be predicted."""
    lines = (
        [f"#define {upper}_BATCH {batch} /* samples in each of these arrays */"] if batch else []
    )
    lines += [f"#define {upper}_HAS_PREDICT_ONE 1"] if "predict_one" in plans else []
    return lines + kept_h(upper, plans)


def kept_h(upper: str, plans: Mapping[str, Plan]) -> list[str]:
    """Bytes to keep of a batch, if that can be done."""
    if "prefix" not in plans:
        return []
    outputs = plans["prefix"].graph.outputs
    size, names = sum(v.type.bytes for v in outputs), ", ".join(kept_names(len(outputs)))
    return [f"#define {upper}_KEPT_BYTES {size} /* of a batch: {names} */"]


def generation_h(upper: str, plans: Mapping[str, Plan]) -> list[str]:
    """How many tokens the entry points for texts take, and how many there may be."""
    if "decode" not in plans:
        return []
    read, decode = (plans[name].graph for name in GENERATION)
    tokens, (cache, *_) = read.leaves_of(Role.INPUT)[0], decode.leaves_of(Role.CACHE)
    text = (
        "prefill and decode keep keys and values of all tokens before `position` in the arena: any "
        "other entry point overwrites them. Begin at position 0; going back is allowed. A position "
        "without room for the tokens is a BAD_INDEX."
    )
    return [
        *comment(text, ""),
        f"#define {upper}_CONTEXT {cache.shape[0]} /* positions */",
        f"#define {upper}_PREFILL {tokens.type.elements} /* tokens that prefill takes */",
        f"#define {upper}_SCORES {decode.outputs[0].type.elements} /* that decode gives */",
    ]


def meanings(upper: str, plans: Mapping[str, Plan], quants: Mapping[str, Quant]) -> list[str]:
    """The scale and zero point of int8 inputs."""
    lines = []
    for name, v in Signature.of(plans["train_step"].graph).leaves:
        if v.name in quants:
            word, quant = f"{upper}_{name.upper()}", quants[v.name]
            note = f"/* {name} represents ({name} - ZERO) * SCALE */"
            lines += [f"#define {word}_SCALE {float_text(quant.scale)} {note}"]
            lines += [f"#define {word}_ZERO {quant.zero}"]
    return lines


def caller_types(prefix: str, plans: Mapping[str, Plan]) -> list[str]:
    """Element types of the arrays of a training step, by their names in its prototype."""
    leaves = Signature.of(plans["train_step"].graph).leaves
    arrays = [(name, v) for name, v in leaves if v.role is not Role.SCALAR]
    return [f"typedef {v.type.dtype.c} {prefix}_{name}_t;" for name, v in arrays]
