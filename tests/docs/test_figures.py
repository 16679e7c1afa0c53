"""Every figure that a page quotes from a file of results is the one in that file."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

import whet
from quoted import ROOT, cell, column, figures, number, sections, table, tables, text_of, whole
from whet.ops.gradient_i8 import LEAST
from whet.targets import target_named
from whet.verify.products import MOST

MEMORY, MCU, QAS, STEP, TINYTL, KERNELS = (
    f"benchmarks/{study}/README.md"
    for study in ("memory", "mcu", "qas", "step", "tinytl", "mcu_kernels")
)
INT8 = "benchmarks/step/int8.md"
SEARCH = "benchmarks/search/README.md"
PLAN7B = "benchmarks/llm/plan7b.md"
LEAKAGE, MEMBERS = "benchmarks/privacy/leakage.md", "benchmarks/privacy/membership.md"
RELU = "A network with ReLU"
WAYS = "way to train"  # the head of the table of accuracies
NETWORKS = {"mbv2-w0.35": "99kb", "proxyless-w0.3": "98kb", "mcunet-5fps": "99kb"}


def listed(words: list[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}"


def span(values: list[float], digits: int) -> str:
    return f"{whole(min(values), digits)} to {whole(max(values), digits)}"


# README ---------------------------------------------------------------------------------------


def memory() -> Iterator[str]:
    rows = {"full, no optimisation": "full, no passes", "full": "full",
            "published sparse scheme, about 100 KB": "", "last layer": "last"}  # fmt: skip
    for label, row in rows.items():
        cells = []
        for network, budget in NETWORKS.items():
            arena = cell(MEMORY, row or f"{network}-{budget}", "arena", network)
            plain = number(cell(MEMORY, "full, no passes", "arena", network))
            less = plain / number(arena)
            word = f" ({whole(less, 0 if less > 10 else 1)}x)" if row != "full, no passes" else ""
            cells.append(whole(arena) + word)
        yield f"| {label} | {' | '.join(cells)} |"
    above = []
    for network, budget in NETWORKS.items():
        for row in ("full", f"{network}-{budget}", "last"):
            arena, bound = (number(cell(MEMORY, row, c, network)) for c in ("arena", "bound"))
            if arena > bound:
                above.append((row, whole(100 * (arena / bound - 1))))
    assert [row for row, _ in above] == ["mbv2-w0.35-99kb"]
    yield f"but the first, except that MobileNetV2's sparse scheme is {above[0][1]} % above it"
    smallest = [f"{network}, {network}-49kb" for network in NETWORKS]
    peaks = [number(cell(MEMORY, row, "whet, process")) * 1024 / 1e6 for row in smallest]
    factors = [number(cell(MEMORY, row, "factor")) for row in smallest]
    yield f"peaks at {span(peaks, 1)} MB resident, {span(factors, 0)} times less than PyTorch"


SPEED = {
    "MCUNet-5fps, 128 x 128, full update": "mcunet",
    "MobileNetV2-w0.35, 128 x 128, full update": "mbv2-0.35",
    "the same, batch 8": "mbv2-0.35, batch 8",
    "MobileNetV2, 224 x 224, full update": "mbv2",
    "ResNet-18, 224 x 224, full update": "resnet18",
    "the same, batch 8 ": "resnet18, batch 8",
    "ResNet-50, 224 x 224, full update": "resnet50",
    "MCUNet-5fps, last layer": "mcunet, last",
    "MCUNet-5fps, biases and last layer": "mcunet, bias+last",
    "MCUNet-5fps, published scheme, 99 KB": "mcunet, 99 KB",
    "MobileNetV2-w0.35, last layer": "mbv2-0.35, last",
}


def speed() -> Iterator[str]:
    _, head, rows = table(STEP, "PyTorch", "Time")
    for label, row in SPEED.items():
        cells = dict(zip(head[1:], rows[row][1:], strict=True))
        ours, torch = cells.pop("whet"), cells.pop("PyTorch")
        del cells["whet portable"], cells["PyTorch NCHW"]
        other = min((number(c), name) for name, c in cells.items() if c != "-")
        (ratio,) = re.findall(r"\((.*)\)", ours)
        fastest = f"{whole(other[0], 1)} {other[1]}"
        yield f"| {label.strip()} | {torch} | {fastest} | {whole(ours, 1)} | {ratio} |"


def integers() -> Iterator[str]:
    (published,) = re.findall(r"an arena of [\d,]+ bytes and ([\d,]+) of RAM", text_of(MEMORY))
    ram = cell(MCU, "mcunet-5fps-49kb", "RAM")
    yield f"one picture at a time: {ram} bytes on a Cortex-M7"
    yield f"the program published with the paper takes {published} without its stack"
    ways = ("fp32, SGD", "int8, SGD", "int8, SGD + QAS, nearest",
            "int8, SGD + QAS, carry of 8 bits")  # fmt: skip
    flowers, pets = (
        [cell(QAS, way, f"{data}, mcunet-5fps", WAYS).replace(" ± 0.0", "") for way in ways]
        for data in ("flowers102", "pets37")
    )
    start = cell(QAS, "int8, classifier taught alone: the start", "flowers102, mcunet-5fps", WAYS)
    assert number(start) == number(flowers[1]), "as much as its classifier alone"
    yield f"three seeds: {flowers[0]} % in fp32, {flowers[1]} % in int8 without that scaling"
    yield f"{flowers[2]} % with it, {flowers[3]} % if 8 bits of each step's fraction are kept"
    yield f"On Pets-37: {listed(pets)} %"
    (paper,) = re.findall(r"in int8, Flowers-102, is ([\d.]+) %", text_of(QAS))
    yield f"The paper has {paper} % on Flowers-102"
    ratios = {row: number(text) for row, text in column(INT8, "int8 / float32").items()}
    own = [whole(r, 2) for row, r in ratios.items() if row.startswith("mcunet")]
    others = [r for row, r in ratios.items() if not row.startswith("mcunet")]
    yield f"**Time**: {listed(own)} of the float program's step"
    yield f"{span(others, 2)} for the paper's other two networks"


def search() -> Iterator[str]:
    def three(network: str, data: str, name: str) -> str:
        rows = [f"{network}, {data}, {budget} KB" for budget in (50, 75, 100)]
        return listed([whole(cell(SEARCH, row, name, "Accuracy"), 1) for row in rows]) + " %"

    def full(network: str, data: str) -> str:
        return whole(cell(SEARCH, f"{network}, {data}", "full update"), 1) + " %"

    for data in ("flowers102", "pets37"):
        mcunet, mbv2 = ("mcunet-5fps", data), ("mbv2-w0.35", data)
        searched, published = three(*mcunet, "searched"), three(*mcunet, "published")
        if data == "flowers102":
            best = three(*mcunet, "best random")
            yield f"recognise {searched} of the test pictures, the published ones {published}"
            yield f"the best of twenty random ones {best}; training everything gives"
            times = whole(cell(SEARCH, ", ".join(mcunet), "full / searched"))
            assert times == "12"
            yield f"gives {full(*mcunet)} with twelve times the extra memory"
            yield f"recognises {three(*mbv2, 'searched')}, by the published schemes"
            yield f"schemes {three(*mbv2, 'published')}, by training everything {full(*mbv2)}"
        else:
            yield f"{searched} against {published} (everything: {full(*mcunet)})"
            found, known = three(*mbv2, "searched"), three(*mbv2, "published")
            yield f"for MobileNetV2 {found} against {known} (everything: {full(*mbv2)})"


def tinytl() -> Iterator[str]:
    large, one = "batch 8, SGD", "batch 1, SGD"

    def of(method: str, name: str, under: str) -> str:
        return cell(TINYTL, method, name, under)

    arena, biases = of("full", "arena", large), of("TinyTL-B", "arena", large)
    yield (
        f"full update takes {whole(arena)} MB of activations and biases alone {biases} "
        f"({whole(of('TinyTL-B', 'full / arena', large))} times less)"
    )
    yield (
        f"takes {whole(of('TinyTL-L+B', 'total', large))} MB where full update takes "
        f"{whole(of('full', 'total', large))} "
        f"({whole(of('TinyTL-L+B', 'full / total', large))} times less), and "
        f"{whole(of('TinyTL-L+B', 'total', one))} MB for one picture at a time"
    )
    methods = ("last", "TinyTL-B", "TinyTL-L+B", "full")
    mcunet, mbv2 = (
        [whole(of(f"{net}, flowers102, {m}", "128 px, %", "Accuracy"), 1) for m in methods]
        for net in ("mcunet-5fps", "mobilenet-v2")
    )
    yield f"recognises {mcunet[0]} % of the test pictures if only its classifier learns"
    yield f"{mcunet[1]} % with biases, {mcunet[2]} % with branches as well"
    yield f"and {mcunet[3]} % under full update; MobileNetV2 {listed(mbv2)} %"
    _, head, rows = table(TINYTL, "128 px, %", "Accuracy")
    at = head.index("128 px, %") + 1
    both, full = (number(rows[f"mobilenet-v2, flowers102, {m}"][at]) for m in methods[2:])
    assert head[at] == "MB, batch 8" and whole(full / both) == "4"
    yield "where full update takes four times the memory of branches and biases"
    (times,) = re.findall(r"PyTorch on a GPU, (\d+) times", text_of(TINYTL))
    yield f"the {times} trainings ran in PyTorch on a GPU"


def chip() -> Iterator[str]:
    names = {"MCUNet-5fps": "mcunet-5fps", "MobileNetV2-w0.35": "mbv2-w0.35",
             "ProxylessNAS-w0.3": "proxyless-w0.3"}  # fmt: skip
    for label, name in names.items():
        row = f"{name}-49kb"
        ram, paper, flash = (cell(MCU, row, c) for c in ("RAM", "paper's RAM", "flash"))
        step, plain = (whole(cell(MCU, row, c)) for c in ("step", "plain"))
        yield f"| {label} | {ram} bytes | {paper} | {flash} bytes | {step} M | {plain} M |"
    assert {*column(MCU, "outside").values(), *column(MCU, "differ").values()} == {"0"}
    (published,) = re.findall(r"an arena of [\d,]+ bytes and ([\d,]+) of RAM", text_of(MEMORY))
    yield f"the program published with it, for MCUNet, has {published} bytes of it"
    forward = [row for row, c in column(KERNELS, "CMSIS-NN").items() if c]
    ratios = [number(cell(KERNELS, row, "dsp/ : CMSIS-NN")) for row in forward]
    spent = [number(cell(KERNELS, row, "dsp/")) for row in forward]
    yield f"takes {whole(min(spent), 1)} to {whole(max(spent))} instructions a product"
    yield f"{span(ratios, 1)} of what CMSIS-NN takes for the same layer"


# docs -----------------------------------------------------------------------------------------


def int8_page() -> Iterator[str]:
    arena, ram = re.findall(r"an arena of ([\d,]+) bytes and ([\d,]+) of RAM", text_of(MEMORY))[0]
    yield f"has an arena of {arena} bytes and takes {ram} bytes of RAM"
    yield f"takes {cell(MCU, 'mcunet-5fps-49kb', 'RAM')} with its stack"
    yield f"its RAM stays at {cell(MCU, 'proxyless-w0.3-49kb', 'RAM')} bytes"
    yield (
        f"takes {COUNTED['int16']} million instructions on a Cortex-M7 in 16 bits and "
        f"{COUNTED['int8']} in 8 (fp32: {whole(cell(MCU, 'mcunet-5fps-49kb', 'step'))})"
    )
    pixels = (2**31 - 1) / (LEAST * 255)
    yield f"those over some {whole(pixels / 1000)},000 pixels"
    yield f"{target_named('cortex-m7').stack // 1024} KB are for the stack"
    stochastic = "int8, SGD + QAS, stochastic"
    ways = (f"{stochastic}, int8 head", stochastic)
    kept = [cell(QAS, way, "mcunet-5fps") for way in ways]
    less = []
    for data in ("flowers102", "pets37"):
        name = f"{data}, mcunet-5fps"
        after, before = (number(cell(QAS, way, name, WAYS)) for way in ways)
        less.append(whole(round(before - after, 3), 1))
    yield (
        f"then trains {whole(kept[0])} instead of {whole(kept[1])} KiB, and is {less[0]} points "
        f"less accurate on Flowers-102, {less[1]} on Pets-37"
    )
    _, head, rows = table(QAS, "within")

    def short(way: str) -> list[float]:
        return [number(c) for c in rows[way][1 : head.index("within")] if c != "-"]

    yield f"learns, {span(short('int8, SGD'), 0)} points below fp32"
    sixth = []
    for way in ("carry of 8 bits", "fp32 copy"):
        far = [points for points in short(f"int8, SGD + QAS, {way}") if points > 0.5]
        assert len(far) == 1, "within half a point in five of six cases"
        sixth.append(whole(far[0], 1))
    exact = table(QAS, "flowers102, mcunet-5fps", WAYS)[2]["fp32, SGD"]
    spread = [number(c.split("±")[1]) for c in exact[1:]]
    yield f"between seeds is {span(spread, 1)}, and {sixth[0]} or {sixth[1]} points below it"
    yield f"ends {span(short('int8, SGD + QAS, nearest'), 1)} points below fp32"
    yield f'`"stochastic"` {span(short(stochastic), 1)}: take the carry'


COUNTED = {"int16": 94, "int8": 97}  # by the command on that page; a slow test counts again


@pytest.mark.slow
@pytest.mark.parametrize("gradients", COUNTED)
def test_instructions_with_integer_gradients(gradients: str) -> None:
    page = (ROOT / "docs/int8.md").read_text()
    (command,) = re.findall(r"^(whet run (?:.*\\\n)*.*)$", page, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " ").replace("=int16", f"={gradients}"))
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    (millions,) = re.findall(r"([\d.]+) M instructions a step", done.stdout)
    assert whole(millions) == str(COUNTED[gradients])


def search_page() -> Iterator[str]:
    spent = {}
    for row, seconds in column(SEARCH, "fine-tuning, s").items():
        spent[row.rpartition(", ")[0]] = whole(number(seconds) / 60)
    one, two = ("mcunet-5fps, flowers102", "mcunet-5fps, pets37")
    yield f"MCUNet-5fps take {spent[one]} core-minutes on Flowers-102 and {spent[two]} on Pets-37"
    one, two = ("mbv2-w0.35, flowers102", "mbv2-w0.35, pets37")
    yield f"of MobileNetV2 {spent[one]} and {spent[two]}, on different processors"
    pooled = [number(c) for c in column(SEARCH, "pooled gains").values()]
    yield f"with a correlation of {span(pooled, 1)} ([the table]"

    ranks = [number(c) for c in column(SEARCH, "weights, loss").values()]
    yield f"lower the loss with a correlation of {span(ranks, 1)} to fine-tuning"
    best = max(number(c) for c in column(SEARCH, "weights, accuracy").values())
    yield f"little about points of accuracy ({whole(best, 1)} at best)"


def chip_page() -> Iterator[str]:
    assert len(column(MCU, "steps")) == 15
    (steps,) = {*column(MCU, "steps").values()}
    yield f"fifteen published schemes, {steps} steps each"


def kernels_page() -> Iterator[str]:
    deepest = max(number(c) for c in column(MCU, "stack used").values())
    yield f"use up to {deepest:,.0f} bytes of stack"


def planner_page() -> Iterator[str]:
    arenas = []
    for heading, head, rows in tables(MEMORY):
        if "bound" in head:
            for row in rows:
                arena, bound = (number(cell(MEMORY, row, c, heading)) for c in ("arena", "bound"))
                if row != "full, no passes":
                    arenas.append(arena / bound - 1)
    above = [100 * share for share in arenas if share > 0]
    yield (
        f"Of the {len(arenas)} programs in [benchmarks/memory](../../benchmarks/memory/README.md), "
        f"{len(arenas) - len(above)} end at the bound, the others up to {whole(max(above))} % above"
    )


def privacy_study() -> Iterator[str]:
    def hidden(defence: str) -> str:
        """Pictures that the adaptive attacker does not recover, of all."""
        won, lost, diverged = re.findall(r"\d+", cell(LEAKAGE, defence, "adaptive", "Defences"))[:3]
        assert diverged == "0"
        return f"{lost} of {int(won) + int(lost)}"

    def given_back(row: str) -> str:
        won, lost = re.findall(r"\d+", cell(LEAKAGE, row, "adaptive", "What does a sparse"))[:2]
        return f"{won} of {int(won) + int(lost)}"

    def of(row: str, name: str) -> str:
        return cell(LEAKAGE, row, name, "Defences")

    def batch(row: str) -> str:
        return cell(LEAKAGE, row, "recovered", "A batch of 8")

    exact = cell(LEAKAGE, "adaptive", "exact")
    grey, photo, wide = (batch(f"{s}; adaptive") for s in ("grey", "photo", "photo, wide"))
    yield f"reconstructs {exact} photographs of 32 x 32 pixels exactly from one update"
    yield f"and {grey} pictures in batches of 8 in grey. In colour it is {photo} with 12"
    yield f"and {wide} with 32"
    words = column(LEAKAGE, "words, %")
    assert words["full; rows"] == words["layers+last; span"]
    yield f"{words['full; rows']} % of the words come back"
    yield f"it is {words['layer 2+last; match']} %"
    assert of("pruning 20 %", "published").startswith("0 /")
    yield f"Pruning 70 % of an update hides {hidden('pruning 70 %')} pictures"
    lost = number(of("none", "accuracy, %")) - number(of("pruning 99 %", "accuracy, %"))
    loud = "Gaussian, variance 0.01"
    assert hidden("pruning 99 %") == hidden(loud) == "4 of 4"
    yield f"Pruning 99 % hides all four and costs {whole(lost, 1)} points"
    yield f"Noise of {of(loud, 'sigma / RMS')} times the gradients' RMS hides all four as well"
    yield f"leaves {of(loud, 'label')} labels"
    photo, grey = given_back("photo; last"), given_back("grey; last")
    (named,) = {cell(LEAKAGE, f"{s}; last", "label", "What does a") for s in ("photo", "grey")}
    yield f"gave back {photo} photographs in colour, {grey} in grey and {named} labels"
    won, lost = re.findall(r"\d+", cell(LEAKAGE, "clothes, trained; last", "cosine", RELU))[:2]
    yield f"it gave back {won} of {int(won) + int(lost)} pictures of clothes"
    full, last = (
        re.findall(rf"\| {update} \| none \|[^|]*\|[^|]*\|[^|]*\| loss \| ([\d.]+)",
                   text_of(MEMBERS))[0]
        for update in ("full", "last")
    )  # fmt: skip
    yield f"with an AUC of {full} (update of the last layer: {last})"
    full, last = (cell(MEMBERS, row, "mean AUC") for row in ("full", "last"))
    yield f"shows with an AUC of {full}, and with {last} if only the last layer trains"


def llm_page() -> Iterator[str]:
    share = {word: f"{100 * most:.0f} %" for word, most in MOST.items()}
    yield f"fails beyond {share['bf16']} of its norm for bf16 and {share['int8']} with int8"
    yield f"without its {whole(cell(PLAN7B, 'full, AdamW', 'trained GB'))} GB"


PAGES: dict[str, tuple[Callable[[], Iterator[str]], ...]] = {
    "docs/results.md": (memory, speed, integers, search, tinytl, chip),
    "docs/int8.md": (int8_page,),
    "docs/search.md": (search_page,),
    "docs/llm.md": (llm_page,),
    "docs/microcontrollers.md": (chip_page,),
    "docs/design/README.md": (planner_page,),
    "docs/design/kernels.md": (kernels_page,),
    "benchmarks/privacy/README.md": (privacy_study,),
}
CLAIMS = [(page, part) for page, parts in PAGES.items() for part in parts]


@pytest.mark.parametrize(("page", "part"), CLAIMS, ids=lambda x: getattr(x, "__name__", x))
def test_a_page_says_what_the_results_say(page: str, part: Callable[[], Iterator[str]]) -> None:
    sentences = list(part())
    assert sum(len(figures(s)) for s in sentences) or part is chip_page
    missing = [sentence for sentence in sentences if sentence not in text_of(page)]
    assert missing == [], f"{page} should say so"


QUICK = ("mbv2-w0.35-99kb", "mcunet-5fps-99kb")


@pytest.mark.parametrize(
    ("network", "scheme"),
    [
        pytest.param(heading, row, marks=() if row in QUICK else pytest.mark.slow)
        for heading, head, rows in tables(MEMORY)
        if "bound" in head
        for row in rows
        if row != "full, no passes"
    ],
)
def test_the_table_of_memory_is_what_the_planner_gives(
    network: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all tables of results this one does not depend on the machine."""
    monkeypatch.syspath_prepend(ROOT)
    benchmark = importlib.import_module("benchmarks.memory.parts")
    model = benchmark.MODELS[network]().eval()
    x, optimizer = torch.randn(1, 3, 128, 128), benchmark.plain_sgd(model)
    memory = whet.compile(model, (x,), optimizer=optimizer, update=scheme).memory
    columns = {"trained": "trained", "arena": "arena", "bound": "lower_bound", "RAM": "ram"}
    found = {name: cell(MEMORY, scheme, name, network) for name in columns}
    assert found == {name: benchmark.kilobytes(memory[key]) for name, key in columns.items()}


# Numbers beside them that are no results: sizes that were chosen, names, and versions.
GIVEN = (
    "256 KB", "256KB", "about 100 KB", "50, 75 and 100 KB", "scheme of 99 KB", "(99 KB)",
    "schemes of 49 KB", "Up to 1 MiB", "2 GB", "15 instructions do 16 products",
)  # fmt: skip
ALL = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", ALL)
def test_no_other_figure_stands_beside_the_name_of_a_file_of_results(page: str) -> None:
    """A figure in such a section that nothing above has is one that nobody holds."""
    held = [sentence for part in PAGES.get(page, ()) for sentence in part()]
    left = [figure for text in sections(page) for figure in figures(text, [*held, *GIVEN])]
    assert left == [], "figures that are in no file of results, or that no test above holds"


def test_the_reader_finds_figures() -> None:
    """Both tests above would hold if it found none."""
    found = figures("it has 3.5 and 1,024 or 12 KB, 5 % (7x), w0.35 of arXiv:2206.15472, 128 x 128")
    assert found == ["3.5", "1,024", "12 KB", "5 %", "7x"]
    assert len(sections("docs/results.md")) == 8 and len(tables(MEMORY)) == 6
    assert (
        whole("26.5") == "27" and whole(0.125, 2) == "0.13" and number("**1,024.5** (3)") == 1024.5
    )
