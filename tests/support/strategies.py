"""Hypothesis strategies for small random graphs that are valid by construction.

A graph is grown node by node: each move looks at the values there are and adds operators of one
family to one of them. Shapes stay tiny, so that a failing graph shrinks to a few lines of IR text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from whet.errors import FrontendError
from whet.ir import Array, Builder, DType, Graph, Op, Role, Type, Value, f32, i32
from whet.ops import by_name
from whet.ops.optimizers import OPTIMIZERS
from whet.training import Training, UpdateRule, train_step

SMOOTH = ("sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "sin", "cos", "neg")
KINKED = ("relu", "hardswish", "hardsigmoid", "abs")
Draw = Callable[[st.SearchStrategy], object]


@dataclass
class Grower:
    """A graph under construction and the means to make random choices."""

    draw: Draw
    smooth: bool
    b: Builder = field(default_factory=lambda: Builder("forward"))
    values: list[Value] = field(default_factory=list)
    rng: Value | None = None
    numbers: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def pick(self, *ranks: int) -> Value | None:
        """One of the float values, of one of the given ranks if any are given."""
        found = [v for v in self.values if not ranks or v.type.rank in ranks]
        return self.draw(st.sampled_from(found[::-1])) if found else None

    def choose(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def array(self, *shape: int) -> Array:
        return self.numbers.normal(size=shape) * 0.5

    def param(self, *shape: int) -> Value:
        """A parameter of this shape: a new one, or one that is there already."""
        same = [v for v in self.b.leaves if v.role is Role.PARAM and v.shape == shape]
        if same and self.draw(st.booleans()):
            return self.draw(st.sampled_from(same))
        count = sum(v.role is Role.PARAM for v in self.b.leaves)
        return self.b.leaf(f"layer{count}.weight", f32(*shape), Role.PARAM, self.array(*shape))

    def add(self, op: str, *ins: Value, **attrs: object) -> None:
        """Further results, such as statistics and indices, are for the backward pass only."""
        self.values.append(self.b.emit(by_name(op), *ins, **attrs))


def unary(g: Grower) -> None:
    x = g.pick()
    op = g.choose(*SMOOTH, *(() if g.smooth else KINKED))
    g.add(op, x)


def numbered(g: Grower) -> None:
    """Functions with attributes that are numbers, infinite ones among them."""
    x = g.pick()
    attrs = g.choose(
        ("leaky_relu", {"negative_slope": 0.3}),
        ("clamp", {"low": -0.25}),
        ("clamp", {"low": float("-inf"), "high": 0.5}),
        ("hardtanh", {"high": 0.75}),
        ("elu", {"alpha": 1.5}),
    )
    g.add(*((attrs[0], x) if not g.smooth else ("pow", x)), **(attrs[1] if not g.smooth else {}))


def binary(g: Grower) -> None:
    x = g.pick()
    same = [v for v in g.values if v.shape == x.shape]
    y = g.draw(st.sampled_from(same))
    g.add(g.choose("add", "sub", "mul", *(() if g.smooth else ("maximum",))), x, y)


def broadcast(g: Grower) -> None:
    x = g.pick(1, 2, 4)
    if x is not None:
        shape = g.choose(x.shape[-1:], (1,) * x.type.rank, ())
        other = g.b.const(g.array(*shape)) if g.draw(st.booleans()) else g.param(*shape)
        g.add(g.choose("add", "sub", "mul"), *g.choose((x, other), (other, x)))


def linear(g: Grower) -> None:
    x = g.pick(2)
    if x is not None:
        out = g.choose(2, 3)
        bias = [g.param(out)] if g.draw(st.booleans()) else []
        g.add("linear", x, g.param(out, x.shape[-1]), *bias)


def convolution(g: Grower) -> None:
    x = g.pick(4)
    if x is not None and min(x.shape[1:3]) >= 2:
        pad = g.choose((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0))
        stride = g.choose((1, 1), (2, 1))
        channels = x.shape[3]
        if g.draw(st.booleans()):
            g.add("conv2d", x, g.param(2, 2, 2, channels), pad=pad, stride=stride)
        else:
            g.add("depthwise", x, g.param(2, 2, channels), pad=pad, stride=stride)


def pool(g: Grower) -> None:
    x = g.pick(4)
    if x is not None and min(x.shape[1:3]) >= 2:
        out = tuple(n // 2 for n in x.shape[1:3])
        op = "avg_pool2d" if g.smooth else g.choose("max_pool2d", "avg_pool2d")
        g.add(op, x, out=out, kernel=(2, 2), stride=(2, 2))


def normalise(g: Grower) -> None:
    x = g.pick(2, 4)
    if x is not None and x.type.elements // x.shape[-1] > 1:
        scale, shift = g.param(x.shape[-1]), g.param(x.shape[-1])
        g.add(g.choose("batch_norm_train", "group_norm"), x, scale, shift, eps=0.01)


def softmax(g: Grower) -> None:
    x = g.pick(1, 2, 4)
    if x is not None:
        g.add(g.choose("softmax", "log_softmax"), x, axis=x.type.rank - 1)


def reduction(g: Grower) -> None:
    x = g.pick(1, 2, 4)
    if x is not None:
        axes = g.choose((0,), (x.type.rank - 1,), tuple(range(x.type.rank)))
        g.add(g.choose("sum", "mean"), x, axes=axes)
        small = g.values[-1]
        if g.draw(st.booleans()):
            g.add("expand", small, shape=x.shape, scale=0.5)


def moving(g: Grower) -> None:
    x = g.pick(2, 4)
    if x is None:
        return
    last = x.type.rank - 1
    kind = g.choose("reshape", "transpose", "slice", "concat", "pad")
    if kind == "reshape":
        rest = x.type.elements // x.shape[0]
        g.add(kind, x, shape=g.choose((x.type.elements,), (x.shape[0], rest)))
    elif kind == "transpose":
        g.add(kind, x, perm=tuple(reversed(range(x.type.rank))))
    elif kind == "slice":
        g.add(kind, x, axis=last, start=0, stop=max(1, x.shape[-1] - 1))
    elif kind == "concat":
        g.add(kind, x, x, axis=last)
    else:
        g.add(kind, x, low=(0,) * (last + 1), high=(0,) * last + (1,), value=g.choose(0.0, -1.5))


def condition(g: Grower) -> None:
    if g.smooth:
        return unary(g)
    x = g.pick()
    test = g.b.emit(by_name(g.choose("gt", "ge", "ne")), x, g.b.const(np.float32(0.1)))
    g.add("where", test, x, g.b.const(np.float32(-1.0)))


def random(g: Grower) -> None:
    if g.rng is None:
        g.rng = g.b.leaf("rng", i32(2), Role.STATE, np.array([7, 3]))
    g.add("dropout", g.pick(), g.rng, p=0.25, site=len(g.values))


def cut(g: Grower) -> None:
    g.add("detach", g.pick())


def remember(g: Grower) -> None:
    """State whose next value is any value of its type: computed, an input, or other state."""
    x = g.pick()
    old = [v for v in g.b.leaves if v.role is Role.STATE and v.type == x.type]
    new = g.b.leaf(f"memory{len(g.b.state)}", x.type, Role.STATE, g.array(*x.shape))
    source = g.draw(st.sampled_from([x, *old]))
    g.b.update(new, source)
    updated = {leaf for leaf, _ in g.b.state}
    for leaf in old:
        if leaf not in updated and g.draw(st.booleans()):
            g.b.update(leaf, new)
    g.values.append(new)


MOVES = (
    unary, numbered, binary, broadcast, linear, convolution, pool, normalise, softmax, reduction,
    moving, condition,
)  # fmt: skip
STATEFUL = (random, cut, remember)


def grow(draw: Draw, smooth: bool, moves: tuple[Callable[[Grower], None], ...]) -> Graph:
    """A graph whose only output is `loss`, the mean of everything that nothing else reads."""
    g = Grower(draw, smooth, numbers=np.random.default_rng(draw(st.integers(0, 2**16))))
    shape = draw(st.sampled_from([(2, 3), (2, 4, 3, 2)]))
    g.values.append(g.b.leaf("input", f32(*shape), Role.INPUT))
    g.values.append(g.param(*shape))
    for _ in range(draw(st.integers(1, 10))):
        draw(st.sampled_from(moves))(g)
    if g.rng is not None:
        g.b.update(g.rng, g.b.emit(by_name("rng_next"), g.rng, name="rng.next"))
    read = {v for n in g.b.nodes for v in n.ins}
    loose = [v for v in g.values if v not in read]
    total: Value | None = None
    for v in loose or g.values[-1:]:
        mean = g.b.emit(by_name("mean"), v, axes=tuple(range(v.type.rank)))
        one = g.b.emit(by_name("reshape"), mean, shape=())
        total = one if total is None else g.b.emit(by_name("add"), total, one)
    assert total is not None
    return g.b.finish([g.b.emit(by_name("mul"), total, g.b.const(np.float32(1)), name="loss")])


@st.composite
def graphs(draw: Draw, smooth: bool = False, stateful: bool = True) -> Graph:
    """Forward graphs of all families; `smooth` ones can be compared with finite differences."""
    return grow(draw, smooth, MOVES + (STATEFUL if stateful else ()))


@st.composite
def trainings(draw: Draw, graph: Graph) -> Training:
    names = [v.name for v in graph.leaves_of(Role.PARAM)]
    trained = [n for n in names if draw(st.booleans())] or names[:1]
    optimizer = draw(st.sampled_from(OPTIMIZERS))
    clip = draw(st.sampled_from([None, 0.5]))
    return Training({n: UpdateRule(optimizer, {"weight_decay": 0.01}) for n in trained}, clip)


@st.composite
def steps(draw: Draw) -> Graph:
    """Whole training steps: forward, backward and updates."""
    graph = draw(graphs())
    training = draw(trainings(graph))
    try:
        return train_step(graph, training)
    except FrontendError:  # no trained parameter reaches the loss
        reject()


def feed(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """A value for every leaf that has none of its own."""
    rng = np.random.default_rng(seed)
    values = {"lr": np.float32(0.1)}
    for leaf in graph.leaves:
        if leaf.name not in graph.data and leaf.name not in values:
            values[leaf.name] = random_array(rng, leaf.type)
    return values


def random_array(rng: np.random.Generator, t: Type) -> Array:
    if t.dtype is DType.F32:
        return rng.normal(size=t.shape)
    return rng.integers(0, 2, t.shape).astype(t.dtype.numpy)


def operators(graph: Graph) -> list[type[Op]]:
    return [n.op for n in graph.nodes]
