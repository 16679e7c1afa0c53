"""ONNX's own node tests, judged: each is right, wrong, or refused by an error of whet.

A float test has a float32 array among its inputs and one among its outputs, in sequences and
optional values too, and is not the same test with functions expanded. Operands that a row needs to
know are initializers; all other inputs are given when the module runs.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from whet.errors import WhetError
from whet.frontend.onnx import file, load
from whet.frontend.onnx.rows import ROWS, is_known, tensor

ATOL = 1e-6  # expected values are of float32 arithmetic themselves: zeros may be 2e-7


@dataclass(frozen=True)
class Verdict:
    name: str
    op: str
    kind: str  # right, wrong, refused, crashed
    why: str = ""


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
    elif isinstance(value, np.ndarray):
        yield value


def has_floats(values: Any) -> bool:
    return any(array.dtype == np.float32 for array in arrays(list(values)))


@functools.cache
def float_tests() -> list[Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    return [case for case in cases if is_float_test(case)]


def is_float_test(case: Any) -> bool:
    return "_expanded" not in case.name and any(
        has_floats(given) and has_floats(wanted) for given, wanted in case.data_sets
    )


# One module of onnx's tests, and the operator of its cases, for each module of rows.
FAMILIES = {
    "rotaryembedding": "RotaryEmbedding", "conv": "Conv", "relu": "Relu",
    "negativeloglikelihoodloss": "NegativeLogLikelihoodLoss", "pad": "Pad",
    "meanvariancenormalization": "MeanVarianceNormalization", "maxpool": "MaxPool",
    "gru": "GRU", "reducesum": "ReduceSum", "upsample": "Upsample", "gridsample": "GridSample",
    "dft": "DFT",
}  # fmt: skip


def a_test_of_each_family() -> list[Any]:
    """Without the other modules, which take seconds to make their arrays."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for module in FAMILIES:
            importlib.import_module(f"{node.__name__}.{module}")
    found: dict[str, Any] = {}
    for case in node._NodeTestCases:
        op = case.model.graph.node[-1].op_type
        if op in FAMILIES.values() and is_float_test(case):
            found.setdefault(op, case)
    return list(found.values())


def with_constants(case: Any, given: list[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with what its rows need to know as initializers, and the inputs that are left."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given = [np.asarray(x) if isinstance(x, np.generic) else x for x in given]
    known = set()
    for node in model.graph.node:
        row = ROWS.get((node.domain, node.op_type))
        for i, name in enumerate(node.input):
            if row is None or i in row.known:
                known.add(name)
    left = []
    for value, info in zip(given, list(case.model.graph.input), strict=True):
        whole = isinstance(value, np.ndarray) and (
            info.name in known and (value.dtype != np.float32 or in_row(model, info.name))
        )
        if whole:
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            left.append(value)
    return model, left


def in_row(model: onnx.ModelProto, name: str) -> bool:
    """Whether a row says that it must know this operand."""
    for node in model.graph.node:
        row = ROWS.get((node.domain, node.op_type))
        if row and any(n == name and i in row.known for i, n in enumerate(node.input)):
            return True
    return False


def judge(case: Any) -> Verdict:
    op = case.model.graph.node[-1].op_type if case.model.graph.node else ""
    for given, wanted in case.data_sets:
        try:
            model, left = with_constants(case, list(given))
            place = Path(case.name)
            module = load.module_of(file.parse(model.SerializeToString(), place), place)
            with torch.no_grad():
                found = module(*map(tensor, left))
        except WhetError as error:
            return Verdict(case.name, op, "refused", str(error))
        except Exception as error:
            return Verdict(case.name, op, "crashed", f"{type(error).__name__}: {error}")
        single = not isinstance(found, tuple)
        why = difference([found] if single else list(found), list(wanted), case)
        if why:
            return Verdict(case.name, op, "wrong", why)
    return Verdict(case.name, op, "right")


def difference(found: Any, wanted: Any, case: Any) -> str:
    """What is different; "" if nothing is."""
    if isinstance(wanted, (list, tuple)):
        if len(found) != len(wanted):
            return f"{len(found)} results, not {len(wanted)}"
        return next(
            (w for f, x in zip(found, wanted, strict=True) if (w := difference(f, x, case))), ""
        )
    if wanted is None or isinstance(wanted, str):
        return ""
    mine = found if is_known(found) else found.detach().cpu().numpy()
    mine, wanted = np.asarray(mine), np.asarray(wanted)
    if mine.dtype != wanted.dtype or mine.shape != wanted.shape:
        return f"{mine.dtype}{mine.shape}, not {wanted.dtype}{wanted.shape}"
    try:
        np.testing.assert_allclose(mine, wanted, rtol=case.rtol, atol=max(case.atol, ATOL))
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def verdicts() -> list[Verdict]:
    return [judge(case) for case in float_tests()]
