"""Training and judging from arrays: what `compress` does if it is given data and no functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import DataError, NotFinite, SchemeError
from ..common.blocks import as_in_use
from ..common.data import Array, Samples, gather, split
from .iterate import Evaluate, Train

JUDGED = 256  # samples at a time
HELD_OUT = 0.2  # of the samples, to judge by, if there are no others


def fitting(
    data: Any,
    test: Any = None,
    *,
    teacher: nn.Module | None = None,
    losses: Any = None,
    epochs: int = 1,
    lr: float = 1e-3,
    batch: int = 64,
    seed: int = 0,
) -> tuple[Train, Evaluate, Tensor]:
    """Functions that train a classifier for some epochs and give its accuracy in percent.

    Adam, cross-entropy, a learning rate that falls to zero along a cosine; with a teacher, the
    losses of `distill`. The order of samples is drawn from PyTorch's generator. They are moved to
    the device of the model. The tensor is one example input. Without `test`, every fifth sample of
    `data` judges.
    """
    if not all(isinstance(n, int) and n > 0 for n in (epochs, batch)) or not 0 < lr < math.inf:
        raise SchemeError(
            f"epochs={epochs}, batch={batch}, lr={lr} cannot train",
            try_="epochs=1, batch=64, lr=1e-3",
        )
    samples = gather(data)
    if len(samples.inputs) != 1:
        raise DataError(f"the model has {len(samples.inputs)} inputs", try_="train= and evaluate=")
    if test is None:
        samples, judged = split(samples, HELD_OUT, 1, seed)
    else:
        judged = gather(test)
    x, y = tensors(samples)

    def train(model: nn.Module) -> None:
        if teacher is None:
            fit(model, x, y, epochs, lr, batch)
            return
        from .distill import distill

        order = int(torch.randint(2**31, ()))
        here = on_device_of(model, x, y)
        distill(model, teacher, here, losses=losses, epochs=epochs, lr=lr, batch=batch, seed=order)

    inputs, labels = tensors(judged)
    return train, lambda model: judge(model, inputs, labels), x[:1]


def tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    if samples.labels.ndim != 1 or samples.labels.dtype.kind not in "iu":
        raise DataError(
            f"labels are {samples.labels.dtype} of shape {samples.labels.shape}, not classes",
            try_="one integer for each sample, or train= and evaluate=",
        )
    x = floats(samples.inputs[0])
    return torch.from_numpy(x), torch.from_numpy(samples.labels.astype(np.int64))


def floats(x: Array) -> Array:
    kind: Any = np.float32 if x.dtype.kind == "f" else np.int64
    return np.ascontiguousarray(x, kind)


def fit(model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float, batch: int) -> None:
    """In training mode, then in the mode it was in."""
    x, y = on_device_of(model, x, y)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr)
    modes = [(module, module.training) for module in model.modules()]
    whole = max(len(x) // batch, 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * whole)
    model.train()
    try:
        for _ in range(epochs):
            order = torch.randperm(len(x)).to(x.device)
            for i in range(whole):
                rows = order[i * batch : (i + 1) * batch]
                scores = model(x[rows])
                if i == 0:
                    check_classes(scores, y)
                loss = nn.functional.cross_entropy(scores, y[rows])
                if not torch.isfinite(loss):
                    raise NotFinite("the loss is not finite", try_=f"lr={lr / 10:g}")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    finally:
        for module, training in modes:
            module.training = training


def judge(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Percent of the samples that are recognised."""
    right = 0
    x, y = on_device_of(model, x, y)
    with as_in_use(model), torch.no_grad():
        for at in range(0, len(x), JUDGED):
            scores = model(x[at : at + JUDGED])
            if at == 0:
                check_classes(scores, y)
            right += int((scores.argmax(1) == y[at : at + JUDGED]).sum())
    return 100 * right / len(x)


def on_device_of(model: nn.Module, *tensors: Tensor) -> list[Tensor]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return [tensor.to(device) for tensor in tensors]


def check_classes(scores: Tensor, y: Tensor) -> None:
    """That there is a score for each label."""
    least, most = int(y.min()), int(y.max())
    if scores.ndim != 2 or least < 0 or most >= scores.shape[1]:
        raise DataError(
            f"labels from {least} to {most} do not fit the scores of the model",
            why=f"these have the shape {tuple(scores.shape)}",
            try_="a row of scores for each sample, and labels that count from 0",
        )


def check_example(model: nn.Module, x: Tensor) -> None:
    """That the model runs on the samples."""
    try:
        with as_in_use(model), torch.no_grad():
            model(*on_device_of(model, x))
    except Exception as error:
        raise DataError(
            f"{type(model).__name__} does not run on the samples",
            why=(f"a sample is {x.dtype} of shape {tuple(x.shape[1:])}", str(error)),
            try_="samples as the model takes them, or train= and evaluate=",
        ) from error


def check_teacher(model: nn.Module, teacher: Any, losses: Any, x: Tensor) -> None:
    """That the teacher can be learned from, before any work."""
    from .distill import Distiller, Logits, Term

    if not isinstance(teacher, nn.Module):
        raise SchemeError(f"{type(teacher).__name__} is no teacher", try_="a torch.nn.Module")
    terms = [losses] if isinstance(losses, Term) else list(losses or [Logits()])
    least = max(term.least for term in terms)  # samples that they compare with each other
    (here,) = on_device_of(model, x)
    Distiller(model, teacher, terms, here.repeat(least, *[1] * (x.ndim - 1)))
