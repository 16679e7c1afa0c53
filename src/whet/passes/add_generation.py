"""Derive the entry points that write a text, `prefill` and `decode`, from the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ..errors import FrontendError, ShapeError
from ..ir import Builder, DType, Graph, Node, Role, Value, f32, i32
from ..ops.attention import Attention
from ..ops.cached import AttentionCached, PutRows, RowsAt
from ..ops.shape import Reshape
from .one_sample import for_one_sample
from .rewriting import Uses
from .shorter import Along, Fewer, resized

CHUNK = 32  # tokens of a prompt that are read at a time
FITS = "a causal language model such as Llama, Qwen2 or GPT-2, whose only input is the ids"


def add_generation(entries: Mapping[str, Graph]) -> dict[str, Graph]:
    """The entry points, and two that take the next tokens of one sequence and their position.

    Both put keys and values of the tokens into a cache, where attention sees all earlier ones.
    `decode` takes one token and gives the scores of the one behind it; `prefill` takes several, of
    a prompt, and gives nothing.
    """
    whole = entries["predict"]
    ids = the_input(whole)
    if ids.shape[0] > 1:
        single = for_one_sample(whole)
        if single is None:
            raise refused("what it computes for a sequence depends on the others in a batch")
        whole = single
    several = max(1, min(CHUNK, ids.shape[1] // 2))
    return {
        **entries,
        "prefill": Shortened(whole, "prefill", several).graph(()),
        "decode": Shortened(whole, "decode", 1).graph(whole.outputs),
    }


def refused(why: str, at: str = "") -> FrontendError:
    return FrontendError("the model cannot write a text token by token", at=at, why=why, try_=FITS)


def the_input(graph: Graph) -> Value:
    inputs = graph.leaves_of(Role.INPUT)
    if len(inputs) != 1:
        raise refused(f"it has {len(inputs)} inputs")
    (ids,) = inputs
    if ids.type.dtype is not DType.I32 or ids.type.rank != 2:
        raise refused(f"its input is {ids.type}, not ids [batch, length]")
    if ids.shape[1] < 2:
        raise refused("it was compiled for sequences of one token")
    if len(graph.outputs) != 1:
        raise refused(f"it has {len(graph.outputs)} outputs")
    return ids


class Shortened:
    """A prediction for `rows` tokens of one sequence, with a cache of those before them.

    Everything but attention works on each position by itself, or the model is refused. What
    differs from position to position and does not come from the input, such as the tables of a
    rotation, is read at the position.
    """

    def __init__(self, whole: Graph, name: str, rows: int) -> None:
        ids = the_input(whole)
        self.whole, self.uses, self.rows, self.length = whole, Uses(whole), rows, ids.shape[1]
        self.fewer = Fewer(self.length, rows)
        self.b = b = Builder.extend(whole, name)
        b.nodes = []
        short = replace(ids, type=resized(ids.type, 1, rows))
        b.leaves[b.leaves.index(ids)] = short
        self.position = b.leaf("position", i32(), Role.SCALAR)
        self.now: dict[Value, Value] = {ids: short}
        self.known: dict[Value, Along] = {ids: Along(1)}
        self.tables: dict[tuple[Value, int], Value] = {}
        for node in whole.nodes:
            b.loc = node.loc
            self.add(node)
        if not b.state:
            raise refused("there is no attention in it")

    def graph(self, outputs: tuple[Value, ...]) -> Graph:
        for value in outputs:
            if value not in self.known:
                raise refused(f"its output {value.type} has no scores for each position")
        return self.b.finish(self.now[v] for v in outputs)

    def add(self, node: Node) -> None:
        if not any(v in self.known for v in node.ins):
            self.b.nodes.append(node)
        elif node.op is Attention:
            self.add_attention(node)
        else:
            made = self.shorter(node, node.ins) or self.shorter(node, self.at_position(node))
            if made is None:
                raise refused(f"{node.op.name} works on all positions at once", str(node.loc))
            self.now.update(zip(node.outs, made.outs, strict=True))
            self.b.nodes.append(made)

    def shorter(self, node: Node, ins: tuple[Value, ...]) -> Node | None:
        """The node for fewer positions, if it works on each by itself."""
        attrs = self.fewer.attributes(node, self.known)
        made = replace(node, ins=tuple(self.now.get(v, v) for v in ins), attrs=attrs)
        try:
            types = made.inferred
        except ShapeError:
            return None
        outs = tuple(replace(v, type=t) for v, t in zip(node.outs, types, strict=True))
        found = {}
        for old, new in zip(node.outs, outs, strict=True):
            where = self.fewer.found(node, old, new, self.known)
            if where is not None and self.apart(node, where):
                found[old] = where
            elif old in self.uses.readers or old in self.uses.kept:
                return None
        self.known |= found
        return replace(made, outs=outs)

    def apart(self, node: Node, where: Along) -> bool:
        """Whether the node works on each position by itself."""
        if node.op is Reshape:
            return True
        operands = [(i, self.known[v]) for i, v in enumerate(node.ins) if v in self.known]
        return all(node.op.row_axis(node, i, v.axis) == where.axis for i, v in operands)

    def at_position(self, node: Node) -> tuple[Value, ...]:
        """The operands, with rows at the position of those that differ from place to place."""
        along = {
            node.op.row_axis(node, i, self.known[v].axis)
            for i, v in enumerate(node.ins)
            if v in self.known
        }

        def part(i: int, value: Value) -> Value:
            for axis, n in enumerate(value.shape):
                places = n == self.length and prod(value.shape[:axis]) == 1
                if places and along == {node.op.row_axis(node, i, axis)}:
                    return self.part(value, axis)
            return value

        return tuple(v if v in self.known else part(i, v) for i, v in enumerate(node.ins))

    def part(self, value: Value, axis: int) -> Value:
        """The rows of a table along an axis."""
        if (value, axis) not in self.tables:
            shape = value.shape[axis:]
            table = self.reshaped(value, shape)
            name = f"{value.name}.here"
            rows = self.b.emit(RowsAt, table, self.position, name=name, rows=self.rows)
            full = (*value.shape[:axis], self.rows, *shape[1:])
            self.tables[value, axis] = self.reshaped(rows, full)
        return self.tables[value, axis]

    def add_attention(self, node: Node) -> None:
        q, k, v, *mask = node.ins
        where = str(node.loc)
        if mask:
            raise refused("attention has a mask besides the causal one", where)
        if not node.attrs.causal:
            raise refused("attention is not causal: each position sees later ones", where)
        if any(self.known.get(x) != Along(1) for x in (q, k, v)):
            raise refused("attention is not among the positions of the input", where)
        query = self.one_sequence(q)
        seen = [self.cached(x) for x in (k, v)]
        b, scale = self.b, node.attrs.scale
        y = b.emit(AttentionCached, query, *seen, self.position, name=node.out.name, scale=scale)
        self.now[node.out] = self.reshaped(y, (1, *y.shape))
        self.known[node.out] = Along(1)

    def cached(self, value: Value) -> Value:
        """The cache of keys or values, with those of these tokens."""
        rows, b = self.one_sequence(value), self.b
        kind = f32(self.length, *rows.shape[1:])
        cache = b.leaf(f"{value.name}.cache", kind, Role.CACHE)
        full = b.emit(PutRows, cache, rows, self.position, name=f"{value.name}.cached")
        b.update(cache, full)
        return full

    def one_sequence(self, value: Value) -> Value:
        short = self.now[value]
        return self.reshaped(short, short.shape[1:])

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if value.shape == shape:
            return value
        return self.b.emit(Reshape, value, name=f"{value.name}.view", shape=shape)
