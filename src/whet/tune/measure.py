"""Measure this machine once, for the cost model that chooses kernels."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from ..emit.program import headers_of, kernel_file
from ..errors import BuildError
from ..passes.machine import BLOCKS, Machine
from ..runtime.build import STRICT, find_compiler, run
from ..targets import HOST

ISA = HOST.isa
SOURCES = ("conv2d", "matmul", "outer", "threads", "winograd")
TIMES = ("direct", "winograd", "large")
RUNS = 3
QUIET = 0.2  # noise of a machine that does little else
PATIENCE = 300  # seconds
LEAST_WAKE = 1000.0  # nanoseconds; a clock that is read twice is not much finer


def tune() -> tuple[Machine, float]:
    """Build a small program from the kernels, run it, and solve for the model's coefficients.

    It is built with blocks of each height: the coefficients are those of the fastest one. The
    second result is how noisy the measurement was, see `noise`.
    """
    runs = {rows: measure(rows) for rows in BLOCKS}
    found = {rows: middle(several) for rows, several in runs.items()}
    rows = min(BLOCKS, key=lambda rows: found[rows]["direct"])
    machine = replace(solve(found[rows]), rows=rows, lanes=int(found[rows]["lanes"]))
    return machine, statistics.median(noise(several) for several in runs.values())


def middle(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def noise(runs: Sequence[dict[str, float]]) -> float:
    """By how much times were above the quickest: of rounds within a run, or of whole runs."""
    within = statistics.median(run["noise"] for run in runs)
    between = [max(run[key] for run in runs) / min(run[key] for run in runs) - 1 for key in TIMES]
    return max(within, *between)


def measure(rows: int) -> list[dict[str, float]]:
    """Nanoseconds of some runs, with so many rows in a block; see tune.c."""
    with tempfile.TemporaryDirectory(prefix="whet-") as name:
        folder = Path(name)
        main = resources.files("whet") / "kernels" / "main" / "tune.c"
        (folder / "tune.c").write_text(main.read_text())
        texts = {f"{source}.c": kernel_file(ISA, f"{source}.c") for source in SOURCES}
        for file, text in (texts | headers_of(ISA, [main.read_text(), *texts.values()])).items():
            (folder / file).write_text(text)
        sources = ["tune.c", *(f"{s}.c" for s in SOURCES)]
        flags = (*STRICT, *HOST.flags, f"-DWHET_TUNED_ROWS={rows}")
        run([*find_compiler(), *flags, *sources, *HOST.libraries, "-o", "tune"], folder)
        try:
            runs = [
                subprocess.run(
                    ["./tune"], cwd=folder, capture_output=True, text=True, check=True,
                    timeout=PATIENCE,
                )
                for _ in range(RUNS)
            ]  # fmt: skip
        except subprocess.SubprocessError as error:
            raise BuildError(
                "the program that measures this machine failed",
                why=str(error),
                try_="compile as you are: the defaults do for most machines",
            ) from error
    return [json.loads(run.stdout) for run in runs]


def solve(found: dict[str, float]) -> Machine:
    """Coefficients from the measured nanoseconds; see tune.c for what they are of.

    128 channels at 28x28 pixels give 196 tiles and weights that stay in the cache; 512 channels
    at 7x7 give 16 tiles and weights that do not.
    """
    macs = 784 * 9 * 128 * 128 / found["direct"]
    products = 196 * 16 * 128 * 128 / macs
    moved = 16 * 196 * 256 + 16 * 128 * 128
    near = max(found["winograd"] - products, 0.01 * found["winograd"]) / moved
    rest = found["large"] - 16 * 16 * 512 * 512 / macs - near * 16 * 16 * 1024
    far = max(rest / (16 * 512 * 512), near)
    wake = max(found["wake"], LEAST_WAKE) if found["wake"] else Machine().wake
    return replace(Machine(), macs=macs, near=near, far=far, wake=wake, tuned=True)
