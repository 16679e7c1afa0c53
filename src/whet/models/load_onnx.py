"""A model in PyTorch from an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import FrontendError

if TYPE_CHECKING:
    from ..frontend.torch.interpreted import Interpreted


def from_onnx(path: str | os.PathLike[str], *, outputs: Sequence[str] = ()) -> Interpreted:
    """The model of an ONNX file, in eval mode; needs the extra `onnx`.

    Float weights are parameters with the names of the file. `model.example(batch)` makes inputs
    of the shapes in the file. `outputs` names those to keep, if not all; several are a tuple.
    """
    try:
        import onnx as _installed  # noqa: F401
    except ModuleNotFoundError:
        raise FrontendError(
            "reading ONNX files needs the package onnx, which is not installed",
            try_='pip install "whet[onnx]"',
        ) from None
    from ..frontend.onnx import from_onnx as load

    return load(path, outputs=outputs)
