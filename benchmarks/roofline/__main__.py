"""How near a step comes to what the machine can do, and which layers lose the most.

    python -m benchmarks.roofline                 every workload; writes README.md
    python -m benchmarks.roofline mcunet          some of them; prints, and writes nothing

The machine's peak (fused multiply-adds of one thread) and its bandwidths are measured first. The
roof of a step is the sum over its convolutions, matrix products and their gradients of the larger
of operations / peak and bytes / bandwidth, everything element-wise fused away: no program can
be faster that computes every product. One that needs fewer products can: Winograd's method takes
16 for 36, so a layer may be above the roof. Bytes come from the cache if weights and arena
together are below 24 MB, else from memory. Times are medians of each line of the C program, one
thread.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import whet
from benchmarks.step.workloads import WORKLOADS
from whet.ir import Node

PAGE = Path(__file__).with_name("README.md")
FLAGS = "-O3 -march=native -ffp-contract=fast".split()
CACHED = 24 << 20

MACHINE_C = r"""
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "whet_lanes.h"
typedef float vec_t __attribute__((vector_size(4 * WHET_LANES)));
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
static double peak(void) {
    double best = 1e9;
    volatile float seed = 1.0f;
#define START(i) vec_t s##i = (vec_t){0.0f} + seed;
#define ADD(i) s##i = s##i * a + b;
    const vec_t a = (vec_t){0.0f} + seed * 0.5f, b = (vec_t){0.0f} + seed;
    EACH(START)
    for (int round = 0; round < 20; round++) {
        const double start = now();
        for (int i = 0; i < 1000000; i++) { EACH(ADD) }
        const double time = now() - start;
        if (time < best) best = time;
    }
#define KEEP(i) seed = s##i[0];
    EACH(KEEP)
    return 1e6 * 12 * 2 * WHET_LANES / best;
}
/* Bytes per second of reading `size` bytes, which were read before. */
static double reading(size_t size) {
    vec_t *x = aligned_alloc(64, size), sum[8] = {{0.0f}};
    double best = 1e9;
    volatile float sink;
    const size_t n = size / sizeof *x;
    for (size_t i = 0; i < n; i++) x[i] = (vec_t){0.0f} + (float)i;
    for (int round = 0; round < 10; round++) {
        const double start = now();
        for (size_t i = 0; i + 8 <= n; i += 8)
            for (size_t k = 0; k < 8; k++) sum[k] += x[i + k];
        const double time = now() - start;
        if (time < best) best = time;
    }
    for (int k = 0; k < 8; k++) sink = sum[k][0];
    (void)sink;
    free(x);
    return (double)size / best;
}
int main(void) {
    printf("%e %e %e\n", peak(), reading((size_t)4 << 20), reading((size_t)256 << 20));
    return 0;
}
"""

PROFILE_C = r"""
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>
#include "model.h"
void tick(int line);
static net_t net;
static net_input_t input[NET_INPUT_ELEMENTS];
static net_label_t label[NET_LABEL_ELEMENTS];
static double last, times[LINES][STEPS];
static int step;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
void tick(int line) {
    times[line][step] = now() - last;
    last = now();
}
int main(void) {
    unsigned word = 1;
    float loss;
    for (size_t i = 0; i < NET_INPUT_ELEMENTS; i++) {
        word = word * 1664525u + 1013904223u;
        input[i] = (float)(word >> 8) / 8388608.0f - 1.0f;
    }
    net_init(&net);
    for (int i = -2; i < STEPS; i++) {
        step = i < 0 ? 0 : i;
        last = now();
        if (net_train_step(&net, input, label, 1e-4f, &loss) != NET_OK) return 1;
    }
    for (int i = 0; i < LINES; i++) {
        for (int k = 0; k < STEPS; k++) printf("%e ", times[i][k]);
        printf("\n");
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Limits:
    peak: float  # operations per second
    cache: float  # bytes per second
    memory: float


@dataclass(frozen=True)
class Line:
    """A kernel call of the step: seconds it takes, and at least would."""

    node: Node
    time: float
    roof: float

    @property
    def name(self) -> str:
        updates = self.node.op.name.startswith("dw_")  # and has no module of its own
        module = self.node.ins[0].name.removesuffix(".weight") if updates else self.node.loc.module
        return f"{self.node.op.name} {module or self.node.out.name}"


def measure_machine(folder: Path) -> Limits:
    lanes = Path(whet.__file__).parent / "kernels" / "vec"
    (folder / "machine.c").write_text(MACHINE_C)
    command = ["cc", *FLAGS, f"-I{lanes}", "machine.c", "-o", "machine"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./machine"], cwd=folder, check=True, capture_output=True, text=True)
    return Limits(*map(float, done.stdout.split()))


def compile_workload(name: str) -> whet.Program:
    import torch

    from whet import models

    torch.manual_seed(0)
    workload = WORKLOADS[name]
    model = eval(workload.make, vars(models)).train(workload.training)
    x = torch.randn(workload.batch, 3, workload.pixels, workload.pixels)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
    return whet.compile(model, (x,), optimizer=sgd, update=workload.scheme)


def with_ticks(source: str) -> str:
    """model.c with a call of tick behind every kernel call of the training step."""
    before, rest = source.split(" train_step(", 1)
    body, after = rest.split("\n}\n", 1)
    lines = iter(range(1_000_000))
    ticked = re.sub(
        r"^(    whet_\w+\([^;]*\);)$",
        lambda m: f"{m[1]}\n    tick({next(lines)});",
        body,
        flags=re.M,
    )
    return f"void tick(int line);\n{before} train_step({ticked}\n}}\n{after}"


def profile(program: whet.Program, folder: Path, limits: Limits, steps: int) -> list[Line]:
    program.write(folder)
    nodes = [n for n in program.entries["train_step"].nodes if n.op.call(n) is not None]
    model = folder / "model.c"
    model.write_text(with_ticks(model.read_text()))
    (folder / "profile.c").write_text(PROFILE_C)
    kernels = [str(p.relative_to(folder)) for p in sorted(folder.glob("kernels/*.c"))]
    defines = [f"-DLINES={len(nodes)}", f"-DSTEPS={steps}"]
    sources = ["profile.c", "model.c", "weights.c", *kernels, "-lm", "-pthread", "-o", "profile"]
    command = ["cc", *FLAGS, *defines, "-I.", "-Ikernels", *sources]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./profile"], cwd=folder, check=True, capture_output=True, text=True)
    times = [statistics.median(map(float, line.split())) for line in done.stdout.splitlines()]
    near = program.memory["ram"] < CACHED
    bandwidth = limits.cache if near else limits.memory
    return [
        Line(node, time, roof(node, limits.peak, bandwidth))
        for node, time in zip(nodes, times, strict=True)
    ]


def roof(node: Node, peak: float, bandwidth: float) -> float:
    """Seconds that the products of a node take at least; 0 for what has none."""
    macs = node.op.macs(node)
    traffic = sum(v.type.bytes for v in (*node.ins, *node.outs))
    return max(2 * macs / peak, traffic / bandwidth) if macs else 0.0


def why(line: Line) -> str:
    """The reason for the loss, as far as the sizes tell."""
    node = line.node
    macs = node.op.macs(node)
    traffic = sum(v.type.bytes for v in (*node.ins, *node.outs))
    if not macs:
        return f"no products: a walk over {traffic / 1e6:.1f} MB, which the roof leaves out"
    weights = max((v.type.bytes for v in node.ins if v.name.endswith("weight")), default=0)
    if node.op.name.startswith("dw_") and macs < node.ins[0].type.elements * 16:
        return f"{node.ins[0].type.bytes / 1e6:.1f} MB of weights, read and written, for few rows"
    if "depthwise" in node.op.name:
        return f"{macs / traffic * 4:.0f} products per number moved: bound by loads and stores"
    if 2 * weights > traffic:
        return f"{weights / 1e6:.1f} MB of weights, out of the cache, for few pixels"
    return f"{macs / traffic * 4:.0f} products per number moved ({traffic / 1e6:.1f} MB)"


def report(name: str, limits: Limits) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        steps = 5 if "resnet" in name else 25
        program = compile_workload(name)
        lines = profile(program, Path(folder), limits, steps)
    total, bound = sum(line.time for line in lines), sum(line.roof for line in lines)
    print(f"{name}: {1e3 * total:.2f} ms, {100 * bound / total:.0f} % of the roof", flush=True)
    worst = sorted(lines, key=lambda line: line.roof - line.time)[:3]
    rows = [f"| {name} | {1e3 * total:.1f} | {1e3 * bound:.1f} | {100 * bound / total:.0f} % | "]
    for i, line in enumerate(worst):
        lead = rows.pop() if i == 0 else "| | | | | "
        cell = f"{line.name}: {1e3 * line.time:.2f} ms, roof {1e3 * line.roof:.2f}"
        rows.append(f"{lead}{cell} | {why(line)} |")
        print(f"    {cell}: {why(line)}")
    return rows


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limits = measure_machine(Path(folder))
    machine = (
        f"Peak {limits.peak / 1e9:.0f} GFLOP/s; reads {limits.cache / 1e9:.0f} GB/s from the cache"
        f" (4 MB), {limits.memory / 1e9:.0f} GB/s from memory (256 MB); one thread."
    )
    print(machine)
    rows = [row for name in names or WORKLOADS for row in report(name, limits)]
    if not names:
        page = ["# How near a step comes to the machine", "",
                "Made by `python -m benchmarks.roofline`, which says what the roof is. Winograd's",
                "method needs fewer products than the roof counts: ResNets may be above it.", "",
                machine, "",
                "| one step | ms | roof, ms | reached | the three that lose most | why |",
                "|---|--:|--:|--:|---|---|", *rows]  # fmt: skip
        PAGE.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in WORKLOADS]
    if unknown:
        raise SystemExit(f"no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}")
    main(sys.argv[1:])
