"""Schemes by name: full, last, bias+last, norm+last, last-3, and those that were published."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from ..errors import SchemeError
from .blocks import behind, head, last_blocks, last_blocks_and_head, last_layer, last_layers
from .parameters import Parameter
from .rule import USUAL_ALPHA, Rule
from .scheme import Scheme, exactly
from .structure import ATTENTION, FEED_FORWARD

PARTS = (
    "full, last, bias, norm, attention, ffn, lora, lite (branches of whet.tinytl), last-K (the "
    "last K blocks and the head), sparse-K (attention, the first layers of feed-forward networks "
    "and biases of the last K blocks), bias-K, norm-K, attention-K, ffn-K and lora-K (in the last "
    "K blocks), layers-K (the last K layers), joined by +"
)
USUAL_TARGETS = ("query", "value")
IN_BLOCKS = ("bias", "norm", "attention", "ffn", "lora")  # of all blocks, or of the last K
PART = re.compile(
    rf"full|last|lite|(?:{'|'.join(IN_BLOCKS)})(?:-\d+)?|(?:layers|last|sparse)-\d+", re.ASCII
)
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
        known = ["full", "last", "bias+last", "norm+last", "last-3", "sparse-2", "attention-2",
                 "ffn-2", "lora", "lora-2", "lora+last", *TINYTL, *published()]  # fmt: skip
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise SchemeError(
            f"there is no scheme {name!r}",
            try_=(*(f"did you mean {n}?" for n in close), PARTS, "a file such as sparse.toml"),
        )


def preset(name: str, parameters: Sequence[Parameter]) -> Scheme:
    """The named scheme for a model with these parameters; parts may be joined with `+`."""
    check_preset(name)
    chosen: set[str] = set()
    beside: list[Rule] = []
    for part in TINYTL.get(name, name).split("+"):
        word, _, count = part.partition("-")
        if word == "lora":
            beside += lora(last=int(count) if count else None).rules
        else:
            chosen.update(p.name for p in _part(word, int(count or 0), part, name, parameters))
    if not chosen and not beside:
        raise SchemeError(f"the scheme {name!r} trains nothing of this model", try_=PARTS)
    whole = [Rule(exactly(p.name)) for p in parameters if p.name in chosen]
    return Scheme([*whole, *beside], name=name)


def _part(
    word: str, count: int, part: str, name: str, parameters: Sequence[Parameter]
) -> list[Parameter]:
    """What a part of a name trains: a word, and the K behind it, or 0 if there is none."""
    if part == "full":
        return list(parameters)
    if part == "last":
        return head(parameters)
    if part == "lite":
        return lite(name, parameters)
    own = [p for p in parameters if not is_lite(p)]  # a branch is beside the layers
    if word == "layers":
        return last_layers(own, count)
    if word == "last":
        return last_blocks_and_head(parameters, count)
    if word == "sparse":
        return sparse_blocks(parameters, part, count)
    found = [p for p in (parameters if word == "norm" else own) if IS[word](p)]
    if word not in ("bias", "norm") and not found:
        raise no_attention(name)
    inside = last_blocks(parameters, count, part) if part != word else None
    return [p for p in found if inside is None or p.block in inside]


IS: dict[str, Callable[[Parameter], bool]] = {
    "bias": lambda p: p.kind.endswith("bias"),
    "norm": lambda p: p.kind.startswith("norm"),
    "attention": lambda p: p.role in ATTENTION,
    "ffn": lambda p: p.role in FEED_FORWARD,
}


def sparse_blocks(parameters: Sequence[Parameter], part: str, count: int) -> list[Parameter]:
    """Biases, projections of attention and first layers of feed-forward networks of the last
    blocks, and what lies behind them. A layer that scores a vocabulary stays frozen.

    PockEngine (arXiv:2310.17752) trains so.
    """
    if not any(p.role in ATTENTION for p in parameters):
        raise no_attention(part)
    inside = last_blocks(parameters, count, part)
    after = {p.name for p in behind(parameters, 0) if p.role != "vocabulary head"}
    chosen = (*ATTENTION, "up")
    return [
        p
        for p in parameters
        if p.name in after or (p.block in inside and (p.role in chosen or IS["bias"](p)))
    ]


def no_attention(name: str) -> SchemeError:
    return SchemeError(
        f"the scheme {name!r} is for transformers",
        why="no attention was found in this model: no softmax between two products of activations",
        try_=("last-2", "bias+last", "a scheme of rules"),
    )


def lora(
    r: int = 8,
    alpha: float = USUAL_ALPHA,
    targets: str | Sequence[str] = USUAL_TARGETS,
    last: int | None = None,
) -> Scheme:
    """A scheme that trains two factors beside some linear layers: LoRA, arXiv:2106.09685.

    A layer then computes y = W x + alpha / r * B (A x). W is frozen; A [r, in] starts from random
    numbers, always the same, and B [out, r] from zeros. They are called `<weight>.lora_A` and
    `<weight>.lora_B`. `trainer.state_dict(merge=True)` has W + alpha / r * B A in their place.

    `targets` are layers by what they do ("query", "key", "value", "output", "attention", "up",
    "down", "ffn", or "linear": all of them) or by the ends of their modules' names ("q_proj"). A
    fused projection is the query, the key and the value. `last` leaves the last so many blocks. Add
    rules to train other parameters whole: `Scheme([*whet.lora().rules, Rule("classifier.*")])`.
    """
    words = tuple(targets) if isinstance(targets, (list, tuple)) else (targets,)
    if not words:
        raise SchemeError("LoRA without targets adapts nothing", try_='targets=("query", "value")')
    rule = Rule("*", targets=words, last=last, lora=r, alpha=alpha)
    usual = (r, alpha, words) == (8, USUAL_ALPHA, USUAL_TARGETS)
    name = f"lora-{last}" if last else "lora"
    return Scheme([rule], name=name if usual else f"LoRA of rank {r}")


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
    last = last_layer(parameters)
    rules = [Rule(exactly(p.name)) for p in top]
    for p in parameters:
        if p.kind.endswith("bias") and last - bias_layers <= p.layer < last:
            rules.append(Rule(exactly(p.name)))
        if p.kind == "weight" and weights.get(p.layer):
            fraction = weights[p.layer]
            rules.append(Rule(exactly(p.name), None if fraction == 1 else fraction))
    return Scheme(rules, name=name)
