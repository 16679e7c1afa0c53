"""Losses that are a part of the file's graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row


def nll(c: Call, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """PyTorch's, with the mean over the weights of what counts."""
    ignored = c.attr("ignore_index", -100)
    reduction = c.attr("reduction", "mean")
    found: Tensor = F.nll_loss(
        scores, target.long(), weight, ignore_index=ignored, reduction=reduction
    )
    return found


@row("NegativeLogLikelihoodLoss")
def nll_loss(c: Call, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return nll(c, scores, target, weight)


@row("SoftmaxCrossEntropyLoss")
def cross_entropy(
    c: Call, scores: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    found = torch.log_softmax(scores, 1)
    return nll(c, found, target, weight), found
