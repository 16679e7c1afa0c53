"""Translate an exported program into a Graph; the handlers in aten/ translate the operators."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._higher_order_ops.effects import with_effects
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node as FxNode

from ...errors import FrontendError, InternalError, ShapeError, UnsupportedOps
from ...ir import Array, Builder, DType, Loc, Op, Role, Type, Value
from ...ir.axes import names_of_space
from ...ir.quant import Quant
from ...ops.random import RngNext
from ..model import Imported, Order, Tensor, plain_order
from .locations import source_of
from .masks import masks_of
from .tensor import Arranger, channels_last, ir_dtype, meta_parameter, parameter
from .weights import stored_orders

Operand = Tensor | torch.Tensor | float | int | bool
Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
NO_OPERATOR = "whet has no operator for it"


def aten(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for aten operators by their printed names, without `aten.`."""

    def register(handler: Handler) -> Handler:
        for name in names:
            if name in HANDLERS:
                raise InternalError(f"aten.{name} has two handlers")
            HANDLERS[name] = handler
        return handler

    return register


class Unsupported(Exception):
    """Raised by a handler for an unsupported use of an operator."""


@dataclass(frozen=True)
class Poison:
    """The result of an unsupported operator, so that all of them can be collected."""


class Importer:
    """State of one import: the builder, and the result for each node of the exported graph."""

    def __init__(
        self,
        exported: ExportedProgram,
        names: dict[str, str],
        labels: int = 0,
        changing: Collection[str] = (),
        given: Mapping[str, Order] | None = None,
        meta: Collection[str] = (),
    ) -> None:
        self.exported = exported
        self.changing = changing  # buffers that another entry point updates
        self.given = given or {}  # how another entry point stores parameters
        self.meta = meta  # parameters without values
        self.names = names  # exported name -> canonical name of a parameter or buffer
        self.labels = labels  # how many of the last user inputs are labels
        self.b = Builder("forward")
        self.arranger = Arranger(self.b)
        self.env: dict[FxNode, Any] = {}
        self.orders: dict[str, Order] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.masks: dict[str, Array] = {}  # of parameters, by name, as stored
        self.grids: dict[str, Quant] = {}  # of values that are rounded, by name
        self.folded: dict[str, torch.Tensor] = {}  # buffers that become constants, by name
        self.problems: list[str] = []
        self.rng: Value | None = None
        self.sites = 0

    # What handlers use -----------------------------------------------------------------------

    def tensor(self, x: Operand, order: Order | None = None) -> Tensor:
        """Any operand as a Tensor; numbers and folded constants become IR constants."""
        if isinstance(x, Tensor):
            return x
        if isinstance(x, torch.Tensor):
            if x.numel() == 0:
                raise Unsupported("a tensor without elements")
            return self.arranger.constant(x, order)
        return Tensor(self.b.const(np.float64(x)), ())

    def plain(self, x: Operand) -> Value:
        return self.arranger.plain(self.tensor(x))

    def stored(self, x: Operand, order: Order) -> Value:
        """The operand's value with its axes in `order`."""
        return self.arranger.arrange(self.tensor(x, order), order)

    def emit(self, op: type[Op], *ins: Value, order: Order, **attrs: Any) -> Tensor:
        return Tensor(self.b.emit(op, *ins, name=self.name, **attrs), order)

    def random_state(self) -> tuple[Value, int]:
        """The state of the random generator, and the number of the call site."""
        if self.rng is None:
            self.rng = self.b.leaf("rng", Type(DType.I32, (2,)), Role.STATE, np.zeros(2))
            self.orders[self.rng.name] = (0,)
        self.sites += 1
        return self.rng, self.sites - 1

    # The walk --------------------------------------------------------------------------------

    def run(self) -> Imported:
        graph = self.exported.graph
        refuse_counters(self.exported)
        weights = stored_orders(graph.nodes)
        mutated = self.exported.graph_signature.buffers_to_mutate.values()
        masks = masks_of(self.exported, self.lookup, {*mutated, *self.changing}, self.names)
        weights.update((p, weights[node]) for node, (p, _) in masks.items() if node in weights)
        self.placeholders(weights, dict(masks.values()))
        for node in graph.nodes:
            if node in masks:
                self.env[node] = self.env[masks[node][0]]
            elif node.op == "call_function":
                self.env[node] = self.visit(node)
            elif node.op == "get_attr":  # a graph operand of a control-flow operator
                self.env[node] = node.target
        if self.problems:
            counts = Counter(self.problems)
            raise UnsupportedOps(
                f"{len(counts)} operator(s) of this model are not supported",
                at=[f"{text}, {n} times" if n > 1 else text for text, n in counts.items()],
                try_="replace them, or move them out of the model; docs/ops.md lists what works",
            )
        outputs = self.finish_outputs(next(n for n in graph.nodes if n.op == "output"))
        if self.rng is not None:
            self.b.update(self.rng, self.b.emit(RngNext, self.rng, name="rng.next"))
        graph_ = self.b.finish(t.value for t in outputs)
        return Imported(graph_, self.orders, tuple(outputs), self.axes, self.masks, self.grids)

    def placeholders(self, weights: dict[FxNode, Order], masks: dict[FxNode, torch.Tensor]) -> None:
        """Parameters become leaves, zero where masked; buffers that never change become foldable
        constants."""
        mutated = {
            spec.target
            for spec in self.exported.graph_signature.output_specs
            if spec.kind is OutputKind.BUFFER_MUTATION
        }
        nodes = {n.name: n for n in self.exported.graph.nodes if n.op == "placeholder"}
        specs = self.exported.graph_signature.input_specs
        users = [s for s in specs if s.kind is InputKind.USER_INPUT]
        own = {s.arg.name: self.names.get(str(s.target), str(s.target)) for s in specs}
        zeros = {own[node.name]: mask for node, mask in masks.items()}
        made: dict[str, Tensor] = {}
        for spec in specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.TOKEN:
                self.env[node] = None
                continue
            if spec.kind is InputKind.USER_INPUT:
                is_label = users.index(spec) >= len(users) - self.labels
                self.env[node] = self.user_input(node, Role.LABEL if is_label else Role.INPUT)
                continue
            target = str(spec.target)
            data = self.lookup(target)
            name = own[node.name]
            changes = spec.kind is InputKind.PARAMETER or target in mutated or name in self.changing
            if not changes or data.numel() == 0 or not data.is_floating_point():
                self.env[node] = data.detach()
                self.arranger.names[id(self.env[node])] = name
                if spec.kind is InputKind.BUFFER and node.users:
                    self.folded[name] = data
                continue
            if name not in made:
                order = self.given.get(name) or weights.get(node, plain_order(data.ndim))
                role = Role.PARAM if spec.kind is InputKind.PARAMETER else Role.STATE
                if spec.kind is InputKind.PARAMETER and name in zeros:
                    data = torch.where(zeros[name], data, 0)
                    self.masks[name] = zeros[name].cpu().numpy().transpose(order)
                if name in self.meta:
                    made[name] = meta_parameter(self.b, name, data, order)
                else:
                    made[name] = parameter(self.b, name, data, order, role)
                self.orders[name] = order
            self.env[node] = made[name]

    def lookup(self, target: str) -> torch.Tensor:
        for table in (self.exported.state_dict, self.exported.constants):
            if target in table:
                return table[target]
        raise InternalError(f"the exported program has no tensor {target!r}")

    def user_input(self, node: FxNode, role: Role) -> Tensor | Poison:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise FrontendError(
                f"input {node.name!r} is a {type(value).__name__}; inputs must be tensors",
                try_="make it an attribute of the model instead",
            )
        if any(not isinstance(n, int) for n in value.shape):
            raise FrontendError(
                f"input {node.name!r} has the dynamic shape {tuple(value.shape)}",
                why="every shape is fixed at compile time, so that memory can be planned",
                try_="export with the shape that the device will use",
            )
        dtype = ir_dtype(value.dtype)
        if dtype is None:
            raise FrontendError(
                f"input {node.name!r} has dtype {value.dtype}; use float32, or integers for ids"
            )
        order = plain_order(value.ndim)
        if value.ndim == 4 and dtype is DType.F32:
            order = channels_last(4)
        shape = tuple(int(value.shape[a]) for a in order)
        name = {Role.LABEL: "label", Role.INPUT: "input"}[role]
        leaf = self.b.leaf(name, Type(dtype, shape), role)
        self.orders[leaf.name] = order
        self.axes[leaf.name] = axis_names(node)
        return Tensor(leaf, order)

    def visit(self, node: FxNode) -> Any:
        kwargs = self.resolve(dict(node.kwargs))
        target, args = operation(node, self.resolve(node.args))
        flat = [*leaves(args), *leaves(kwargs)]
        handler = HANDLERS.get(str(target).removeprefix("aten."))
        if any(isinstance(x, Poison) for x in flat):
            known = handler is not None or target is operator.getitem or target is not node.target
            if not known and isinstance(node.meta.get("val"), (torch.Tensor, tuple)):
                self.problems.append(problem(node, Unsupported(NO_OPERATOR)))
            return Poison()
        if target is operator.getitem:
            return self.item(node, *args)
        self.b.loc = location(node)
        self.name = value_name(node)
        random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        try:
            if not random and not any(isinstance(x, Tensor) for x in flat):
                result = fold(target, args, kwargs)
                return result if target is node.target else ("token", result)
            if any(not isinstance(n, int) for n in getattr(node.meta.get("val"), "shape", ())):
                raise Unsupported("the shape of its result depends on values")
            if handler is None:
                raise Unsupported(NO_OPERATOR)
            return handler(self, *args, **kwargs)
        except (Unsupported, ShapeError) as error:
            self.problems.append(problem(node, error))
            return Poison()

    def item(self, node: FxNode, results: Any, i: int) -> Any:
        """One of several results; handlers omit those that only PyTorch's backward pass needs."""
        if i < len(results) and results[i] is not None:
            return results[i]
        maker = node.args[0]
        if node.users and isinstance(maker, FxNode):
            self.problems.append(problem(maker, Unsupported(f"the use of its result {i}")))
        return Poison()

    def resolve(self, x: Any) -> Any:
        if isinstance(x, FxNode):
            return self.env[x]
        if isinstance(x, (list, tuple)):
            return tuple(self.resolve(item) for item in x)
        if isinstance(x, dict):
            return {k: self.resolve(v) for k, v in x.items()}
        return x

    def finish_outputs(self, node: FxNode) -> list[Tensor]:
        """User outputs in order; mutated buffers become state updates."""
        results: list[Tensor] = []
        values = self.resolve(node.args[0])
        for spec, value in zip(self.exported.graph_signature.output_specs, values, strict=True):
            if spec.kind is OutputKind.BUFFER_MUTATION:
                name = self.names.get(str(spec.target), str(spec.target))
                leaf = next((v for v in self.b.leaves if v.name == name), None)
                if leaf is not None and isinstance(value, Tensor):
                    self.b.update(leaf, self.arranger.arrange(value, self.orders[name]))
            elif spec.kind is OutputKind.TOKEN:
                continue
            elif spec.kind is OutputKind.USER_OUTPUT:
                results.append(self.tensor(value))
            else:
                raise FrontendError(f"the model modifies {spec.target!r}, which is not supported")
        return results


def leaves(x: Any) -> Iterable[Any]:
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from leaves(item)
    elif isinstance(x, dict):
        yield from leaves(tuple(x.values()))
    else:
        yield x


def fold(target: Any, args: Any, kwargs: Any) -> Any:
    """Let PyTorch compute a node that depends on neither inputs nor parameters."""
    try:
        with torch.no_grad():
            return target(*args, **kwargs)
    except Exception as error:
        raise Unsupported(f"PyTorch itself cannot compute it: {error}") from error


def refuse_counters(exported: ExportedProgram) -> None:
    """Integer buffers are imported as constants, so no result may depend on one that changes."""
    buffers = exported.graph_signature.inputs_to_buffers
    changed = exported.graph_signature.buffers_to_mutate
    *nodes, output = exported.graph.nodes
    counted: set[FxNode] = set()
    for node in nodes:
        is_counter = buffers.get(node.name) in changed.values() and integral(node)
        if is_counter or counted.intersection(node.all_input_nodes):
            counted.add(node)
    for node in counted.intersection(output.all_input_nodes):
        if node.name not in changed or not integral(node):
            raise FrontendError(
                "the model's result depends on an integer buffer that changes",
                at=[b.removeprefix("model.") for n, b in buffers.items() if b in changed.values()],
                try_="keep it in a float32 buffer",
            )


def integral(node: FxNode) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_floating_point()


SPATIAL = re.compile(r"aten\.\w*(?:conv|pool)(?:_transpose)?([123])d\b")
MOVING = re.compile(
    r"aten\.(?:permute|\w*transpose|t|movedim|swapaxes|\w*view|reshape|flip|roll)\b"
)


def axis_names(node: FxNode) -> tuple[str, ...]:
    """The names of an input's axes, from the first spatial layer that reads it.

    Between the two there may be operators that preserve the axes. Empty if there is no such layer.
    """
    shape, waiting, seen = tuple(node.meta["val"].shape), [node], {node}
    for reader in waiting:
        for user in reader.users:
            match = SPATIAL.match(str(user.target))
            if match and len(shape) - int(match[1]) in (1, 2):
                return names_of_space(len(shape), int(match[1]))
            value = user.meta.get("val")
            sizes = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
            same = all(type(n) is int for n in sizes) and sizes == shape  # a size may be unknown
            if same and user not in seen and not MOVING.match(str(user.target)):
                seen.add(user)
                waiting.append(user)
    return ()


def location(node: FxNode) -> Loc:
    return Loc(module_path(node), str(node.target), source_of(node.meta.get("stack_trace")))


def module_path(node: FxNode) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    return path.removeprefix("model.") if path != "model" else ""


def value_name(node: FxNode) -> str:
    """The path of a built-in layer, or that of a user module followed by the operator's name."""
    path = module_path(node).replace("[", ".").replace("]", "")
    word = str(node.target).removeprefix("aten.").split(".")[0].strip("_")
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    kind = str(stack[-1][1]) if stack else ""
    if path and kind.startswith("torch.nn.modules.") and "container" not in kind:
        return path
    return f"{path}.{word}" if path else word


def problem(node: FxNode, error: Exception) -> str:
    def describe(x: Any) -> str:
        value = x.meta.get("val") if isinstance(x, FxNode) else x
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(describe, value))}]"
        if isinstance(x, FxNode) and value is None:
            return x.name
        return repr(value)

    target, args = operation(node, node.args)
    operands = ", ".join(describe(x) for x in args)
    where = module_path(node) or "the model's forward"
    reason = error.what if isinstance(error, ShapeError) else str(error)
    source = source_of(node.meta.get("stack_trace"))
    place = f"  ({source})" if source else ""
    return f"{where}: {target}({operands}): {reason}{place}"


def operation(node: FxNode, args: Any) -> tuple[Any, Any]:
    """The operator and its operands, also for a call that PyTorch wraps to keep its side effects in
    order."""
    return (args[1], args[2:]) if node.target is with_effects else (node.target, args)
