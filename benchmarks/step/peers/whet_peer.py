"""whet: the program in this process, through its Trainer; and as a bare C program."""

from __future__ import annotations

import inspect
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import whet
from benchmarks.common.process import high_water
from whet.runtime.trainer import accept

from .case import RATE, Case
from .torch_peer import build


class Step:
    """The compiled program, loaded into this process."""

    def __init__(self, case: Case, threads: int, variant: str) -> None:
        model = build(case).requires_grad_()
        sgd = torch.optim.SGD(model.parameters(), lr=RATE)
        x = torch.from_numpy(case.x)
        start = time.perf_counter()
        numbers: dict[str, Any] = {"dtype": "int8", "calibrate": [x]} if variant == "int8" else {}
        self.portable = variant == "portable"
        self.program = whet.compile(
            model, (x,), optimizer=sgd, update=case.scheme, portable=self.portable, **numbers
        )
        self.compile = time.perf_counter() - start
        can = inspect.signature(self.program.load).parameters
        options: dict[str, Any] = {"threads": threads} if "threads" in can else {}
        self.trainer = self.program.load(**options)
        tensors = self.program.tensors
        quant = self.program.quants.get("input")
        self.feed = {"input": accept(case.x, tensors["input"], "input", quant)}
        self.feed["label"] = accept(case.y, tensors["label"], "label")

    def __call__(self) -> float:
        return float(self.trainer._run("train_step", self.feed, {"lr": None})[0])

    def facts(self) -> dict[str, float]:
        """What only whet has to tell."""
        if self.portable:
            return {}
        library = Path(self.trainer._library._name).stat().st_size
        own = {"compile": self.compile, "library": library}
        return {**own, **self.program.memory, **self.bare()}

    def bare(self) -> dict[str, float]:
        """Build from nothing, first step and peak resident KiB of the C program by itself.

        It reads batches from a pipe, and waits there for the rest of a third one while we look.
        """
        batch = self.feed["input"].tobytes() + self.feed["label"].tobytes()
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            self.program.write(folder)
            subprocess.run(["make", "-s", "-C", folder], check=True)
            build = time.perf_counter() - start
            pipe = f"{folder}/data"
            os.mkfifo(pipe)
            start = time.perf_counter()
            command = [f"{folder}/{self.program.name}", pipe, "3"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                with open(pipe, "wb") as data:
                    data.write(batch)
                    data.flush()
                    line = next(line for line in process.stdout if line.startswith("step"))
                    first = time.perf_counter() - start
                    data.write(batch + batch[:-1])
                    data.flush()
                    peak = high_water(process.pid)
                    process.kill()
        loss = float(line.split()[3])
        return {"build": build, "bare_loss": loss, "bare_first": first, "bare_peak": peak}


def prepare(case: Case, threads: int, variant: str) -> Step:
    torch.set_num_threads(threads)
    return Step(case, threads, variant)
