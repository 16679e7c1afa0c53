"""The sections of the page below the plan of the arena."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...names import quoted
from ..energy import KIB, Energy
from ..kept import kept_buffers
from ..layers import NUMBERS, Layer, cells, gradient_buffers, layers, table_row, weight_owners
from ..program import gap, kib, macs
from .charts import history_charts, ladder_chart, layer_charts
from .data import moments
from .markup import grid, tag, words

if TYPE_CHECKING:
    from ...emit.program import Program

# Memories that a step may fit in, as machines have them.
USUAL = (("L1", 32 * KIB), ("L2", 1024 * KIB), ("L3", 32 * 1024 * KIB))


def tiles(program: Program, energy: Energy, budget: int | None) -> str:
    memory, plan = program.memory, program.plans["train_step"]
    kept = sum(b.bytes for b in kept_buffers(plan))
    room = f"{100 * memory['ram'] / budget:.0f} % of {kib(budget)}" if budget else "everything"
    bound = gap(memory["arena"], memory["lower_bound"])
    entries = [
        ("RAM", kib(memory["ram"]), room),
        ("arena", kib(memory["arena"]), "at its lower bound" if bound == "0.0 %" else
         f"{bound} above its lower bound"),
        ("kept for the backward pass", kib(kept), f"in {len(kept_buffers(plan))} activations"),
        ("flash", kib(memory["flash"]), "code aside"),
        ("work of a step", f"{macs(plan) / 1e6:,.1f} M", "multiply-accumulates"),
        ("energy of a step", joules(energy.total), "estimated, see below"),
    ]  # fmt: skip
    return tag("dl", *(tile(*entry) for entry in entries), class_="tiles")


def tile(name: str, value: str, note: str) -> str:
    shown = tag("div", words(value), class_="value"), tag("div", words(note), class_="note")
    return tag("div", tag("dt", words(name)), tag("dd", *shown))


def joules(picojoules: float) -> str:
    units = ((1e12, "J"), (1e9, "mJ"), (1e6, "µJ"), (1e3, "nJ"), (1.0, "pJ"))
    size, unit = next((pair for pair in units if picojoules >= pair[0]), units[-1])
    return f"{picojoules / size:.3g} {unit}"


# Scheme -------------------------------------------------------------------------------------------


def scheme_section(program: Program, budget: int | None) -> str:
    """What trains and what that takes, and the bytes of the program, planned and measured."""
    intro = (
        "What trains, and what each choice takes: bytes of the parameter, of its optimizer state "
        "and of its gradient in the arena; then the activations that its layer keeps and the "
        "multiply-accumulates of its backward pass."
    )
    head = ["parameter", "trains", "bytes", "state", "gradient", "kept by layer", "MACs back"]
    return "".join(
        [
            tag("p", words(intro), class_="lead"),
            grid(head, trained_rows(program), tall=True, total=True),
            tag("h3", words("Bytes, planned and measured"), style="margin: 26px 0 8px"),
            planned(program, budget),
        ]
    )


def trained_rows(program: Program) -> list[tuple[str, ...]]:
    plan = program.plans["train_step"]
    owners = {v.name: name for v, name in weight_owners(plan.graph).items()}
    state, by_layer = moments(plan.graph), {layer.name: layer for layer in layers(program)}
    gradients = {leaf.name: b.bytes for b, leaf in gradient_buffers(plan).items()}
    rows, seen = [], set()
    sums = [0] * 5
    for name, kind in program.storage.params.items():
        layer = by_layer.get(owners.get(name, ""))
        first = layer is not None and layer.name not in seen  # a layer's costs are said once
        own = [kind.bytes, state.get(name, 0), gradients.get(name, 0)]
        own += [layer.kept_bytes, layer.backward_macs] if layer is not None and first else [0, 0]
        seen |= {layer.name} if layer is not None else set()
        sums = [a + b for a, b in zip(sums, own, strict=True)]
        part = program.parts.get(name)
        shown = part.parameter if part is not None else name
        rows.append((quoted(shown), share(program, name), *sizes(own)))
    return [*rows, ("total", "", *sizes(sums))]


def share(program: Program, name: str) -> str:
    """How much of a parameter trains."""
    part = program.parts.get(name)
    if part is None:
        return "all"
    whole = program.tensors[part.parameter].type.elements
    return f"{100 * program.storage.params[name].elements / whole:.0f} %"


def sizes(numbers: Sequence[int]) -> list[str]:
    *some, work = numbers
    return [*("-" if not n else kib(n) for n in some), f"{work:,}" if work else "-"]


def planned(program: Program, budget: int | None) -> str:
    memory, seen = program.memory, program.measured
    parts = (("  arena", "arena"), ("  trained parameters", "trained"), ("  state", "state"),
             (f"  {program.target.io_words}", "io"), ("  stack", "stack"))  # fmt: skip
    there = {"ram": seen.get("built ram"), "stack": seen.get("stack"),
             "flash": seen.get("built flash")}  # fmt: skip

    def row(words: str, key: str) -> tuple[str, ...]:
        found = there.get(key)
        return words, f"{memory[key]:,}", "" if found is None else f"{found:,}"

    rows = [row("RAM", "ram"), *(row(*part) for part in parts if memory[part[1]])]
    rows += [row("flash, code aside" if not seen else "flash", "flash")]
    rows += [("budget", f"{budget:,}", "")] if budget else []
    note = (
        "Measured in the built program; its flash includes the code."
        if seen
        else "Nothing was measured: the program has not been built for a microcontroller, and "
        "elsewhere .data + .bss of the built program are the planned RAM, which the tests hold."
    )
    return grid(["bytes", "planned", "measured"], rows) + tag("p", words(note), class_="hint")


# Layers -------------------------------------------------------------------------------------------


def layer_section(program: Program) -> str:
    found = [layer for layer in layers(program) if layer.says_something]
    costly = [x for x in found if x.forward_macs or x.backward_macs or x.kept_bytes]
    total = [sum(getattr(layer, number) for layer in found) for number in NUMBERS]
    head = ["layer", "kept", "trained", "frozen", "gradients", "MACs", "MACs back", "trains"]
    top = tag("thead", tag("tr", *(tag("th", words(cell), scope="col") for cell in head)))
    rows = [layer_row(layer) for layer in found]
    sums = [tag("td", words(cell)) for cell in (*cells(total), "")]
    rows.append(tag("tr", tag("th", "total", scope="row"), *sums, class_="total"))
    table = tag("table", top, tag("tbody", *rows))
    intro = "What each layer costs, in forward order. A name in the table marks its blocks above."
    return "".join(
        [
            tag("p", words(intro), class_="lead"),
            tag("div", *layer_charts(costly), class_="chart") if costly else "",
            tag("details", tag("summary", f"All {len(found)} layers in numbers"),
                tag("div", table, class_="scroll tall", tabindex="0"), open=""),
        ]
    )  # fmt: skip


def layer_row(layer: Layer) -> str:
    name, *rest = table_row(layer)
    button = tag("button", words(name), type="button", class_="link", data_layer=name)
    return tag("tr", tag("th", button, scope="row"), *(tag("td", words(cell)) for cell in rest))


# Passes -------------------------------------------------------------------------------------------


def ladder_section(program: Program, without: Mapping[str, int]) -> str:
    if not without:
        return ""
    arena = program.memory["arena"]
    matter = {name: size for name, size in without.items() if size != arena}
    same = sorted(without.keys() - matter.keys())
    intro = "The arena of the same program when one pass is left out."
    rest = f"No difference without {', '.join(same)}." if same else ""
    chart = tag("div", ladder_chart(arena, matter), class_="chart") if matter else ""
    return tag("p", words(intro), class_="lead") + chart + tag("p", words(rest), class_="hint")


# Energy -------------------------------------------------------------------------------------------


def energy_section(energies: Sequence[Energy], labels: Sequence[str]) -> str:
    intro = (
        "An estimate from counts: every kernel call reads its operands and writes its results "
        "once, from the smallest memory that still has them. Element-wise arithmetic and what a "
        "kernel reads again are not counted. The figures per access and operation can be changed."
    )
    return "".join(
        [
            tag("p", words(intro), class_="lead"),
            fit_of(energies, labels),
            tag("div", *(energy_bar(i, label) for i, label in enumerate(labels)),
                class_="energies"),
            energy_table(energies, labels),
            tag("p", words(f"Figures: {energies[0].factors.source}. DRAM is its lower figure."),
                " ", tag("button", "Reset", type="button", id="energy-reset", class_="plain"),
                class_="hint"),
        ]
    )  # fmt: skip


def fit_of(energies: Sequence[Energy], labels: Sequence[str]) -> str:
    """The bytes that a step touches on a scale of memories, each step of it a factor of two."""
    low, high = math.log2(4 * KIB), math.log2(256 * 1024 * KIB)

    def at(size: int) -> float:
        return 100 * (min(max(math.log2(max(size, 1)), low), high) - low) / (high - low)

    marks, start = [], 0.0
    for name, size in (*USUAL, ("DRAM", 1 << 60)):
        text = f"{name}, {kib(size)}" if size < 1 << 60 else name
        text = (
            text.replace("32,768.0 KiB", "32 MiB")
            .replace("1,024.0 KiB", "1 MiB")
            .replace(".0 K", " K")
        )
        style = f"left: {start:.2f}%; width: {at(size) - start:.2f}%"
        marks.append(tag("div", words(text), class_="level", style=style, title=text))
        start = at(size)
    for i, (energy, label) in enumerate(zip(energies, labels, strict=True)):
        place = at(energy.working_set)
        side = "below" if i else "above"
        text = f"{label}: {kib(energy.working_set)}" if labels[1:] else kib(energy.working_set)
        flip = " flip" if place > 45 else ""
        marks.append(tag("div", tag("span", words(text)), class_=f"mark {side}{flip}",
                         style=f"left: {place:.2f}%"))  # fmt: skip
    said = "; ".join(
        f"{label}: {kib(e.working_set)} fit in {usual(e.working_set)}"
        for e, label in zip(energies, labels, strict=True)
    )
    heading = tag("h3", words("Working set of a step"), style="margin: 20px 0 0")
    return heading + tag("div", *marks, class_="fit", role="img", aria_label=said)


def usual(size: int) -> str:
    return next((name for name, most in USUAL if size <= most), "DRAM")


def energy_bar(i: int, label: str) -> str:
    total = tag("output", data_total=str(i))
    return tag(
        "div",
        tag("p", tag("span", words(label)), tag("b", total)),
        tag("div", class_="energy-bar"),
    )


def energy_table(energies: Sequence[Energy], labels: Sequence[str]) -> str:
    head = ["access or operation", "pJ each"]
    for label in labels:
        head += [label if labels[1:] else "bytes or operations", "energy"]
    top = tag("thead", tag("tr", *(tag("th", words(cell), scope="col") for cell in head)))
    levels, rows = energies[0].factors.levels, []
    for i, level in enumerate(levels):
        kind = "level-last" if i == len(levels) - 1 else f"level-{i}"
        counts = [e.accesses[i] for e in energies]
        rows.append(energy_row(f"byte of {level.name}", kind, level.per_byte, counts))
    for name in dict.fromkeys(name for e in energies for name in e.macs):
        counts = [e.macs.get(name, 0) for e in energies]
        each = energies[0].factors.macs[name]
        rows.append(energy_row(f"multiply-accumulate in {name}", "arithmetic", each, counts))
    totals = [cell for i in range(len(energies))
              for cell in (tag("td"), tag("td", tag("output", data_total=str(i))))]  # fmt: skip
    rows.append(tag("tr", tag("th", "a step", scope="row"), tag("td"), *totals, class_="total"))
    table = tag("table", top, tag("tbody", *rows), id="energy-table")
    return tag("div", table, class_="scroll", tabindex="0")


def energy_row(name: str, kind: str, each: float, counts: Sequence[int]) -> str:
    box = tag(
        "input", type="number", min="0", step="any", value=f"{each:g}", aria_label=f"pJ per {name}"
    )
    found = [cell for n in counts for cell in (tag("td", f"{n:,}"), tag("td", tag("output")))]
    marks = {"data_count": " ".join(map(str, counts)), "data_name": name, "data_class": kind}
    heading = tag("i", class_=f"swatch {kind}") + " " + words(name)
    return tag("tr", tag("th", heading, scope="row"), tag("td", box), *found, **marks)


# The rest -----------------------------------------------------------------------------------------


def history_section(history: Mapping[str, Sequence[float]]) -> str:
    return tag("div", *history_charts(history), class_="chart") if history else ""


def text_section(program: Program) -> str:
    return tag("details", tag("summary", "The report as text"), tag("pre", words(program.report())))
