"""Rules keyed by parameter name, with globs; TOML in and out."""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import SchemeError
from .parameters import Parameter

SPARSE: Literal["sparse"] = "sparse"  # the elements that are not zero
SHARED: Literal["shared"] = "shared"  # the values that elements share
SPARSE_SHARED: Literal["sparse shared"] = "sparse shared"  # those that are not zero
Part = Literal["sparse", "shared", "sparse shared"]
Share = tuple[int, ...] | Part | None  # channels that train, one of the words, or None for all
Chosen = dict[str, Share]  # by parameter


@dataclass(frozen=True)
class Rule:
    """Parameters whose name matches a glob train: whole, or in part.

    `channels` trains some input channels: a fraction (the first channels, at least one) or a list
    of channel numbers. In a grouped convolution it is about the channels of each group, in a
    depthwise one about channels. `sparse` trains the elements that are not zero, as after pruning;
    the others stay zeros and are not stored. `shared` trains the values of a weight that has few,
    as after k-means: elements with the same value keep having the same; with `sparse` as well,
    zeros stay zeros.
    """

    params: str
    channels: float | tuple[int, ...] | None = None
    sparse: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.params, str):
            raise SchemeError(f"a rule names parameters with a glob, not with {self.params!r}")
        for word, flag in (("sparse", self.sparse), ("shared", self.shared)):
            if not isinstance(flag, bool):
                raise SchemeError(
                    f"{word} = {flag!r} in the rule for {self.params!r}",
                    why="it is either true or false",
                )
            if flag and self.channels is not None:
                raise SchemeError(
                    f"the rule for {self.params!r} has both {word} and channels",
                    why="a weight trains by its elements or by its channels",
                    try_="one of the two",
                )
        given = self.channels
        if isinstance(given, (list, tuple, range)):
            if not given or not all(type(c) is int for c in given):
                raise _bad_channels(self)
            object.__setattr__(self, "channels", tuple(sorted({int(c) for c in given})))
        elif given is not None and not (type(given) in (int, float) and 0 < given <= 1):
            raise _bad_channels(self)

    @classmethod
    def of(cls, params: str, share: Share) -> Rule:
        """The rule that trains this share."""
        if not isinstance(share, str):
            return cls(params, share)
        return cls(params, sparse=share != SHARED, shared=share != SPARSE)

    def select(self, parameter: Parameter) -> Share:
        """What this rule trains of a parameter."""
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


def _bad_channels(rule: Rule) -> SchemeError:
    return SchemeError(
        f"channels = {rule.channels!r} in the rule for {rule.params!r} chooses nothing",
        try_="a fraction above 0 and up to 1, or a list of channel numbers",
    )


@dataclass(frozen=True)
class Scheme:
    """Rules in order; where several match a parameter the last one decides."""

    rules: tuple[Rule, ...]
    name: str = ""
    origin: str = ""  # where it comes from, in words

    def __init__(self, rules: Iterable[Rule], name: str = "", origin: str = "") -> None:
        given = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if not given or not all(isinstance(rule, Rule) for rule in given):
            raise SchemeError(
                "a scheme is a list of one or more rules",
                why=f"got {rules!r}",
                try_='Scheme([Rule("classifier.*")])',
            )
        object.__setattr__(self, "rules", given)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "origin", origin)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        count = len(self.rules)
        return f"<Scheme{name}: {count} rule{'s' * (count > 1)}>"

    @classmethod
    def of(cls, names: Iterable[str], name: str = "") -> Scheme:
        """The scheme that trains just these parameters, whole."""
        return cls([Rule(exactly(n)) for n in names], name=name)

    def keeping_zeros(self, parameters: Sequence[Parameter], pruned: Collection[str]) -> Scheme:
        """The same, but weights that train whole and are `pruned` train sparsely."""
        chosen = self.resolve(parameters)
        weights = {p.name for p in parameters if p.kind == "weight"} & set(pruned)
        found = [n for n, share in chosen.items() if share is None and n in weights]
        if not found and SPARSE not in chosen.values():
            raise SchemeError(
                "no weight that trains has zeros",
                at=self.name,
                why="sparse training keeps the zeros of a pruned model",
                try_="prune the model first, with whet.compress.prune or torch.nn.utils.prune",
            )
        rules = (*self.rules, *(Rule(exactly(name), sparse=True) for name in found))
        return Scheme(rules, self.name, self.origin)

    def resolve(self, parameters: Sequence[Parameter]) -> Chosen:
        """What trains of a model with these parameters, in the model's order."""
        by_name = {p.name: p for p in parameters}
        chosen: Chosen = {}
        for rule in self.rules:
            names = [n for n in by_name if fnmatch.fnmatchcase(n, rule.params)]
            if not names:
                raise SchemeError(
                    f"the rule {rule.params!r} matches no parameter",
                    at=self.name,
                    why=self.origin,
                    try_=near(rule.params, list(by_name)),
                )
            for name in names:
                chosen[name] = rule.select(by_name[name])
        return {n: chosen[n] for n in by_name if n in chosen}

    def to_toml(self) -> str:
        head = {"name": self.name, "origin": self.origin}
        lines = [f"{key} = {quoted(text)}" for key, text in head.items() if text]
        lines += [""] if lines else []
        for rule in self.rules:
            lines += ["[[train]]", f"params = {quoted(rule.params)}"]
            if isinstance(rule.channels, tuple):
                lines.append(f"channels = {json.dumps(list(rule.channels))}")
            elif rule.channels is not None:
                lines.append(f"channels = {rule.channels!r}")
            lines += ["sparse = true"] if rule.sparse else []
            lines += ["shared = true"] if rule.shared else []
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, source: str | Path) -> Scheme:
        """From a file, or from TOML text (anything with a line break in it)."""
        inline = isinstance(source, str) and "\n" in source
        text = str(source) if inline else read(Path(source))
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemeError(
                "the scheme is not TOML", at="" if inline else str(source), why=str(error)
            ) from error
        words = {key: data.pop(key, "") for key in ("name", "origin")}
        for key, word in words.items():
            if not isinstance(word, str):
                raise SchemeError(f"{key} = {word!r} is not text")
        if not inline and not words["name"]:
            words["name"] = Path(source).stem
        return cls([_rule(entry) for entry in _entries(data)], **words)


def quoted(text: str) -> str:
    """A TOML string: one of JSON, except that TOML knows no surrogates and escapes delete."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def exactly(name: str) -> str:
    """A glob that matches just this name."""
    return re.sub(r"([*?[])", r"[\1]", name)


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemeError(f"cannot read the scheme {path}", why=str(error)) from error


def _entries(data: dict[str, Any]) -> list[Any]:
    entries = data.get("train")
    if set(data) != {"train"} or not isinstance(entries, list) or not entries:
        raise SchemeError(
            "a scheme holds [[train]] tables, and maybe a name and an origin",
            why=f"found {', '.join(sorted(data)) or 'nothing'}",
            try_=("[[train]]", 'params = "classifier.*"'),
        )
    return entries


def _rule(entry: Any) -> Rule:
    fits = isinstance(entry, dict) and isinstance(entry.get("params"), str)
    if not fits or set(entry) - {"params", "channels", "sparse", "shared"}:
        raise SchemeError(
            f"a [[train]] table has params and maybe channels, sparse or shared, not {entry!r}"
        )
    flags = {word: entry[word] for word in ("sparse", "shared") if word in entry}
    return Rule(entry["params"], entry.get("channels"), **flags)


def near(pattern: str, names: list[str]) -> list[str]:
    """Parameters the writer of a pattern may have meant."""
    found = difflib.get_close_matches(pattern, names, n=4, cutoff=0.3)
    return [f"did you mean {name}?" for name in found] or [
        f"names look like {n}" for n in names[:1]
    ]
