"""Generated samples for every aten operator whet has a handler for, by family."""

from __future__ import annotations

from collections.abc import Callable

import op_samples_arrays as arrays
import op_samples_layers as layers
import op_samples_logic as logic
import op_samples_losses as losses
from sampling import Samples
from torch_oracle import Case

FAMILIES: dict[str, Callable[[Samples], None]] = {
    "convolutions": layers.convolutions,
    "products": layers.products,
    "attention": layers.attention,
    "norms": layers.norms,
    "activations": layers.activations,
    "arithmetic": layers.arithmetic,
    "choices": layers.choices,
    "reductions": arrays.reductions,
    "softmaxes": arrays.softmaxes,
    "pools": arrays.pools,
    "resampling": arrays.resampling,
    "views": arrays.views,
    "pieces": arrays.pieces,
    "padding": arrays.padding,
    "indexing": arrays.indexing,
    "truths": logic.truths,
    "integers": logic.integers,
    "places": logic.places,
    "recurrent": logic.recurrent,
    "class losses": losses.class_losses,
    "regression losses": losses.regression_losses,
    "probability losses": losses.probability_losses,
}


def family(name: str) -> list[Case]:
    samples = Samples()
    FAMILIES[name](samples)
    return samples.cases
