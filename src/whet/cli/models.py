"""From the words on a command line to a model, its example inputs, and a program."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..debug import observer, observing
from ..errors import FrontendError
from ..frontend.torch.choices import LR, LossName, OptimizerName, make_optimizer
from ..ops.optimizers import NAMES
from ..settings import AUTO, Settings, check_search
from .files import read_array
from .formats import file_and_output, loss_in, optimizer_in, read_file
from .options import DTypeName, FrozenName, ProductsName, RematName
from .printing import waiting

if TYPE_CHECKING:
    import torch

    from ..emit.program import Program
    from ..quantize import Int8


@dataclass(frozen=True)
class Invocation:
    """A model and how it is trained, as said on the command line."""

    model: str
    inputs: list[str]
    loss: LossName | None = None
    optimizer: OptimizerName | None = None
    lr: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    train: bool = False
    weights: Path | None = None

    def __post_init__(self) -> None:
        for text in self.inputs:
            sizes(text)
        if file_and_output(self.model) is None:
            parts(self.model)

    def arguments(self) -> dict[str, Any]:
        """What `whet.compile` and `whet.compare` both take."""
        chosen = self.optimizer or OptimizerName.sgd
        if self.momentum and not NAMES[chosen].momentum:
            what = f"{chosen.value} has no --momentum"
            raise FrontendError(what, try_="--optimizer sgd, or no --momentum")
        examples = tuple(example(text) for text in self.inputs)
        model = load_model(self.model)
        if self.weights is not None:
            from ..labs.compress import load

            load(self.weights, model)
        model.train(self.train)
        if not list(model.parameters()):
            raise FrontendError("the model has no parameters", at=self.model)
        common = {"model": model, "inputs": examples}
        return common | self.loss_arguments(model, examples) | self.optimizer_arguments(model)

    def loss_arguments(
        self, model: torch.nn.Module, examples: tuple[torch.Tensor, ...]
    ) -> dict[str, Any]:
        """The loss that was asked for, that of the file, or cross-entropy."""
        if self.loss is None:
            found, words = loss_in(self.model, model, examples)
            if found:
                waiting.print(f"loss of {self.model}: {words}", markup=False, soft_wrap=True)
                return found
        return {"loss": (self.loss or LossName.cross_entropy).value}

    def optimizer_arguments(self, model: torch.nn.Module) -> dict[str, Any]:
        """The optimizer that was asked for, that of the file, or SGD."""
        found, words = ({}, "") if self.optimizer else optimizer_in(self.model, model)
        if not found:
            lr = LR if self.lr is None else self.lr
            options = (lr, self.momentum, self.weight_decay)
            made = make_optimizer(self.optimizer or OptimizerName.sgd, model.parameters(), *options)
            return {"optimizer": made, "clip_norm": self.clip_norm}
        for name in ("momentum", "weight_decay"):
            if getattr(self, name):
                word = f"--{name.replace('_', '-')}"
                raise FrontendError(
                    f"{word} is for an optimizer of the command line",
                    why=f"{self.model} has one, {words}",
                    try_=f"--optimizer sgd {word} {getattr(self, name):g}",
                )
        if self.lr is not None:
            for group in found["optimizer"].param_groups:
                group["lr"] = self.lr
            words += f" with --lr {self.lr:g}"
        waiting.print(f"optimizer of {self.model}: {words}", markup=False, soft_wrap=True)
        return found if self.clip_norm is None else found | {"clip_norm": self.clip_norm}

    def compile(self, **options: Any) -> Program:
        """What can be checked without the model is checked before it is loaded."""
        import whet

        others = {
            k: v
            for k, v in options.items()
            if k not in ("calibrate", "accumulate", "generate", "sparse")
        }
        asked = Settings.of(**others, clip_norm=self.clip_norm)
        check_search(asked.update == AUTO, asked.ram, None)
        compile = whet.compile  # says so if there is no PyTorch
        with compiling():
            return compile(**self.arguments(), **options)


@contextmanager
def compiling() -> Iterator[None]:
    """Show how far it is, on a terminal: the last step that was done, where nobody else looks."""
    with waiting.status("importing the model") as status, ExitStack() as stack:
        if observer() is None:
            stack.enter_context(observing(lambda step, *_: status.update(f"compiling: {step}")))
        yield


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
            raise FrontendError(f"--int8 {text} is not an option of whet.Int8", try_=known)
        words[name] = VALUES[kinds[name]](text, value)
    return whet.Int8(**words)


def yes_or_no(text: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise FrontendError(f"--int8 {text} says neither yes nor no")
    return value == "yes"


def whole(text: str, value: str) -> int:
    if not value.isdecimal():
        raise FrontendError(f"--int8 {text} is not an integer of at least 0")
    return int(value)


VALUES: dict[type, Callable[[str, str], Any]] = {
    str: lambda _, value: value, bool: yes_or_no, int: whole,
}  # fmt: skip


def sizes(text: str) -> tuple[tuple[int, ...], int | None]:
    """The shape that `1,16:1000` says, and the number of ids if there is one."""
    match = re.fullmatch(r"([1-9]\d*(?:,[1-9]\d*)*)(?::([1-9]\d*))?", text)
    if match is None:
        raise FrontendError(
            f"{text!r} is not an input shape", try_="--input 1,3,128,128 or --input 1,16:1000"
        )
    return tuple(int(n) for n in match[1].split(",")), int(match[2]) if match[2] else None


def example(text: str) -> torch.Tensor:
    """`1,3,32,32` is a float tensor of that shape, `1,16:1000` one of ids below 1000."""
    import torch

    shape, count = sizes(text)
    if count is None:
        return torch.randn(shape)
    ids = torch.randint(0, count, shape)
    ids.view(-1)[0] = count - 1  # the largest id is part of the example
    return ids


def parts(spec: str) -> tuple[str, str, str]:
    """Where a model is, its name there, and the arguments behind it, if any."""
    match = re.fullmatch(r"([^:()]+):(\w+)(\(.*\))?", spec)
    if match is None:
        raise FrontendError(
            f"{spec!r} does not name a model",
            try_=("pkg.module:make_model", "whet.models:mcunet_5fps(10, folded=True)", "net.onnx"),
        )
    return match[1], match[2], match[3] or ""


def load_model(spec: str) -> torch.nn.Module:
    """What `pkg.module:name` or `file.py:name` names: a module, or a function that makes one; or
    the model in a file such as `model.onnx`.

    Arguments may follow, as in `whet.models:mobilenet_v2(10, 0.35)`, if they are literals.
    """
    import torch

    read = read_file(spec)
    if read is not None:
        return read
    where, attribute, call = parts(spec)
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


def memory(
    rematerialize: RematName | None, frozen: FrozenName | None, products: ProductsName | None
) -> dict[str, Any]:
    """What `compile` is told about saving it, and about products."""
    return {
        "rematerialize": rematerialize.value if rematerialize else False,
        "frozen": frozen.value if frozen else None,
        "products": products.value if products else None,
    }
