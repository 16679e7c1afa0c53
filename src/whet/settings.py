"""What `compile` is told besides its model, checked before anything slow begins.

No PyTorch here: a command says what is wrong with it at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import FrontendError, SchemeError, TargetError, either, option
from .memory.sizes import parse_bytes as parse_bytes
from .ops._blocks import BLOCKS
from .passes import Recompute, check_switches
from .passes.frozen_forms import codebook_bits
from .quantize.options import Int8, int8_of
from .scheme import Scheme, written
from .targets import Target, target_named

AUTO = "auto"
PRODUCTS = ("int8", "bf16", "int8+bf16")


@dataclass(frozen=True)
class Settings:
    """The choices of one program, each of them known to exist."""

    name: str
    update: Any  # a Scheme, the name of a preset, None, "auto" or a Search
    target: Target
    ram: int | None  # budget, in bytes
    recompute: Recompute | None
    int8: Int8 | None
    frozen: str | None  # the form that frozen weights are stored in
    products: tuple[str, ...]  # what linear layers multiply besides float32
    without: frozenset[str]
    clip_norm: float | None
    mapped: bool = False  # weights lie in a file that is mapped

    @classmethod
    def of(
        cls,
        *,
        update: Any = None,
        target: str = "host",
        ram: int | str | None = None,
        flash: int | str | None = None,
        rematerialize: bool | str = False,
        portable: bool = False,
        dtype: str | Int8 | None = None,
        frozen: str | None = None,
        products: str | None = None,
        without: Collection[str] = (),
        name: str = "net",
        clip_norm: float | None = None,
        mapped: bool = False,
        cache_prefix: bool = False,
        lengths: Sequence[int] = (),
        moments: str | None = None,
    ) -> Settings:
        check_frozen(frozen)
        check_moments(moments, dtype)
        if rematerialize and rematerialize not in (True, "elements", "layers"):
            words = [option("rematerialize", word) for word in ("elements", "layers")]
            raise SchemeError(f"there is no {option('rematerialize', rematerialize)}", try_=words)
        int8 = int8_of(dtype)
        if int8 and frozen is not None and not 1 <= codebook_bits(frozen) <= 7:
            what = f"{option('frozen', frozen)} is for a float program"
            hint = option("frozen", "kmeans4")
            raise SchemeError(what, why="all weights are bytes here", try_=hint)
        narrow = products_of(products, frozen, int8)
        place = target_of(target, portable, ram, flash)
        if mapped and not place.maps_files:
            raise TargetError(
                f"{place.name} has no files that weights could be mapped from",
                try_=f"{option('target', 'host')}, or no {option('mapped')}",
            )
        check_cache(cache_prefix, place)
        if lengths:
            check_several(place, int8, cache_prefix)
        twice = Recompute(layers=rematerialize == "layers") if rematerialize else None
        budget = place.ram
        if budget is None and ram is not None:
            budget = parse_bytes(ram)
        return cls(
            check_name(name), known_update(update), place, budget, twice, int8, frozen, narrow,
            check_switches(without), check_clip_norm(clip_norm), mapped,
        )  # fmt: skip


def check_frozen(frozen: str | None) -> None:
    if frozen in (None, "int8", "gguf", *BLOCKS) or codebook_bits(frozen):
        return
    hints = [option("frozen", word) for word in ("int8", "q8_0", "q4_1", "kmeans4")]
    why = (
        "int8 has a scale for each channel, q8_0, q4_0 and q4_1 are blocks of GGUF files, gguf is "
        "whichever of these a weight is made of, or what its file has, kmeans2 to kmeans8 have "
        "codebooks"
    )
    raise SchemeError(f"there is no {option('frozen', frozen)}", why=why, try_=hints)


def check_several(place: Target, int8: Int8 | None, cache_prefix: bool) -> None:
    """Whether a program may take sequences of several lengths."""
    reasons = {
        f"{place.name} has its inputs in the arena": place.inside_inputs,
        "activations of integers are calibrated for one length": int8 is not None,
        f"what {option('cache_prefix', True)} keeps has one length": cache_prefix,
    }
    for why in (why for why, holds in reasons.items() if holds):
        raise FrontendError(
            f"{option('lengths')} is not possible here", why=why, try_="a program for one length"
        )


def check_cache(cache_prefix: bool, place: Target) -> None:
    if cache_prefix and place.inside_inputs:
        raise TargetError(
            f"{option('cache_prefix', True)} is not for {place.name}",
            why="inputs lie in its arena, and there is no room to keep more of them",
            try_=(option("target", "host"), option("target", "portable")),
        )


def products_of(products: str | None, frozen: str | None, int8: Int8 | None) -> tuple[str, ...]:
    """The kinds of numbers that a word for `products=` stands for."""
    if products is None:
        return ()
    if products not in PRODUCTS:
        hints = [option("products", word) for word in PRODUCTS]
        raise SchemeError(f"there is no {option('products', products)}", try_=hints)
    if int8 is not None:
        what = f"{option('products', products)} is for a float program"
        raise SchemeError(what, why=f"{option('dtype', 'int8')} multiplies integers everywhere")
    kinds = tuple(products.split("+"))
    if "int8" in kinds and (frozen is None or codebook_bits(frozen)):
        raise SchemeError(
            f"{option('products', products)} needs frozen weights that are stored as integers",
            why="without a form they are float32" if frozen is None else "codebooks hold floats",
            try_=[option("frozen", word) for word in ("int8", "q8_0", "q4_1", "gguf")],
        )
    return kinds


def check_moments(moments: str | None, dtype: Any) -> None:
    if moments not in (None, "bf16"):
        raise SchemeError(
            f"there is no {option('moments', moments)}",
            try_=either('moments="bf16", or none for float32', "--moments bf16, or none"),
        )
    if moments and int8_of(dtype):
        what = f"{option('moments', moments)} is for a float program"
        raise SchemeError(what, why="integers are updated by moments in float32")


def target_of(name: str, portable: bool, ram: int | str | None, flash: int | str | None) -> Target:
    """The target asked for, with the memory asked for."""
    if hasattr(name, "shape"):
        raise TargetError(
            "target= names where the program runs",
            try_="labels=... for an example of what the loss compares with",
        )
    target = target_named(name)
    if flash is not None and target.flash is None:
        what = f"{option('flash')} means nothing to {name}"
        raise TargetError(what, try_=option("target", "cortex-m7"))
    if ram is not None and target.ram is not None:
        target = replace(target, ram=parse_bytes(ram))
    if flash is not None:
        target = replace(target, flash=parse_bytes(flash))
    return target.portable() if portable else target


def known_update(update: Any) -> Any:
    """The same, or the Scheme that its file holds; a name that means nothing is refused."""
    if isinstance(update, os.PathLike):
        return Scheme.from_toml(Path(update))
    if isinstance(update, str) and update != AUTO:
        return written(update) or update
    return update


def to_compare(updates: Sequence[Any]) -> list[Any]:
    if not updates:
        hint = either('["full", "last"]', option("schemes", "full,last"))
        raise SchemeError("there is no scheme to compare", try_=hint)
    if any(isinstance(update, str) and update == AUTO for update in updates):
        search = either('update="auto"', "--schemes auto")
        raise SchemeError(f"{search} cannot be compared", try_="pass the scheme that it found")
    return [known_update(update) for update in updates]


def check_search(searching: bool, ram: int | None, data: Any) -> None:
    if not searching:
        if data is not None:
            raise SchemeError("data= is for a search", try_='update="auto"')
        return
    for word, given in (("ram", ram), ("data", data)):
        if given is None:
            raise SchemeError(
                f"{option('update', AUTO)} needs {option(word)}",
                why="a scheme is chosen for a budget, by what it gains on data",
                try_=either(
                    'compile(..., update="auto", ram="256K", data=loader)',
                    "whet search ... --ram 256K --data train.npz",
                ),
            )


C_TYPES = frozenset(  # of C's headers, and of those of POSIX
    f"{word}_t"
    for word in "size ptrdiff wchar max_align intptr uintptr intmax uintmax clock time div ldiv "
    "lldiv fpos float double int8 int16 int32 int64 uint8 uint16 uint32 uint64 blkcnt blksize "
    "clockid dev fsblkcnt fsfilcnt gid id ino key locale mode nlink off pid pthread ssize "
    "suseconds timer uid".split()
)
# Names of files, and of targets of make and CMake, that a program's folder has already.
BUILD_NAMES = frozenset(
    "all board build clean edit_cache help install kernels lib makefile package rebuild_cache run "
    "size test".split()
)


def check_name(name: str) -> str:
    """A program's name: part of functions, macros, files and targets, so it is a plain word."""
    word = r"[a-z_]\w{0,63}"
    if not isinstance(name, str) or not re.fullmatch(word, name, re.ASCII | re.IGNORECASE):
        raise FrontendError(
            f"the program's name {name!r} is not a C identifier",
            try_="up to 64 letters, digits and underscores, and no digit first",
        )
    if name.lower() in BUILD_NAMES or name.lower().startswith("whet"):
        raise FrontendError(
            f"the program cannot be called {name!r}",
            why="its folder has a file or a target of make of that name, or a kernel may have it",
            try_=f"{name}_net" if name.lower() in BUILD_NAMES else "a name that is your own",
        )
    if f"{name}_t" in C_TYPES:
        raise FrontendError(
            f"the program cannot be called {name!r}",
            why=f"its struct would be {name}_t, which is a type of C's own headers",
        )
    return name


def check_clip_norm(limit: float | None) -> float | None:
    try:
        number = None if limit is None else float(limit)
    except (TypeError, ValueError):
        number = 0.0
    if number is not None and not 0 < number < float("inf"):
        hint = either("a number above 0, or None", "a number above 0")
        raise FrontendError(f"{option('clip_norm', limit)} limits nothing", try_=hint)
    return number
