"""The page of the step study and its picture, from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.lines import Record
from benchmarks.common.page import table, wrapped
from benchmarks.llm.peers import PEERS
from benchmarks.llm.workloads import WORKLOADS
from whet.report import svg

Found = dict[tuple[str, int, str], Record]  # by workload, threads and peer
COLORS = {
    "torch": "#34699a", "torch-fused": "#6d93b8", "compile": "#9fb6cc",
    "torch-lora": "#e8a33d", "compile-lora": "#f2cf8f",
    "torch-blocks": "#4f9d69", "compile-blocks": "#95c6a4",
    "whet": "#7a1f27", "whet-lora": "#a82a35", "whet-sparse": "#c2313d",
    "whet-sparse-gguf": "#e59a9a",
}  # fmt: skip
ABOUT = """Made by `python -m benchmarks.llm.step`, on {machine}. One training step: forward, loss,
backward and AdamW on one sequence, fp32, and the loss read back. Every peer runs in a process of
its own, and they take turns of half a second on the same CPUs; a time is {clock}.
Peak memory is that of the process: for whet the C program by itself, for PyTorch everything with
Python. All start from the same weights; a program whose losses differ is refused. SmolLM2-135M
has {weights} weights, its embedding and head are one parameter, and every token has a label if
nothing else is said. PyTorch computes the same modules in eager mode (scaled_dot_product_attention,
one thread for each CPU), and LoRA of rank 8 beside queries and values is {lora}. *The same blocks*
and `{blocks}` train attention and the first feed-forward layers of the last two blocks, and what is
behind these except the head."""
CLOCKS = {
    "wall": "the median of all steps",
    "cpu": "the least processor time of a step, as other programs ran on the machine",
}
RATIOS = (  # what is divided by what, and what is aimed at
    ("whet, full, against PyTorch, full", "torch", "whet", 1.5),
    ("whet, sparse-2, against PyTorch, the same blocks", "torch-blocks", "whet-sparse", 2.0),
    ("whet, sparse-2, against PyTorch, LoRA", "torch-lora", "whet-sparse", 4.0),
)


def seconds(r: Record) -> float:
    """The median of the clock; on a busy machine the least processor time."""
    if r.get("clock") == "cpu":
        return min(used for _, used in r["times"])
    return statistics.median(wall for wall, _ in r["times"])


def by_key(records: Sequence[Record]) -> Found:
    return {(r["workload"], r["threads"], r["peer"]): r for r in records}


def faster(found: Found, name: str, threads: int, slow: str, fast: str) -> str:
    pair = [found.get((name, threads, peer), {}) for peer in (slow, fast)]
    if not all(r.get("times") for r in pair):
        return "-"
    return f"{seconds(pair[0]) / seconds(pair[1]):.2f}"


def page(records: Sequence[Record]) -> str:
    if not records:
        return "# Training steps of language models\n\nNothing was measured yet.\n"
    found = by_key(records)
    names = [name for name in WORKLOADS if any(key[0] == name for key in found)]
    large = [name for name in names if not WORKLOADS[name].small]
    small = [name for name in names if WORKLOADS[name].small]
    lora = {r["lora"] for r in records if r.get("lora")}
    clocks = {r["clock"] for r in records}
    weights = {r["weights"] for r in records if not WORKLOADS[r["workload"]].small}
    about = wrapped(
        ABOUT, machine=", ".join(sorted({r["machine"] for r in records})),
        weights="random" if weights == {"random"} else "its own",
        clock=" or ".join(CLOCKS[c] for c in CLOCKS if c in clocks),
        lora=" or ".join(sorted(lora)) or "written by hand", blocks="sparse-2",
    )  # fmt: skip
    parts = ["# Training steps of language models\n", about]
    if large:
        parts += ["![Time of a step](step.svg)\n", "## Ratios\n", ratios(found, large)]
    for name in large:
        parts += [f"## {WORKLOADS[name].title}\n", steps(found, name)]
    if small:
        parts += ["## Other transformers\n", others(found, small)]
    if why := reasons(records):
        parts += ["## What is missing\n", why]
    return "\n".join(parts)


def ratios(found: Found, names: Sequence[str]) -> str:
    """PyTorch's time divided by whet's."""
    places = [(n, t) for n in names for t in (1, 2) if any(key[:2] == (n, t) for key in found)]
    head = ["times as fast", "aim", *(f"{n.removeprefix('smollm2-')}, {threads(t)}"
                                      for n, t in places)]  # fmt: skip
    rows = [
        [title, f"{aim:g}", *(faster(found, n, t, slow, fast) for n, t in places)]
        for title, slow, fast, aim in RATIOS
    ]
    return table(head, [row for row in rows if {*row[2:]} != {"-"}])


def threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def steps(found: Found, name: str) -> str:
    counts = sorted({key[1] for key in found if key[0] == name})
    head = ["", *(f"{what}, {threads(n)}" for n in counts for what in ("s/step", "tokens/s")),
            "peak MiB"]  # fmt: skip
    rows = []
    for peer, known in PEERS.items():
        own = [found.get((name, n, peer), {}) for n in counts]
        if not any(r.get("times") for r in own):
            continue
        cells = []
        for r in own:
            there = seconds(r) if r.get("times") else None
            cells += [f"{there:.3f}", f"{WORKLOADS[name].length / there:.0f}"] if there else "--"
        peak = max(r["peak"] for r in own if r.get("times"))
        rows.append([known.title, *cells, f"{peak / 1024:,.0f}"])
    return table(head, rows)


def others(found: Found, names: Sequence[str]) -> str:
    """Random weights: times are what they are with real ones."""
    pairs = (("full", "torch", "whet"), ("LoRA", "torch-lora", "whet-lora"),
             ("sparse-2", "torch-blocks", "whet-sparse"))  # fmt: skip
    counts = sorted({key[1] for key in found if key[0] in names})
    text = wrapped(
        "With random weights. Milliseconds of PyTorch and of whet, and how many times as fast whet "
        "is; PyTorch trains the same parameters."
    )
    for count in counts:
        rows = []
        for name in names:
            row = [WORKLOADS[name].title]
            for _, theirs, ours in pairs:
                pair = [found.get((name, count, peer), {}) for peer in (theirs, ours)]
                times = [seconds(r) if r.get("times") else None for r in pair]
                there = " / ".join(f"{1e3 * t:.0f}" if t else "-" for t in times)
                row += [there if any(times) else "-", faster(found, name, count, theirs, ours)]
            if {*row[1:]} != {"-"}:
                rows.append(row)
        head = [threads(count), *(word for t, *_ in pairs for word in (t, "times as fast"))]
        text += "\n" + table(head, rows)
    return text


def reasons(records: Sequence[Record]) -> str:
    found: dict[str, list[str]] = {}
    for r in records:
        if r.get("why"):
            where = f"{WORKLOADS[r['workload']].title}, {threads(r['threads'])}"
            found.setdefault(f"{PEERS[r['peer']].title}: {r['why']}", []).append(where)
    return "".join(f"- {why} ({'; '.join(where)})\n" for why, where in found.items())


def picture(records: Sequence[Record]) -> str:
    """Bars of the time of a step of SmolLM2, relative to PyTorch's with LoRA."""
    found = by_key(records)
    groups = [
        (name, n) for name in WORKLOADS for n in (1, 2)
        if not WORKLOADS[name].small and found.get((name, n, "torch-lora"), {}).get("times")
    ]  # fmt: skip
    bars = [p for p in COLORS if any(found.get((*g, p), {}).get("times") for g in groups)]
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 112.0, svg.HEIGHT - 62.0
    half = (len(bars) + 1) // 2
    parts = svg.legend(left, 72, [(COLORS[p], PEERS[p].title) for p in bars[:half]])
    parts += svg.legend(left, 90, [(COLORS[p], PEERS[p].title) for p in bars[half:]])
    ratios = {
        (*g, p): seconds(found[(*g, p)]) / seconds(found[(*g, "torch-lora")])
        for g in groups for p in bars if found.get((*g, p), {}).get("times")
    }  # fmt: skip
    high = max([1.0, *ratios.values()])
    for tick in svg.ticks(high, 6):
        y = bottom - (bottom - top) * tick / high
        parts.append(svg.rule(left, y, right, y, svg.GREY if tick == 1 else svg.RULE))
        parts.append(svg.text(left - 7, y + 4, f"{tick:g}", text_anchor="end"))
    wide = (right - left) / max(len(groups), 1)
    for i, (name, n) in enumerate(groups):
        there = [p for p in bars if (name, n, p) in ratios]
        width = min(0.86 * wide / len(there), 26)
        x = left + (i + 0.5) * wide - width * len(there) / 2
        for p in there:
            ratio = ratios[name, n, p]
            y = bottom - (bottom - top) * ratio / high
            words = svg.tooltip(f"{PEERS[p].title}: {seconds(found[name, n, p]):.3f} s")
            parts.append(svg.rect(x, y, width - 1, bottom - y, words, fill=COLORS[p]))
            if PEERS[p].whet:
                parts.append(svg.text(x + width / 2, y - 3, f"{ratio:.2f}", 9,
                                      text_anchor="middle"))  # fmt: skip
            x += width
        middle = left + (i + 0.5) * wide
        for line, words in enumerate((WORKLOADS[name].title, threads(n))):
            parts.append(svg.text(middle, bottom + 18 + 16 * line, words, text_anchor="middle"))
    return svg.page("Time of a training step of SmolLM2-135M", "PyTorch's with LoRA is 1", parts)
