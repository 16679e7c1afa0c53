"""An imported float model becomes an integer one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..errors import FrontendError
from ..frontend.importer import Imported
from ..frontend.torch import Model, without_loss
from ..ir import Graph, Role
from ..passes.fold_constants import fold_constants
from ..quant import Fold, Recipe
from ..training import Whole
from .calibrate import calibrate
from .fold import fold_norms
from .integer import to_integer_graph
from .options import Int8


def integer_model(
    model: Model, options: Int8, batches: Iterable[Any] | None, recipe: Recipe | None
) -> Model:
    """The model, imported in eval mode, with integer graphs.

    Scales come from `recipe` where it has them, and else from running `batches`.
    """
    graph, folds = folded(model.training.graph)
    imported = with_graph(model.training, graph)
    recipe = recipe or Recipe()
    if batches is not None:
        alone = without_loss(imported)
        found = calibrate(alone.graph, batches, input_order(alone), options.method)
        recipe = replace(found, values={**found.values, **recipe.values}, weights=recipe.weights)
    made = to_integer_graph(imported.graph, recipe, options)
    training = with_graph(imported, made.graph)
    whole = Whole(made.units, options.rounding, options.qas, options.seed, options.gradients)
    return replace(
        model,
        training=training,
        prediction=without_loss(training),
        rules=replace(model.rules, whole=whole),
        quants=made.inputs,
        folds=folds,
    )


def with_graph(imported: Imported, graph: Graph) -> Imported:
    """The same model in another form: outputs are those of the graph, in order."""
    pairs = zip(imported.outputs, graph.outputs, strict=True)
    return Imported(graph, imported.orders, tuple(replace(t, value=v) for t, v in pairs))


def folded(graph: Graph) -> tuple[Graph, dict[str, Fold]]:
    """Without batch norms behind layers, and with everything computed that is known."""
    graph, folds = fold_norms(graph)
    params = {leaf.name for leaf in graph.leaves_of(Role.PARAM)}
    return fold_constants(graph, params), folds


def input_order(model: Imported) -> tuple[int, ...]:
    leaves = model.graph.leaves_of(Role.INPUT)
    if len(leaves) != 1:
        raise FrontendError(
            f"an int8 program has one input, the model takes {len(leaves)}",
            try_="a float program: compile without dtype",
        )
    return model.orders[leaves[0].name]
