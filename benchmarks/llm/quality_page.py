"""The page of the quality study and its curves, from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.common.lines import Record
from benchmarks.common.page import table, wrapped
from benchmarks.llm import lessons, sentences
from whet.report import svg

COLORS = {
    "last": "#b8b8b8", "bias+last": "#4f9d69", "sparse-3": "#c2313d", "sparse-2": "#c2313d",
    "lora+last": "#e8a33d", "lora": "#e8a33d", "full": "#34699a",
}  # fmt: skip
SENTENCES = """MiniLM-L6 with a linear layer on the mean of its vectors. Steps of AdamW, {sst2} for
SST-2 and {cola} for CoLA, on {batch} sentences each, of at most {length} tokens, drawn by the seed,
which initialises the head as well. The rate rises for a tenth of the steps and then falls to
zero."""
RATES = """The rate of each scheme was chosen by one training of {steps} steps from another seed,
judged by the loss on {held} training {what} that were held out: from a first guess up and down the
grid 1, 3, 10, ... while that was lower. Nothing was chosen by test data. The last table of each
task has these losses, and the accuracy in brackets."""
LESSONS = """SmolLM2-135M-Instruct learns {steps} of 1,100 instructions with answers, one in a step,
of at most {length} tokens, with AdamW. The loss is that of what the assistant says, on {test}
lessons that were held out."""
TASKS = {
    "sst2": ("SST-2", "Percent of the 872 sentences of GLUE's validation set", "accuracy"),
    "cola": ("CoLA", "Matthews' correlation, times 100, on the 1,043 sentences of GLUE's "
             "validation set, from inside the domain and outside", "matthews"),
    "lessons": ("Instructions", "Loss", "loss"),
}  # fmt: skip


def runs(records: Sequence[Record], task: str) -> dict[str, list[Record]]:
    """By scheme, in the order of the study."""
    order = lessons.SCHEMES if task == "lessons" else sentences.SCHEMES
    found = {s: [r for r in records if (r["kind"], r["task"], r["scheme"]) == ("run", task, s)]
             for s in order}  # fmt: skip
    return {s: sorted(own, key=lambda r: r["seed"]) for s, own in found.items() if own}


def spread(values: Sequence[float], digits: int) -> str:
    text = f"{statistics.mean(values):.{digits}f}"
    return text + (f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def rates(records: Sequence[Record], task: str) -> str:
    """What the trainings that choose a rate have shown: the loss, and the accuracy if any."""
    own = [r for r in records if (r["kind"], r["task"]) == ("rate", task)]
    grid = sorted({r["rate"] for r in own})
    order = lessons.SCHEMES if task == "lessons" else sentences.SCHEMES
    rows = []
    for scheme in order:
        found = {r["rate"]: r["curve"][-1] for r in own if r["scheme"] == scheme}
        best = min((p["loss"] for p in found.values()), default=0.0)
        cells = []
        for rate in grid:
            if (point := found.get(rate)) is None:
                cells.append("")
                continue
            words = f"{point['loss']:.3f}"
            words = f"**{words}**" if point["loss"] == best else words
            cells.append(words + (f" ({point['accuracy']:.1f})" if "accuracy" in point else ""))
        if found:
            rows.append([f"`{scheme}`", *cells])
    return table([f"{TASKS[task][0]}, held out", *(f"{rate:g}" for rate in grid)], rows)


def page(records: Sequence[Record]) -> str:
    parts = ["# Quality after training\n", "Made by `python -m benchmarks.llm.quality`, from "
             "quality.jsonl. Programs of whet, fp32, one core.\n"]  # fmt: skip
    shown = [task for task in TASKS if any(r["task"] == task for r in records)]
    if any(runs(records, task) for task in shown):
        parts += ["![Learning curves](quality.svg)\n"]
    if {"sst2", "cola"} & set(shown):
        parts += [
            "## Sentences\n",
            wrapped(SENTENCES, **sentences.STEPS, batch=sentences.BATCH, length=sentences.LENGTH),
            wrapped(RATES, steps="{sst2} or {cola}".format(**sentences.RATE_STEPS),
                    held=sentences.HELD, what="sentences"),
        ]  # fmt: skip
    for task in shown:
        if task == "lessons":
            parts += [
                "## Instructions\n",
                wrapped(LESSONS, steps=lessons.STEPS, length=lessons.LENGTH, test=lessons.TEST),
                wrapped(RATES, steps=lessons.RATE_STEPS, held=lessons.HELD, what="lessons"),
            ]
        if runs(records, task):
            parts.append(section(records, task))
        if any((r["kind"], r["task"]) == ("rate", task) for r in records):
            parts.append(rates(records, task))
    return "\n".join(parts)


def section(records: Sequence[Record], task: str) -> str:
    title, about, measure = TASKS[task]
    found = runs(records, task)
    digits = 3 if measure == "loss" else 1
    rows = []
    for scheme, own in found.items():
        values = [r["curve"][-1][measure] for r in own]
        rows.append([
            f"`{scheme}`", str(len(own)), f"{own[0]['rate']:g}", spread(values, digits),
            f"{statistics.mean(r['cpu'] for r in own):,.0f}", f"{own[0]['trained'] / 2**20:,.2f}",
            f"{own[0]['ram'] / 2**20:,.0f}",
        ])  # fmt: skip
    head = ["scheme", "seeds", "rate", title, "core-seconds", "trained, MiB", "RAM, MiB"]
    text = (
        f"{about}; mean of the seeds ± their deviation. RAM is that of a step without the frozen "
    )
    text += "weights, core-seconds those of all steps."
    before = [r["curve"][0][measure] for own in found.values() for r in own
              if r["curve"][0]["step"] == 0]  # fmt: skip
    if before:
        text += f" Before training it is {before[0]:.{digits}f}."
    return (
        "" if task == "lessons" else f"### {title}\n\n"
    ) + f"{wrapped(text)}\n{table(head, rows)}"


# The picture -------------------------------------------------------------------------------------


def picture(records: Sequence[Record]) -> str:
    """A panel for each task: means over the seeds, and their range at the end."""
    shown = {task: runs(records, task) for task in TASKS if runs(records, task)}
    names = {scheme: None for found in shown.values() for scheme in found}
    parts = svg.legend(60, 74, [(COLORS[s], s) for s in names])
    wide = (svg.WIDTH - 20) / max(len(shown), 1)
    for i, (task, found) in enumerate(shown.items()):
        box = (20 + i * wide + 45, 110.0, wide - 75, svg.HEIGHT - 180.0)
        parts += panel(box, TASKS[task][0], TASKS[task][2], found)
    return svg.page("Learning curves", "means of the seeds; bars are their range", parts)


def panel(
    box: svg.Box, title: str, measure: str, found: Mapping[str, Sequence[Record]]
) -> list[str]:
    left, top, width, height = box
    curves = {s: [[(p["step"], p[measure]) for p in r["curve"]] for r in own]
              for s, own in found.items()}  # fmt: skip
    values = [v for own in curves.values() for c in own for _, v in c]
    steps = sorted({step for own in curves.values() for c in own for step, _ in c})
    margin = 0.08 * (max(values) - min(values)) or 1.0
    low, high = min(values) - margin, max(values) + margin

    def at(step: float, value: float) -> tuple[float, float]:
        along = step / steps[-1]
        return left + width * along, top + height * (high - value) / (high - low)

    words = {"accuracy": "accuracy, %", "matthews": "Matthews' correlation x 100", "loss": "loss"}
    parts = [svg.text(left, top - 10, f"{title}: {words[measure]}", 12, font_weight="bold")]
    for tick in (low + (high - low) * k / 4 for k in range(5)):
        y = at(0, tick)[1]
        parts.append(svg.rule(left, y, left + width, y, svg.RULE))
        label = f"{tick:.2f}" if measure == "loss" else f"{tick:.1f}"
        parts.append(svg.text(left - 6, y + 4, label, text_anchor="end"))
    for step in steps:
        parts.append(svg.text(at(step, low)[0], top + height + 18, str(step), text_anchor="middle"))
    parts.append(svg.text(left + width / 2, top + height + 38, "steps", text_anchor="middle"))
    for k, (scheme, own) in enumerate(curves.items()):
        means = [(s, statistics.mean(dict(c)[s] for c in own)) for s, _ in own[0]]
        spots = [at(*point) for point in means]
        text = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y in spots)
        tip = svg.tooltip(f"{scheme}: {means[-1][1]:.3f}")
        parts.append(svg.element("polyline", tip, points=text, fill="none",
                                 stroke=COLORS[scheme], stroke_width=2.0))  # fmt: skip
        ends = [c[-1][1] for c in own]
        x = spots[-1][0] + 4 + 4 * k
        parts.append(svg.rule(x, at(0, min(ends))[1], x, at(0, max(ends))[1], COLORS[scheme],
                              stroke_width=2.0))  # fmt: skip
    return parts
