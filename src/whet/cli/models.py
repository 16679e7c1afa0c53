"""From the words on a command line to a model, its example inputs, and a program."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import FrontendError
from .options import DTypeName, FrozenName, LossName, OptimizerName, RematName

waiting = Console(stderr=True)

if TYPE_CHECKING:
    import torch

    from ..emit.program import Program
    from ..quantize import Int8


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained, as said on the command line."""

    model: str
    inputs: list[str]
    loss: LossName = LossName.cross_entropy
    optimizer: OptimizerName = OptimizerName.sgd
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    train: bool = False

    def arguments(self) -> dict[str, Any]:
        """What `whet.compile` and `whet.compare` both take."""
        import torch

        examples = tuple(example(text) for text in self.inputs)
        model = load_model(self.model)
        model.train(self.train)
        params = list(model.parameters())
        if not params:
            raise FrontendError("the model has no parameters", at=self.model)
        decay = self.weight_decay
        rules: dict[OptimizerName, Any] = {
            OptimizerName.sgd: lambda: torch.optim.SGD(
                params, lr=self.lr, momentum=self.momentum, weight_decay=decay
            ),
            OptimizerName.adam: lambda: torch.optim.Adam(params, lr=self.lr, weight_decay=decay),
            OptimizerName.adamw: lambda: torch.optim.AdamW(params, lr=self.lr, weight_decay=decay),
        }
        losses: dict[LossName, Any] = {
            LossName.cross_entropy: torch.nn.CrossEntropyLoss,
            LossName.mse: torch.nn.MSELoss,
            LossName.l1: torch.nn.L1Loss,
            LossName.smooth_l1: torch.nn.SmoothL1Loss,
            LossName.bce: torch.nn.BCEWithLogitsLoss,
            LossName.nll: torch.nn.NLLLoss,
            LossName.kl: lambda: torch.nn.KLDivLoss(reduction="batchmean"),
        }
        try:
            optimizer = rules[self.optimizer]()
        except ValueError as error:
            what = f"{self.optimizer.value} cannot be set up so"
            raise FrontendError(what, why=str(error)) from error
        return dict(
            model=model, inputs=examples, loss=losses[self.loss](), optimizer=optimizer,
            clip_norm=self.clip_norm,
        )  # fmt: skip

    def compile(self, **options: Any) -> Program:
        import whet

        compile = whet.compile  # says so if there is no PyTorch
        with waiting.status("compiling"):
            return compile(**self.arguments(), **options)


def numbers(
    dtype: DTypeName, calibrate: str | None, int8: list[str] | None, inputs: list[str]
) -> dict[str, Any]:
    """What `whet.compile` is told about the network's numbers."""
    if dtype is DTypeName.float32:
        if calibrate is not None:
            raise FrontendError("a float32 program needs no calibration", try_="--dtype int8")
        if int8:
            raise FrontendError(f"--int8 {int8[0]} is for int8 programs", try_="--dtype int8")
        return {}
    found: dict[str, Any] = {"dtype": int8_options(int8 or [])}
    if calibrate == "random":
        found["calibrate"] = [example(inputs[0])]
    elif calibrate is not None:
        found["calibrate"] = [read_array(Path(calibrate))]
    return found


def int8_options(given: list[str]) -> Int8:
    """`rounding=carry8` and so on; later ones count."""
    import whet

    kinds = {field.name: type(field.default) for field in fields(whet.Int8)}
    words: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in kinds or not value:
            known = ", ".join(f"{name}=..." for name in kinds)
            raise FrontendError(f"--int8 {text} says nothing", try_=known)
        words[name] = VALUES[kinds[name]](text, value)
    return whet.Int8(**words)


def yes_or_no(text: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise FrontendError(f"--int8 {text} says neither yes nor no")
    return value == "yes"


def whole(text: str, value: str) -> int:
    if not value.isdecimal():
        raise FrontendError(f"--int8 {text} is no whole number from 0 on")
    return int(value)


VALUES: dict[type, Callable[[str, str], Any]] = {
    str: lambda _, value: value, bool: yes_or_no, int: whole,
}  # fmt: skip


def read_array(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FrontendError(f"cannot read {path}", why=reason(error), try_="a .npy file") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim < 2:
        raise FrontendError(f"{path} is no array of float inputs", try_="numpy.save(path, images)")
    return array


def example(text: str) -> torch.Tensor:
    """`1,3,32,32` is a float tensor of that shape, `1,16:1000` one of ids below 1000."""
    import torch

    match = re.fullmatch(r"([1-9]\d*(?:,[1-9]\d*)*)(?::([1-9]\d*))?", text)
    if match is None:
        raise FrontendError(
            f"{text!r} is not an input shape", try_="--input 1,3,128,128 or --input 1,16:1000"
        )
    sizes = tuple(int(n) for n in match[1].split(","))
    if match[2] is None:
        return torch.randn(sizes)
    ids = torch.randint(0, int(match[2]), sizes)
    ids.view(-1)[0] = int(match[2]) - 1  # the largest id is part of the example
    return ids


def load_model(spec: str) -> torch.nn.Module:
    """What `pkg.module:name` or `file.py:name` names: a module, or a function that makes one.

    Arguments may follow, as in `whet.models:mobilenet_v2(10, 0.35)`, if they are literals.
    """
    import torch

    match = re.fullmatch(r"([^:()]+):(\w+)(\(.*\))?", spec)
    if match is None:
        raise FrontendError(
            f"{spec!r} does not name a model",
            try_=("pkg.module:make_model", "whet.models:mcunet_5fps(10, folded=True)"),
        )
    where, attribute, call = match.groups()
    args, keywords = literal_arguments(call or "()", spec)
    try:
        module = import_file(where) if where.endswith(".py") else import_name(where)
    except Exception as error:
        raise FrontendError(f"cannot import {where!r}", why=reason(error)) from error
    if not hasattr(module, attribute):
        raise FrontendError(f"{where!r} has no {attribute!r}")
    made = getattr(module, attribute)
    if callable(made) and not isinstance(made, torch.nn.Module):
        try:
            made = made(*args, **keywords)
        except Exception as error:
            raise FrontendError(f"{attribute}{call or '()'} failed", why=reason(error)) from error
    if not isinstance(made, torch.nn.Module):
        raise FrontendError(f"{spec} gives a {type(made).__name__}, not a torch.nn.Module")
    return made


def literal_arguments(call: str, spec: str) -> tuple[list[Any], dict[str, Any]]:
    """The values of `(10, 0.35, folded=True)`; nothing is evaluated but literals."""
    try:
        tree = ast.parse(f"f{call}", mode="eval").body
        assert isinstance(tree, ast.Call)
        keywords = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
        return [ast.literal_eval(a) for a in tree.args], keywords
    except (ValueError, SyntaxError, AssertionError) as error:
        raise FrontendError(
            f"the arguments in {spec!r} are not literals",
            why=reason(error),
            try_="numbers, strings, True, False, tuples",
        ) from error


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def import_name(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def import_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def memory(rematerialize: RematName | None, frozen: FrozenName | None) -> dict[str, Any]:
    """What `compile` is told about saving it."""
    return {
        "rematerialize": rematerialize.value if rematerialize else False,
        "frozen": frozen.value if frozen else None,
    }
