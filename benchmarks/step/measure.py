"""Peers in processes of their own, which take turns."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common.turns import Failed, Turns
from benchmarks.step.peers import PEERS, ROOT
from benchmarks.step.peers.case import Case
from benchmarks.step.workloads import WORKLOADS, WORKLOADS_INT8, make_case

PATIENCE = 420  # seconds to wait for a peer's next word
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


class Worker(Turns):
    """A process that trains; what it says goes into its result."""

    def __init__(self, peer: str, case: Case, folder: Path, threads: int, cpu: int) -> None:
        known = PEERS[peer]
        self.case, self.result = case, Result()
        self.same = not (case.partial and known.module == "whet_peer")  # trains what others do
        self.tolerance = 0.2 if known.variant == "int8" else 1e-3
        path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {
            "PYTHONPATH": os.pathsep.join(p for p in path if p),
            "OMP_NUM_THREADS": str(threads),
            "NUM_CPU_THREADS": str(threads),  # tinygrad's
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),  # nothing compiled before,
            "XDG_CACHE_HOME": str(folder.parent / "cache"),  # here only by this run
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        words = [known.module, known.variant, str(folder), str(threads), str(cpu)]
        command = [known.python(), "-m", "benchmarks.step.peers.worker", *words, str(time.time())]
        super().__init__(command, environment, folder / f"{peer}.log", PATIENCE)

    def begin(self) -> None:
        said = self.hear()
        check_losses(said["losses"], self.case.losses, self.same, self.tolerance)
        self.result.start, self.result.prepare = said["start"], said["prepare"]

    def time(self) -> None:
        said = self.turn()
        self.result.times += said["times"]
        self.result.peak = said["peak"]

    def tell(self) -> None:
        """The facts that it says at its end."""
        self.finish()
        self.result.facts = facts = self.hear()
        if "bare_loss" in facts:
            check_losses([facts["bare_loss"]], self.case.losses, False, self.tolerance)
        self.process.wait()


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
    for action in [Worker.time] * asked.turns + [Worker.tell]:
        for peer in list(workers):
            attempt(peer, action)
    for worker in workers.values():
        worker.end()
    return results
