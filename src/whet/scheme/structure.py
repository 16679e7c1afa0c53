"""Where attention and feed-forward networks are in a graph, told by what follows what.

Attention is softmax(q k') v, whether one operator says so (the trait `attends`) or two products
with a softmax in between. The linear layers that q, k and v come from are its projections, and the
one behind it is its output. A feed-forward network is a chain of linear layers with nothing but
activations between them, in the same block as some attention. No name of a module matters, except
that the numbers in them tell blocks apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..ir import Graph, Node, Role, Value
from ..ops.binary import Add
from ..ops.linear import Bmm
from ..ops.softmax import Softmax

ATTENTION = ("query", "key", "value", "qkv", "output")
FEED_FORWARD = ("up", "down")

Test = Callable[[Node], bool]


def is_linear(node: Node, made_of: Mapping[Value, tuple[Value, ...]]) -> bool:
    """Whether it is a linear layer: also one that multiplies by a weight as it is stored."""
    return matrix_place(node, made_of) is not None


def matrix_place(node: Node, made_of: Mapping[Value, tuple[Value, ...]]) -> int | None:
    """The operand that is the weight of a linear layer; None if the node is none."""
    facts = node.op.layer
    if facts is not None:
        weight = node.ins[facts.weight]
        leaves = made_of.get(weight, ())  # integer layers read a matrix as a kernel of 1 by 1
        matrix = any(v.type.rank == 2 for v in (weight, *leaves))
        return facts.weight if matrix and not facts.depthwise else None
    alone = node.op is Bmm and node.ins[0] not in made_of and node.ins[1].shape[0] == 1
    return 1 if alone and node.ins[1] in made_of else None


@dataclass
class Structure:
    """Walks over a graph; `made_of` has the values that are made of parameters alone."""

    graph: Graph
    made_of: Mapping[Value, tuple[Value, ...]]
    block: Callable[[str], str]  # the block that a parameter belongs to
    producer: dict[Value, Node] = field(default_factory=dict)
    readers: dict[Value, list[Node]] = field(default_factory=dict)
    order: dict[Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, node in enumerate(self.graph.nodes):
            self.order[node] = i
            self.producer.update((value, node) for value in node.outs)
            for value in node.ins:
                self.readers.setdefault(value, []).append(node)

    def roles(self) -> dict[str, str]:
        """What each linear layer's weight is for, by the name of the weight."""
        found: dict[str, set[str]] = {}
        for node in self.graph.nodes:
            for role, linear in self.attention(node):
                found.setdefault(self.weight(linear), set()).add(role)
        roles = {name: min(of) if len(of) == 1 else "qkv" for name, of in found.items()}
        return roles | self.feed_forward({self.block(name) for name in roles}, roles)

    # Attention ----------------------------------------------------------------------------------

    def attention(self, node: Node) -> Iterator[tuple[str, Node]]:
        """The linear layers of the attention whose softmax this is, each with its role."""
        if node.op.attends:
            operands = {word: [node.ins[i]] for i, word in enumerate(("query", "key", "value"))}
            results = [node.outs[0]]
        elif node.op is Softmax:
            scores = self.behind(node.ins[0], self.is_product)
            mixed = list(self.ahead(node.out, self.is_product))
            operands = {
                "query": [score.ins[0] for score in scores],
                "key": [score.ins[1] for score in scores],
                "value": [v for mix, seen in mixed for v in mix.ins if v not in seen],
            }
            results = [mix.out for mix, _ in mixed]
        else:
            return
        if not all(operands.values()):
            return
        for word, values in operands.items():
            for linear in self.nearest(n for v in values for n in self.behind(v, self.is_layer)):
                yield word, linear
        ends = [end for value in results for end, _ in self.ahead(value, self.is_layer)]
        yield from (("output", end) for end in ends if is_linear(end, self.made_of))

    def nearest(self, layers: Iterable[Node]) -> list[Node]:
        """Linear layers among these, of the last block that has any."""
        linear = [n for n in layers if is_linear(n, self.made_of)]
        if not linear:
            return []
        last = self.block(self.weight(max(linear, key=self.order.__getitem__)))
        return [node for node in linear if self.block(self.weight(node)) == last]

    # Feed-forward networks ----------------------------------------------------------------------

    def feed_forward(self, blocks: set[str], known: Mapping[str, str]) -> dict[str, str]:
        """The other linear layers in these blocks that stand in a row: the first, and those behind.

        A gate and what it is multiplied with are both first.
        """
        follows: dict[str, set[str]] = {}
        for node in self.graph.nodes:
            name = self.weight(node) if is_linear(node, self.made_of) else ""
            if name and name not in known and self.block(name) in blocks:
                ends = [end for end, _ in self.ahead(node.out, self.is_layer)]
                linear = [self.weight(end) for end in ends if is_linear(end, self.made_of)]
                own = {n for n in linear if n not in known and self.block(n) == self.block(name)}
                follows.setdefault(name, set()).update(own)
        ends_of = {name for behind in follows.values() for name in behind}
        firsts = {name: "up" for name, behind in follows.items() if behind and name not in ends_of}
        return firsts | {name: "down" for name in follows if name in ends_of}

    # Walks --------------------------------------------------------------------------------------

    def weight(self, linear: Node) -> str:
        """The name of the parameter that a linear layer multiplies by; of several, the first."""
        place = matrix_place(linear, self.made_of)
        leaves = self.made_of.get(linear.ins[place], ()) if place is not None else ()
        return leaves[0].name if leaves else ""

    def is_layer(self, node: Node) -> bool:
        """A layer of any kind; its weight may be made of parameters."""
        return node.op.layer is not None or is_linear(node, self.made_of)

    def is_product(self, node: Node) -> bool:
        """A product of two activations."""
        return node.op is Bmm and not is_linear(node, self.made_of)

    def ends(self, node: Node) -> bool:
        """What no walk goes through."""
        return self.is_layer(node) or self.is_product(node) or node.op.attends

    def behind(self, value: Value, wanted: Test) -> list[Node]:
        """The wanted nodes that the value is computed from, as near as there are any."""
        found: list[Node] = []
        waiting, seen = [value], {value}
        while waiting:
            node = self.producer.get(waiting.pop())
            if node is None:
                continue
            if wanted(node):
                found.append(node)
            elif not self.ends(node) and node.op is not Softmax:
                waiting += [v for v in node.ins if v not in seen]
                seen.update(node.ins)
        return list(dict.fromkeys(found))

    def ahead(self, value: Value, wanted: Test) -> Iterator[tuple[Node, set[Value]]]:
        """The wanted nodes that are next to be computed from the value, with what is on the way.

        A sum with something else is the end of a branch, and so is a normalisation.
        """
        seen, found, waiting = {value}, list[Node](), set(self.readers.get(value, ()))
        while waiting:  # in order, so that a sum of two values on the way is known to be one
            node = min(waiting, key=self.order.__getitem__)
            waiting.remove(node)
            if wanted(node):
                found.append(node)
            elif not self.ends(node) and not node.op.norm and not self.joins(node, seen):
                seen.update(node.outs)
                waiting.update(reader for v in node.outs for reader in self.readers.get(v, ()))
        yield from ((node, seen) for node in found)

    def joins(self, node: Node, seen: set[Value]) -> bool:
        """Whether it adds another activation to a branch."""
        others = (v for v in node.ins if v not in seen and v not in self.made_of)
        return node.op is Add and any(v.role is not Role.CONST for v in others)
