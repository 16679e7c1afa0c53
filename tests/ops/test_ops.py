"""Every operator against PyTorch: values, gradients and next states.

In NumPy with double precision to 1e-9, and by the C kernels in single precision to 1e-5 (see
torch_oracle). The samples are our own, chosen for corners and layouts, and PyTorch's.
How many (operator, sample) pairs were compared is printed at the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import op_samples
import opinfo_samples
from sampling import placed
from torch_oracle import Case, Verdict, check
from whet.errors import FrontendError

Record = Any
# Random numbers are whet's own, not PyTorch's: test_training compares them with the reference bit
# for bit. Rounding to int8 is for int8 programs alone: frontend/test_onnx.py. The last two compute
# nothing.
ELSEWHERE = {
    "fake_quantize_per_tensor_affine.default",
    "native_dropout.default", "bernoulli.p", "rand.default", "rand_like.default",
    "_assert_tensor_metadata.default", "lift_fresh_copy.default",
}  # fmt: skip
BATCH = 60  # cases exported together


def judge(cases: Sequence[Case], record: Record) -> list[Verdict]:
    verdicts = [v for i in range(0, len(cases), BATCH) for v in check(cases[i : i + BATCH])]
    verdicts = [clearly_refused(v) for v in verdicts]
    refused = [v for v in verdicts if v.unsupported]
    record("pairs", len(verdicts) - len(refused))
    record("refused", len(refused))
    wrong = [f"{v.case.name} ({v.case.kinds}): {v.problem}" for v in verdicts if v.problem]
    assert not wrong, f"{len(wrong)} of {len(verdicts)} differ:\n" + "\n".join(wrong[:20])
    return verdicts


def clearly_refused(v: Verdict) -> Verdict:
    """A shape that depends on the values of a tensor gets an error of its own."""
    if isinstance(v.problem, FrontendError):
        return Verdict(v.case, unsupported=str(v.problem))
    return v


@pytest.mark.parametrize("family", op_samples.FAMILIES)
def test_our_samples(family: str, record_property: Record) -> None:
    """Each as it is, and every second with its operands held in another way, taken in turn."""
    cases = []
    for i, case in enumerate(op_samples.family(family)):
        as_it_is, *ways = placed(case)
        cases += [as_it_is] if i % 2 else [as_it_is, ways[i // 2 % len(ways)]]
    our_samples(cases, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("family", op_samples.FAMILIES)
def test_our_samples_in_every_way(family: str, record_property: Record) -> None:
    cases = [way for case in op_samples.family(family) for way in placed(case)]
    our_samples(cases, record_property)


def our_samples(cases: Sequence[Case], record: Record) -> None:
    verdicts = judge(cases, record)
    refused = {v.case.name: v.unsupported for v in verdicts if v.unsupported}
    assert not refused, f"whet refuses samples of its own operators: {refused}"


def pytorch_samples(names: Sequence[str], most: int | None, record: Record) -> None:
    cases = []
    for name in names:
        found = opinfo_samples.cases(name)
        for reason, count in found.skipped.items():
            record("left out", [reason, count])
        if most is None or len(found.cases) <= most:
            cases += found.cases
        else:
            cases += [found.cases[i * len(found.cases) // most] for i in range(most)]
    verdicts = judge(cases, record)
    if most is None:
        assert any(not v.unsupported for v in verdicts), f"{names}: every sample refused"


SIDE_BY_SIDE = [
    opinfo_samples.CLAIMED[i : i + BATCH // 2]
    for i in range(0, len(opinfo_samples.CLAIMED), BATCH // 2)
]


@pytest.mark.parametrize("names", SIDE_BY_SIDE, ids=lambda n: f"{n[0]} to {n[-1]}")
def test_some_of_pytorchs_samples(names: Sequence[str], record_property: Record) -> None:
    """Two of every operator, with those of its neighbours in one export."""
    pytorch_samples(names, 2, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", opinfo_samples.CLAIMED)
def test_all_of_pytorchs_samples(name: str, record_property: Record) -> None:
    pytorch_samples([name], None, record_property)


def test_every_handler_has_a_sample() -> None:
    """A sample names the handler it is for, and that it was called is part of its check."""
    from whet.frontend.torch import aten  # noqa: F401
    from whet.frontend.torch.importer import HANDLERS

    sampled = {case.handler for name in op_samples.FAMILIES for case in op_samples.family(name)}
    missing = [h for h in HANDLERS if h not in sampled and h not in ELSEWHERE]
    assert missing == [], f"no sample for aten.{', aten.'.join(missing)}"
