"""Rules keyed by parameter name, with globs; TOML in and out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import SchemeError
from .parameters import Parameter
from .rule import SPARSE, Chosen, Rule

DEFAULT = "requires_grad"  # the name of the scheme that trains what PyTorch would train


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
        chosen: Chosen = {}
        for rule in self.rules:
            try:
                found = rule.matching(parameters)
            except SchemeError as error:
                raise error.found_in(self.name, self.origin) from None
            chosen.update((p.name, rule.select(p)) for p in found)
        return {p.name: chosen[p.name] for p in parameters if p.name in chosen}

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
            lines += [f"targets = {listed(rule.targets)}"] if rule.targets else []
            numbers = {"last": rule.last, "lora": rule.lora, "alpha": rule.alpha}
            lines += [f"{key} = {n!r}" for key, n in numbers.items() if n is not None]
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


def listed(words: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, words))}]"


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


OPTIONS = tuple(f.name for f in fields(Rule) if f.name != "params")


def _rule(entry: Any) -> Rule:
    fits = isinstance(entry, dict) and isinstance(entry.get("params"), str)
    if not fits or set(entry) - {"params", *OPTIONS}:
        *others, last = OPTIONS
        raise SchemeError(
            f"a [[train]] table has params and maybe {', '.join(others)} or {last}, not {entry!r}"
        )
    return Rule(**entry)
