"""From an imported model and a scheme to a Program: the path of a model, once around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import training
from .axes import names_by_order, plain_names
from .emit.program import Program, TensorInfo
from .frontend.torch import Model
from .identity import identity
from .ir import Graph, Role
from .machine import UNTUNED, Machine
from .passes import (
    Part,
    Recompute,
    choose,
    narrow_frozen,
    narrow_gradients,
    one_sample,
    optimise,
    simplify,
    split_channels,
)
from .plan import lifetimes
from .scheme import Scheme, parameters_of
from .targets import HOST, Target
from .training import Training, Whole

GAPS = 1024  # bytes that an arena whose parts begin with lines of the cache may need on top
LARGE = 16 << 20  # bytes of RAM that no microcontroller has


@dataclass(frozen=True)
class Options:
    """What a program is like, besides its model and scheme."""

    name: str = "net"
    accumulate: bool = False
    without: frozenset[str] = frozenset()
    recompute: Recompute | None = None
    target: Target = HOST
    machine: Machine = UNTUNED  # that the kernels are chosen for
    grow: bool = True  # a large program may take a tenth more memory for faster kernels
    narrow: bool = False  # frozen weights are stored in 8 bits where those make them up
    single: bool = True  # a program for batches also predicts one sample


def assemble(model: Model, scheme: Scheme, options: Options, source: Any = None) -> Program:
    """Simplify, split, differentiate, optimise; the scheme says what trains."""
    forward, prediction = model.training.graph, model.prediction.graph
    chosen = scheme.resolve(parameters_of(forward))
    changing = {*chosen, *(leaf.name for leaf, _ in forward.state)}
    sliced = {name: channels for name, channels in chosen.items() if channels is not None}

    forward = simplify(forward, changing, options.without)
    prediction = simplify(prediction, changing, options.without)
    forward, parts = split_channels(forward, sliced)
    prediction, _ = split_channels(prediction, sliced)

    rules = rules_for(model.rules, chosen, parts)
    entries: dict[str, Graph] = {"train_step": training.train_step(forward, rules)}
    if options.accumulate:
        entries["gradients"] = training.gradients(forward, rules)
        entries["apply"] = training.apply(forward, rules, entries["gradients"])
    entries["predict"] = training.predict(prediction)
    wanted = options.single and "one_sample" not in options.without and in_batches(model)
    single = one_sample(entries["predict"]) if wanted else None
    if single is not None:
        entries["predict_one"] = replace(single, name="predict_one")
    if (kind := rules.whole.gradients) != "float32":
        entries = {name: narrow_gradients(graph, kind) for name, graph in entries.items()}
    inplace, inside = "inplace" not in options.without, options.target.chip is not None
    how = options.without, options.recompute, inside
    entries = {name: optimise(graph, *how) for name, graph in entries.items()}
    if options.narrow:
        trained = {leaf.name for leaf, _ in entries["train_step"].state}
        entries = narrow_frozen(entries, trained, inplace, inside)
    if options.target.isa[0] == "vec":
        entries = choose(entries, options.machine, options.without, growth(entries, options))
    tensors = tensors_of(model)
    return Program(
        name=options.name,
        entries=entries,
        tensors=tensors | parts_of(parts, tensors),
        outputs=tuple(
            TensorInfo(t.value.type, t.order, axes_of(model, t.order))
            for t in model.prediction.outputs
        ),
        lr=model.lr,
        scheme=scheme,
        chosen=tuple(chosen),
        parameters=sum(v.type.elements for v in model.training.graph.leaves_of(Role.PARAM)),
        identity=identity(model, chosen, parts),
        parts=parts,
        wholes={p.whole: model.training.graph.data[p.whole] for p in parts.values()},
        source=source,
        without=options.without,
        target=options.target,
        recompute=options.recompute,
        machine=options.machine,
        narrow=options.narrow,
        grow=options.grow,
        quants=model.quants,
        folds=model.folds,
        whole=rules.whole,
        independent=in_batches(model),
    )


def in_batches(model: Model) -> bool:
    """Whether samples lie one behind the other in all that a prediction takes and gives."""
    part = model.prediction
    if not model.independent:
        return False
    inputs = (part.orders[leaf.name] for leaf in part.graph.leaves_of(Role.INPUT))
    return all(order[:1] == (0,) for order in (*inputs, *(t.order for t in part.outputs)))


def smallest(
    model: Model,
    scheme: Scheme,
    options: Options,
    ram: int,
    source: Any = None,
    quick: bool = False,
) -> Program:
    """The program for a budget, or the smallest one if none keeps it.

    Things are computed twice only if they have to be: element-wise work before layers, and until
    the budget is met before as far as it goes. A budget of 0 asks for the smallest one. `quick`
    gives up if prediction alone takes too much, which computing things twice hardly changes.
    """
    options = replace(options, grow=False)
    program = least = assemble(model, scheme, options, source)
    rest = program.memory["ram"] - program.memory["arena"]
    if quick and 0 < ram < rest + program.plans["predict"].lower_bound:
        return program
    enough = max(0, ram - rest - (GAPS if program.in_lines else 0))
    for limit in dict.fromkeys((enough, 0)):
        for layers in (False, True):
            if least.memory["ram"] <= ram:
                return least
            again = replace(options, recompute=Recompute(layers, limit))
            least = min(least, assemble(model, scheme, again, source), key=ram_of)
        if least.memory["lower_bound"] > enough:  # it has gone as far as it goes
            return least
    return least


def ram_of(program: Program) -> int:
    return program.memory["ram"]


def growth(entries: Mapping[str, Graph], options: Options) -> int:
    """Bytes that the arena may grow by: none of a program that may be for a microcontroller."""
    peak = max(lifetimes(graph).peak[0] for graph in entries.values())
    leaves = entries["train_step"].leaves_of(Role.PARAM, Role.STATE)
    ram = peak + sum(leaf.type.bytes for leaf in leaves)
    return ram // 10 if options.grow and ram >= LARGE else 0


def rules_for(
    all_rules: Training, chosen: Mapping[str, Any], parts: Mapping[str, Part]
) -> Training:
    """Update rules of what trains; a part has its share of the whole's optimizer state."""
    split = {part.whole for part in parts.values()}
    rules = {n: all_rules.rules[n] for n in chosen if n not in split}
    for name, part in parts.items():
        rule = all_rules.rules[part.whole]
        rules[name] = replace(rule, state={k: a[part.place] for k, a in rule.state.items()})
    return replace(all_rules, rules=rules, whole=units_for(all_rules.whole, parts))


def units_for(whole: Whole, parts: Mapping[str, Part]) -> Whole:
    """A part of an integer parameter has its units; if it is some output channels, some of them."""
    units = dict(whole.units)
    for name, part in parts.items():
        if part.whole in units:
            unit = units[part.whole]
            channels = part.indices if part.axis == unit.axis else None
            units[name] = replace(unit, channels=channels)
    return replace(whole, units=units)


def tensors_of(model: Model) -> dict[str, TensorInfo]:
    """How PyTorch sees every tensor that it shares with the program, by name."""
    found: dict[str, TensorInfo] = {}
    (output, *_) = model.prediction.outputs
    for part in (model.training, model.prediction):
        for leaf in part.graph.leaves:
            if leaf.name in part.orders and leaf.role is not Role.CONST:
                order = part.orders[leaf.name]
                names = part.axes.get(leaf.name) or plain_names(len(order), model.independent)
                if leaf.role is Role.LABEL and output.order == order:
                    names = axes_of(model, order)
                found.setdefault(leaf.name, TensorInfo(leaf.type, order, names))
    return found


def axes_of(model: Model, order: tuple[int, ...]) -> tuple[str, ...]:
    """Names for the axes of an output, or of a label that lies as it does."""
    return names_by_order(order) or plain_names(len(order), model.independent)


def parts_of(parts: Mapping[str, Part], tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    found = {}
    for name, part in parts.items():
        whole = tensors[part.whole]
        shape = list(whole.type.shape)
        shape[part.axis] = len(part.indices)
        found[name] = TensorInfo(replace(whole.type, shape=tuple(shape)), whole.order)
    return found
