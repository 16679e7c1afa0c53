"""Put the page together: its data, its sections, its style and its script, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..energy import Factors, energy_of, factors_for
from .data import KINDS, as_script, program_data
from .markup import tag, words
from .sections import (
    energy_section,
    history_section,
    ladder_section,
    layer_section,
    scheme_section,
    text_section,
    tiles,
)

if TYPE_CHECKING:
    from ...emit.program import Program

SCRIPTS = ("inspect.js", "plot.js", "moves.js", "energy.js", "main.js")
# Nothing is loaded from anywhere, whatever a name in the page says.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
COLUMNS = ("layer", "kept", "trained", "frozen", "gradients", "MACs", "MACs back", "trains")
# What the legend calls the kinds of blocks; a role with two shades has two entries.
LEGEND = (
    ("kept", "kept", "activation, kept for the backward pass"),
    ("passing", "passing input", "activation of the moment"),
    ("cotangent", "cotangent", "gradient of an activation"),
    ("parameter", "parameter", "gradient of a parameter"),
    ("weight", "weight", "weight"),
    ("state", "state", "state"),
    ("scratch", "scratch io", "scratch"),
)


@dataclass(frozen=True)
class Extras:
    """What a page has besides the program."""

    title: str = ""
    against: Program | None = None
    budget: int | None = None
    without: Mapping[str, int] = field(default_factory=dict)  # arena without a pass
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    energy: Factors | None = None


def part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def html_page(program: Program, extras: Extras | None = None) -> str:
    """The page of a program; the same program gives the same page."""
    extras = extras or Extras()
    programs = [program] if extras.against is None else [program, extras.against]
    title = extras.title or program.name
    factors = extras.energy or factors_for(program.target)
    energies = [energy_of(p.plans["train_step"], factors) for p in programs]
    labels = labels_of(programs)
    budget = extras.budget if extras.budget is not None else program.target.ram
    plans = [program_data(p, w, budget) for p, w in zip(programs, labels, strict=True)]
    data = {
        "plans": plans,
        "kinds": KINDS,
        "columns": COLUMNS,
    }
    found = [
        ("memory", "Memory", memory_section(labels, plans)),
        ("scheme", "Scheme", scheme_section(program, budget)),
        ("layers", "Layers", layer_section(program)),
        ("passes", "Passes", ladder_section(program, extras.without)),
        ("energy", "Energy and cache", energy_section(energies, labels)),
        ("training", "Training", history_section(extras.history)),
        ("text", "Text", text_section(program)),
    ]
    found = [entry for entry in found if entry[2]]
    body = [
        top_bar([(name, heading) for name, heading, _ in found]),
        tag(
            "main",
            tag("h1", words(title)),
            tag("p", words(subtitle(program)), class_="lead"),
            tiles(program, energies[0], budget),
            *(section(*entry) for entry in found),
            tag("footer", words("Written by whet. This file is all there is to it: it loads "
                                "nothing and sends nothing.")),
        ),
        tag("div", id="tip", role="tooltip", hidden=""),
        tag("div", id="said", class_="sr", aria_live="polite"),
        tag("script", as_script(data), type="application/json", id="data"),
        tag("script", script()),
    ]  # fmt: skip
    return document(title, body)


def document(title: str, body: Sequence[str]) -> str:
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        tag("title", words(f"{title}: whet report")),
        tag("style", part("page.css")),
    ]
    return "\n".join(["<!doctype html>", '<html lang="en">', *head, *body, "</html>", ""])


def script() -> str:
    return "\n".join(['(() => {\n"use strict";', *map(part, SCRIPTS), "})();"])


def labels_of(programs: Sequence[Program]) -> list[str]:
    """What tells the programs apart: their schemes, or their order."""
    names = [p.scheme.name if p.scheme is not None else "" for p in programs]
    if not all(names) or len(set(names)) < len(names):
        return ["this program", "the other one"][: len(programs)]
    return names


def subtitle(program: Program) -> str:
    trained = sum(t.elements for t in program.storage.params.values())
    scheme = f"scheme {program.scheme.name}, " if program.scheme and program.scheme.name else ""
    return (
        f"{program.target.name}, {program.dtype}, {scheme}batch of {program.batch}, "
        f"{program.parameters:,} parameters, {trained:,} of them trained"
    )


def top_bar(links: Sequence[tuple[str, str]]) -> str:
    anchors = [tag("a", words(heading), href=f"#{name}") for name, heading in links]
    return tag(
        "div",
        tag(
            "div",
            tag("strong", "whet"),
            tag("nav", *anchors, aria_label="Sections"),
            tag("button", "Light / dark", type="button", id="theme", class_="plain"),
        ),
        class_="top",
    )


def section(name: str, heading: str, content: str) -> str:
    return tag("section", tag("h2", words(heading)), content, id=name)


def memory_section(labels: Sequence[str], plans: Sequence[Mapping[str, Any]]) -> str:
    """The plots are drawn by the script, from the data."""
    intro = (
        "A training step from left to right, the arena from below: each rectangle is a block of "
        "memory from the call that writes it to the last one that reads it."
    )
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("b", words(label))),
            tag("svg", class_="plan", tabindex="0", role="application",
                aria_label=f"Arena of {label}: left and right go through the calls, up and down "
                "through the blocks, Escape unpins"),
            tag("svg", class_="map", preserveAspectRatio="none", aria_hidden="true"),
            class_="plot", id=f"plot-{i}",
        )
        for i, label in enumerate(labels)
    ]  # fmt: skip
    return "".join(
        [
            tag("p", words(intro), class_="lead"),
            tools(len(labels)),
            legend(plans),
            tag(
                "div",
                tag("div", tag("div", *figures, class_="plots"), hint()),
                tag("aside", id="inspector", aria_label="Step or block"),
                class_="memory",
            ),
            tag("noscript", tag("p", "The plan is drawn by a script, which is switched off.")),
        ]
    )


def tools(count: int) -> str:
    same = tag("label", '<input type="checkbox" id="together" checked>', "one scale")

    def button(name: str, text: str, label: str = "") -> str:
        more = {"aria_label": label} if label else {}
        return tag("button", text, type="button", id=name, **more)

    return tag(
        "div",
        button("peak", "Peak"),
        button("fit", "Whole step"),
        button("zoom-in", "+", "Zoom in"),
        button("zoom-out", "&minus;", "Zoom out"),
        tag("label", '<input type="checkbox" id="ram">', "all RAM"),
        same if count > 1 else "",
        tag("span", id="found", class_="faint end", aria_live="polite"),
        '<input type="search" id="search" placeholder="Layer or value" aria-label="Search blocks">',
        class_="bar-of-tools",
    )


def legend(plans: Sequence[Mapping[str, Any]]) -> str:
    """Of the kinds that there are; each entry hides and shows its blocks."""
    inside, outside = ({block["kind"] for plan in plans for block in plan[where]}
                       for where in ("blocks", "resident"))  # fmt: skip
    entries = []
    for color, kinds, text in LEGEND:
        own = set(kinds.split())
        if own & (inside | outside):
            button = tag("button", tag("i", class_=f"swatch {color}"), text, type="button",
                         data_kind=kinds, aria_pressed="true")  # fmt: skip
            only = {} if own & inside else {"data_resident": "", "hidden": ""}
            entries.append(tag("li", button, **only))
    return tag("ul", *entries, class_="legend", aria_label="Kinds of blocks")


def hint() -> str:
    keys = "<kbd>←</kbd> <kbd>→</kbd> step, <kbd>↑</kbd> <kbd>↓</kbd> block, <kbd>Esc</kbd> unpin"
    return tag(
        "p",
        "Point at a block to see why it is there, click it to pin it. Drag to move, drag over the "
        f'strip below to choose steps. <span class="wide">After a click into the plan: wheel '
        f"zooms, {keys}, <kbd>+</kbd> <kbd>&minus;</kbd> <kbd>0</kbd> zoom, <kbd>p</kbd> peak."
        "</span>",
        class_="hint",
    )
