"""The page of the distillation study, from made-up records."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common.results import append
from benchmarks.compress.distillation import (
    METHODS,
    STUDENT,
    TEACHER,
    Cell,
    asdict,
    kept,
    network,
    page,
    plain,
)

RECORD = {"teacher": 91.0, "parameters": [1000, 9000], "seconds": 1}


def record(method: str, seed: int, accuracy: float) -> dict[str, object]:
    return {**asdict(Cell(method, seed)), **RECORD, "accuracy": [1.0, accuracy]}


def test_gains_are_paired_by_seed() -> None:
    records = [record("alone", s, a) for s, a in enumerate((80.0, 82.0, 81.0))]
    records += [record("logits", s, a) for s, a in enumerate((81.0, 83.0, 82.0))]
    records += [record("attention", 1, 79.5), {**record("attention", 1, 83.0), "scale": 0.1}]
    text = page(records)
    assert "| alone | 3 | 81.00 ± 1.00 |  |" in text
    assert "| logits | 3 | 82.00 ± 1.00 | +1.00 ± 0.00 |" in text
    assert "| attention | 1 | 79.50 | -2.50 |" in text
    assert "| attention, 0.1 of the weight | 1 | 83.00 | +1.00 |" in text
    assert "CIFAR-10: percent" in text and "(1,000 parameters)" in text


def test_the_layers_that_are_compared_exist() -> None:
    student, teacher = network(STUDENT, 0), network(TEACHER, 0)
    ours, theirs = (
        dict(m.named_modules()) | dict(m.named_parameters()) for m in (student, teacher)
    )
    for _, terms in METHODS.values():
        for term in terms:
            assert term.layer in ours and term.source in theirs


def test_records_without_a_scale_have_that_of_one(tmp_path: Path) -> None:
    path, old = tmp_path / "results.jsonl.gz", record("logits", 0, 81.0)
    del old["scale"]
    append(path, old)
    (known,) = kept(path)
    assert asdict(Cell("logits", 0)).items() <= plain(known).items()
    assert "| logits | 1 | 81.00 |" in page([known])
