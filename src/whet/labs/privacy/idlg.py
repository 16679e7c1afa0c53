"""Labels from the gradient of the last layer (iDLG, Zhao et al. 2020, arXiv:2001.02610).

With cross-entropy the gradient of the logits is p - y: negative for the label only, and as large
there as all the others together. The bias of the last layer has just this gradient, averaged over
the batch; the rows of its weight have it times the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .gradients import Observation
from .recovered import Array

PROBES = 64  # random inputs that show what the model predicts when it has nothing to go by
SCALES = 100  # factors that are tried for a gradient that was clipped


@dataclass(frozen=True)
class Head:
    """The last linear layer, and what is observed of its gradients."""

    layer: nn.Linear
    weight: Array | None  # [classes, columns]
    bias: Array | None  # [classes]
    columns: Array  # inputs of the layer to which those of `weight` belong


def head_of(observation: Observation) -> Head | None:
    """None if nothing is observed of a last linear layer."""
    for name, module in reversed(list(observation.model.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == observation.classes:
            prefix = f"{name}." if name else ""
            weight = observation.gradients.get(prefix + "weight")
            bias = observation.gradients.get(prefix + "bias")
            part = observation.parts.get(prefix + "weight")
            if part is not None and part[0] is None:
                weight = part = None  # single elements have no columns
            if weight is None and bias is None:
                return None
            columns = np.arange(module.in_features) if part is None else np.array(part[1])
            return Head(module, weight, bias, columns)
    return None


def labels(observation: Observation, seed: int = 0) -> Array | None:
    """The labels of the batch, in ascending order; None if the last layer does not tell.

    For a batch of 1 this is exact without a defence. For more, what the model predicts on average
    is estimated from random inputs, and labels are taken one by one where the gradient is lowest.
    """
    if not isinstance(observation.loss, nn.CrossEntropyLoss):
        return None
    head = head_of(observation)
    if head is None:
        return None
    if observation.batch == 1:
        if head.bias is not None and np.any(head.bias):
            return np.array([int(np.argmin(head.bias))])
        if head.weight is None or not np.any(head.weight):
            return None
        return np.array([int(np.argmax(np.square(head.weight).sum(axis=1)))])
    features, predicted = probe(observation, head, seed)
    if head.bias is not None and np.any(head.bias):
        gradient = head.bias
    elif head.weight is not None and np.any(head.weight):
        typical = features[head.columns]
        gradient = head.weight @ typical / max(float(typical @ typical), 1e-30)
    else:
        return None
    if observation.scaled:
        gradient = unscaled(gradient, predicted, observation.batch)
    return counted(gradient, predicted, observation.batch)


def counted(gradient: Array, predicted: Array, batch: int) -> Array:
    """Labels from the mean of p - y, given the mean of p."""
    missing = predicted - gradient  # the share of each class in the batch
    found = []
    for _ in range(batch):
        label = int(np.argmax(missing))
        missing[label] -= 1 / batch
        found.append(label)
    return np.array(sorted(found))


def unscaled(gradient: Array, predicted: Array, batch: int) -> Array:
    """Before it was clipped: by the factor with which labels explain it best.

    Classes that are absent have a gradient of p, which bounds the factor. The estimate of p is not
    exact, so the bound is not either.
    """
    positive = gradient > 0
    if not positive.any():
        return gradient
    most = 1.3 * float((predicted[positive] / gradient[positive]).min())

    def unexplained(factor: float) -> float:
        wanted = predicted - factor * gradient
        found = counted(factor * gradient, predicted, batch)
        shares = np.bincount(found, minlength=len(predicted)) / batch
        return float(np.abs(wanted - shares).sum() / (factor * np.abs(gradient).sum()))

    factors = np.geomspace(1, max(most, 1.0), SCALES)
    found: Array = gradient * min(factors.tolist(), key=unexplained)
    return found


def probe(observation: Observation, head: Head, seed: int) -> tuple[Array, Array]:
    """Mean input of the last layer and mean prediction over random inputs."""
    seen: list[Tensor] = []
    hook = head.layer.register_forward_hook(lambda _, given, __: seen.append(given[0].detach()))
    low, high = observation.span
    random = torch.Generator().manual_seed(seed)
    shape = (PROBES, *observation.shape[1:])
    try:
        with torch.no_grad():
            inputs = low + (high - low) * torch.rand(shape, generator=random)
            predicted = observation.model(inputs).softmax(-1)
    finally:
        hook.remove()
    features = seen[0].reshape(-1, head.layer.in_features)
    return features.mean(0).double().numpy(), predicted.mean(0).double().numpy()
