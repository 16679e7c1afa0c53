"""Find the blocks of a CNN by their structure, not by their names.

A block takes one feature map and returns one, has two or more convolutions over it, and either adds
something to its result (a residual block) or filters each channel separately and mixes them
afterwards (an inverted bottleneck).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...errors import FrontendError

ADDITIONS = {torch.add, torch.Tensor.add, torch.Tensor.add_}
ADDITIONS |= {torch.Tensor.__add__, torch.Tensor.__iadd__, torch.Tensor.__radd__}


@dataclass(frozen=True)
class Block:
    """Its name, the shapes of its input and output, and the most channels it has in between."""

    name: str
    taken: torch.Size
    given: torch.Size
    inner: int

    @property
    def stride(self) -> int:
        """The factor by which its result is smaller."""
        return max(1, round(self.taken[-1] / self.given[-1]))

    def __str__(self) -> str:
        sides = "x".join(map(str, self.given[-2:]))
        return f"{self.name}: {self.taken[1]} -> {self.inner} -> {self.given[1]} channels, {sides}"


@dataclass
class Seen:
    """What a module did in one forward pass."""

    taken: torch.Size | None = None  # shape of its only input map
    given: torch.Size | None = None
    called: dict[nn.Conv2d, bool] = field(default_factory=dict)  # in order; over several pixels?
    adds: bool = False
    plain: bool = False  # runs its modules in sequence

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        """Convolutions over the map, not over one number per channel as in a gate."""
        one_pixel = self.given is not None and max(self.given[-2:]) == 1
        return [conv for conv, several in self.called.items() if several or one_pixel]

    @property
    def maps(self) -> bool:
        return self.taken is not None and self.given is not None

    @property
    def is_block(self) -> bool:
        several = len(self.convolutions) > 1
        return self.maps and several and (self.adds or is_inverted(self.convolutions))


def find_blocks(model: nn.Module, x: torch.Tensor, names: Sequence[str] = ()) -> list[Block]:
    """The blocks of `model` in order, or the named ones; `x` is an example input."""
    if isinstance(names, str):
        raise FrontendError(f"blocks={names!r} are not names", try_=f"blocks=[{names!r}]")
    seen = watch(model, x)
    if names:
        for name in names:
            outer = next((n for n in names if is_inside(name, n)), None)
            if outer is not None:
                raise FrontendError(
                    f"{name} is inside {outer or 'the model'}, which is also a block"
                )
        return [named(name, seen) for name in dict.fromkeys(names)]
    found = [name for name, what in seen.items() if what.is_block]
    blocks = [block_of(name, seen[name]) for name in found if not has_inner(name, found, seen)]
    if not blocks:
        raise FrontendError(
            f"{type(model).__name__} has no residual block and no inverted bottleneck",
            why="no module maps a feature map to another with two or more convolutions and a join",
            try_='blocks=["features.3", ...], names of modules that do',
        )
    return blocks


def has_inner(name: str, found: Sequence[str], seen: dict[str, Seen]) -> bool:
    """Whether it contains a block; of several around the same layers, the outermost counts."""
    own = seen[name]
    for other in found:
        theirs = seen[other]
        inside, outside = is_inside(other, name), is_inside(name, other)
        if inside and len(theirs.convolutions) < len(own.convolutions):
            return True
        same = len(theirs.convolutions) == len(own.convolutions)
        if same and ((inside and own.plain and not theirs.plain)
                     or (outside and not (theirs.plain and not own.plain))):  # fmt: skip
            return True
    return False


def is_inside(name: str, outer: str) -> bool:
    return name != outer and (not outer or name.startswith(f"{outer}."))


def is_inverted(convolutions: Sequence[nn.Conv2d]) -> bool:
    """A depthwise filter, followed by a convolution that mixes channels."""
    kinds = [(c.groups == c.in_channels > 1, c.kernel_size == (1, 1)) for c in convolutions]
    depthwise = [i for i, (by_channel, _) in enumerate(kinds) if by_channel]
    return len(depthwise) == 1 and any(mixes for _, mixes in kinds[depthwise[0] + 1 :])


def named(name: str, seen: dict[str, Seen]) -> Block:
    if name not in seen:
        close = difflib.get_close_matches(name, seen, n=3, cutoff=0.5) or list(seen)[1:6]
        raise FrontendError(f"the forward pass uses no module {name!r}", try_=tuple(close))
    if not seen[name].maps or not seen[name].convolutions:
        raise FrontendError(
            f"{name or 'the model'} is not a block",
            why="it does not map one feature map, as its only positional argument, to another",
        )
    return block_of(name, seen[name])


def block_of(name: str, what: Seen) -> Block:
    assert what.taken is not None and what.given is not None
    return Block(name, what.taken, what.given, max(c.out_channels for c in what.convolutions))


def watch(model: nn.Module, x: torch.Tensor) -> dict[str, Seen]:
    """Run the model once in eval mode and record what every module does."""
    names = {module: name for name, module in model.named_modules()}
    seen: dict[str, Seen] = {}
    within: list[str] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        what = seen.setdefault(names[module], Seen())
        what.taken, what.plain = one_map(args), isinstance(module, nn.Sequential)
        within.append(names[module])

    def leave(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        within.pop()
        seen[names[module]].given = one_map((result,))
        if isinstance(module, nn.Conv2d):
            for name in [*within, names[module]]:
                seen[name].called[module] = max(args[0].shape[-2:]) > 1

    class Additions(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            if function in ADDITIONS and len(args) > 1 and within:
                one, other = one_map(args[:1]), one_map(args[1:2])
                if one is not None and one == other:
                    for name in within:
                        seen[name].adds = True
            return result

    with hooked(model, enter, leave), as_in_use(model), torch.no_grad(), Additions():
        run(model, x)
    return seen


def run(model: nn.Module, x: torch.Tensor) -> None:
    """Run the model, or raise an error if it does not accept `x`."""
    if not isinstance(x, torch.Tensor):
        raise FrontendError(f"{type(x).__name__} is not a valid example input", try_="a tensor")
    try:
        model(x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise FrontendError(
            f"{type(model).__name__} cannot be run on an input of {tuple(x.shape)}",
            why=str(error).strip().partition("\n")[0],
        ) from error


def one_map(values: tuple[Any, ...]) -> torch.Size | None:
    """The shape of the only value, if it is a batch of feature maps."""
    if len(values) == 1 and isinstance(values[0], torch.Tensor) and values[0].ndim == 4:
        return values[0].shape
    return None


@contextmanager
def hooked(model: nn.Module, enter: Any, leave: Any) -> Iterator[None]:
    handles = []
    for module in model.modules():
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def as_in_use(model: nn.Module) -> Iterator[None]:
    """Temporarily in eval mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
