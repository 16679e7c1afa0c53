"""Make the loss over many classes and its gradients together, without all the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

from ..ir import Builder, Graph, Node, Role, Value
from ..ops.binary import Mul
from ..ops.linear import Linear, LinearDw, LinearDx
from ..ops.linear_loss import LinearCrossEntropy, head_floats, row_floats
from ..ops.loss import CrossEntropy, CrossEntropyDx
from ..ops.reduce import Sum
from ..ops.shape import Reshape
from .frozen_forms import Form
from .rewriting import Uses, rewrite
from .slice_first import layer_of

LARGE = 1 << 18  # bytes of scores from which it pays
GAIN = 2  # times the workspace that these have to be


@dataclass(frozen=True)
class Head:
    """A linear layer whose result is for a loss alone."""

    layer: Node
    loss: Node
    scale: Value | None = None  # the cotangent of the loss, if it is not 1
    gradients: dict[str, Value] = field(default_factory=dict)  # dx, dw and db, as far as wanted

    @property
    def trains(self) -> bool:
        return not self.gradients.keys() <= {"dx"}

    @property
    def attrs(self) -> LinearCrossEntropy.Attrs:
        own, bias = self.loss.attrs, len(self.layer.ins) > 2
        wanted = dict.fromkeys(self.gradients, True)
        return LinearCrossEntropy.Attrs(own.ignore_index, own.mean, bias=bias, **wanted)

    def pays(self, narrow: bool) -> bool:
        x, w = (v.type for v in self.layer.ins[:2])
        workspace = head_floats(self.attrs, x, w) + narrow * row_floats(self.attrs, w)
        return self.layer.out.type.bytes >= max(LARGE, GAIN * 4 * workspace)


def fuse_head(graph: Graph, narrow: Form | None = None) -> Graph:
    """cross_entropy(linear(x, w), labels) and its gradient become linear_cross_entropy.

    That is done where the layer is frozen and has many scores, as over the vocabulary of a language
    model. They never exist whole, and rows without a label cost nothing. The gradient of x is made
    with the loss. Its weight may be stored in the form `narrow`, see narrow_frozen.
    """
    return fuse(graph, lambda head: not head.trains and head.pays(narrow is not None))


def fuse_trained_head(graph: Graph) -> Graph:
    """The same where the layer trains: then the scores are made twice, and whole gradients once.

    That saves memory where the gradient of the weight exists whole anyway. Where its update is
    fused with it (see fuse_updates), all the scores may be smaller.
    """
    return fuse(graph, lambda head: head.trains and head.pays(narrow=False))


def fuse(graph: Graph, wanted: Callable[[Head], bool]) -> Graph:
    uses = Uses(graph)
    found = (head_of(node, uses, graph) for node in graph.nodes if node.op is CrossEntropy)
    heads = {h.loss.out: h for h in found if h is not None and wanted(h)}
    made: dict[Value, tuple[Value, Head]] = {}  # gradients, by the values that they replace

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.out in heads:
            head = heads[node.out]
            loss, *gradients = emit(b, head, uses)
            new = zip(head.gradients.values(), gradients, strict=True)
            made.update((old, (gradient, head)) for old, gradient in new)
            return (loss,)
        return (in_place_of(node.out, *made[node.out], b),) if node.out in made else None

    return rewrite(graph, rule) if heads else graph


def emit(b: Builder, head: Head, uses: Uses) -> tuple[Value, ...]:
    """Loss and gradients: the old values, where that is what they are."""
    x, *weights = head.layer.ins
    labels = head.loss.ins[1]
    while labels.shape != x.shape[:-1] and is_view(labels, uses):
        labels = uses.producer[labels].ins[0]
    if labels.shape != x.shape[:-1]:
        labels = b.emit(Reshape, labels, name=f"{labels.name}.view", shape=x.shape[:-1])
    b.loc = head.layer.loc
    new = b.emit_all(LinearCrossEntropy, x, *weights, labels, **asdict(head.attrs))
    old = (head.loss.out, *head.gradients.values())
    unscaled = old[:1] if head.scale is not None else old
    outs = tuple(
        v if v in unscaled and v.type == n.type else n for v, n in zip(old, new, strict=True)
    )
    b.nodes[-1] = replace(b.nodes[-1], outs=outs)
    return outs


def is_view(value: Value, uses: Uses) -> bool:
    return value in uses.producer and uses.producer[value].op.view


def in_place_of(old: Value, gradient: Value, head: Head, b: Builder) -> Value:
    if gradient is not old and head.scale is not None:
        gradient = b.emit(Mul, gradient, head.scale, name=old.name)
    if gradient.type != old.type:
        gradient = b.emit(Reshape, gradient, name=old.name, shape=old.shape)
    return gradient


def head_of(loss: Node, uses: Uses, graph: Graph) -> Head | None:
    """The head that ends in this loss, if it is one that can be fused."""
    scores = loss.ins[0]
    maker = uses.producer.get(scores)
    layer = layer_of(maker.ins[0], uses) if maker is not None and maker.op.view else maker
    if layer is None or layer.op is not Linear or layer.out.shape[-1] != scores.shape[-1]:
        return None
    others = [node for node in uses.readers[scores] if node is not loss]
    if loss.attrs.smoothing or len(loss.ins) > 2 or len(others) > 1 or scores in uses.kept:
        return None
    if not others:
        return Head(layer, loss)
    (dy,) = others
    if dy.op is not CrossEntropyDx or dy.ins[1:] != loss.ins or dy.attrs != loss.attrs:
        return None
    gradients = gradients_of(layer, dy, uses)
    scale = dy.ins[0]
    one = scale.role is Role.CONST and bool((graph.data[scale.name] == 1).all())
    return None if gradients is None else Head(layer, loss, None if one else scale, gradients)


def gradients_of(layer: Node, dy: Node, uses: Uses) -> dict[str, Value] | None:
    """What is made of dy for the layer's operands; None if dy has other readers, too."""
    x, w = layer.ins[:2]
    found: dict[str, Value] = {}
    for value, node in readers(dy.out, uses):
        if node is None:
            return None
        if node.op is LinearDx and node.ins == (value, w):
            name = "dx"
        elif node.op is LinearDw and node.ins == (value, x):
            name = "dw"
        elif node.op is Sum and node.attrs.axes == tuple(range(value.type.rank - 1)):
            name = "db"
        else:
            return None
        if name in found:
            return None
        found[name] = node.out
    return {name: found[name] for name in ("dx", "dw", "db") if name in found}


def readers(value: Value, uses: Uses) -> Iterator[tuple[Value, Node | None]]:
    """Who reads a value, directly or as a view; None for what the graph returns."""
    if value in uses.kept:
        yield value, None
    for node in uses.readers.get(value, ()):
        if node.op.view:
            yield from readers(node.out, uses)
        else:
            yield value, node
