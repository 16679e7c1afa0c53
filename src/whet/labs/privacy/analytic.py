"""Recovery without optimisation: the input of a linear layer from its gradients.

y = W x + b has dL/dW[i] = dL/dy[i] x and dL/db[i] = dL/dy[i], so a row of one over an element of
the other is x (Phong et al. 2017; Geiping et al. 2020, proposition 3.1). For a batch of 1 this is
exact, whatever follows the layer. A first linear layer gives away the input, a last one the
features.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import DataError
from . import idlg
from .gradients import Observation
from .recovered import Array, Recovered


def layer_input(observation: Observation, name: str) -> Array:
    """The input of the linear layer `name`: the best fit over its rows, in the sense of squares.

    Where only some columns of the weight train, only those elements are given.
    """
    weight = observation.gradients.get(f"{name}.weight")
    bias = observation.gradients.get(f"{name}.bias")
    if observation.batch != 1:
        raise DataError(
            f"the rows of {name} mix the {observation.batch} samples of the batch",
            try_="a batch of 1, or method='dlg'",
        )
    if weight is None or bias is None or weight.ndim != 2:
        raise DataError(
            f"the gradients do not tell the input of {name}",
            why="that takes those of the weight and of the bias of a linear layer",
        )
    rows, scale = weight.astype(np.float64), bias.astype(np.float64)
    found: Array = scale @ rows / max(float(scale @ scale), 1e-300)
    return found


def features(observation: Observation) -> Array | None:
    """What the last layer sees, if its weight and bias are observed: None otherwise."""
    names = [n for n, m in observation.model.named_modules() if isinstance(m, nn.Linear)]
    wanted = [n for n in names if {f"{n}.weight", f"{n}.bias"} <= observation.gradients.keys()]
    return layer_input(observation, wanted[-1]) if wanted and wanted[-1] == names[-1] else None


def first_linear(observation: Observation) -> str | None:
    """The name of a linear layer that is given the input as it is, if there is one."""
    example = torch.rand(observation.shape, generator=torch.Generator().manual_seed(0))
    given: dict[str, Tensor] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> None:
            given.setdefault(name, inputs[0])

        return hook

    hooks = [
        module.register_forward_hook(note(name))
        for name, module in observation.model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            observation.model(example)
    finally:
        for hook in hooks:
            hook.remove()
    same = (n for n, x in given.items() if torch.equal(x.reshape(-1), example.reshape(-1)))
    return next(same, None)


def analytic(observation: Observation) -> Recovered:
    """The image, from a model that starts with a linear layer."""
    start = time.process_time()
    name = first_linear(observation)
    if name is None:
        raise DataError(
            "the model has no linear layer that is given the input as it is",
            try_="method='dlg' or 'cosine'; features() gives the input of the last layer",
        )
    part = observation.parts.get(f"{name}.weight")
    flat = np.full(int(np.prod(observation.shape)), np.mean(observation.span))
    flat[... if part is None else list(part[1])] = layer_input(observation, name)
    labels = idlg.labels(observation)
    return Recovered(
        method="analytic",
        images=flat.reshape(observation.shape).astype(np.float32),
        labels=np.zeros(0, np.int64) if labels is None else labels,
        seconds=time.process_time() - start,
    )
