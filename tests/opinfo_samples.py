"""PyTorch's own sample inputs (its OpInfo database) for every operator whet claims.

A sample is left out only for one of the reasons listed here, and how many were is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree

from torch_oracle import Case, flat, real

CLAIMED = """
""".split()


def title(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


OPS: dict[str, OpInfo] = {title(op): op for op in op_db}


@dataclass
class Found:
    cases: list[Case] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def cases(name: str) -> Found:
    op, found = OPS[name], Found()
    torch.manual_seed(0)
    grad = op.supports_autograd
    dtype = next(t for t in (torch.float32, torch.bool, torch.int64) if op.supports_dtype(t, "cpu"))
    for k, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        settled = settle(as_case(f"{name}-{k}", op, sample, k))
        if isinstance(settled, Case):
            found.cases.append(settled)
        else:
            found.skip(settled)
    return found


def as_case(name: str, op: OpInfo, sample: SampleInput, k: int) -> Case:
    """Operands take turns at being inputs, parameters and constants."""
    flat, spec = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]

    def f(*tensors: torch.Tensor) -> Any:
        values = list(flat)
        for i, tensor in zip(places, tensors, strict=True):
            values[i] = tensor
        first, args, kwargs = _pytree.tree_unflatten(values, spec)
        return op.op(first, *args, **kwargs)

    tensors = tuple(flat[i] for i in places)
    kinds = ""
    for tensor in tensors:
        if tensor.requires_grad:
            kinds += "p" if k % 2 or "i" in kinds else "i"
        else:
            kinds += "d" if k % 2 else "c"
    return Case(name, f, tensors, kinds)


def settle(case: Case) -> Case | str:
    """The case with the tensors it changes marked as states, or why it is left out."""
    if any(t.is_complex() for t in case.tensors):
        return "complex numbers"
    results = []
    for seed in (1, 2):
        given = [real(t, torch.float64) for t in case.tensors]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            results.append(flat(case.f(*given)))
    if any(t.numel() == 0 for t in (*case.tensors, *results[0])):
        return "a tensor without elements"
    if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*results, strict=True)):
        return "random numbers"
    changed = [not torch.equal(real(t, g.dtype), g) for t, g in zip(case.tensors, given, strict=True)]
    kinds = "".join("s" if c else k for c, k in zip(changed, case.kinds, strict=True))
    return replace(case, kinds=kinds)
