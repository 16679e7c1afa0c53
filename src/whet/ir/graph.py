"""The intermediate representation: a Graph is an immutable list of typed nodes.

The order of the nodes is the order of execution and so the memory schedule. Only a Builder makes
nodes, and it infers the type of every result, so an untyped node cannot exist. Updates are pure:
a parameter and its next value are two values, tied by an entry of `Graph.state`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, NoReturn, dataclass_transform

import numpy as np
import numpy.typing as npt

from ..errors import InternalError, ShapeError
from ..names import quoted
from .meta import is_meta
from .printing import print_graph
from .traits import Traits

Array = npt.NDArray[Any]


class DType(Enum):
    """Element types a value may have; the number is its size in bytes."""

    F32 = ("f32", 4, np.float32, "float")
    BF16 = ("bf16", 2, np.uint16, "uint16_t")  # the upper half of an f32, as bits
    I32 = ("i32", 4, np.int32, "int32_t")
    I16 = ("i16", 2, np.int16, "int16_t")
    I8 = ("i8", 1, np.int8, "int8_t")
    U8 = ("u8", 1, np.uint8, "uint8_t")

    def __init__(self, label: str, size: int, numpy: type[np.generic], c: str) -> None:
        self.label, self.size, self.numpy, self.c = label, size, numpy, c


@dataclass(frozen=True)
class Type:
    """Element type and static shape; prints as `f32[1,8,8,16]`."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size

    def __str__(self) -> str:
        return f"{self.dtype.label}[{','.join(map(str, self.shape))}]"


LARGEST = 2**31  # bytes of one array: kernels index with 32-bit integers


def f32(*shape: int) -> Type:
    return Type(DType.F32, shape)


def i32(*shape: int) -> Type:
    return Type(DType.I32, shape)


def i8(*shape: int) -> Type:
    return Type(DType.I8, shape)


def u8(*shape: int) -> Type:
    return Type(DType.U8, shape)


class Role(Enum):
    """What a value is for; decides where its bytes live in the built program."""

    INPUT = "input"  # the caller's array
    LABEL = "label"  # the caller's target, present in training entry points only
    SCALAR = "scalar"  # a run-time number such as the learning rate, passed by value
    PARAM = "param"  # a parameter of the model; in RAM if some entry point updates it
    STATE = "state"  # optimizer moments, running statistics, counters
    CONST = "const"  # known at compile time
    CACHE = "cache"  # what entry points keep for each other in the arena, until others run
    TEMP = "temp"  # computed; lives in the arena


CHANGING = (Role.PARAM, Role.STATE, Role.CACHE)  # what an entry point may update


class Relation(Enum):
    """What a value is to the value that its Link names."""

    PART = "part"  # the channels of a parameter that train, as a leaf of their own
    GRADIENT_SUM = "gradient sum"  # gradients collected since the last update
    MOMENT = "moment"  # optimizer state of the same shape
    MASTER = "master"  # the float that an integer parameter is rounded from
    CARRY = "carry"  # what rounding an integer parameter dropped
    BASE = "base"  # the same, as of the start of a round
    STORED = "stored"  # what a frozen weight is made of where a layer reads it
    MADE_FROM = "made from"  # a frozen weight: a view of a parameter, or with a norm folded in
    COTANGENT = "cotangent"  # computed in the backward pass of a value


@dataclass(frozen=True)
class Link:
    relation: Relation
    of: str  # the name of the other value


@dataclass(frozen=True, eq=False)
class Value:
    """The name is for readers: what a value is for is said by its role and its link.

    The link is not part of a graph's text, so that values of a parsed graph have none.
    """

    name: str
    type: Type
    role: Role = Role.TEMP
    link: Link | None = None

    def is_a(self, relation: Relation) -> bool:
        return self.link is not None and self.link.relation is relation

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __str__(self) -> str:
        return f"%{quoted(self.name)}"


@dataclass(frozen=True)
class Loc:
    """Where a node comes from in the user's model."""

    module: str = ""
    op: str = ""
    source: str = ""

    def __str__(self) -> str:
        return "  ".join(part for part in (quoted(self.module), self.op, self.source) if part)


Field = tuple[str, int | float | tuple[int, ...]]


@dataclass(frozen=True)
class Struct:
    """A constant parameter block of a kernel: a C struct type and its fields in order."""

    type: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Workspace:
    """Memory that a kernel needs while it runs and whose content means nothing before or after."""

    floats: int


Arg = (
    Value | None | int | float | Struct | Workspace
    | tuple[Value | None, ...] | tuple[int, ...] | tuple[float, ...] | tuple[Struct, ...]
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """Which kernel computes a node, and its arguments in order: data, not text.

    Values are passed as pointers, None as NULL, numbers by value, a Struct by address, and a tuple
    as an array of pointers or numbers.
    """

    kernel: str
    args: tuple[Arg, ...]
    source: str  # the file under kernels/ that defines it, without suffix
    needs: tuple[str, ...] = ()  # files with kernels that this one calls


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Attributes:
    """Operators without attributes use this; others derive from it, as frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


Grads = tuple["Value | None", ...]  # of results or of operands; None where there is none


class Op(Traits):
    """One operator: its formula (the docstring), type rule, NumPy meaning, gradient and kernel.

    What else passes need to know about it are its traits: see traits.py.
    """

    name: ClassVar[str]
    Attrs: ClassVar[type[Attributes]] = Attributes
    registry: ClassVar[dict[str, type[Op]]] = {}

    infer: ClassVar[Callable[..., Type | tuple[Type, ...]]]
    ref: ClassVar[Callable[..., Array | tuple[Array, ...]]]
    # The same in f32, with every sum in the order of kernels/ref and so with its bits; None if
    # `ref` is that already, or if nobody has written it.
    exact: ClassVar[Callable[..., Array | tuple[Array, ...]] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            if cls.name in Op.registry:
                raise InternalError(f"operator {cls.name!r} is defined twice")
            Op.registry[cls.name] = cls

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        """One cotangent per operand; `wants` says which of them anybody needs."""
        raise InternalError(f"{node.op.name} has no gradient", at=str(node.loc))

    @staticmethod
    def call(node: Node) -> Call | None:
        """The kernel call that computes the node; None for a view, which needs none."""
        raise InternalError(f"{node.op.name} has no kernel")

    @staticmethod
    def macs(node: Node) -> int:
        """Multiply-accumulates of one execution; element-wise work counts as none."""
        return 0

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        """Pairs (output, operand) the kernel allows to share storage, best first."""
        return ()

    @staticmethod
    def workspace(node: Node) -> int:
        """Floats of memory that the kernel needs while it runs."""
        return 0

    @staticmethod
    def bounds(node: Node) -> Mapping[int, tuple[int, int]]:
        """Operand -> (exclusive upper bound, exempt value): indices the program must check."""
        return {}

    view: ClassVar[bool] = False  # the result is the operand's bytes under another type
    differentiable: ClassVar[bool] = True  # whether a cotangent can pass through at all


def by_name(name: str) -> type[Op]:
    if name not in Op.registry:
        raise InternalError(f"there is no operator {name!r}", try_=", ".join(sorted(Op.registry)))
    return Op.registry[name]


@dataclass(frozen=True, eq=False)
class Node:
    op: type[Op]
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    attrs: Any
    loc: Loc = Loc()

    @property
    def out(self) -> Value:
        return self.outs[0]

    @cached_property
    def inferred(self) -> tuple[Type, ...]:
        """The types that its results must have."""
        types = self.op.infer(self.attrs, *(v.type for v in self.ins))
        return (types,) if isinstance(types, Type) else tuple(types)


@dataclass(frozen=True, eq=False)
class Graph:
    """One entry point: leaves, nodes in execution order, results, and parameter updates."""

    name: str
    leaves: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    state: tuple[tuple[Value, Value], ...] = ()
    data: Mapping[str, Array] = dataclasses.field(default_factory=dict)

    def leaves_of(self, *roles: Role) -> tuple[Value, ...]:
        return tuple(v for v in self.leaves if v.role in roles)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes, {len(self.leaves)} leaves>"

    def __str__(self) -> str:
        return print_graph(self)


def stored(array: Array, dtype: DType) -> Array:
    """Data as kept beside a graph: doubles stay, so that the graph can be evaluated in double."""
    if is_meta(array):
        found: Array = array.astype(dtype.numpy)
        return found
    if dtype is DType.F32 and array.dtype == np.float64:
        return np.asarray(array, order="C")
    return np.asarray(array, dtype=dtype.numpy, order="C")


class Builder:
    """The only maker of nodes: infers every type and gives every value a unique name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leaves: list[Value] = []
        self.nodes: list[Node] = []
        self.data: dict[str, Array] = {}
        self.state: list[tuple[Value, Value]] = []
        self.loc = Loc()
        self.scope = ""  # put before the name of a node that is given none
        self.link: Link | None = None  # of the results of nodes
        self._names: dict[str, int] = {}
        self._consts: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    @classmethod
    def extend(cls, graph: Graph, name: str) -> Builder:
        """A builder that already holds everything in `graph`; further nodes follow it."""
        b = cls(name)
        b.leaves, b.nodes = list(graph.leaves), list(graph.nodes)
        b.data, b.state = dict(graph.data), list(graph.state)
        for value in (*b.leaves, *(v for n in b.nodes for v in n.outs)):
            b._names[value.name] = 0
        return b

    def unique(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... if it is taken."""
        if name not in self._names:
            self._names[name] = 0
            return name
        while True:
            self._names[name] += 1
            candidate = f"{name}_{self._names[name]}"
            if candidate not in self._names:
                self._names[candidate] = 0
                return candidate

    def leaf(
        self,
        name: str,
        type: Type,
        role: Role,
        data: Array | None = None,
        link: Link | None = None,
    ) -> Value:
        value = Value(self.unique(name), type, role, link)
        self.leaves.append(value)
        if data is not None:
            self.data[value.name] = stored(np.asanyarray(data), type.dtype)
        return value

    def const(
        self,
        data: npt.ArrayLike,
        name: str = "const",
        dtype: DType = DType.F32,
        link: Link | None = None,
    ) -> Value:
        """A compile-time array; equal small arrays without a name of their own are shared."""
        array = stored(np.asanyarray(data), dtype)
        if array.size > 16 or is_meta(array):
            return self.leaf(name, Type(dtype, array.shape), Role.CONST, array, link)
        key = (dtype.label, array.shape, array.tobytes())
        if name == "const" and key in self._consts:
            return self._consts[key]
        value = self.leaf(name, Type(dtype, array.shape), Role.CONST, array, link)
        self._consts[key] = value
        return value

    def emit(self, op: type[Op], *ins: Value, name: str | None = None, **attrs: Any) -> Value:
        return self.emit_all(op, *ins, name=name, **attrs)[0]

    def emit_all(
        self, op: type[Op], *ins: Value, name: str | None = None, **attrs: Any
    ) -> tuple[Value, ...]:
        packed = op.Attrs(**attrs)
        try:
            types = op.infer(packed, *(v.type for v in ins))
            types = (types,) if isinstance(types, Type) else types
            if any(t.elements == 0 for t in types):
                raise ShapeError("the result has no elements")
            if any(t.bytes >= LARGEST for t in types):
                raise ShapeError("the result is larger than the 2 GiB that kernels can index")
        except ShapeError as error:
            operands = ", ".join(f"{v} : {v.type}" for v in ins)
            raise ShapeError(
                f"{op.name}: {error.what}", at=str(self.loc) or self.name, why=operands
            ) from None
        except TypeError as error:
            raise InternalError(f"{op.name} on {len(ins)} operands: {error}") from error
        base = name or self.scope + op.name
        names = [base] + [f"{base}.{i}" for i in range(1, len(types))]
        outs = tuple(
            Value(self.unique(n), t, link=self.link) for n, t in zip(names, types, strict=True)
        )
        self.nodes.append(Node(op, ins, outs, packed, self.loc))
        return outs

    def update(self, leaf: Value, next_value: Value) -> None:
        """After the entry point has run, `leaf` holds what `next_value` held."""
        self.state.append((leaf, next_value))

    def finish(self, outputs: Iterable[Value]) -> Graph:
        graph = prune(
            Graph(
                self.name,
                tuple(self.leaves),
                tuple(self.nodes),
                tuple(outputs),
                tuple(self.state),
                self.data,
            )
        )
        verify(graph)
        return graph


def prune(graph: Graph) -> Graph:
    """Drop every node, constant, parameter and state that no output or update depends on.

    Inputs, labels and scalars stay: they are the signature of the entry point.
    """
    needed = set(graph.outputs) | {v for pair in graph.state for v in pair}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(out in needed for out in node.outs):
            kept.append(node)
            needed.update(node.ins)
    signature = (Role.INPUT, Role.LABEL, Role.SCALAR)
    leaves = tuple(v for v in graph.leaves if v.role in signature or v in needed)
    names = {v.name for v in leaves}
    data = {name: array for name, array in graph.data.items() if name in names}
    return dataclasses.replace(graph, leaves=leaves, nodes=tuple(reversed(kept)), data=data)


def verify(graph: Graph) -> None:
    """Raise InternalError unless every value is defined once, before use, with the right type."""
    _Verifier(graph).run()


class _Verifier:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.defined: set[Value] = set()
        self.names: set[str] = set()

    def fail(self, what: str) -> NoReturn:
        graph = self.graph
        why = str(graph).splitlines()
        raise InternalError(f"invalid graph {graph.name!r}: {what}", why=why)

    def define(self, value: Value) -> None:
        if value.name in self.names:
            self.fail(f"{value} is defined twice")
        self.defined.add(value)
        self.names.add(value.name)

    def run(self) -> None:
        for leaf in self.graph.leaves:
            self.leaf(leaf)
        for node in self.graph.nodes:
            self.node(node)
        for value in self.graph.outputs:
            if value not in self.defined:
                self.fail(f"output {value} is not defined")
        updated: set[Value] = set()
        for leaf, nxt in self.graph.state:
            if leaf in updated:
                self.fail(f"{leaf} is updated twice")
            updated.add(leaf)
            if leaf not in self.defined or leaf.role not in CHANGING:
                self.fail(f"{leaf} is updated but is neither parameter nor state nor cache")
            if nxt not in self.defined or nxt.type != leaf.type:
                self.fail(f"next value {nxt} of {leaf} is undefined or of another type")

    def leaf(self, leaf: Value) -> None:
        if leaf.role is Role.TEMP:
            self.fail(f"leaf {leaf} has no role")
        self.define(leaf)
        data = self.graph.data.get(leaf.name)
        if data is None:
            if leaf.role is Role.CONST:
                self.fail(f"constant {leaf} has no data")
        elif data.shape != leaf.shape:
            self.fail(f"data of {leaf} has shape {data.shape}, not {leaf.shape}")

    def node(self, node: Node) -> None:
        for value in node.ins:
            if value not in self.defined:
                self.fail(f"{value} is used by {node.op.name} before it is defined")
        if node.inferred != tuple(v.type for v in node.outs):
            gives = node.inferred[0]
            self.fail(f"{node.out} has type {node.out.type}, {node.op.name} gives {gives}")
        for out in node.outs:
            self.define(out)
