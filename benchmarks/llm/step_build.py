"""Make what a process of the step study needs, in a folder, and end: its memory is given back.

python -m benchmarks.llm.step_build weights FOLDER WORKLOAD [GGUF]    weights.npz, for PyTorch
python -m benchmarks.llm.step_build PEER FOLDER WORKLOAD [GGUF]       PEER/net, and its facts
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import whet
from benchmarks.llm.peers import PEERS, RATE
from benchmarks.llm.workloads import WORKLOADS, Workload
from whet.runtime.trainer import accept

DRIVER = Path(__file__).with_name("turn.c")


def weights(workload: Workload, folder: Path, gguf: Path | None) -> None:
    model = workload.model(gguf)
    np.savez(folder / "weights.npz", **{n: p.detach().numpy() for n, p in model.named_parameters()})


def program(peer: str, workload: Workload, folder: Path, gguf: Path | None) -> None:
    place = folder / peer
    place.mkdir()
    model, (x, y) = workload.model(gguf), workload.batch()
    start = time.perf_counter()
    made = whet.compile(
        model, (x,), loss=workload.loss, labels=y, update=PEERS[peer].scheme,
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE), **PEERS[peer].options,
    )  # fmt: skip
    compiled = time.perf_counter()
    made.write(place)
    (place / "main.c").write_text(DRIVER.read_text())
    subprocess.run(["make", "-s", "-C", str(place), made.name], check=True)
    built = time.perf_counter()
    arrays = (accept(v.numpy(), made.tensors[n], n) for n, v in (("input", x), ("label", y)))
    (place / "batch.bin").write_bytes(b"".join(array.tobytes() for array in arrays))
    facts = {
        **made.memory, "compile": compiled - start, "build": built - compiled,
        "stored": made.in_bytes, "names": list(made.trained),
    }  # fmt: skip
    (place / "facts.json").write_text(json.dumps(facts))


def main(what: str, folder: str, name: str, gguf: str = "") -> None:
    torch.set_num_threads(1)
    workload, file = WORKLOADS[name], Path(gguf) if gguf else None
    if what == "weights":
        weights(workload, Path(folder), file)
    else:
        program(what, workload, Path(folder), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
