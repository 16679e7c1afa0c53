"""The pages of the step study and its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.common.page import processor, table
from benchmarks.step.measure import Result, Results
from benchmarks.step.peers import PEERS
from whet.report import svg

COLORS = {
    "whet": "#c2313d",
    "portable": "#e59a9a",
    "nchw": "#b8b8b8",
    "compile": "#8c8c8c",
    "jax": "#4f9d69",
    "tf": "#e8a33d",
    "litert": "#f2cf63",
    "ort": "#7a6fb0",
    "tinygrad": "#5fb3b3",
}
TOP = 1.6  # ratios above this are cut off, and written out


def page_name(threads: int, dtype: str = "float32") -> str:
    """One thread in float32 is the page of the folder."""
    words = [] if dtype == "float32" else [dtype]
    words += [] if threads == 1 else [f"threads-{threads}"]
    return ("-".join(words) or "README") + ".md"


def picture_name(threads: int) -> str:
    return "ratios.svg" if threads == 1 else f"ratios-threads-{threads}.svg"


def picture(results: Results, peers: Sequence[str], threads: int) -> str:
    """Bars of the ratio to PyTorch, a group for each workload."""
    rows = {n: found for n, found in results.items() if "torch" in found and found["torch"].times}
    bars = [peer for peer in COLORS if peer in peers]
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 92.0, svg.HEIGHT - 92.0
    group = (right - left) / max(len(rows), 1)

    def height(ratio: float) -> float:
        return bottom - (bottom - top) * min(ratio, TOP) / TOP

    parts = svg.legend(left, 72, [(COLORS[peer], PEERS[peer].title) for peer in bars])
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5):
        y = height(tick)
        color = svg.GREY if tick == 1 else svg.RULE
        parts.append(svg.rule(left, y, right, y, color))
        parts.append(svg.text(left - 7, y + 4, f"{tick:g}", text_anchor="end"))
    for i, (name, found) in enumerate(rows.items()):
        there = [peer for peer in bars if found[peer].times]
        width = min(0.78 * group / max(len(there), 1), 14)
        x = left + (i + 0.5) * group - width * len(there) / 2
        for peer in there:
            ratio = found[peer].ms / found["torch"].ms
            y = height(ratio)
            words = svg.tooltip(f"{name}, {PEERS[peer].title}: {ratio:.2f}")
            parts.append(svg.rect(x, y, width - 1, bottom - y, words, fill=COLORS[peer]))
            if ratio > TOP or peer == "whet":
                said = f"{ratio:.1f}" if ratio > TOP else f"{ratio:.2f}"
                parts.append(svg.text(x + width, y - 3, said, 9, text_anchor="end"))
            x += width
        middle = left + (i + 0.5) * group
        turned = f"rotate(-28 {svg.number(middle)} {svg.number(bottom + 16)})"
        parts.append(svg.text(middle, bottom + 16, name, text_anchor="end", transform=turned))
    count = "one thread" if threads == 1 else f"{threads} threads"
    about = f"one step, {count}, on {processor()}; PyTorch eager with channels last is 1"
    return svg.page("Time of a training step against PyTorch", about, parts)


# --- The page -------------------------------------------------------------------------------------


def per_peer(results: Results, peers: Sequence[str], cell: Callable[[str, Result], str]) -> str:
    rows = [
        [name, *("-" if found[p].why else cell(name, found[p]) for p in peers)]
        for name, found in results.items()
    ]
    return table(["one step", *(PEERS[p].title for p in peers)], rows)


def reasons(results: Results, peers: Sequence[str]) -> str:
    """One line for each reason that a peer has a dash."""
    found: dict[str, list[str]] = {}
    for peer in peers:
        for name, row in results.items():
            if row[peer].why:
                found.setdefault(f"{PEERS[peer].title}: {row[peer].why}", []).append(name)
    several = [
        f"- {why}" + ("" if len(names) > 3 else f" ({'; '.join(names)})")
        for why, names in found.items()
    ]
    return "\n".join(several) + ("\n" if several else "")


def own_table(results: Results) -> str:
    head = ["whet", "compile, s", "C build, s", "library, KiB", "without weights",
            "weights + arena", "RAM + flash", "C process, KiB", "its first step, s"]  # fmt: skip
    rows = []
    for name, found in results.items():
        facts = found["whet"].facts
        if not facts:
            continue
        kib = {key: value / 1024 for key, value in facts.items()}
        weights = kib["trained"] + kib["frozen"]
        rows.append(
            [
                name,
                f"{facts['compile']:.1f}",
                f"{facts['build']:.1f}",
                f"{kib['library']:,.0f}",
                f"{kib['library'] - kib['flash']:,.0f}",
                f"{weights + kib['arena']:,.0f}",
                f"{kib['ram'] + kib['flash']:,.0f}",
                f"{facts['bare_peak']:,.0f}",
                f"{facts['bare_first']:.3f}",
            ]
        )
    return table(head, rows)


def page(results: Results, peers: Sequence[str], threads: int) -> str:
    count = "one thread" if threads == 1 else f"{threads} threads"
    command = "python -m benchmarks.step" + (f" --threads {threads}" if threads > 1 else "")

    def timed(name: str, r: Result) -> str:
        base = results[name].get("torch")
        if base is None or base.why or base is r:
            return f"{r.ms:,.1f}"
        return f"{r.ms:,.1f} ({r.ms / base.ms:.2f})"

    parts = [f"# A training step, measured\n\nMade by `{command}` in one run, on {processor()}.\n"]
    parts.append(
        f"## Time\n\nMilliseconds, {count}, median; in brackets the ratio to PyTorch eager with "
        "channels last (below 1 is faster).\n"
    )
    parts += [f"![ratios to PyTorch]({picture_name(threads)})\n"]
    parts += [per_peer(results, peers, timed), reasons(results, peers)]
    parts.append(
        "Nets of which a part trains have batch norm folded into their convolutions. MCUNet's full "
        "update has nothing behind its\nlast batch norm but the mean, so that one picture gives "
        "the loss log(10), whatever the layers before compute: there the\ncheck of losses shows "
        "little.\n"
    )
    parts.append(
        "Where a scheme trains some channels of a weight (99 KB), the others train it whole, as "
        "they cannot do otherwise.\n"
    )
    parts.append("## Memory\n\nPeak resident memory of the whole process, MiB.\n")
    parts.append(per_peer(results, peers, lambda _, r: f"{r.peak / 1024:,.0f}"))
    parts.append(
        "## Start-up\n\nSeconds from starting the process to the end of the first step; in "
        "brackets what of it is not Python\nand imports: building or compiling the step, and "
        "running it once. Nothing is cached from earlier runs; whet's kernels are compiled in the\n"
        "first row that has them.\n"
    )
    parts.append(per_peer(results, peers, lambda _, r: f"{r.start:.1f} ({r.prepare:.1f})"))
    if "whet" in peers:
        parts.append(
            "## The C program\n\nwhet's own process above has Python and PyTorch in it. What "
            "runs on a device is the program that `write` writes:\nits peak resident memory, and "
            "the time from starting it to the end of its first step. Weights and arena are what\n"
            "the step needs; RAM and flash add the batch and the first values of what trains. The "
            "C build starts from nothing.\n"
        )
        parts.append(own_table(results))
    return "\n".join(part for part in parts if part)


def int8_page(results: Results, threads: int) -> str:
    """int8 programs beside float ones of the same network and scheme."""
    head = ["one step", "PyTorch, ms", "whet float32, ms", "whet int8, ms", "int8 / float32",
            "RAM float32, KiB", "RAM int8, KiB", "flash float32", "flash int8"]  # fmt: skip
    rows = []
    for name, found in results.items():
        one, other = found["whet"], found["int8"]
        if one.why or other.why:
            continue
        torch_ms = "-" if found["torch"].why else f"{found['torch'].ms:.2f}"
        kib = [r.facts[kind] / 1024 for kind in ("ram", "flash") for r in (one, other)]
        times = [torch_ms, f"{one.ms:.2f}", f"{other.ms:.2f}", f"{other.ms / one.ms:.2f}"]
        rows.append([name, *times, *(f"{k:,.0f}" for k in kib)])
    count = "one thread" if threads == 1 else f"{threads} threads"
    return "\n".join(
        [
            "# An int8 training step, measured\n",
            f"Made by `python -m benchmarks.step --dtype int8` in one run, on {processor()}, "
            f"{count}, medians.",
            "PyTorch trains in float32, and whole weights where the scheme has some channels.\n",
            table(head, rows),
            reasons(results, ["torch", "whet", "int8"]),
        ]
    )
