"""One peer in its own process: get ready, then run steps for a turn whenever a line comes in.

python -m benchmarks.step.peers.worker MODULE VARIANT CASE-FOLDER THREADS CPU STARTED

What it says, it says in lines of JSON on what was standard output; compilers may chat on the rest.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.common.process import high_water

TURN = 0.5  # seconds
SLOW = 3.0  # seconds a step; there is no time for more


def main(module: str, variant: str, folder: str, threads: int, cpu: int, started: float) -> None:
    if threads == 1:
        os.sched_setaffinity(0, {cpu})
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**facts: object) -> None:
        print(json.dumps(facts), file=out, flush=True)

    try:
        peer = importlib.import_module(f"benchmarks.step.peers.{module}")
        from benchmarks.step.peers.case import Case

        imported = time.time()
        run = peer.prepare(Case.read(Path(folder)), threads, variant)
        losses = [float(run())]
        first = time.time()
        losses.append(float(run()))
        start = time.time()
        losses.append(float(run()))
        if (slow := time.time() - start) > SLOW:
            raise RuntimeError(f"a step takes {slow:.1f} s")
    except ModuleNotFoundError as error:
        say(failed=f"not installed (there is no module {error.name})")
        raise
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        say(failed=f"{type(error).__name__}: {words[0]}"[:200])
        raise
    say(losses=losses, start=first - started, prepare=first - imported)
    for _ in sys.stdin:
        times: list[float] = []
        until = time.perf_counter() + TURN
        while not times or time.perf_counter() < until:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        say(times=times, peak=high_water("self"))
    say(**(run.facts() if hasattr(run, "facts") else {}))


if __name__ == "__main__":
    name, kind, case = sys.argv[1:4]
    main(name, kind, case, int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
