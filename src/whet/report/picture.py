"""Pictures of a program's memory: the arena over time, and what each layer adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..ir import DType, Relation
from .kept import kept_buffers, loss_step
from .layers import Layer, gradient_buffers, layers
from .program import gap, kib
from .svg import GREY, INK, LETTER, Box, Plot, legend, page, rect, rule, text, ticks, tooltip

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..memory.plan import Buffer, Plan

# Distinct to colour-blind eyes too (after Okabe and Ito); each with the colour of words on it.
KINDS: Mapping[str, tuple[str, str]] = {
    "activation kept for the backward pass": ("#0072b2", "#ffffff"),
    "other activation": ("#9ecae9", INK),
    "cotangent": ("#f0c14b", INK),
    "parameter gradient": ("#d55e00", "#ffffff"),
    "bits and indices": ("#009e73", "#ffffff"),
    "other": ("#a5a5a5", INK),
}
KEPT, TRAINED, FROZEN = "#0072b2", "#d55e00", "#f5cdb4"


def buffer_kinds(plan: Plan) -> dict[Buffer, str]:
    loss = loss_step(plan.graph)
    gradients, kept = gradient_buffers(plan), set(kept_buffers(plan))

    def kind(b: Buffer) -> str:
        if b in gradients:
            return "parameter gradient"
        if b.values[0].type.dtype is not DType.F32:
            return "bits and indices"
        if b in kept:
            return "activation kept for the backward pass"
        if b.first <= loss:
            return "other activation"
        return "cotangent" if b.values[0].is_a(Relation.COTANGENT) else "other"

    return {b: kind(b) for b in plan.buffers}


def arena_svg(plan: Plan, title: str) -> str:
    """Every buffer of an entry point: when it lives from left to right, where from below."""
    steps = len(plan.graph.nodes) + 1  # what is read at the end lives one step longer
    plot = Plot(78, 106, 1000, 362, steps, 1.06 * max(plan.arena, 1))
    kinds = buffer_kinds(plan)
    present = [(KINDS[kind][0], kind) for kind in KINDS if kind in kinds.values()]
    parts = [*legend(20, 72, present), *plot.kib_axis(8), *step_axis(plot)]
    for color, kind in present:
        chosen = [b for b in plan.buffers if kinds[b] == kind]
        parts += [f'<g fill="{color}">', *(buffer_rect(plot, b, kind) for b in chosen), "</g>"]
    parts.append('<g pointer-events="none" font-size="10">')  # tooltips are the rectangles'
    parts += [buffer_name(plot, b, KINDS[kinds[b]][1]) for b in plan.buffers if has_room(plot, b)]
    parts += ["</g>", plot.frame(), *bound_line(plot, plan), *loss_line(plot, plan)]
    subtitle = (
        f"arena {kib(plan.arena)}, lower bound {kib(plan.lower_bound)}"
        f" (gap {gap(plan.arena, plan.lower_bound)}), {len(plan.buffers):,} buffers"
    )
    return page(title, subtitle, parts)


def buffer_box(plot: Plot, b: Buffer) -> Box:
    x, y = plot.x(b.first), plot.y(b.end)
    return plot.box(x, y, plot.x(b.last + 1) - x, plot.y(b.offset) - y)


def buffer_rect(plot: Plot, b: Buffer, kind: str) -> str:
    x, y, width, height = buffer_box(plot, b)
    shared = "".join(f", then {v.name}" for v in b.values[1:4]) + (", ..." if b.values[4:] else "")
    words = (
        f"{b.values[0].name}{shared}\n{kind}, {kib(b.bytes)} at byte {b.offset:,}\n"
        f"steps {b.first} to {b.last}"
    )
    # A border would hide a rectangle that is hardly wider than the border itself.
    border: dict[str, str | float] = {"stroke": "#ffffff", "stroke_width": 0.5}
    seen = border if min(width, height) > 2 else {}
    return rect(x, y, width, height, tooltip(words), class_="buffer", **seen)


def has_room(plot: Plot, b: Buffer) -> bool:
    _, _, width, height = buffer_box(plot, b)
    return height >= 13 and width >= 10 * LETTER * len(b.values[0].name) + 8


def buffer_name(plot: Plot, b: Buffer, color: str) -> str:
    x, y, width, height = buffer_box(plot, b)
    middle: dict[str, str | float] = {"text_anchor": "middle", "fill": color}
    return text(x + width / 2, y + height / 2 + 3.5, b.values[0].name, 10, **middle)


def step_axis(plot: Plot) -> list[str]:
    y = plot.bottom + 16
    parts = [
        text(plot.x(t), y, f"{t:,.0f}", text_anchor="middle")
        for t in ticks(plot.units, min(plot.units, 12))
    ]
    parts.append(text(plot.left + plot.width / 2, y + 20, "step", 12, text_anchor="middle"))
    middle = plot.top + plot.height / 2
    turned = f"rotate(-90 20 {middle:g})"
    parts.append(text(20, middle, "address, KiB", 12, text_anchor="middle", transform=turned))
    return parts


def bound_line(plot: Plot, plan: Plan) -> list[str]:
    y = plot.y(plan.lower_bound)
    halo: dict[str, str | float] = {"stroke": "#ffffff", "stroke_width": 3, "paint_order": "stroke"}
    return [
        rule(plot.left, y, plot.right, y, INK, stroke_dasharray="6 4", class_="bound"),
        text(plot.right - 6, y - 5, "lower bound", 11, text_anchor="end", **halo),
    ]


def loss_line(plot: Plot, plan: Plan) -> list[str]:
    loss = loss_step(plan.graph)
    if not 0 <= loss < len(plan.graph.nodes):
        return []
    x, y = plot.x(loss + 1), plot.top - 7
    after = min(x + 7, plot.right - 48)  # a backward pass may be short, its name is not
    return [
        rule(x, plot.top - 16, x, plot.bottom, INK, stroke_width=1.2, class_="loss"),
        text(min(x, after) - 7, y, "forward", 12, text_anchor="end"),
        text(after, y, "backward", 12),
    ]


def layers_svg(program: Program, title: str) -> str:
    """Two rows of bars over the layers in forward order: activations kept, and weights."""
    found = [x for x in layers(program) if x.kept_bytes or x.trained_bytes or x.frozen_bytes]
    kept = [x.kept_bytes for x in found]
    trained, frozen = [x.trained_bytes for x in found], [x.frozen_bytes for x in found]
    weights = [a + b for a, b in zip(trained, frozen, strict=True)]
    upper = Plot(78, 84, 1000, 140, len(found), 1.06 * max([*kept, 1]))
    lower = Plot(78, 256, 1000, 140, len(found), 1.06 * max([*weights, 1]))
    parts = [*upper.kib_axis(5), *lower.kib_axis(5)]
    for i, layer in enumerate(found):
        parts.append(bar(upper, i, 0, kept[i], KEPT, "kept", layer))
        parts.append(bar(lower, i, 0, trained[i], TRAINED, "trained", layer))
        parts.append(bar(lower, i, trained[i], frozen[i], FROZEN, "frozen", layer))
    parts += [upper.frame(), lower.frame(), *layer_names(lower, found)]
    parts += heading(upper, "activations kept for the backward pass, KiB")
    parts += heading(lower, "weights, KiB")
    parts += legend(220, lower.top - 8, [(TRAINED, "trained"), (FROZEN, "frozen")])
    subtitle = (
        f"{kib(sum(kept))} of activations kept, {kib(sum(weights))} of weights,"
        f" {kib(sum(trained))} of them trained"
    )
    return page(title, subtitle, parts)


def heading(plot: Plot, words: str) -> list[str]:
    return [text(plot.left, plot.top - 8, words, 12, fill=GREY)]


def bar(plot: Plot, i: int, start: int, size: int, color: str, kind: str, layer: Layer) -> str:
    """A bar of `size` bytes that stands on `start` bytes; nothing at all for none."""
    if not size:
        return ""
    width = min(0.8 * plot.width / plot.units, 60)
    top = plot.y(start + size)
    box = plot.box(plot.x(i + 0.5) - width / 2, top, width, plot.y(start) - top)
    words = tooltip(f"{layer.label}\n{kib(size)} {kind}")
    return rect(*box, words, fill=color, class_=kind)


def layer_names(plot: Plot, found: list[Layer]) -> list[str]:
    """Turned names below the bars, as many as can be read; the others are in the tooltips."""
    every = math.ceil(13 * plot.units / plot.width)
    parts = []
    for i, layer in list(enumerate(found))[::every]:
        name = layer.label if len(layer.label) <= 22 else "…" + layer.label[-21:]
        x, y = plot.x(i + 0.5) + 3, plot.bottom + 12
        turned = f"rotate(-60 {x:.2f} {y:.2f})"
        parts.append(text(x, y, name, 10, text_anchor="end", transform=turned))
    return parts
