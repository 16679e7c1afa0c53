"""Every array of a program: its location, layout and C identifier."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..ir import Array, DType, Graph, Relation, Role, Type, Value, is_meta, origin_of
from .layout import pack, packed_weights
from .reserved import reserved


def identifier(name: str) -> str:
    """A name from the model as a C identifier; distinct names may collide, see `identifiers`."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    if word[:1].isdigit():
        return f"_{word}"
    return f"x_{word.lstrip('_')}" if reserved(word or "_") else word


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """A distinct C identifier for every name, in order."""
    taken: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        word, n = identifier(name), 1
        while word in used:
            n += 1
            word = f"{identifier(name)}_{n}"
        used.add(word)
        taken[name] = word
    return taken


def mapped_weights(prefix: str) -> str:
    """The variable with the address of mapped weights; no parameter can have its name."""
    return f"whet_{prefix}_weights"


def digest(array: Array) -> bytes:
    """Of the content; equal for equal content."""
    if is_meta(array):
        return origin_of(array).encode()
    flat = np.ascontiguousarray(array).reshape(-1)
    return hashlib.blake2b(flat.view(np.uint8).data, digest_size=16).digest()


@dataclass
class Tensors:
    """Every array of a program by location, with its C identifier."""

    params: dict[str, Type] = field(default_factory=dict)  # trained: in RAM
    state: dict[str, Type] = field(default_factory=dict)
    frozen: dict[str, Type] = field(default_factory=dict)  # parameters and constants: in flash
    data: dict[str, Array] = field(default_factory=dict)  # initial or constant content
    const: dict[tuple[str, str], str] = field(default_factory=dict)  # (entry, leaf) -> name
    bases: dict[str, str] = field(default_factory=dict)  # copies -> what they begin as a copy of
    packed: frozenset[str] = frozenset()  # leaves stored in the layout of vector kernels
    ids: dict[str, str] = field(default_factory=dict)
    # What trained parameters start from, if it is stored in blocks: the format, and their bytes.
    starts: dict[str, tuple[str, Array]] = field(default_factory=dict)
    mapped: bool = False  # the program maps a file with the content, which is not linked

    def __repr__(self) -> str:
        counts = len(self.params), len(self.state), len(self.frozen)
        return "<Tensors: {} train, {} of state, {} frozen>".format(*counts)

    @classmethod
    def of(
        cls,
        entries: Mapping[str, Graph],
        packing: bool,
        blocks: Callable[[Array], tuple[str, Array] | None] | None = None,
    ) -> Tensors:
        self = cls()
        updated = {leaf.name for g in entries.values() for leaf, _ in g.state}
        self.packed = packed_weights(entries, updated) if packing else frozenset()
        contents: dict[tuple[str, Type, bytes], str] = {}
        for graph in entries.values():
            for leaf in graph.leaves_of(Role.PARAM, Role.STATE):
                if leaf.role is Role.STATE:
                    table = self.state
                else:
                    table = self.params if leaf.name in updated else self.frozen
                table[leaf.name] = leaf.type
                if leaf.link and leaf.is_a(Relation.BASE):
                    self.bases[leaf.name] = leaf.link.of
                self.data[leaf.name] = self.laid_out(graph, leaf)
        for entry, graph in entries.items():
            for leaf in graph.leaves_of(Role.CONST):
                array = self.laid_out(graph, leaf).astype(leaf.type.dtype.numpy, copy=False)
                family = leaf.name.rstrip("_0123456789")  # const_3 may serve for const_7
                key = (family, leaf.type, digest(array))
                name = contents.setdefault(key, self.unused(leaf.name))
                self.const[entry, leaf.name] = name
                self.frozen[name] = leaf.type
                self.data[name] = array
        if blocks is not None:
            known = {n: self.data[n] for n in self.params if not is_meta(self.data[n])}
            found = {name: blocks(array) for name, array in known.items()}
            self.starts = {name: own for name, own in found.items() if own is not None}
        self.ids = identifiers([*self.params, *self.state, *self.frozen])
        return self

    def laid_out(self, graph: Graph, leaf: Value) -> Array:
        array = graph.data[leaf.name]
        return pack(array) if leaf.name in self.packed else array

    @property
    def image(self) -> int:
        """Bytes of the program image."""
        return sum(t.bytes for t in self.stored.values())

    def unused(self, name: str) -> str:
        taken, n = name, 1
        while taken in self.data:
            n += 1
            taken = f"{name}_{n}"
        return taken

    @functools.cached_property
    def stored(self) -> dict[str, Type]:
        """What the program image contains: constants, frozen parameters, and initial values.

        State that starts as zeros is not stored, nor is a copy.
        """
        started = {
            n: t for n, t in self.state.items() if n not in self.bases and self.data[n].any()
        }
        types = {**self.frozen, **self.params, **started}
        return types | {n: Type(DType.U8, data.shape) for n, (_, data) in self.starts.items()}

    def content(self, name: str) -> Array:
        """Of one of these."""
        return self.starts[name][1] if name in self.starts else self.data[name]
