"""Turn a float graph into one of integers: int8 in between, int32 sums, floats where it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import FrontendError, warn
from ..ir import Array, Builder, DType, Graph, Layer, Node, Op, Role, Type, Value, i8
from ..ir.quant import LOW, Quant, Recipe
from ..ops.binary import Add, Mul
from ..ops.conv_i8 import IntegerLayer
from ..ops.pool import AvgPool2d, MaxPool2d
from ..ops.pool_i8 import AvgPoolI8, UpsampleBilinearI8
from ..ops.quantized import AddI8, Dequantize, Requantize
from ..ops.reduce import Mean
from ..ops.resize import UpsampleBilinear
from ..ops.settle import MOST
from ..ops.shape import Concat, Pad, Reshape
from ..passes.rewriting import Uses
from ..training import Unit
from .calibrate import not_calibrated
from .floats import computes, from_input, message
from .options import Int8
from .weights import to_integers, weight_scales

HEADROOM = 4  # times its first weights that an int8 head, which is new, can grow to
LARGEST_PRODUCT = 255 * 128


@dataclass(frozen=True)
class Coded:
    """An int8 value and what it stands for."""

    value: Value
    quant: Quant


@dataclass(frozen=True)
class Integers:
    """An integer graph, and what its parameters and inputs stand for."""

    graph: Graph
    units: dict[str, Unit]
    inputs: dict[str, Quant]


def to_integer_graph(graph: Graph, recipe: Recipe, options: Int8) -> Integers:
    """The same network with int8 layers; ops without an integer form stay f32, with a warning."""
    return Quantizer(graph, recipe, options).run()


def heads_of(graph: Graph) -> set[Node]:
    """The layers whose results no other layer depends on."""
    leads: set[Value] = set()  # to a layer
    heads: set[Node] = set()
    for node in reversed(graph.nodes):
        layer = node.op.integer is not None
        if layer and not leads.intersection(node.outs):
            heads.add(node)
        if layer or leads.intersection(node.outs):
            leads.update(node.ins)
    return heads


def products(node: Node) -> int:
    """How many products each sum of a layer has."""
    layer = facts(node)
    weight = node.ins[layer.weight].type
    return weight.elements // weight.shape[layer.outputs]


def facts(node: Node) -> Layer:
    assert node.op.layer is not None
    return node.op.layer


class Quantizer:
    def __init__(self, graph: Graph, recipe: Recipe, options: Int8) -> None:
        self.graph, self.recipe, self.options = graph, recipe, options
        self.uses = Uses(graph)
        self.heads = heads_of(graph)
        self.fed = from_input(graph)
        self.b = Builder(graph.name)
        self.coded: dict[Value, Coded] = {}
        self.floats: dict[Value, Value] = {}
        self.units: dict[str, Unit] = {}
        self.inputs: dict[str, Quant] = {}
        self.leaves: dict[str, Value] = {}  # of the new graph
        self.done: set[Node] = set()
        self.stayed: list[Node] = []  # in f32 although no head comes before
        self.rules: dict[type[Op], Callable[[Node], bool]] = {
            Add: self.add, Mean: self.mean, AvgPool2d: self.average, MaxPool2d: self.largest,
            UpsampleBilinear: self.blended, Concat: self.concat, Pad: self.pad,
        }  # fmt: skip

    def rule(self, node: Node) -> Callable[[Node], bool] | None:
        """How a node becomes one of integers: by the operator's traits, or in a way of its own."""
        if node.op.integer is not None:
            return self.layer
        if node.op.limits(node.attrs) is not None:
            return self.clamp
        return self.moved if node.op.moves else self.rules.get(node.op)

    def run(self) -> Integers:
        for leaf in self.graph.leaves_of(Role.INPUT, Role.LABEL, Role.SCALAR):
            self.input(leaf)
        behind = self.behind_heads()
        for node in self.graph.nodes:
            self.b.loc = node.loc
            if node in self.done or (node.op is Reshape and self.stored(node.out) is not None):
                continue  # it is part of another, or a view of a weight
            rule = self.rule(node)
            if rule is None or node in behind or not rule(node):
                self.stay(node, node not in behind)
        self.warn()
        outputs = [self.real(v) for v in self.graph.outputs]
        self.b.state = [(self.leaf(leaf), self.real(v)) for leaf, v in self.graph.state]
        return Integers(self.b.finish(outputs), self.units, self.inputs)

    def behind_heads(self) -> set[Node]:
        """All that depends on a head, and the heads themselves unless they are to be int8."""
        found: set[Node] = set()
        values: set[Value] = set()
        for node in self.graph.nodes:
            if node in self.heads:
                values.update(node.outs)
                if self.options.head == "fp32":
                    found.add(node)
            elif values.intersection(node.ins):
                found.add(node)
                values.update(node.outs)
        return found

    # Leaves -------------------------------------------------------------------------------------

    def input(self, leaf: Value) -> None:
        """An image is int8 from the start if nothing but integer operators reads it."""
        readers = self.uses.readers.get(leaf, [])
        integer = leaf.type.dtype is DType.F32 and leaf.role is Role.INPUT and readers
        if not integer or not all(self.rule(n) for n in readers):
            self.floats[leaf] = self.leaf(leaf)
            return
        quant = self.quant(leaf)
        self.coded[leaf] = Coded(self.b.leaf(leaf.name, i8(*leaf.shape), leaf.role), quant)
        self.leaves[leaf.name] = self.coded[leaf].value
        self.inputs[leaf.name] = quant

    def leaf(self, leaf: Value) -> Value:
        """A leaf that stays as it is."""
        if leaf.name not in self.leaves:
            data = self.graph.data.get(leaf.name)
            self.leaves[leaf.name] = self.b.leaf(leaf.name, leaf.type, leaf.role, data)
        return self.leaves[leaf.name]

    def stored(self, value: Value) -> Value | None:
        """The parameter or constant that a weight is, or is a view of."""
        node = self.uses.producer.get(value)
        if node is not None:
            return self.stored(node.ins[0]) if node.op is Reshape else None
        return value if value.role in (Role.PARAM, Role.CONST) else None

    def integer_leaf(self, value: Value, numbers: Array, dtype: DType, unit: Unit) -> Value:
        """The leaf behind `value` with whole numbers, seen as `value` is."""
        leaf = self.stored(value)
        assert leaf is not None
        kind = Type(dtype, leaf.shape)
        made = self.b.leaf(leaf.name, kind, leaf.role, numbers.reshape(leaf.shape))
        self.leaves[leaf.name] = made
        self.units[leaf.name] = unit
        return self.shaped(made, value.shape, value.name)

    def shaped(self, value: Value, shape: tuple[int, ...], name: str) -> Value:
        if value.shape == shape:
            return value
        return self.b.emit(Reshape, value, name=name, shape=shape)

    # Values -------------------------------------------------------------------------------------

    def quant(self, value: Value) -> Quant:
        """By the recipe; the range of a constant or parameter is that of its own numbers.

        What is only limited or moved has the quantization of what it was, if it has none itself.
        """
        if value.name in self.recipe.values:
            return self.recipe.values[value.name]
        maker = self.uses.producer.get(value)
        if maker is not None and (maker.op.moves or maker.op.limits(maker.attrs) is not None):
            return self.quant(maker.ins[0])
        if (leaf := self.stored(value)) is None:
            raise not_calibrated(f"nothing is known about the range of {value}", str(self.b.loc))
        data = self.graph.data[leaf.name]
        return Quant.of_range(float(data.min()), float(data.max()))

    def integer(self, value: Value) -> Coded:
        """The value as int8, made from the float if it is one."""
        if value not in self.coded:
            quant = self.quant(value)
            y, _ = self.b.emit_all(
                Requantize, self.real(value), self.b.const([1 / quant.scale]),
                name=f"{value.name}.int8", zero=quant.zero, mask=True,
            )  # fmt: skip
            self.coded[value] = Coded(y, quant)
        return self.coded[value]

    def real(self, value: Value) -> Value:
        """The value as it was; an int8 is turned into a float."""
        if value.role is not Role.TEMP and value not in self.coded:
            return self.leaf(value)
        if value not in self.floats:
            if (leaf := self.stored(value)) is not None:
                return self.shaped(self.leaf(leaf), value.shape, value.name)
            coded = self.coded[value]
            attrs = {"scale": float(np.float32(coded.quant.scale)), "zero": coded.quant.zero}
            name = f"{value.name}.real"
            self.floats[value] = self.b.emit(Dequantize, coded.value, name=name, **attrs)
        return self.floats[value]

    def activated(self, node: Node) -> tuple[Node, float, float]:
        """The clamp that alone follows a node, or the node itself, and what limits it.

        A view between them, as behind a convolution of signals, changes no number.
        """
        after, views = self.uses.only_reader(node.out), []
        while after is not None and after.op is Reshape:
            views.append(after)
            after = self.uses.only_reader(after.out)
        limits = None if after is None else after.op.limits(after.attrs)
        if after is None or limits is None:
            return node, -math.inf, math.inf
        self.done.update(views)
        return after, *limits

    def narrow(self, node: Node) -> tuple[Node, Quant, dict[str, Any]]:
        """What the result of a node becomes, with the clamp behind it folded into saturation."""
        last, low, high = self.activated(node)
        self.done.add(last)
        quant = self.quant(last.out)
        limits = {"zero": quant.zero, "low": quant.number(low) if low > -math.inf else LOW}
        if high < math.inf:
            limits["high"] = quant.number(high)
        return last, quant, {**limits, "mask": True}

    # Operators: each says whether it could be done in integers ----------------------------------

    def layer(self, node: Node) -> bool:
        x, weight, *bias = node.ins
        leaf = self.stored(weight)
        own = [leaf, *map(self.stored, bias)]
        if leaf is None or any(v is None or self.shared(v) for v in own):
            return False  # a weight that is computed, or that two layers share
        if products(node) * LARGEST_PRODUCT + (MOST if bias else 0) >= 2**31:
            return False  # its sums might not fit
        coded = self.integer(x)
        data = np.asarray(self.graph.data[leaf.name], np.float64).reshape(weight.shape)
        layer = facts(node)
        steps = self.steps(node, leaf, data, coded.quant.scale)
        head = node in self.heads
        y_scale = 1.0
        if not head:
            last, quant, narrow = self.narrow(node)
            y_scale = quant.scale
        name = node.out.name
        scale = self.b.const(coded.quant.scale * steps / y_scale, name=f"{name}.scale")
        ratio = y_scale / coded.quant.scale
        where = layer.stored(layer.outputs, leaf.type.rank)
        along = [1] * data.ndim
        along[layer.outputs] = -1
        numbers = to_integers(data, steps.reshape(along), np.int8)
        w = self.integer_leaf(weight, numbers, DType.I8, Unit(scale.name, ratio, where))
        operands = [w]
        for value in bias:
            real = np.asarray(self.graph.data[value.name], np.float64)
            whole = to_integers(real, coded.quant.scale * steps, np.int32)
            unit = Unit(scale.name, y_scale, 0)
            operands.append(self.integer_leaf(value, whole, DType.I32, unit))
        sums = self.sums(node, coded, operands)
        if head:
            logits = self.b.emit(Mul, self.b.emit(Dequantize, sums), scale, name=node.out.name)
            self.floats[node.out] = self.shaped(logits, node.out.shape, node.out.name)
            return True
        y, _ = self.b.emit_all(Requantize, sums, scale, name=last.out.name, **narrow)
        self.coded[last.out] = Coded(self.shaped(y, last.out.shape, last.out.name), quant)
        return True

    def steps(self, node: Node, leaf: Value, data: Array, x_scale: float) -> Array:
        """What 1 stands for in each output channel of a weight."""
        axis = facts(node).outputs
        bias = [np.asarray(self.graph.data[v.name], np.float64) for v in node.ins[2:]]
        if leaf.name not in self.recipe.weights:
            room = HEADROOM if node in self.heads else 1.0
            return room * weight_scales(data, axis, bias[0] if bias else None, x_scale)
        given = np.asarray(self.recipe.weights[leaf.name], np.float64)
        if given.shape != (data.shape[axis],) or not (np.isfinite(given) & (given > 0)).all():
            raise FrontendError(
                f"the recipe's scales of {leaf.name} are not one positive number for each of its "
                f"{data.shape[axis]} output channels",
                why=f"their shape is {given.shape}",
            )
        return given

    def shared(self, leaf: Value) -> bool:
        """Whether more than one operator reads a leaf, views of it included."""
        readers = self.uses.readers.get(leaf, [])
        if len(readers) == 1 and readers[0].op is Reshape:
            return self.shared(readers[0].out)
        return len(readers) != 1

    def sums(self, node: Node, x: Coded, operands: list[Value]) -> Value:
        """The int32 sums of a layer."""
        op, (w, *bias) = node.op.integer, operands
        assert op is not None and issubclass(op, IntegerLayer)
        more = {"name": f"{node.out.name}.sums", "zero": x.quant.zero}
        return op.sums(self.b, node.attrs, x.value, w, bias, **more)

    def add(self, node: Node) -> bool:
        left, right = node.ins
        if left.type != right.type or not any(v in self.coded for v in node.ins):
            return False
        if any(v.role is not Role.TEMP and v not in self.coded for v in node.ins):
            return False
        one, other = self.integer(left), self.integer(right)
        last, quant, narrow = self.narrow(node)
        y, _ = self.b.emit_all(
            AddI8, one.value, other.value, name=last.out.name,
            a_zero=one.quant.zero, b_zero=other.quant.zero,
            a_scale=float(np.float32(one.quant.scale / quant.scale)),
            b_scale=float(np.float32(other.quant.scale / quant.scale)), **narrow,
        )  # fmt: skip
        self.coded[last.out] = Coded(self.shaped(y, last.out.shape, last.out.name), quant)
        return True

    def clamp(self, node: Node) -> bool:
        """A clamp that no layer could take in."""
        (x, *_), clamps = node.ins, node.op.limits(node.attrs)
        if x not in self.coded or clamps is None:
            return False
        coded, (low, high) = self.coded[x], clamps
        quant = self.quant(node.out)
        limits = {"low": quant.number(low) if low > -math.inf else LOW}
        if high < math.inf:
            limits["high"] = quant.number(high)
        y, _ = self.b.emit_all(
            Requantize, coded.value, self.b.const([coded.quant.scale / quant.scale]),
            name=node.out.name, x_zero=coded.quant.zero, zero=quant.zero, mask=True, **limits,
        )  # fmt: skip
        self.coded[node.out] = Coded(y, quant)
        return True

    def mean(self, node: Node) -> bool:
        """Over all of an image, or of a signal, which is an image one row high."""
        (x,) = node.ins
        axes = {3: [1], 4: [1, 2]}.get(x.type.rank)
        if x not in self.coded or sorted(node.attrs.axes) != axes:
            return False
        self.pooled(node, out=(1, 1), adaptive=True)
        return True

    def average(self, node: Node) -> bool:
        a = node.attrs
        if node.ins[0] not in self.coded or 0 < a.divisor < a.kernel[0] * a.kernel[1]:
            return False  # a mean that is none may leave the range
        self.pooled(node, **asdict(a))
        return True

    def pooled(self, node: Node, **attrs: Any) -> None:
        x = self.coded[node.ins[0]]
        n, *rows, w, c = x.value.shape
        image = self.shaped(x.value, (n, *(rows or [1]), w, c), f"{x.value.name}.image")
        y = self.b.emit(AvgPoolI8, image, name=node.out.name, zero=x.quant.zero, **attrs)
        self.coded[node.out] = Coded(self.shaped(y, node.out.shape, node.out.name), x.quant)

    def largest(self, node: Node) -> bool:
        x = self.coded.get(node.ins[0])
        if x is None:
            return False
        y, index = self.b.emit_all(node.op, x.value, name=node.out.name, **asdict(node.attrs))
        self.coded[node.out], self.floats[node.outs[1]] = Coded(y, x.quant), index
        return True

    def moved(self, node: Node) -> bool:
        x = self.coded.get(node.ins[0])
        if x is None:
            return False
        rest = [self.real(v) for v in node.ins[1:]]
        y = self.b.emit(node.op, x.value, *rest, name=node.out.name, **asdict(node.attrs))
        self.coded[node.out] = Coded(y, x.quant)
        return True

    def blended(self, node: Node) -> bool:
        x = self.coded.get(node.ins[0])
        if x is None:
            return False
        y = self.b.emit(UpsampleBilinearI8, x.value, name=node.out.name, **asdict(node.attrs))
        self.coded[node.out] = Coded(y, x.quant)
        return True

    def concat(self, node: Node) -> bool:
        if not any(v in self.coded for v in node.ins):
            return False
        quant = self.quant(node.out)
        parts = [self.recoded(self.integer(v), quant, f"{v.name}.scaled") for v in node.ins]
        y = self.b.emit(Concat, *parts, name=node.out.name, **asdict(node.attrs))
        self.coded[node.out] = Coded(y, quant)
        return True

    def recoded(self, x: Coded, quant: Quant, name: str) -> Value:
        """The same number under another scale."""
        if x.quant == quant:
            return x.value
        ratio = self.b.const([x.quant.scale / quant.scale])
        attrs = {"x_zero": x.quant.zero, "zero": quant.zero, "mask": True}
        return self.b.emit(Requantize, x.value, ratio, name=name, **attrs)

    def pad(self, node: Node) -> bool:
        x, value = self.coded.get(node.ins[0]), node.attrs.value
        if x is None or not math.isfinite(value):
            return False
        if abs(x.quant.real(x.quant.number(value)) - value) > x.quant.scale:
            quant = self.quant(node.out)
            x = Coded(self.recoded(x, quant, f"{node.out.name}.scaled"), quant)
        attrs = asdict(node.attrs) | {"value": float(x.quant.number(node.attrs.value))}
        y = self.b.emit(Pad, x.value, name=node.out.name, **attrs)
        self.coded[node.out] = Coded(y, x.quant)
        return True

    def stay(self, node: Node, inside: bool) -> None:
        """Emit the float operator itself."""
        if inside and self.fed.intersection(node.ins) and computes(node):
            self.stayed.append(node)
        ins = [self.real(v) for v in node.ins]
        outs = self.b.emit_all(node.op, *ins, name=node.out.name, **asdict(node.attrs))
        self.floats.update(zip(node.outs, outs, strict=True))

    def warn(self) -> None:
        if self.stayed:
            leaves = self.graph.leaves_of(Role.INPUT)
            inputs = [v for v in leaves if v.type.dtype is DType.F32 and v not in self.coded]
            warn(message(self.stayed, inputs))


def integer_form(op: type[Op]) -> type[Op] | None:
    """What an operator becomes in an int8 program; None if it stays in float32 there."""
    if op.integer is not None:
        return op.integer
    if op.limits is not Op.limits:
        return Requantize
    if op.moves or op.also_int8:
        return op
    return next((form for form in Op.registry.values() if op in form.int8_of), None)
