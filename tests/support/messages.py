"""What an error says, for tests that compare it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

import whet
from tiny import vectors
from whet.errors import (
    FrontendError,
    WhetError,
)

X, Y = next(vectors())


class Function(nn.Module):
    """A layer, then any function of its result."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.fc(x))


def message(error: type[WhetError], call: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error, "not a more special error"
    text = str(caught.value)
    assert text.splitlines()[0] == f"{caught.value.what}  [{error.code}]"
    return text


def compiling(model: Any, inputs: Any = (X,), **options: Any) -> str:
    return message(FrontendError, lambda: whet.compile(model, inputs, **options))
