"""Schemes by name: full, last, bias+last, norm+last, last-3, and those that were published."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from ..errors import SchemeError
from .parameters import Parameter
from .scheme import Rule, Scheme, exactly

PARTS = (
    "full, last, bias, norm, lite (branches of whet.tinytl), last-K (the last K blocks and the "
    "head), layers-K (the last K layers), joined by +"
)
PART = re.compile(r"full|last|bias|norm|lite|(?:layers|last)-\d+", re.ASCII)
TINYTL = {  # of arXiv:2007.11622, by what they are made of
    "tinytl-b": "bias+last",
    "tinytl-l": "lite+last",
    "tinytl-l+b": "lite+bias+last",
    "tinytl-l+b+2": "lite+bias+layers-2",
}


def named(name: str, parameters: Sequence[Parameter]) -> Scheme:
    """A scheme from what a user writes: a preset, a TOML file, or a published scheme's name."""
    return written(name) or preset(name, parameters)


def written(name: str) -> Scheme | None:
    """The scheme of a TOML file or of a published name; None for a preset, which is checked."""
    if name.endswith(".toml"):
        return Scheme.from_toml(Path(name))
    if name in (known := published()):
        return Scheme.from_toml(known[name])
    check_preset(name)
    return None


def published() -> dict[str, str]:
    """The TOML text of every scheme that comes with whet, by name."""
    folder = resources.files("whet") / "scheme" / "published"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in files}


def check_preset(name: str) -> None:
    """Refuse a name that is none, whatever the model."""
    if not all(PART.fullmatch(part) for part in TINYTL.get(name, name).split("+")):
        known = ["full", "last", "bias+last", "norm+last", "last-3", *TINYTL, *published()]
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise SchemeError(
            f"there is no scheme {name!r}",
            try_=(*(f"did you mean {n}?" for n in close), PARTS, "a file such as sparse.toml"),
        )


def preset(name: str, parameters: Sequence[Parameter]) -> Scheme:
    """The named scheme for a model with these parameters; parts may be joined with `+`."""
    check_preset(name)
    chosen: set[str] = set()
    for part in TINYTL.get(name, name).split("+"):
        chosen.update(p.name for p in _part(part, name, parameters))
    if not chosen:
        raise SchemeError(f"the scheme {name!r} trains nothing of this model", try_=PARTS)
    return Scheme.of([p.name for p in parameters if p.name in chosen], name=name)


def _part(part: str, name: str, parameters: Sequence[Parameter]) -> list[Parameter]:
    if part == "full":
        return list(parameters)
    if part == "last":
        return head(parameters)
    if part == "bias":
        return [p for p in parameters if p.kind.endswith("bias") and not is_lite(p)]
    if part == "norm":
        return [p for p in parameters if p.kind.startswith("norm")]
    if part == "lite":
        return lite(name, parameters)
    if match := re.fullmatch(r"layers-(\d+)", part):
        return last_layers(parameters, int(match[1]))
    return last_blocks(parameters, int(part.removeprefix("last-")))


def head(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters of the last layer."""
    layered = [p.layer for p in parameters if p.kind == "weight"]
    last = max(layered, default=max((p.layer for p in parameters), default=-1))
    found = [p for p in parameters if p.layer == last and p.kind in ("weight", "bias")]
    return found or [p for p in parameters if p.layer == last]


def lite(name: str, parameters: Sequence[Parameter]) -> list[Parameter]:
    """The branches that `whet.tinytl.prepare` put beside the blocks."""
    found = [p for p in parameters if is_lite(p)]
    if not found:
        raise SchemeError(
            f"the scheme {name!r} trains lite residual branches, and this model has none",
            try_="model = whet.tinytl.prepare(model, x)",
        )
    return found


def is_lite(parameter: Parameter) -> bool:
    return "lite_residual" in parameter.name.split(".")


def last_layers(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """Weights, biases and norms of the last layers, the head among them."""
    own = [p for p in parameters if not is_lite(p)]  # a branch is beside the layers
    layers = sorted({p.layer for p in own if p.kind == "weight"})
    if not 0 < count <= len(layers):
        raise SchemeError(f"the model has {len(layers)} layers, so there is no layers-{count}")
    return [p for p in own if p.layer >= layers[-count]]


def blocks(parameters: Sequence[Parameter]) -> list[str]:
    """Paths of the blocks before the head, in order: those with more than norms and biases."""
    own = {p.block for p in head(parameters)}
    layered = [p.block for p in parameters if p.kind in ("weight", "other")]
    return list(dict.fromkeys(block for block in layered if block not in own))


def last_blocks(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """The head, the last `count` blocks before it, and what lies between."""
    found = blocks(parameters)
    if not 0 < count <= len(found):
        raise SchemeError(
            f"the model has {len(found)} blocks before its head, so there is no last-{count}"
        )
    order = list(dict.fromkeys(p.block for p in parameters))
    behind = set(order[order.index(found[-count]) :]) | {p.block for p in head(parameters)}
    return [p for p in parameters if p.block in behind]


def sparse(
    parameters: Sequence[Parameter],
    bias_layers: int,
    weights: Mapping[int, float],
    name: str = "sparse",
) -> Scheme:
    """The head, the biases of the last layers before it, and fractions of chosen weights.

    `weights` maps the number of a layer, counted from 0 in forward order, to the fraction of its
    input channels that train. This is how arXiv:2206.15472 writes a scheme.
    """
    top = head(parameters)
    last = max(p.layer for p in top)
    rules = [Rule(exactly(p.name)) for p in top]
    for p in parameters:
        if p.kind.endswith("bias") and last - bias_layers <= p.layer < last:
            rules.append(Rule(exactly(p.name)))
        if p.kind == "weight" and weights.get(p.layer):
            fraction = weights[p.layer]
            rules.append(Rule(exactly(p.name), None if fraction == 1 else fraction))
    return Scheme(rules, name=name)
