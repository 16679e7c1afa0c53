"""Write the C function that gives the update to be sent: see kernels/ref/delta.c."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..ir import Array, DType, Relation, Type
from ..training import Send
from .c_text import WIDTH, float_text, wrap_prototype

if TYPE_CHECKING:
    from .program import Program

KINDS = {DType.F32: "F32", DType.I8: "I8", DType.I16: "I16", DType.I32: "I32"}


class Delta:
    """The arrays of which an update consists, and how it is sent."""

    def __init__(self, program: Program, send: Send) -> None:
        self.send, self.prefix, self.tensors = send, program.name, program.storage
        self.model = program.fingerprint
        leaves = {v.name: v for graph in program.entries.values() for v in graph.leaves}
        linked = {(v.link.relation, v.link.of): v.name for v in leaves.values() if v.link}
        self.linked = linked
        self.names = {
            name: linked.get((Relation.MASTER, name), name) for name in program.storage.params
        }
        self.steps = {name: step_sizes(program, name) for name in self.names}

    @property
    def n(self) -> int:
        return sum(self.kind(name).elements for name in self.names)

    @property
    def bytes(self) -> int:
        return self.send.most_bytes(self.n)

    def kind(self, name: str) -> Type:
        tables: Mapping[str, Type] = self.tensors.params | self.tensors.state
        return tables[name]

    def place(self, name: str | None) -> str:
        if name is None:
            return "NULL"
        part = "params" if name in self.tensors.params else "state"
        return f"net->{part}.{self.tensors.ids[name]}"

    @property
    def head(self) -> str:
        p = self.prefix
        return (
            f"size_t {p}_delta(const {p}_t *net, void *buffer, size_t size, uint32_t round, "
            "const uint8_t *key)"
        )

    @property
    def base_bytes(self) -> int:
        """The copy of what trains, from the start of a round."""
        return sum(self.kind(name).bytes for name in self.tensors.bases)

    @property
    def words(self) -> str:
        send, k = self.send, self.send.count(self.n)
        words = [f"clipped to a norm of {send.clip:g}"] if send.clip else []
        words += [f"with Gaussian noise of {send.noise:g} times that"] if send.noise else []
        words += [f"the {k} largest of {self.n} changes" if k < self.n else f"{k} changes"]
        return ", ".join(words)

    def declared(self) -> list[str]:
        upper = self.prefix.upper()
        return [
            f"/* The update to send: {self.words}.",
            " * Writes it to a buffer of at least DELTA_BYTES and returns its size; returns",
            " * DELTA_BYTES if the buffer is NULL or smaller, 0 if a parameter is not finite or",
            " * noise has no key. `key` are 32 secret random bytes, or NULL without noise. Never",
            " * use a key and a round for two different updates. */",
            f"#define {upper}_DELTA_BYTES {self.bytes}",
            *self.wrapped(";"),
            "",
        ]

    def wrapped(self, end: str) -> list[str]:
        lines = wrap_prototype(self.head)
        return [*lines[:-1], f"{lines[-1]}{end}"]

    def defined(self) -> list[str]:
        send, lines = self.send, []
        for name, sizes in self.steps.items():
            if sizes is not None:
                lines += self.step_table(name, sizes)
        k, grid = send.count(self.n), float_text(send.grid)
        settings = [f"0x{self.model:08x}u", str(self.n), str(k), float_text(send.clip or 0.0), grid]
        settings += [f"WHET_CODING_{send.coding.upper()}", str(self.bytes)]
        return [
            *lines,
            *self.wrapped(" {"),
            "    const whet_sent_t arrays[] = {",
            *(line for name in self.names for line in self.row(name)),
            "    };",
            f"    static const whet_send_t send = {{{', '.join(settings)}}};",
            f"    return whet_delta(buffer, size, arrays, {len(self.names)}, &send, round, key);",
            "}",
        ]

    def step_table(self, name: str, sizes: tuple[Array, int]) -> list[str]:
        """What an integer of 1 stands for, by channel."""
        texts = [float_text(x) for x in sizes[0].astype(np.float32)]
        per = (WIDTH - 4) // (max(map(len, texts)) + 2)
        rows = [", ".join(texts[i : i + per]) for i in range(0, len(texts), per)]
        head = f"static const float {self.tensors.ids[name]}_step[{len(texts)}] = {{"
        return [head, *(f"    {row}," for row in rows), "};"]

    def row(self, name: str) -> list[str]:
        now, kind = self.names[name], self.kind(name)
        base = self.linked[Relation.BASE, now]
        carry = self.linked.get((Relation.CARRY, name))
        carry_base = self.linked[Relation.BASE, carry] if carry else None
        step, channels, inner = "NULL", 1, 1
        if (sizes := self.steps[name]) is not None:
            step, channels = f"{self.tensors.ids[name]}_step", len(sizes[0])
            inner = sizes[1]
        kinds = [KINDS[self.kind(n).dtype] if n else "F32" for n in (now, carry)]
        first = [self.place(n) for n in (now, base, carry, carry_base)]
        second = [step, str(kind.elements), str(channels), str(inner)]
        second += [f"WHET_SENT_{k}" for k in kinds]
        return [f"        {{{', '.join(first)},", f"         {', '.join(second)}}},"]


def step_sizes(program: Program, name: str) -> tuple[Array, int] | None:
    """What a step of 1 of an integer parameter stands for, by channel, and how many elements of a
    channel lie side by side."""
    unit = program.integer_rules.units.get(name)
    if unit is None:
        return None
    sizes = program.entries["train_step"].data[unit.scale] * unit.unit
    if unit.channels is not None:
        sizes = sizes[list(unit.channels)]
    shape = program.storage.params[name].shape
    return np.ravel(sizes), int(np.prod(shape[unit.axis + 1 :], dtype=np.int64))


def delta_of(program: Program) -> Delta | None:
    return Delta(program, program.options.send) if program.options.send else None
