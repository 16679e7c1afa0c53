"""Time of one training step against PyTorch, in one interleaved run.

    python benchmarks/step.py                     every workload; writes benchmarks/step.md
    python benchmarks/step.py mcunet resnet18     some of them

Each peer runs in a process of its own, with one thread, and they take turns of half a second, so
that a busy machine slows all of them. Figures are medians, and ratios to PyTorch eager with
channels last. A step is forward, loss, backward and plain SGD on a batch that is in memory, in the
layout the peer likes. PyTorch freezes what the scheme freezes; a weight of which some channels
train it trains whole, as it cannot do otherwise, so that it does more work there than whet.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TURNS, TURN = 8, 0.5  # how often a peer runs, and for how many seconds


@dataclass(frozen=True)
class Workload:
    make: str  # an expression in `models`
    pixels: int
    batch: int = 1
    scheme: str = "full"
    train: bool = True  # batch statistics; everything but a full update freezes them


WORKLOADS = {
    "mcunet": Workload("mcunet_5fps(10)", 128),
    "mbv2-0.35": Workload("mobilenet_v2(1000, 0.35, dropout=0.0)", 128),
    "mbv2-0.35, batch 8": Workload("mobilenet_v2(1000, 0.35, dropout=0.0)", 128, 8),
    "mbv2": Workload("mobilenet_v2(1000, dropout=0.0)", 224),
    "resnet18": Workload("resnet18(1000)", 224),
    "resnet18, batch 8": Workload("resnet18(1000)", 224, 8),
    "resnet50": Workload("resnet50(1000)", 224),
    "mcunet, last": Workload("mcunet_5fps(10, folded=True)", 128, 1, "last", False),
    "mcunet, bias+last": Workload("mcunet_5fps(10, folded=True)", 128, 1, "bias+last", False),
    "mcunet, last-5": Workload("mcunet_5fps(10, folded=True)", 128, 1, "last-5", False),
    "mcunet, 99 KB": Workload("mcunet_5fps(10, folded=True)", 128, 1, "mcunet-5fps-99kb", False),
}
PEERS = ("PyTorch", "PyTorch NCHW", "whet", "whet portable")


# --- One peer, in its own process -----------------------------------------------------------------


def worker(peer: str, workload: Workload) -> None:
    """Get ready, then run steps for a turn whenever a line comes in."""
    import torch

    from whet import models

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = eval(workload.make, vars(models)).train(workload.train)
    x = torch.randn(workload.batch, 3, workload.pixels, workload.pixels)
    y = torch.arange(workload.batch) % 10
    step = whet_step if peer.startswith("whet") else eager_step
    run = step(peer, workload, model, x, y)
    for _ in range(3):
        run()
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        until = time.perf_counter() + TURN
        while time.perf_counter() < until:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def whet_step(peer: str, workload: Workload, model, x, y) -> Callable[[], object]:  # type: ignore[no-untyped-def]
    import torch

    import whet
    from whet.runtime.trainer import accept

    sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
    portable = peer.endswith("portable")
    program = whet.compile(model, (x,), optimizer=sgd, update=workload.scheme, portable=portable)
    trainer = program.load()
    tensors = program.tensors
    feed = {"input": accept(x, tensors["input"], "input")}
    feed["label"] = accept(y, tensors["label"], "label")
    return lambda: trainer._run("train_step", feed, {"lr": None})


def eager_step(peer: str, workload: Workload, model, x, y) -> Callable[[], object]:  # type: ignore[no-untyped-def]
    import torch

    import whet

    sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
    trained = whet.compile(model, (x,), optimizer=sgd, update=workload.scheme).trained
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    layout = torch.contiguous_format if "NCHW" in peer else torch.channels_last
    model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def run() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run


# --- All peers in turns ---------------------------------------------------------------------------


def measure(name: str) -> dict[str, float]:
    """Median milliseconds of each peer."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = {
        peer: subprocess.Popen(
            [sys.executable, __file__, "--worker", peer, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for peer in PEERS
    }  # fmt: skip
    times: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for process in processes.values():
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for _ in range(TURNS):
        for peer, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            times[peer] += json.loads(process.stdout.readline())
    for process in processes.values():
        process.communicate()
    return {peer: 1e3 * statistics.median(found) for peer, found in times.items()}


def main(names: list[str]) -> None:
    head = ["one step, one thread", *(f"{peer}, ms" for peer in PEERS), "whet / PyTorch"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for name in names or WORKLOADS:
        medians = measure(name)
        cells = [f"{medians[peer]:.1f}" for peer in PEERS]
        ratio = f"{medians['whet'] / medians['PyTorch']:.2f}"
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
        print(lines[-1], flush=True)
    if not names:
        page = "# Time of a step, measured\n\nMade by `python benchmarks/step.py`, in one run.\n\n"
        page += (
            "Where a scheme trains some channels of a weight (99 KB), PyTorch trains it whole.\n\n"
        )
        (Path(__file__).parent / "step.md").write_text(page + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], WORKLOADS[sys.argv[3]])
    else:
        unknown = [name for name in sys.argv[1:] if name not in WORKLOADS]
        if unknown:
            raise SystemExit(f"no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}")
        main(sys.argv[1:])
