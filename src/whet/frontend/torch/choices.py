"""Losses and optimizers by name, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import FrontendError
from ...ops.optimizers import NAMES

if TYPE_CHECKING:
    import torch

    from .export import Loss

T = TypeVar("T")
LR = 0.01  # default for optimizers given by name


class LossName(StrEnum):
    cross_entropy = "cross-entropy"
    mse = "mse"
    l1 = "l1"
    smooth_l1 = "smooth-l1"
    bce = "bce-with-logits"
    nll = "nll"
    kl = "kl"


if TYPE_CHECKING:

    class OptimizerName(StrEnum):  # a type checker cannot compute members
        sgd = "sgd"
else:
    OptimizerName = StrEnum("OptimizerName", {name: name for name in NAMES})


def loss_of(given: Any) -> Loss:
    """The loss, given by name or as a module or function; cross-entropy by default."""
    from torch import nn

    if given is None or isinstance(given, str):
        kinds: dict[str, Callable[[], Loss]] = {
            LossName.cross_entropy: nn.CrossEntropyLoss,
            LossName.mse: nn.MSELoss,
            LossName.l1: nn.L1Loss,
            LossName.smooth_l1: nn.SmoothL1Loss,
            LossName.bce: nn.BCEWithLogitsLoss,
            LossName.nll: nn.NLLLoss,
            LossName.kl: lambda: nn.KLDivLoss(reduction="batchmean"),
        }
        return chosen("loss", LossName.cross_entropy if given is None else given, kinds)()
    if isinstance(given, type):
        raise FrontendError(
            f"the loss is the class {given.__name__}, not a loss", try_=f"loss={given.__name__}()"
        )
    if not callable(given):
        raise FrontendError(
            f"the loss is a {type(given).__name__}, which cannot be called",
            try_=("loss=torch.nn.CrossEntropyLoss()", f"a name: {', '.join(LossName)}"),
        )
    return given


def optimizer_of(given: Any, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The given optimizer, or one of that name for all parameters; SGD by default."""
    import torch

    if isinstance(given, torch.optim.Optimizer):
        return given
    if given is None or isinstance(given, str):
        return make_optimizer("sgd" if given is None else given, model.parameters())
    if isinstance(given, type):
        what = f"the optimizer is the class {given.__name__}, not an optimizer"
        name = given.__name__ if issubclass(given, torch.optim.Optimizer) else "SGD"
    else:
        what = f"the optimizer is a {type(given).__name__}, not a torch.optim.Optimizer"
        name = "SGD"
    raise FrontendError(what, try_=f"optimizer=torch.optim.{name}(model.parameters(), lr={LR})")


def make_optimizer(
    name: str,
    parameters: Iterable[torch.nn.Parameter],
    lr: float = LR,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    from torch import optim

    from .optim import nothing_to_train

    held = list(parameters)
    if not held:
        raise nothing_to_train()
    named = chosen("optimizer", name, NAMES)
    options = {"lr": lr, "weight_decay": weight_decay}
    if named.momentum:
        options["momentum"] = momentum
    try:
        made: torch.optim.Optimizer = getattr(optim, named.torch)(held, **options)
        return made
    except ValueError as error:
        raise FrontendError(f"{name} rejects these options", why=str(error)) from error


def chosen(word: str, name: str, kinds: Mapping[str, T]) -> T:
    if name not in kinds:
        raise FrontendError(f"{name!r} is not a valid {word}", try_=", ".join(kinds))
    return kinds[name]
