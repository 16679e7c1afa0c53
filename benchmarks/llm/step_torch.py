"""PyTorch's side of the step study: one process, which takes turns as `turn.c` does.

python -m benchmarks.llm.step_torch PEER FOLDER WORKLOAD THREADS
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common.process import high_water
from benchmarks.llm.peers import ALPHA, PEERS, RANK, RATE
from benchmarks.llm.workloads import WORKLOADS, Workload

TURN = 0.5  # seconds


def loaded(workload: Workload, folder: Path) -> nn.Module:
    """One parameter after the other, so that there is one copy of the weights."""
    model = workload.model(None)
    with np.load(folder / "weights.npz") as arrays, torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name]))
    return model


class Adapted(nn.Module):
    """LoRA beside a layer that is frozen, as peft computes it without dropout."""

    def __init__(self, layer: nn.Module, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.layer = layer
        self.lora_A = nn.Linear(fan_in, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, fan_out, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + self.lora_B(self.lora_A(x)) * (ALPHA / RANK)
        return found


def adapt(model: nn.Module, targets: tuple[str, ...]) -> str:
    """Put LoRA into the model, and say whose it is."""
    model.requires_grad_(False)
    try:
        import benchmarks.llm.hugging  # noqa: F401  # peft imports transformers, this knows how

        import peft  # isort: skip
    except ImportError:
        named = [(n, m) for n, m in model.named_modules() if n.rpartition(".")[2] in targets]
        for name, layer in named:
            shape = tuple(layer.weight.shape)
            fan_in, fan_out = shape if type(layer).__name__ == "Conv1D" else shape[::-1]
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, Adapted(layer, fan_in, fan_out))
        return "by hand"
    config = peft.LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=list(targets))
    peft.inject_adapter_in_model(config, model)
    return f"peft {peft.__version__}"


def prepare(peer: str, workload: Workload, folder: Path) -> tuple[Callable[[], float], str]:
    known, facts = PEERS[peer], ""
    model = loaded(workload, folder)
    if known.group == "lora":
        facts = adapt(model, workload.targets)
    elif known.group == "blocks":
        names = set(json.loads((folder / "blocks.json").read_text()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in names)
    trained = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(trained, lr=RATE, fused=known.options.get("fused", False))
    x, y = workload.batch()
    if known.options.get("compile"):
        model.compile()

    def step() -> float:
        adam.zero_grad()
        loss = workload.loss(model(x), y)
        loss.backward()
        adam.step()
        return loss.item()

    return step, facts


def main(peer: str, folder: str, name: str, threads: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers may chat

    def say(**facts: object) -> None:
        print(json.dumps(facts), file=out, flush=True)

    torch.set_num_threads(int(threads))
    try:
        step, facts = prepare(peer, WORKLOADS[name], Path(folder))
        losses = [step() for _ in range(3)]
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        say(failed=f"{type(error).__name__}: {words[0]}"[:200])
        raise
    say(losses=losses, lora=facts)
    for _ in sys.stdin:
        times: list[tuple[float, float]] = []
        until = time.perf_counter() + TURN
        while not times or time.perf_counter() < until:
            wall, used = time.perf_counter(), time.process_time()
            step()
            times.append((time.perf_counter() - wall, time.process_time() - used))
        say(times=times, peak=high_water("self"))


if __name__ == "__main__":
    main(*sys.argv[1:])
