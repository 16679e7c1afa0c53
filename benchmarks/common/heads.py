"""Classifiers that are taught alone, on what a frozen network makes of pictures: a linear probe.

Studies of fine-tuning begin with one, so that what they compare is what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

STEPS, RATE, DECAY = 300, 0.003, 0.01  # of Adam; all pictures in each step


def teach(model: Any, inputs: Iterable[torch.Tensor], labels: torch.Tensor) -> None:
    """Train the classifier of `model`, and nothing else, on these batches."""
    head = model.classifier[1]
    features: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    with torch.no_grad():
        for x in inputs:
            model(x)
    hook.remove()
    every = torch.cat(features)
    adam = torch.optim.Adam(head.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        adam.zero_grad()
        nn.functional.cross_entropy(head(every), labels).backward()
        adam.step()
