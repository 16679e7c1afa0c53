"""Time, memory and start-up of one training step, against other frameworks in one run.

    python benchmarks/step.py                     everything; writes benchmarks/step.md and .svg
    python benchmarks/step.py mcunet resnet18     some workloads; prints, and writes nothing
    python benchmarks/step.py --only torch,whet   some peers; the same
    python benchmarks/step.py --threads 2         two threads; writes benchmarks/step-2.md and .svg
    python benchmarks/step.py --dtype int8        int8 against float32; writes step-int8.md

Each peer runs in a process of its own and they take turns of half a second, so that a busy machine
slows all of them. Figures are medians, and ratios to PyTorch eager with channels last. With one
thread every process is held to one CPU (`--cpu`). A step is forward, loss, backward and plain SGD
on a batch that is in memory, in the layout the peer likes, and the loss read back. Every peer
starts from the same weights and freezes what the scheme freezes; one whose losses are not PyTorch's
is refused. A peer that is not installed is a dash: `python benchmarks/peers/install.py` installs
those that are not PyTorch.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from page import processor, table
from peers import PEERS, ROOT
from peers.case import RATE, Case

HERE = Path(__file__).parent
TURNS = 6
PATIENCE = 420  # seconds to wait for a peer's next word
MCUNET = "mcunet_5fps(10)"
MCUNET_FOLDED = "mcunet_5fps(10, folded=True)"
SMALL = "mobilenet_v2(1000, 0.35, dropout=0.0)"
SMALL_FOLDED = "mobilenet_v2(10, 0.35, feature_mix=False, folded=True, dropout=0.0)"


@dataclass(frozen=True)
class Workload:
    make: str  # an expression in whet.models
    pixels: int
    batch: int = 1
    scheme: str = "full"

    @property
    def training(self) -> bool:
        """Batch norm on statistics of the batch: only where everything trains."""
        return self.scheme == "full"


# The last third of the blocks is last-5 of MCUNet and last-6 of MobileNetV2.
WORKLOADS = {
    "mcunet": Workload(MCUNET, 128),
    "mbv2-0.35": Workload(SMALL, 128),
    "mbv2-0.35, batch 8": Workload(SMALL, 128, 8),
    "mbv2": Workload("mobilenet_v2(1000, dropout=0.0)", 224),
    "resnet18": Workload("resnet18(1000)", 224),
    "resnet18, batch 8": Workload("resnet18(1000)", 224, 8),
    "resnet50": Workload("resnet50(1000)", 224),
    "mcunet, last": Workload(MCUNET_FOLDED, 128, 1, "last"),
    "mcunet, bias+last": Workload(MCUNET_FOLDED, 128, 1, "bias+last"),
    "mcunet, last-5": Workload(MCUNET_FOLDED, 128, 1, "last-5"),
    "mcunet, 99 KB": Workload(MCUNET_FOLDED, 128, 1, "mcunet-5fps-99kb"),
    "mbv2-0.35, last": Workload(SMALL_FOLDED, 128, 1, "last"),
    "mbv2-0.35, bias+last": Workload(SMALL_FOLDED, 128, 1, "bias+last"),
    "mbv2-0.35, last-6": Workload(SMALL_FOLDED, 128, 1, "last-6"),
    "mbv2-0.35, 99 KB": Workload(SMALL_FOLDED, 128, 1, "mbv2-w0.35-99kb"),
}

PROXYLESS_FOLDED = "proxyless_nas_mobile(10, 0.3, feature_mix=False, folded=True)"
WORKLOADS_INT8 = {
    "mcunet, 49 KB": Workload(MCUNET_FOLDED, 128, 1, "mcunet-5fps-49kb"),
    "mcunet, 99 KB": WORKLOADS["mcunet, 99 KB"],
    "mbv2-0.35, 49 KB": Workload(SMALL_FOLDED, 128, 1, "mbv2-w0.35-49kb"),
    "mbv2-0.35, 99 KB": WORKLOADS["mbv2-0.35, 99 KB"],
    "proxyless-0.3, 49 KB": Workload(PROXYLESS_FOLDED, 128, 1, "proxyless-w0.3-49kb"),
    "proxyless-0.3, 98 KB": Workload(PROXYLESS_FOLDED, 128, 1, "proxyless-w0.3-98kb"),
}
SETS = {
    "float32": (WORKLOADS, [peer for peer in PEERS if peer != "int8"]),
    "int8": (WORKLOADS_INT8, ["torch", "whet", "int8"]),
}

# Peers that run some workloads only, and why.
LIMITED: dict[str, tuple[Callable[[str], bool], str]] = {
    "compile": (
        lambda name: name in ("mcunet", "resnet18", "mcunet, last-5"),
        "run on three workloads, as it compiles each for minutes",
    ),
    "litert": (
        lambda name: name.endswith(", last"),
        "its interpreter has no gradients of convolutions, so it runs `last` only",
    ),
    "tinygrad": (
        lambda name: name == "mcunet",
        "run on one workload, as it compiles for minutes",
    ),
}


def calibrate(model: Any, x: Any) -> None:
    """Give every convolution of a net without batch norm an output of mean 0 and variance 1.

    As they come, depthwise layers let the signal fade until the loss is log(classes), whatever the
    net computes: comparing losses would show nothing.
    """
    import torch

    def scale(conv: Any, _: Any, y: Any) -> Any:
        deviation, mean = torch.std_mean(y, (0, 2, 3))
        conv.weight /= deviation.reshape(-1, 1, 1, 1)
        conv.bias -= mean
        conv.bias /= deviation
        return (y - mean.reshape(1, -1, 1, 1)) / deviation.reshape(1, -1, 1, 1)

    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    hooks = [module.register_forward_hook(scale) for module in convolutions]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()


def reference(model: Any, trained: Sequence[str], x: Any, y: Any) -> list[float]:
    """PyTorch's loss before and after one update, in double precision.

    In single precision rounding grows with every update: after two of them the change in
    ResNet-50's loss is a tenth off, in PyTorch's own two layouts as well.
    """
    import torch

    model, x = copy.deepcopy(model).double(), x.double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    first = torch.nn.functional.cross_entropy(model(x), y)
    first.backward()
    sgd.step()
    with torch.no_grad():
        second = torch.nn.functional.cross_entropy(model(x), y)
    return [first.item(), second.item()]


def make_case(workload: Workload) -> Case:
    """The network with its first weights, the batch, and PyTorch's first losses."""
    import torch
    from peers.trace import trace

    import whet
    from whet import models

    torch.manual_seed(0)
    model = eval(workload.make, vars(models)).train(workload.training)
    x = torch.randn(workload.batch, 3, workload.pixels, workload.pixels)
    y = torch.arange(workload.batch) % 10
    trained = dict.fromkeys(name for name, _ in model.named_parameters())
    if workload.scheme != "full":
        calibrate(model, torch.randn(8, *x.shape[1:]))
        trained = whet.compile(model, (x,), update=workload.scheme).trained
    partial = any(part is not None for part in trained.values())
    tensors = {name: t.numpy().copy() for name, t in model.state_dict().items()}
    layers = trace(model)
    losses = reference(model, list(trained), x, y)
    words = (workload.make, workload.scheme, workload.training)
    return Case(*words, list(trained), partial, layers, losses, tensors, x.numpy(), y.numpy())


# --- A peer's process -----------------------------------------------------------------------------


@dataclass
class Result:
    """What one peer did on one workload, or why there is nothing."""

    why: str = ""
    times: list[float] = field(default_factory=list)
    peak: int = 0  # KiB
    start: float = 0.0  # seconds from nothing to the first step done
    prepare: float = 0.0  # of these, everything but starting Python and imports
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        return 1e3 * statistics.median(self.times)


Results = dict[str, dict[str, Result]]  # by workload and peer


class Failed(Exception):
    pass


class Worker:
    """A process that trains; what it says goes into its result."""

    def __init__(self, peer: str, case: Case, folder: Path, threads: int, cpu: int) -> None:
        known = PEERS[peer]
        self.case, self.result = case, Result()
        self.same = not (case.partial and known.module == "whet_peer")  # trains what others do
        self.tolerance = 0.2 if known.variant == "int8" else 1e-3
        path = [str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in path if p),
            "OMP_NUM_THREADS": str(threads),
            "NUM_CPU_THREADS": str(threads),  # tinygrad's
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),  # nothing compiled before,
            "XDG_CACHE_HOME": str(folder.parent / "cache"),  # here only by this run
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        words = [known.module, known.variant, str(folder), str(threads), str(cpu)]
        self.log = open(folder / f"{peer}.log", "w+")
        self.process = subprocess.Popen(
            [known.python(), "-m", "peers.worker", *words, str(time.time())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=environment,
        )  # fmt: skip

    def hear(self) -> dict[str, Any]:
        """The next line that the worker says."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Failed(f"silent for {PATIENCE} s")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            last = ["", *self.log.read().strip().splitlines()][-1]
            raise Failed(f"ended with status {self.process.returncode}: {last[:160]}")
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise Failed(said["failed"])
        return said

    def begin(self) -> None:
        said = self.hear()
        check_losses(said["losses"], self.case.losses, self.same, self.tolerance)
        self.result.start, self.result.prepare = said["start"], said["prepare"]

    def turn(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        said = self.hear()
        self.result.times += said["times"]
        self.result.peak = said["peak"]

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.result.facts = facts = self.hear()
        if "bare_loss" in facts:
            check_losses([facts["bare_loss"]], self.case.losses, False, self.tolerance)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def check_losses(
    said: Sequence[float], wanted: Sequence[float], same: bool, tolerance: float
) -> None:
    """The first loss must be PyTorch's, and if the same trains, what one update changes in it."""
    if not math.isclose(said[0], wanted[0], rel_tol=tolerance):
        raise Failed(f"refused: its first loss is {said[0]:.5f}, PyTorch's {wanted[0]:.5f}")
    if same:
        ours, theirs = said[1] - said[0], wanted[1] - wanted[0]
        if not math.isclose(ours, theirs, rel_tol=0.1, abs_tol=1e-6 * wanted[0]):
            words = f"refused: a step changes its loss by {ours:.2e}, PyTorch's by {theirs:.2e}"
            raise Failed(words)


def measure(name: str, asked: argparse.Namespace, folder: Path) -> dict[str, Result]:
    """Get one peer after the other ready, so that start-up is its own, then take turns."""
    case = make_case(SETS[asked.dtype][0][name])
    folder.mkdir()
    case.write(folder)
    results: dict[str, Result] = {}
    workers: dict[str, Worker] = {}

    def attempt(peer: str, action: Callable[[Worker], None]) -> None:
        try:
            action(workers[peer])
        except Failed as failed:
            results[peer] = Result(why=str(failed))
            workers.pop(peer).end()
            print(f"  {PEERS[peer].title}: {failed}", file=sys.stderr, flush=True)

    for peer in asked.only:
        may, why = LIMITED.get(peer, (None, ""))
        if may and not may(name):
            results[peer] = Result(why=why)
            continue
        workers[peer] = Worker(peer, case, folder, asked.threads, asked.cpu)
        results[peer] = workers[peer].result
        attempt(peer, Worker.begin)
    for action in [Worker.turn] * asked.turns + [Worker.finish]:
        for peer in list(workers):
            attempt(peer, action)
    for worker in workers.values():
        worker.end()
    return results


# --- The picture ----------------------------------------------------------------------------------

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


def picture(results: Results, peers: Sequence[str], threads: int) -> str:
    """Bars of the ratio to PyTorch, a group for each workload."""
    from whet.report import svg

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
    command = "python benchmarks/step.py" + (f" --threads {threads}" if threads > 1 else "")

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
    parts += [f"![ratios to PyTorch]({stem(threads)}.svg)\n"]
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
            f"Made by `python benchmarks/step.py --dtype int8` in one run, on {processor()}, "
            f"{count}, medians.",
            "PyTorch trains in float32, and whole weights where the scheme has some channels.\n",
            table(head, rows),
            reasons(results, ["torch", "whet", "int8"]),
        ]
    )


def stem(threads: int, dtype: str = "float32") -> str:
    name = "step" if dtype == "float32" else f"step-{dtype}"
    return name if threads == 1 else f"{name}-{threads}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help="; ".join(WORKLOADS))
    parser.add_argument("--only", default="", help="peers: " + ",".join(PEERS))
    parser.add_argument("--dtype", default="float32", choices=list(SETS), help="what whet trains")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2))
    parser.add_argument("--turns", type=int, default=TURNS, help="half seconds for each peer")
    parser.add_argument("--cpu", type=int, default=0, help="where one thread runs")
    found = parser.parse_args()
    workloads, peers = SETS[found.dtype]
    found.only = found.only.split(",") if found.only else peers
    for given, known in ((found.workloads, workloads), (found.only, PEERS)):
        for name in given:
            if name not in known:
                parser.error(f"there is no {name!r}; there are: {'; '.join(known)}")
    return found


def main() -> None:
    asked = arguments()
    results: Results = {}
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="whet-step-") as root:
        for i, name in enumerate(asked.workloads or SETS[asked.dtype][0]):
            print(f"{name} ({time.time() - began:.0f} s)", file=sys.stderr, flush=True)
            folder = Path(root) / f"{i}"
            results[name] = measure(name, asked, folder)
    int8 = asked.dtype == "int8"
    if int8:
        text = int8_page(results, asked.threads)
    else:
        text = page(results, asked.only, asked.threads)
    print(text)
    if asked.workloads or asked.only != SETS[asked.dtype][1] or asked.turns < TURNS:
        return
    name = stem(asked.threads, asked.dtype)
    (HERE / f"{name}.md").write_text(text)
    if not int8:
        (HERE / f"{name}.svg").write_text(picture(results, asked.only, asked.threads))


if __name__ == "__main__":
    main()
