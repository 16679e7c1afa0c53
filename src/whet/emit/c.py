"""Write the C of a program. Kernels are ordinary C files that are copied, not generated."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir import Arg, Call, Graph, Node, Op, Role, Struct, Type, Value, Workspace
from ..ir.printing import summary
from ..memory.plan import Buffer, Plan
from ..names import entry_kind
from .c_state import checkpoint_functions, init_function
from .c_text import (
    WIDTH,
    call_text,
    comment,
    number_text,
    opened,
)
from .layout import pack_call
from .tensors import Tensors, mapped_weights

LOSSES = ("train_step", "gradients", "train_step_kept", "gradients_kept")  # what they return


def kept_names(count: int) -> list[str]:
    """What is kept of a batch, from `prefix` to the entry points that take it."""
    return [f"kept_{i}" if i else "kept" for i in range(count)]


GENERATION = ("prefill", "decode")  # tokens from a position on, with the cache of those before


@dataclass(frozen=True)
class Signature:
    """The C parameters of an entry point by name, in order, and the values behind them.

    Parameters are named by their purpose: the leaf may have another name if the model has a
    parameter of that name.
    """

    leaves: tuple[tuple[str, Value], ...]
    outputs: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, graph: Graph) -> Signature:
        inputs, labels = graph.leaves_of(Role.INPUT), graph.leaves_of(Role.LABEL)
        words = [f"input_{i}" if i else "input" for i in range(len(inputs))]
        if graph.name.endswith("_kept"):
            words = kept_names(len(inputs))
        words += [f"label_{i}" if i else "label" for i in range(len(labels))]
        words += ["position"] if graph.name in GENERATION else ["lr", "scale"]
        leaves = zip(words, (*inputs, *labels, *graph.leaves_of(Role.SCALAR)), strict=False)
        if entry_kind(graph.name)[0] in LOSSES:
            names = ["loss"]
        elif graph.name == "prefix":
            names = kept_names(len(graph.outputs))
        else:
            n = len(graph.outputs)
            names = ["output"] if n == 1 else [f"output_{i}" for i in range(n)]
        return cls(tuple(leaves), tuple(zip(names, graph.outputs, strict=True)))

    def text(self, prefix: str, entry: str) -> str:
        parts = [f"{prefix}_t *net"]
        for name, leaf in self.leaves:
            if leaf.role is Role.SCALAR:
                parts.append(f"{leaf.type.dtype.c} {name}")
            else:
                parts.append(f"const {leaf.type.dtype.c} *{name}")
        parts += [f"{value.type.dtype.c} *{name}" for name, value in self.outputs]
        return f"{prefix}_status_t {prefix}_{entry}({', '.join(parts)})"


@dataclass(frozen=True)
class InputBuffer:
    """An optional buffer inside the arena for an input, named as in the prototypes."""

    name: str
    type: Type
    offset: int

    def head(self, prefix: str) -> str:
        return f"{self.type.dtype.c} *{prefix}_{self.name}({prefix}_t *net)"

    def declared(self, prefix: str) -> list[str]:
        return [
            f"/* Optional {self.name} buffer inside the arena. Training and prediction overwrite",
            " * it, so refill it before each call. */",
            f"{self.head(prefix)};",
            "",
        ]

    def defined(self, prefix: str) -> list[str]:
        return [f"{self.head(prefix)} {{ return AT({self.type.dtype.c}, {self.offset}); }}"]


def input_buffers_of(plan: Plan) -> list[InputBuffer]:
    """The inputs for which the plan has a buffer."""
    found = {b.values[0]: b.offset for b in plan.buffers if b.values[0].role is Role.INPUT}
    leaves = Signature.of(plan.graph).leaves
    return [InputBuffer(name, leaf.type, found[leaf]) for name, leaf in leaves if leaf in found]


class EntryWriter:
    """Writes the body of one entry point: a flat list of kernel calls."""

    def __init__(self, prefix: str, plan: Plan, tensors: Tensors, structs: dict[Struct, str]):
        self.prefix, self.plan, self.tensors, self.structs = prefix, plan, tensors, structs
        self.graph = plan.graph
        self.signature = Signature.of(self.graph)
        self.names = {leaf: name for name, leaf in self.signature.leaves}
        outputs = self.signature.outputs
        made = [(v, name) for name, v in reversed(outputs) if v.role is Role.TEMP]
        self.names |= {v: name for v, name in made if plan.home[v] is v}
        self.used: set[str] = set()

    def pointer(self, value: Value) -> str:
        home = self.plan.home[value]
        if isinstance(home, Value) and home in self.names:
            self.used.add(self.names[home])
            return f"&{self.names[home]}" if home.role is Role.SCALAR else self.names[home]
        if isinstance(home, Buffer):
            self.used.add("net")
            return f"AT({value.type.dtype.c}, {home.offset})"
        name = self.tensors.const.get((self.graph.name, home.name), home.name)
        word = self.tensors.ids[name]
        for part in ("params", "state"):
            if name in getattr(self.tensors, part):
                self.used.add("net")
                return f"net->{part}.{word}"
        return f"{self.prefix}_{word}"

    def argument(self, arg: Arg, node: Node) -> str:
        if arg is None:
            return "NULL"
        if isinstance(arg, Workspace):
            return self.pointer(self.plan.workspace[node])
        if isinstance(arg, Value):
            return self.pointer(arg)
        if isinstance(arg, Struct):
            return f"&{self.struct(arg)}"
        if isinstance(arg, tuple):
            parts = [self.argument(a, node) for a in arg]
            return f"(const {element_type(arg[0])}[]){{{', '.join(parts)}}}"
        return number_text(arg)

    def struct(self, struct: Struct) -> str:
        if struct not in self.structs:
            word = struct.type.removeprefix("whet_").removesuffix("_t")
            count = sum(1 for s in self.structs if s.type == struct.type)
            self.structs[struct] = f"{word}_{count + 1}"
        return self.structs[struct]

    def body(self) -> list[str]:
        lines = self.map_check() + self.bound_checks()
        losses = {v for n, v in self.signature.outputs if n == "loss"}
        for node in self.graph.nodes:
            lines += self.late_checks(node)
            if statement := self.statement(node):
                lines += ["", *comment(summary(node)), *statement]
            for value in losses.intersection(node.outs):
                lines += ["", *self.loss_guard(value)]
        lines += self.copies()
        unused = [name for name in ("net", *self.names.values()) if name not in self.used]
        lines = [*(f"    (void){name};" for name in unused), *lines]
        return [*lines, f"    return {self.prefix.upper()}_OK;"]

    def statement(self, node: Node) -> list[str]:
        """The kernel call of a node; nothing for a view."""
        call = node.op.call(node)
        if call is None:
            return []
        call = pack_call(node, call, self.tensors.packed)
        return call_text(call.kernel, [self.argument(a, node) for a in call.args])

    def loss_guard(self, loss: Value) -> list[str]:
        """Return the loss, and stop before any update if it is not finite."""
        return [
            f"    *loss = *{self.pointer(loss)};",
            f"    if (!whet_is_finite(*loss)) return {self.prefix.upper()}_NOT_FINITE;",
            "",
            "    /* Backward pass. Parameters and state may change from here on. */",
        ]

    def copies(self) -> list[str]:
        """Copy outputs that lie elsewhere, then the updates that were not made in place."""
        pairs = [(n, self.pointer(v), v) for n, v in self.signature.outputs if n != "loss"]
        pairs = [(to, source, v) for to, source, v in pairs if to != source]
        pairs += [(self.pointer(to), self.pointer(v), v) for to, v in self.plan.copies]
        lines = [call_text("memcpy", [to, source, str(v.type.bytes)]) for to, source, v in pairs]
        return ["", *(part for line in lines for part in line)] if lines else []

    def check(self, value: Value, limit: int, exempt: int) -> str:
        args = f"{self.pointer(value)}, {value.type.elements}, {limit}, {exempt}"
        status = f"{self.prefix.upper()}_BAD_INDEX"
        return f"    if (!whet_ids_in_range({args})) return {status};"

    def bounds(self, node: Node) -> list[tuple[Value, int, int]]:
        return [(node.ins[k], *limits) for k, limits in node.op.bounds(node).items()]

    def map_check(self) -> list[str]:
        """Stop before weights are read that are not there."""
        if not self.tensors.mapped:
            return []
        return [f"    if (!{mapped_weights(self.prefix)}) return {self.prefix.upper()}_UNMAPPED;"]

    def from_caller(self, value: Value) -> bool:
        home = self.plan.home[value]
        return isinstance(home, Value) and home.role in (Role.INPUT, Role.LABEL, Role.SCALAR)

    def bound_checks(self) -> list[str]:
        """Check indices from the caller before anything is touched."""
        found = [b for n in self.graph.nodes for b in self.bounds(n) if self.from_caller(b[0])]
        return list(dict.fromkeys(self.check(*b) for b in found))

    def late_checks(self, node: Node) -> list[str]:
        """Check computed indices where they are used."""
        return [self.check(*b) for b in self.bounds(node) if self.is_computed(b[0])]

    def is_computed(self, value: Value) -> bool:
        home = self.plan.home[value]
        return isinstance(home, Buffer) or home.role is Role.TEMP

    def function(self, threads: bool) -> list[str]:
        text = self.signature.text(self.prefix, self.graph.name)
        if not threads:
            return [*opened(text), *self.body(), "}"]
        name = f"{self.prefix}_{self.graph.name}"
        inner = text.replace(f" {name}(", f" {self.graph.name}(")
        args = ["net", *(n for n, _ in (*self.signature.leaves, *self.signature.outputs))]
        call = call_text(f"const {self.prefix}_status_t status = {self.graph.name}", args)
        return [
            *opened(f"static {inner}"),
            *self.body(),
            "}",
            "",
            *opened(text),
            "    const uint32_t before = whet_flush_subnormals();",
            *call,
            "    whet_restore_subnormals(before);",
            "    return status;",
            "}",
        ]


def element_type(arg: Arg) -> str:
    """The element type of an array argument that starts with `arg`."""
    if isinstance(arg, Struct):
        return f"{arg.type} *const"
    return {Value: "void *const", float: "float"}.get(type(arg), "int32_t")


def struct_text(name: str, struct: Struct) -> list[str]:
    parts = []
    for key, value in struct.fields:
        if isinstance(value, tuple):
            text = "{" + ", ".join(map(str, value)) + "}"
        else:
            text = number_text(value)
        parts.append(f".{key} = {text}")
    body = textwrap.wrap(
        ", ".join(p.replace(" ", "\0") for p in parts), WIDTH - 4, break_long_words=False
    )
    inner = [f"    {line}".replace("\0", " ") for line in body]
    return [f"static const {struct.type} {name} = {{", *inner, "};"]


def model_c(
    prefix: str,
    plans: Mapping[str, Plan],
    tensors: Tensors,
    fingerprint: int,
    threads: bool,
    headers: Sequence[str],
    places: Sequence[InputBuffer],
    more: Sequence[str] = (),
) -> str:
    structs: dict[Struct, str] = {}
    writers = [EntryWriter(prefix, p, tensors, structs) for p in plans.values()]
    functions = [writer.function(threads) for writer in writers]
    constants = [line for s, name in structs.items() for line in struct_text(name, s)]
    code = "\n".join(line for part in (constants, *functions) for line in part)
    lines = [
        f"/* {prefix}: the training program, one kernel call per node of its graph. */",
        '#include "model.h"',
        "",
        *(["#include <math.h>"] if re.search(r"\b(INFINITY|NAN)\b", code) else []),
        "#include <string.h>",
        "",
        '#include "weights.h"',
        *(f'#include "{name}"' for name in headers),
        *(['#include "whet_delta.h"'] if more else []),
        "",
        "/* An address inside the arena, whose size is in model.h. */",
        "#define AT(type, offset) ((type *)(void *)(net->arena + (offset)))",
        "",
        *constants,
        "",
        *init_function(prefix, tensors),
    ]
    for function in functions:
        lines += ["", *function]
    lines += ["", *checkpoint_functions(prefix, tensors, fingerprint)]
    lines += ["", *more] if more else []
    lines += [line for place in places for line in ("", *place.defined(prefix))]
    if threads:
        head = f"int {prefix}_set_threads(int count)"
        lines += ["", f"{head} {{ return (int)whet_set_threads((int32_t)count); }}"]
    return "\n".join(lines) + "\n"


def statements(
    prefix: str, plans: Mapping[str, Plan], tensors: Tensors
) -> dict[str, dict[Node, list[str]]]:
    """The lines of model.c that call a kernel, by entry point and node."""
    structs: dict[Struct, str] = {}  # in the order of model.c, which numbers them
    writers = [EntryWriter(prefix, plan, tensors, structs) for plan in plans.values()]
    return {w.graph.name: {n: w.statement(n) for n in w.graph.nodes} for w in writers}


def kernel_headers(int8: bool) -> str:
    """The includes that declare the kernels a program calls."""
    plain = '#include "whet_kernels.h"'
    return f'{plain}\n#include "whet_kernels_i8.h"' if int8 else plain


def included(text: str) -> list[str]:
    """The whet headers that a C file includes directly."""
    return re.findall(r'^#include "(whet_\w+\.h)"', text, re.MULTILINE)


STATUSES = (
    ("OK", "success"),
    ("BAD_INDEX", "a label or id is out of range; nothing was changed"),
    ("NOT_FINITE", "the loss is NaN or infinite; no parameter was changed"),
    ("TRUNCATED", "the checkpoint is shorter than its header says"),
    ("CORRUPT", "the checksum of the checkpoint does not match"),
    ("FOREIGN", "the checkpoint belongs to another model or version"),
    ("UNMAPPED", "weights.bin is not mapped, or cannot be opened"),  # only if it is to be
)


def used_kernels(plans: Iterable[Plan]) -> list[str]:
    """Names of the kernel files the program needs, sorted."""
    return sorted({"check", "checkpoint", *(name for _, name in sources(plans))})


def same_bits(plans: Iterable[Plan]) -> set[str]:
    """Those of which kernels in vec/ have the bits of ref/: an int8 program may take these alone.

    It has the same bits everywhere, and is compiled without contraction.
    """
    used = set(sources(plans))
    return {name for op, name in used if op.same_bits} - {n for op, n in used if not op.same_bits}


def sources(plans: Iterable[Plan]) -> Iterator[tuple[type[Op], str]]:
    """Every operator of the program, with each kernel file that it uses."""
    for node in (node for plan in plans for node in plan.graph.nodes):
        call: Call | None = node.op.call(node)
        if call is not None:
            yield from ((node.op, name) for name in (call.source, *call.needs))
