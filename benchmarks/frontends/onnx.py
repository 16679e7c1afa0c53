"""ONNX: models of timm and transformers through an ONNX file, with their gradients.

`python -m benchmarks.frontends.onnx` measures what is missing in onnx.jsonl.gz and writes
README.md; names of models may follow, and `--page` only writes the page.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.page import table, wrapped
from benchmarks.common.results import append, read
from benchmarks.frontends.exported import OTHERS, PICTURES, build, export

RESULTS, PAGE = (Path(__file__).with_name(name) for name in ("onnx.jsonl.gz", "README.md"))
STEPS = 3
NEWER = {"test_vit", "test_resnet", "test_convnext", "Bert", "Llama", "GPT2"}  # by both exporters


def cases() -> list[tuple[str, bool]]:
    names = [*PICTURES, *OTHERS]
    return [(name, False) for name in names] + [(name, True) for name in names if name in NEWER]


def measure(name: str, newer: bool) -> dict[str, Any]:
    """How far outputs, gradients and some steps are from those of PyTorch."""
    import whet
    from whet.models import from_onnx

    start = time.perf_counter()
    model, x = build(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model, x, path, newer)
        read_model = from_onnx(path)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    with torch.no_grad():
        wanted = model(x)
        output = ((read_model(x) - wanted).abs().max() / wanted.abs().max()).item()
    same, original = against_the_original(model, read_model, x)
    optimizer = torch.optim.SGD(read_model.parameters(), lr=1e-3, momentum=0.9)
    program = whet.compile(read_model, (x,), optimizer=optimizer, accumulate=True)
    report = program.check(STEPS)
    return dict(
        name=name, newer=newer, bytes=size, output=output, same=same, original=original,
        tensors=len(list(read_model.parameters())), gradients=report.worst_gradient[1],
        steps=report.worst_parameter[1], seconds=time.perf_counter() - start,
    )  # fmt: skip


def against_the_original(
    model: torch.nn.Module, other: torch.nn.Module, x: torch.Tensor
) -> tuple[int, float]:
    """Gradients of the tensors that have the same name and numbers before and after the file."""
    labels, found = torch.tensor([1, 2]), []
    for each in (model, other):
        torch.nn.functional.cross_entropy(each(x), labels).backward()
        found.append({n: p for n, p in each.named_parameters() if p.grad is not None})
    first, second = found
    names = [n for n in first if n in second and torch.equal(first[n], second[n])]
    mine, theirs = ({n: p[n].grad for n in names} for p in found)
    largest = max((mine[n].abs().max().item() for n in names), default=1.0)
    errors = [(mine[n] - theirs[n]).abs().max().item() for n in names]
    return len(names), max(errors, default=0.0) / largest


def page(records: list[dict[str, Any]]) -> str:
    worst = max(r["gradients"] for r in records)
    words = dict(count=len(records), models=len({r["name"] for r in records}), worst=f"{worst:.0e}")
    rows = [
        [
            f"`{r['name']}`" + (", newer exporter" if r["newer"] else ""),
            f"{r['output']:.0e}",
            f"{r['tensors']}",
            f"{r['gradients']:.0e}",
            f"{r['steps']:.0e}",
            f"{r['original']:.0e} ({r['same']})",
        ]
        for r in records
    ]
    head = ["model", "output", "tensors", "gradients", f"{STEPS} steps", "original (tensors)"]
    return "\n".join(
        ["# Front ends\n", wrapped(TEXT, **words), table(head, rows), wrapped(COLUMNS)]
    )


TEXT = """
{models} models of `timm` and `transformers`, written to {count} ONNX files by `torch.onnx.export`
and read by `whet.models.from_onnx`. Pictures are 64 x 64, texts have 16 tokens, weights are
random. The worst gradient of all differs by {worst} from PyTorch's. `python -m
benchmarks.frontends.onnx` measures this; it takes some minutes.
"""
COLUMNS = """
All figures are the largest difference relative to the largest number of a tensor. *Output*: the
model that was read, against the one that was written. *Gradients* and *steps*: the compiled C
program against PyTorch with the model that was read, by `program.check()`. *Original*: gradients
of PyTorch with the model that was read, against those with the model that was written, for the
tensors that have the same name and numbers in both, relative to the largest gradient. An exporter
folds batch norms into convolutions and transposes weights of linear layers, which then have others.
"""


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    done = {(r["name"], r["newer"]) for r in read(RESULTS)}
    names = [a for a in arguments if not a.startswith("-")]
    for name, newer in cases() if "--page" not in arguments else ():
        if (name, newer) in done or (names and name not in names):
            continue
        try:
            record = measure(name, newer)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:600]}", file=sys.stderr)
            continue
        append(RESULTS, record)
        print(record, flush=True)
    PAGE.write_text(page(read(RESULTS)))


if __name__ == "__main__":
    main(sys.argv[1:])
