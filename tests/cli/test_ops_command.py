"""The table of operators that train says what the operators and the kernel folders do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import whet
from kernel_checks import FLOATS
from whet.cli import app
from whet.cli.ops import FAST, Row, rows
from whet.emit.program import has_kernel
from whet.errors import WhetError
from whet.ir import DType, Graph, Op
from whet.ir.quant import Recipe
from whet.quantize.integer import Quantizer, integer_form
from whet.targets import TARGETS

TABLE = {row.op: row for row in rows()}


def test_every_row_is_an_operator_with_a_gradient() -> None:
    for name, row in TABLE.items():
        assert Op.registry[name].vjp is not Op.vjp
        assert set(row.kernels["float32"]) == set(TARGETS)
    for name in ("linear_dw", "sgd", "conv2d_i8", "requantize", "linear_bf16", "gt"):
        assert name in Op.registry and name not in TABLE


def files_of(name: str) -> set[str]:
    """The kernel files that samples of an operator on floats are computed by."""
    found = set()
    for sample in (s for s in FLOATS if s.op.name == name and not s.long):
        node = sample.nodes()[0][0]
        call = node.op.call(node)
        if call is not None and node.out.type.dtype is DType.F32:
            found.add(call.source)
    return {file for file in found if has_kernel("ref", file)}  # others are choices of a pass


@pytest.mark.parametrize("name", TABLE)
def test_kernels_are_in_the_folder_that_a_program_takes_them_from(name: str) -> None:
    """The first folder of a target that has the file: this is what `Program` writes."""
    files = files_of(name)
    assert files or Op.registry[name].view, "there is a sample of it"
    for target in TARGETS.values():
        kind = TABLE[name].kernels["float32"][target.name]
        folders = [next(f for f in target.isa if has_kernel(f, file)) for file in files]
        assert kind in {FAST.get(folder, "C") for folder in folders} or kind == "view"


def test_the_quantizer_has_a_rule_for_what_has_a_form() -> None:
    quantizer = Quantizer(Graph("none", (), (), ()), Recipe({}, {}), whet.Int8())
    forms = {op for op in Op.registry.values() if integer_form(op) is not None}
    others = {op for op in forms if op.integer or op.moves or op.limits is not Op.limits}
    assert quantizer.rules.keys() == forms - others


def test_known_cells() -> None:
    assert TABLE["linear"].kernels["bf16"] == {
        name: "vector" if name in ("host", "wasm") else "C" for name in TARGETS
    }
    assert [op for op, row in TABLE.items() if "bf16" in row.kernels] == ["linear"]
    assert TABLE["conv2d"].kernels["int8"]["cortex-m4"] == "DSP"
    assert TABLE["conv2d"].kernels["float32"]["cortex-m4"] == "C"
    assert TABLE["relu"].kernels["int8"]["host"] == "vector", "requantize does it"
    assert TABLE["reshape"].kernels["float32"]["portable"] == "view"
    assert "int8" not in TABLE["softmax"].kernels


def printed(*words: str) -> Any:
    return CliRunner().invoke(app, ["ops", *words])


def test_the_command_prints_the_table() -> None:
    lines = printed().stdout.splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == list(TABLE)
    found = [Row(**row) for row in json.loads(printed("conv", "--json").stdout)]
    assert found == [row for name, row in TABLE.items() if "conv" in name] and len(found) == 2
    error = printed("convolve").exception
    assert isinstance(error, WhetError) and "has 'convolve' in its name" in str(error)
