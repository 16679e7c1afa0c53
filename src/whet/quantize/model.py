"""An imported float model becomes an integer one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import FrontendError, option
from ..frontend.model import Imported, Model, without_loss
from ..ir import Array, Graph, Role
from ..ir.quant import Fold, Recipe
from ..passes.fold_batch_norm import fold_for_good
from ..passes.fold_constants import fold_constants
from ..training import IntegerRules, Training
from .agreement import attends, refuse_lost
from .calibrate import calibrate
from .integer import to_integer_graph
from .options import Int8


def integer_model(
    model: Model, options: Int8, batches: Iterable[Any] | None, recipe: Recipe | None
) -> Model:
    """The model, imported in eval mode, with integer graphs.

    Scales come from `recipe` where it has them, then from the grids to which the model rounds its
    values, and else from running `batches`.
    """
    example: Array | None = None
    graph, folds = folded(model.training.graph)
    imported = with_graph(model.training, graph)
    recipe = recipe or Recipe()
    recipe = replace(recipe, values={**model.training.grids, **recipe.values})
    if batches is not None:
        alone = without_loss(imported)
        found, example = calibrate(alone.graph, batches, input_order(alone), options.method)
        recipe = replace(found, values={**found.values, **recipe.values}, weights=recipe.weights)
    made = to_integer_graph(imported.graph, recipe, options)
    check_moments(model.rules, folds, () if options.qas else made.units)
    training = with_graph(imported, made.graph)
    prediction = without_loss(training)
    if example is not None and attends(graph):
        refuse_lost(without_loss(imported).graph, prediction.graph, made.inputs, example)
    whole = IntegerRules(made.units, options.rounding, options.qas, options.seed, options.gradients)
    return replace(
        model,
        training=training,
        prediction=prediction,
        rules=replace(model.rules, integer_rules=whole),
        quants=made.inputs,
        folds=folds,
        recipe=recipe,
        example=example,
    )


def refuse_grids(model: Model) -> None:
    """A float program has no integers to round to."""
    if grids := model.training.grids:
        raise FrontendError(
            f"the model rounds {len(grids)} values to the grids of integers",
            why="it is quantized, as by QuantizeLinear and DequantizeLinear of ONNX",
            try_=f"{option('dtype', 'int8')}, which takes the scales of the file",
        )


def check_moments(training: Training, folds: Mapping[str, Fold], integers: Collection[str]) -> None:
    """What an optimizer that was used before knows must be about the numbers that will train."""
    for name, rule in training.rules.items():
        folded = name in folds and not (folds[name].scale == 1).all()
        if rule.state and (folded or name in integers):
            other = "its batch norm is folded into it" if folded else "without QAS, integers train"
            raise FrontendError(
                f"the optimizer has moments of {name} as it was before",
                why=other,
                try_="an optimizer that has not taken a step",
            )


def with_graph(imported: Imported, graph: Graph) -> Imported:
    """The same model in another form: outputs are those of the graph, in order."""
    pairs = zip(imported.outputs, graph.outputs, strict=True)
    return replace(imported, graph=graph, outputs=tuple(replace(t, value=v) for t, v in pairs))


def folded(graph: Graph) -> tuple[Graph, dict[str, Fold]]:
    """Without batch norms behind layers, and with everything computed that is known."""
    graph, folds = fold_for_good(graph)
    params = {leaf.name for leaf in graph.leaves_of(Role.PARAM)}
    return fold_constants(graph, params), folds


def input_order(model: Imported) -> tuple[int, ...]:
    leaves = model.graph.leaves_of(Role.INPUT)
    if len(leaves) != 1:
        raise FrontendError(
            f"an int8 program has one input, the model takes {len(leaves)}",
            try_=f"a float program: {option('dtype', 'float32')}",
        )
    return model.orders[leaves[0].name]
