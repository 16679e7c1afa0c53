"""A rule: which parameters it is about, and what trains of each."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import SchemeError
from .blocks import blocks, last_blocks
from .parameters import Parameter
from .structure import ATTENTION, FEED_FORWARD

SPARSE: Literal["sparse"] = "sparse"  # the elements that are not zero
SHARED: Literal["shared"] = "shared"  # the values that elements share
SPARSE_SHARED: Literal["sparse shared"] = "sparse shared"  # those that are not zero
Part = Literal["sparse", "shared", "sparse shared"]

LINEAR = "linear"  # the target that is the weight of every linear layer in a block
ROLES: dict[str, tuple[str, ...]] = {  # other targets: the roles that they stand for
    "query": ("query", "qkv"),
    "key": ("key", "qkv"),
    "value": ("value", "qkv"),
    "output": ("output",),
    "attention": ATTENTION,
    "up": ("up",),
    "down": ("down",),
    "ffn": FEED_FORWARD,
    "norm": ("norm",),
    "embedding": ("embedding",),
    "head": ("head", "vocabulary head"),
}
USUAL_ALPHA = 16.0


@dataclass(frozen=True)
class Beside:
    """Two factors of this rank train beside a weight, as in LoRA: w + alpha / rank * B A."""

    rank: int
    alpha: float


# Channels that train, one of the words, factors beside the weight, or None for all of it.
Share = tuple[int, ...] | Part | Beside | None
Chosen = dict[str, Share]  # by parameter


@dataclass(frozen=True)
class Rule:
    """Parameters whose name matches a glob train: whole, or in part.

    `channels` trains some input channels: a fraction (the first channels, at least one) or a list
    of channel numbers. In a grouped convolution it is about the channels of each group, in a
    depthwise one about channels. `sparse` trains the elements that are not zero, as after pruning;
    the others stay zeros and are not stored. `shared` trains the values of a weight that has few,
    as after k-means: elements with the same value keep having the same; with `sparse` as well,
    zeros stay zeros. `lora` trains two factors of this rank beside the weight of a linear layer,
    times `alpha` / `lora`, and freezes the weight.

    Of the parameters that match, `targets` leaves those of some layers: by what they do (query,
    key, value, output, attention, up, down, ffn, linear, norm, embedding, head) or by how the names
    of their modules end ("q_proj"). `last` leaves those in the last so many blocks.
    """

    params: str
    channels: float | tuple[int, ...] | None = None
    sparse: bool = False
    shared: bool = False
    targets: tuple[str, ...] = ()
    last: int | None = None
    lora: int | None = None
    alpha: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.params, str):
            raise SchemeError(f"a rule names parameters with a glob, not with {self.params!r}")
        self._check_words()
        self._check_targets()
        self._check_lora()
        given = self.channels
        if isinstance(given, (list, tuple, range)):
            if not given or not all(type(c) is int for c in given):
                raise _bad_channels(self)
            object.__setattr__(self, "channels", tuple(sorted({int(c) for c in given})))
        elif given is not None and not (type(given) in (int, float) and 0 < given <= 1):
            raise _bad_channels(self)

    def _check_words(self) -> None:
        for word, flag in (("sparse", self.sparse), ("shared", self.shared)):
            if not isinstance(flag, bool):
                raise self._bad(f"{word} = {flag!r}", "it is either true or false")
            if flag and self.channels is not None:
                raise SchemeError(
                    f"the rule for {self.params!r} has both {word} and channels",
                    why="a weight trains by its elements or by its channels",
                    try_="one of the two",
                )

    def _check_targets(self) -> None:
        given: Any = self.targets
        listed = isinstance(given, (tuple, list))
        if not listed or not all(isinstance(word, str) and word for word in given):
            raise self._bad(
                f"targets = {given!r}", "they are words in a list", 'targets = ["query", "q_proj"]'
            )
        object.__setattr__(self, "targets", tuple(given))
        if self.last is not None and (type(self.last) is not int or self.last < 1):
            raise self._bad(f"last = {self.last!r}", "it is a number of blocks, 1 or more")

    def _check_lora(self) -> None:
        rank, alpha = self.lora, self.alpha
        if rank is None:
            if alpha is not None:
                raise self._bad(f"alpha = {alpha!r}", "it is for a rule with lora", "lora = 8")
            return
        if type(rank) is not int or rank < 1:
            raise self._bad(
                f"lora = {rank!r}", "it is the rank of the factors, 1 or more", "lora = 8"
            )
        if self.channels is not None or self.sparse or self.shared:
            raise SchemeError(
                f"the rule for {self.params!r} has lora and trains the weight as well",
                why="with factors beside it, the weight itself is frozen",
                try_="one of the two",
            )
        alpha = USUAL_ALPHA if alpha is None else alpha
        if type(alpha) not in (int, float) or not math.isfinite(alpha) or alpha == 0:
            raise self._bad(f"alpha = {alpha!r}", "it is a number other than 0", "alpha = 16")
        object.__setattr__(self, "alpha", float(alpha))

    def _bad(self, what: str, why: str, try_: str = "") -> SchemeError:
        return SchemeError(f"{what} in the rule for {self.params!r}", why=why, try_=try_)

    @classmethod
    def of(cls, params: str, share: Share) -> Rule:
        """The rule that trains this share."""
        if isinstance(share, Beside):
            return cls(params, lora=share.rank, alpha=share.alpha)
        if not isinstance(share, str):
            return cls(params, share)
        return cls(params, sparse=share != SHARED, shared=share != SPARSE)

    # Which parameters -----------------------------------------------------------------------------

    def matching(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        """The parameters that it is about; none is an error, which says what there is."""
        found = [p for p in parameters if fnmatch.fnmatchcase(p.name, self.params)]
        if not found:
            raise SchemeError(
                f"the rule {self.params!r} matches no parameter",
                try_=near(self.params, [p.name for p in parameters]),
            )
        if self.targets:
            wanted = {p.name for word in self.targets for p in targeted(word, parameters)}
            found = [p for p in found if p.name in wanted]
        if self.last is not None:
            inside = last_blocks(parameters, self.last, f"last = {self.last}")
            found = [p for p in found if p.block in inside]
        if self.lora is not None:
            found = [p for p in found if p.linear]
        if not found:
            raise self._nothing(parameters)
        return found

    def _nothing(self, parameters: Sequence[Parameter]) -> SchemeError:
        words = [repr(self.params)]
        words += [f"targets {', '.join(self.targets)}"] if self.targets else []
        words += [f"last {self.last}"] if self.last is not None else []
        what = "no linear layer's weight" if self.lora is not None else "no parameter"
        usable = [p for p in parameters if p.linear or self.lora is None]
        return SchemeError(
            f"the rule {', '.join(words)} matches {what}",
            why="LoRA adapts the weights of linear layers that are nothing else, no embedding say"
            if self.lora is not None
            else "",
            try_=[f"targets = {known(usable)}"] if usable else [],
        )

    # What of them ---------------------------------------------------------------------------------

    def select(self, parameter: Parameter) -> Share:
        """What this rule trains of a parameter."""
        if self.lora is not None:
            return Beside(self.lora, self.alpha or USUAL_ALPHA)
        if self.shared:
            return SPARSE_SHARED if self.sparse else SHARED
        if self.sparse:
            return SPARSE
        if self.channels is None or self.channels == 1:
            return None
        if not parameter.channels:
            raise SchemeError(
                f"{parameter.name} cannot train by channels",
                why="only weights that a layer uses as they are have input channels",
                try_=f"a rule for {parameter.name} without channels",
            )
        if isinstance(self.channels, tuple):
            chosen = self.channels
            if chosen[0] < 0 or chosen[-1] >= parameter.channels:
                outside = chosen[0] if chosen[0] < 0 else chosen[-1]
                raise SchemeError(
                    f"{parameter.name} has no channel {outside}",
                    why=f"its channels are 0 to {parameter.channels - 1}",
                )
        else:
            chosen = tuple(range(max(1, round(self.channels * parameter.channels))))
        return None if len(chosen) == parameter.channels else chosen


def targeted(word: str, parameters: Sequence[Parameter]) -> list[Parameter]:
    """What a target stands for; SchemeError if the model has no such thing."""
    if word == LINEAR:
        inside = blocks(parameters)
        found = [p for p in parameters if p.linear and p.block in inside]
    elif word in ROLES:
        found = [p for p in parameters if p.role in ROLES[word]]
    else:
        found = [p for p in parameters if f".{p.module}".endswith(f".{word}")]
    if found:
        return found
    ends = list(dict.fromkeys(p.module.rpartition(".")[2] for p in parameters if p.linear))
    close = difflib.get_close_matches(word, [*ends, *ROLES, LINEAR], n=3, cutoff=0.5)
    raise SchemeError(
        f"the model has no target {word!r}",
        why=f"found were {known(parameters)}" if parameters else "it has no parameters",
        try_=[f"did you mean {name}?" for name in close if name != word],
    )


def known(parameters: Sequence[Parameter]) -> str:
    """The targets that a model has: what layers do, then how the names of linear ones end."""
    roles = {p.role for p in parameters}
    words = [word for word, of in ROLES.items() if roles.intersection(of)]
    ends = (p.module.rpartition(".")[2] for p in parameters if p.linear and p.module)
    return ", ".join(dict.fromkeys([*words, *ends])) or "no linear layers"


def _bad_channels(rule: Rule) -> SchemeError:
    return SchemeError(
        f"channels = {rule.channels!r} in the rule for {rule.params!r} chooses nothing",
        try_="a fraction above 0 and up to 1, or a list of channel numbers",
    )


def near(pattern: str, names: list[str]) -> list[str]:
    """Parameters the writer of a pattern may have meant."""
    found = difflib.get_close_matches(pattern, names, n=4, cutoff=0.3)
    return [f"did you mean {name}?" for name in found] or [
        f"names look like {n}" for n in names[:1]
    ]
