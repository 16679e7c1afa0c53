"""Models to train in part, schemes drawn at random for them, and programs without re-importing."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from whet.api import Source
from whet.emit.program import Program
from whet.frontend.model import Model
from whet.frontend.torch.choices import optimizer_of
from whet.frontend.torch.export import import_model
from whet.pipeline import Options, assemble
from whet.scheme import Parameter, Rule, Scheme, named, parameters_of

FRACTIONS = (1 / 8, 1 / 4, 1 / 2, 1)
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


# Schemes -------------------------------------------------------------------------------------


def random_scheme(parameters: Sequence[Parameter], rng: random.Random) -> Scheme:
    """Any scheme at all: few or many parameters, from anywhere on, whole or by channels."""
    behind = parameters[rng.choice([0, rng.randrange(len(parameters))]) :]
    share = rng.choice([0.15, 0.4, 0.8])
    chosen = [p for p in behind if rng.random() < share] or [rng.choice(behind)]
    return Scheme([random_rule(p, rng) for p in chosen], name="random")


def random_rule(parameter: Parameter, rng: random.Random) -> Rule:
    channels: Any = None
    if parameter.channels:
        count = rng.randint(1, parameter.channels)
        first = rng.randint(0, parameter.channels - count)
        channels = rng.choice(
            [
                None,
                rng.choice(FRACTIONS),
                rng.uniform(0.01, 1.0),
                range(first, first + count),
                rng.sample(range(parameter.channels), count),
            ]
        )
    return Rule(parameter.name, channels)


# Programs ------------------------------------------------------------------------------------


@dataclass
class Ready:
    """A model imported once, of which many programs are made."""

    source: Source
    model: Model

    @classmethod
    def of(
        cls,
        module: nn.Module,
        *inputs: Tensor,
        optimizer: Optimizer | None = None,
        clip_norm: float | None = None,
    ) -> Ready:
        loss = nn.CrossEntropyLoss()
        chosen = optimizer_of(optimizer and optimizer(module), module)
        model = import_model(module, inputs, loss, chosen, None, clip_norm)
        copies = copy.deepcopy((module, loss, chosen))
        return cls(Source(*copies, inputs, None, clip_norm), model)

    @property
    def module(self) -> nn.Module:
        return self.source.model

    @property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.model.training.graph)

    def program(
        self, scheme: Scheme | str, accumulate: bool = True, without: Collection[str] = ()
    ) -> Program:
        """What `whet.compile` makes of the model with update=scheme."""
        if isinstance(scheme, str):
            scheme = named(scheme, self.parameters)
        options = Options(accumulate=accumulate, without=frozenset(without))
        return assemble(self.model, scheme, options, self.source)


# Models --------------------------------------------------------------------------------------


class Images(nn.Module):
    """Every kind of two-dimensional layer, with channel counts that divide by little."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.grouped = nn.Conv2d(6, 10, 3, padding=1, groups=2)
        self.depthwise = nn.Conv2d(10, 10, 5, padding=2, groups=10)
        self.pointwise = nn.Conv2d(10, 10, 1)
        self.pool = nn.MaxPool2d(2)
        self.multiplied = nn.Conv2d(10, 20, 3, padding=1, groups=10)
        self.up = nn.ConvTranspose2d(20, 9, 2, stride=2)
        self.up_grouped = nn.ConvTranspose2d(
            9, 6, 3, stride=2, padding=1, output_padding=1, groups=3
        )
        self.dilated = nn.Conv2d(6, 7, (3, 2), stride=2, padding=1, dilation=2)
        self.hidden = nn.Linear(7 * 4, 11)
        self.head = nn.Linear(11, 5)

    def forward(self, x: Tensor) -> Tensor:
        functional = nn.functional
        x = functional.relu6(self.norm(self.stem(x)))
        x = functional.leaky_relu(self.grouped(x), 0.1)
        x = x + self.pointwise(functional.hardswish(self.depthwise(x)))
        x = functional.relu(self.multiplied(self.pool(x)))
        x = functional.relu(self.up(x))
        x = functional.leaky_relu(self.dilated(self.up_grouped(x)))
        x = functional.adaptive_avg_pool2d(x, (2, 2)).flatten(1)
        return self.head(functional.relu(self.hidden(x)))


class Signals(nn.Module):
    """Every kind of one-dimensional layer, and linear layers on many vectors at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, 6, 3, padding=1)
        self.grouped = nn.Conv1d(6, 9, 3, stride=2, groups=3, bias=False)
        self.norm = nn.BatchNorm1d(9)
        self.depthwise = nn.Conv1d(9, 9, 3, padding=1, groups=9)
        self.up = nn.ConvTranspose1d(9, 8, 3, stride=2)
        self.up_grouped = nn.ConvTranspose1d(8, 6, 2, groups=2)
        self.token = nn.Linear(6, 7)
        self.layer_norm = nn.LayerNorm(7)
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm(self.grouped(x)))
        x = x + torch.tanh(self.depthwise(x))
        x = self.up_grouped(torch.relu(self.up(x))).transpose(1, 2)
        x = self.layer_norm(torch.nn.functional.gelu(self.token(x)))
        return self.head(x.mean(1))


def images(train: bool = False, **settings: Any) -> Ready:
    """The net of two-dimensional layers, ready to compile for two pictures."""
    torch.manual_seed(0)
    module = settle(Images(), torch.randn(4, 3, 8, 6)).train(train)
    return Ready.of(module, torch.randn(2, 3, 8, 6), **settings)


def signals(train: bool = False, **settings: Any) -> Ready:
    torch.manual_seed(0)
    module = settle(Signals(), torch.randn(4, 3, 12)).train(train)
    return Ready.of(module, torch.randn(2, 3, 12), **settings)


def settle(module: nn.Module, x: Tensor) -> nn.Module:
    """Give batch norm statistics and factors that are not zeros and ones."""
    with torch.no_grad():
        module.train()(x)
        for child in module.modules():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                child.weight.uniform_(0.5, 1.5)
                child.bias.normal_(0, 0.3)
    return module
