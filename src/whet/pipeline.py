"""From a model to a program: the stages of the compiler, in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from . import training
from .debug import observer, show
from .emit.program import Program
from .emit.target import Target
from .emit.tensor_info import infos_of, outputs_of
from .errors import FrontendError, SchemeError, option
from .frontend.identity import identity
from .frontend.model import Model
from .ir import Array, Codebook, Factors, Graph, Live, Part, Role, prune
from .ir.quant import Recipe
from .memory.plan import Plan, plan
from .passes import (
    Context,
    Form,
    Recompute,
    Stage,
    add_factors,
    find_factors,
    find_live,
    find_shared,
    find_slices,
    run_stage,
    stored_whole,
)
from .passes.frozen_forms import form_named
from .passes.machine import UNTUNED, Machine
from .passes.narrow_frozen import narrow_weights
from .quantize import Int8
from .quantize.frozen import round_weights, weights_of
from .quantize.model import integer_model, refuse_grids
from .scheme import SHARED, SPARSE, SPARSE_SHARED, Beside, Chosen, Scheme, parameters_of
from .targets import HOST
from .training import IntegerRules, Send, Training


@dataclass(frozen=True)
class Options:
    """What a program is like, besides its model and its scheme."""

    name: str = "net"
    accumulate: bool = False  # entry points `gradients` and `apply`
    without: frozenset[str] = frozenset()  # passes to leave out
    recompute: Recompute | None = None  # what may be computed twice
    target: Target = HOST
    machine: Machine = UNTUNED  # that the kernels are chosen for
    grow: bool = True  # a large program may take a tenth more memory for faster kernels
    frozen: str | None = None  # the form that frozen weights are stored in, as in settings.py
    products: tuple[str, ...] = ()  # what linear layers multiply besides float32
    send: Send | None = None  # how updates leave the device; entry point `begin`
    mapped: bool = False  # weights lie in a file that is mapped, as those of large programs do
    cache_prefix: bool = False  # steps that begin with what the frozen layers gave before
    generate: bool = False  # entry points `prefill` and `decode`
    single: bool = True  # a program for batches also predicts one sample


class Source(Protocol):
    """What a front end keeps of a model that it brought in."""

    int8: Int8 | None  # how it becomes integers, if it does
    calibrate: Any  # batches to find the range of activations by
    recipe: Recipe | None  # of a model that is quantized already

    def read(self) -> Model:
        """Import the model, in floats."""


@dataclass(frozen=True)
class Trained:
    """What a scheme trains of a model."""

    chosen: Chosen  # parameters, and what trains of them
    parts: Mapping[str, Part]  # leaves that train in place of parameters
    rules: Training  # how each of them is updated
    factors: Mapping[str, Factors] = field(default_factory=dict)  # beside frozen weights


def compiled(source: Source, scheme: Scheme, options: Options) -> Program:
    """All stages, from a front end's model to a program."""
    return assemble(imported(source), scheme, options, source)


def imported(source: Source) -> Model:
    """The stages up to a model that a scheme can be chosen for."""
    model = import_model(source)
    return quantize(model, source)


def assemble(model: Model, scheme: Scheme, options: Options, source: Any = None) -> Program:
    """The stages after that."""
    model, trained = apply_scheme(model, scheme)
    programs = []
    for parts in ways_to_store(trained.parts, model.training.graph):
        rules = rules_for(model.rules, trained.chosen, parts)
        own = replace(trained, parts=parts, rules=rules)
        programs.append(assemble_parts(model, scheme, options, own, source))
    return min(programs, key=lambda program: program.memory["ram"])


def assemble_parts(
    model: Model, scheme: Scheme, options: Options, trained: Trained, source: Any
) -> Program:
    """The program with these parts. Frozen weights that find no room in it keep their numbers."""
    wide: set[str] = set()
    while True:
        shared, errors = rounded(model, trained, options, wide)
        forward = simplify(shared, trained, options)
        entries = differentiate(forward, trained, options)
        for length, other in shared.shorter.items():
            entries |= of_length(
                length, differentiate(simplify(other, trained, options), trained, options)
            )
        form = form_named(options.frozen, to_share(shared), shared.blocks)
        entries = optimise(entries, trained, options, samples_alike(model), form)
        left = errors.keys() - narrow_weights(entries)
        if not left:
            break
        wide |= left
    plans = place(entries, options)
    return emit(shared, scheme, options, trained, entries, plans, source, errors)


# The stages -------------------------------------------------------------------------------------


def import_model(source: Source) -> Model:
    model = source.read()
    show("import", graphs_of(model))
    return model


def quantize(model: Model, source: Source) -> Model:
    if source.int8 is None:
        refuse_grids(model)
        return model
    integers = integer_model(model, source.int8, source.calibrate, source.recipe)
    show("quantize", graphs_of(integers), graphs_of(model))
    return integers


def apply_scheme(model: Model, scheme: Scheme) -> tuple[Model, Trained]:
    """Which parameters train, which part of them, and by which rules; the model with all those."""
    chosen = scheme.resolve(parameters_of(model.training.graph))
    model, chosen, factors = adapt(model, chosen)
    shorter = {length: apply_scheme(m, scheme)[0] for length, m in model.shorter.items()}
    model = replace(model, shorter=shorter)
    graph = model.training.graph
    for name in model.masked & chosen.keys():
        if isinstance(chosen[name], tuple):
            raise SchemeError(
                f"{name} cannot train by channels",
                why="a mask prunes it, so its live elements train",
                try_=f"a rule for {name} without channels",
            )
    sliced = {name: share for name, share in chosen.items() if isinstance(share, tuple)}
    shared = {
        name: share == SPARSE_SHARED or name in model.masked
        for name, share in chosen.items()
        if share in (SHARED, SPARSE_SHARED)
    }
    pruned = {name for name in chosen if chosen[name] == SPARSE or name in model.masked}
    parts: dict[str, Part] = {**find_slices(graph, sliced)}
    parts |= find_live(graph, model.live, pruned - shared.keys())
    masks = {name: model.live[name] for name in model.masked}
    parts |= find_shared(graph, shared, masks)
    return model, Trained(chosen, parts, rules_for(model.rules, chosen, parts), factors)


def adapt(model: Model, chosen: Chosen) -> tuple[Model, Chosen, dict[str, Factors]]:
    """The model with factors beside weights as parameters of their own, which train instead."""
    beside = {name: share for name, share in chosen.items() if isinstance(share, Beside)}
    if not beside:
        return model, chosen, {}
    for name in model.masked & beside.keys():
        raise SchemeError(
            f"{name} cannot be adapted by LoRA",
            why="a mask prunes it, and a product of factors has no zeros",
            try_=f"a rule for {name} without lora",
        )
    wanted = {name: (share.rank, share.alpha / share.rank) for name, share in beside.items()}
    factors = find_factors(model.training.graph, wanted)
    now: Chosen = {name: share for name, share in chosen.items() if name not in beside}
    rules = dict(model.rules.rules)
    for name, own in factors.items():
        fresh = replace(rules[name], state={}, step=0.0)
        rules |= dict.fromkeys(own.names, fresh)
        now |= dict.fromkeys(own.names)
    orders = {name: (0, 1) for own in factors.values() for name in own.names}
    training, prediction = (
        replace(part, graph=add_factors(part.graph, factors), orders=part.orders | orders)
        for part in (model.training, model.prediction)
    )
    adapted = replace(
        model,
        training=training,
        prediction=prediction,
        rules=replace(model.rules, rules=rules),
    )
    return adapted, now, factors


def rounded(
    model: Model, trained: Trained, options: Options, wide: Collection[str] = ()
) -> tuple[Model, dict[str, float]]:
    """The model with frozen weights rounded, and the errors of those that changed."""
    if options.frozen == "gguf" and model.meta:
        raise SchemeError(
            f"{option('frozen', 'gguf')} needs the values of the weights",
            why="the model is on the meta device, and each weight is stored in what it is made of",
            try_=[option("frozen", word) for word in ("q4_0", "q4_1", "q8_0")],
        )
    if options.frozen in (None, "gguf") or model.meta:
        return model, {}
    shorter = {n: rounded(m, trained, options, wide)[0] for n, m in model.shorter.items()}
    found, errors = round_weights(model, trained.chosen, trained.parts, options.frozen, wide)
    return replace(found, shorter=shorter), errors


def to_share(model: Model) -> Mapping[str, Array]:
    """Parameters that may get a codebook; without values, that is for weights of layers."""
    data = model.training.graph.data
    if not model.meta:
        return data
    return {w.leaf.name: data[w.leaf.name] for w in weights_of(model.training.graph)}


def as_compiled(model: Model, program: Program) -> Model:
    """The model that a program was compiled from, with the frozen weights that it has."""
    if not program.rounded or program.scheme is None:
        return model
    model, trained = apply_scheme(model, program.scheme)
    weights = {leaf.name for leaf in model.training.graph.leaves_of(Role.PARAM)}
    return rounded(model, trained, program.options, weights - program.rounded.keys())[0]


def ways_to_store(parts: Mapping[str, Part], graph: Graph) -> list[Mapping[str, Part]]:
    """The parts, and the parts with those stored whole that might take less memory so.

    A linear layer reads live elements as they are. Other layers need the whole weight in the arena
    while they run.
    """
    whole = stored_whole(parts, graph)
    return [parts] if whole.keys() == parts.keys() else [parts, whole]


def simplify(model: Model, trained: Trained, options: Options) -> dict[str, Graph]:
    """The model with its loss and alone, with everything computed that does not change.

    What the model returns is of no use to a step, unless the loss reads it.
    """
    forward = graphs_of(model)
    training = forward["training"]
    forward["training"] = prune(replace(training, outputs=training.outputs[:1]))
    changing = {*trained.chosen, *(leaf.name for leaf, _ in forward["training"].state)}
    context = Context(
        without=options.without, changing=changing, parts=trained.parts,
        observe=observer(),
    )  # fmt: skip
    return run_stage(Stage.MODEL, forward, context)


def differentiate(
    forward: Mapping[str, Graph], trained: Trained, options: Options
) -> dict[str, Graph]:
    """The entry points: a training step, gradients by themselves, and a prediction."""
    graph, rules = forward["training"], trained.rules
    entries = {"train_step": training.train_step(graph, rules)}
    if options.accumulate:
        entries["gradients"] = training.gradients(graph, rules)
        entries["apply"] = training.apply(graph, rules, entries["gradients"])
    if options.send is not None:
        entries["begin"] = training.begin(entries["train_step"])
    entries["predict"] = training.predict(forward["prediction"])
    show("differentiate", entries)
    return entries


def of_length(length: int, entries: Mapping[str, Graph]) -> dict[str, Graph]:
    """Those of the entry points that take a batch, for shorter sequences."""
    names = {name: f"{name}_{length}" for name in ("train_step", "gradients", "predict")}
    return {names[n]: replace(g, name=names[n]) for n, g in entries.items() if n in names}


def optimise(
    entries: Mapping[str, Graph],
    trained: Trained,
    options: Options,
    alike: bool = False,
    form: Form | None = None,
) -> dict[str, Graph]:
    """The entry points, smaller and faster. If samples are `alike`, there is one for a single."""
    context = Context(
        without=options.without,
        gradients=trained.rules.integer_rules.gradients,
        recompute=options.recompute,
        inside=options.target.inside_inputs,
        single=options.single and alike,
        cached=options.cache_prefix,
        generate=options.generate,
        narrow=form,
        products=options.products,
        parts=trained.parts,
        vectors=options.target.vectors,
        machine=options.machine,
        grow=options.grow,
        observe=observer(),
    )
    return run_stage(Stage.STEP, entries, context)


def place(entries: Mapping[str, Graph], options: Options) -> dict[str, Plan]:
    """Where every value lies in the arena."""
    inplace, target = "inplace" not in options.without, options.target
    return {
        name: plan(graph, inplace, target.inside_inputs, target.vectors)
        for name, graph in entries.items()
    }


def emit(
    model: Model,
    scheme: Scheme,
    options: Options,
    trained: Trained,
    entries: Mapping[str, Graph],
    plans: Mapping[str, Plan],
    source: Any,
    errors: Mapping[str, float],
) -> Program:
    graph, parts = model.training.graph, trained.parts
    partly = [*(p.parameter for p in parts.values() if p.rests), *trained.factors]
    return Program(
        options=options,
        entries=entries,
        plans=plans,
        tensors=infos_of(model, parts),
        outputs=outputs_of(model),
        lr=model.lr,
        scheme=scheme,
        chosen=tuple(trained.chosen),
        parameters=sum(v.type.elements for v in graph.leaves_of(Role.PARAM)),
        rounded=errors,
        identity=identity(model, trained.chosen, parts),
        meta=model.meta,
        parts=parts,
        factors=trained.factors,
        sliced_parameters={name: graph.data[name] for name in partly},
        source=source,
        quants=model.quants,
        folds=model.folds,
        integer_rules=trained.rules.integer_rules,
        independent=samples_alike(model),
    )


# What stages share ------------------------------------------------------------------------------


def graphs_of(model: Model) -> dict[str, Graph]:
    return {"training": model.training.graph, "prediction": model.prediction.graph}


def samples_alike(model: Model) -> bool:
    """Whether samples lie one behind the other in all that a prediction takes and gives."""
    part = model.prediction
    if not model.independent:
        return False
    inputs = (part.orders[leaf.name] for leaf in part.graph.leaves_of(Role.INPUT))
    return all(order[:1] == (0,) for order in (*inputs, *(t.order for t in part.outputs)))


def rules_for(
    all_rules: Training, chosen: Mapping[str, Any], parts: Mapping[str, Part]
) -> Training:
    """Update rules of what trains; a part has its share of the whole's optimizer state."""
    split = {part.parameter for part in parts.values()}
    rules = {n: all_rules.rules[n] for n in chosen if n not in split}
    for name, part in parts.items():
        rule = all_rules.rules[part.parameter]
        if rule.state and isinstance(part, Codebook):
            raise FrontendError(
                f"the optimizer has moments of {part.parameter} from before its values trained",
                try_="an optimizer that has not taken a step",
            )
        rules[name] = replace(rule, state={k: part.take(a) for k, a in rule.state.items()})
    masks = {
        name: part.bits for name, part in parts.items() if isinstance(part, Live) and part.whole
    }
    units = units_for(all_rules.integer_rules, parts)
    return replace(all_rules, rules=rules, integer_rules=units, masks=masks)


def units_for(whole: IntegerRules, parts: Mapping[str, Part]) -> IntegerRules:
    """A part of an integer parameter has its units; if it is some output channels, some of them."""
    units = dict(whole.units)
    for name, part in parts.items():
        if part.parameter in units:
            unit = units[part.parameter]
            units[name] = replace(unit, channels=part.along(unit.axis))
    return replace(whole, units=units)
