"""An ONNX file becomes a PyTorch module."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner

from ...errors import FrontendError, UnsupportedOps
from ...ir import Array
from ...ir.quant import Recipe
from ..torch.interpreted import Input, Interpreted
from . import ops as _register_rows  # noqa: F401
from .file import first_lines, read
from .graph import Node, OnnxGraph, graph_of, parts, plain_domain
from .integers import is_grid, weight_scales, with_float_weights, with_grids
from .rows import ROWS, TYPES, tensor
from .walk import OnnxWalk, needed

# Operands that are statistics of data and not trained.
STATISTICS = {"BatchNormalization": (3, 4)}
LARGEST = 1e30  # of a weight
FIXED = {"QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "RotaryEmbedding": (1, 2)}


def from_onnx(path: str | os.PathLike[str], *, outputs: Sequence[str] = ()) -> Interpreted:
    """The model of an ONNX file as a PyTorch module, in eval mode.

    Its float weights are parameters, named by their path in the file. `model.example(batch)` makes
    inputs of the shapes in the file. `outputs` names the outputs to keep, if not all; several are
    a tuple.
    """
    return module_of(read(path), Path(path), outputs)


def module_of(model: onnx.ModelProto, place: Path, outputs: Sequence[str] = ()) -> Interpreted:
    model = inlined(model, place)
    versions = {plain_domain(opset.domain): opset.version for opset in model.opset_import}
    graph = graph_of(model.graph, versions)
    if model.graph.sparse_initializer:
        raise FrontendError(f"{place} has sparse tensors, which whet does not know")
    wanted = chosen(graph, outputs, place)
    nodes = needed(graph, wanted)
    refuse_unknown(nodes)
    graph, stored = with_float_weights(replace(graph, nodes=nodes))
    graph = with_grids(graph)
    graph = replace(graph, nodes=needed(graph, wanted))
    trained, kept = sorted_constants(graph)
    walk = OnnxWalk(graph, wanted, frozenset({*trained, *kept}))
    found = Interpreted(
        walk,
        inputs_of(model.graph, graph),
        {name: tensor(graph.constants[name]) for name in trained},
        {name: tensor(graph.constants[name]) for name in kept},
        paths_of(graph, [*trained, *kept]),
    )
    if stored or any(is_grid(node) for node in graph.nodes):
        scales = weight_scales(graph, {name: stored[name] for name in trained if name in stored})
        recipe = Recipe(weights={found.paths[name]: scale for name, scale in scales.items()})
        object.__setattr__(found, "whet_recipe", recipe)
    return found.eval()


def inlined(model: onnx.ModelProto, place: Path) -> onnx.ModelProto:
    """With the functions of the file, and of operators that have no row, in their place."""
    known = {(domain, op) for domain, op in ROWS}
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model, True)
        if all(
            (plain_domain(n.domain), n.op_type) in known for n in parts(model.graph, onnx.NodeProto)
        ):
            return model
        listed = [(d or alias, op) for d, op in known for alias in ("", "ai.onnx") if d or alias]
        listed += [("", op) for d, op in known if not d]
        return onnx.inliner.inline_selected_functions(model, listed, True, True)
    except Exception as error:
        raise FrontendError(
            f"the functions of {place} cannot be put in place", why=first_lines(error)
        ) from error


def inside(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                yield from inside(value.nodes)


def refuse_unknown(nodes: Sequence[Node]) -> None:
    """Say all operators at once that have no row; those without operands are constants."""
    missing: dict[str, Node] = {}
    for node in inside(nodes):
        if (node.domain, node.op) not in ROWS and not folds(node):
            missing.setdefault(f"{node.domain}.{node.op}".lstrip("."), node)
    if missing:
        raise UnsupportedOps(
            f"whet does not know {len(missing)} operators of this ONNX file: "
            + ", ".join(sorted(missing)),
            at=[node.place for node in list(missing.values())[:5]],
            try_="docs/onnx.md lists the operators",
        )


# Operators that are only ever computed at compile time, by onnx's reference.
FOLDED = {
    "Constant", "ConstantOfShape", "Range", "NonZero", "SequenceEmpty", "HannWindow",
    "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "Unique", "NonMaxSuppression",
}  # fmt: skip


def folds(node: Node) -> bool:
    return node.domain == "" and node.op in FOLDED


def chosen(graph: OnnxGraph, outputs: Sequence[str], place: Path) -> tuple[str, ...]:
    wanted = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in wanted:
        if name not in graph.outputs:
            raise FrontendError(
                f"{place} has no output {name!r}", why="it has " + ", ".join(graph.outputs)
            )
    return wanted or graph.outputs


def sorted_constants(graph: OnnxGraph) -> tuple[list[str], list[str]]:
    """The constants that train, and those that are statistics; all others are known numbers.

    A float tensor with at least one axis trains, unless an operator needs to know it, or uses it
    as a scale of integers. What inner graphs read is known, too, and so are masks: tensors with
    infinities, or with numbers near them.
    """
    trained: list[str] = []
    kept: list[str] = []
    uses = uses_of(graph)
    for name, array in graph.constants.items():
        if not is_float(array) or not array.ndim or not array.size or not uses[name]:
            continue
        if any(fixed(node, i) for node, i in uses[name]) or not np.abs(array).max() < LARGEST:
            continue
        statistics = any(i in STATISTICS.get(node.op, ()) for node, i in uses[name])
        (kept if statistics else trained).append(name)
    return trained, kept


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def uses_of(graph: OnnxGraph) -> dict[str, list[tuple[Node, int]]]:
    found: dict[str, list[tuple[Node, int]]] = defaultdict(list)
    for node in graph.nodes:
        for i, name in enumerate(node.inputs):
            found[name].append((node, i))
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                for inner in inside(value.nodes):
                    for name in inner.inputs:
                        found[name].append((node, -1))
    return found


def fixed(node: Node, i: int) -> bool:
    """Whether this operand has to be known, or is no weight."""
    if i < 0 or (node.op in FIXED and i in FIXED[node.op]):
        return True
    found = ROWS.get((node.domain, node.op))
    if found is None:
        return True
    either = i in found.either and node.op in ("Clip", "Pow")
    return i in found.known or either


def inputs_of(proto: onnx.GraphProto, graph: OnnxGraph) -> list[Input]:
    declared = {value.name: value for value in proto.input}
    return [input_of(declared[name], graph) for name in graph.inputs]


def input_of(value: onnx.ValueInfoProto, graph: OnnxGraph) -> Input:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or kind.elem_type not in TYPES:
        raise FrontendError(
            f"input {value.name!r} is not a tensor of numbers", why=str(value.type)[:80]
        )
    sizes: list[int | str | None] = []
    for size in kind.shape.dim if kind.HasField("shape") else ():
        if size.HasField("dim_value"):
            if size.dim_value < 0:
                raise FrontendError(f"input {value.name!r} has a size of {size.dim_value}")
            sizes.append(size.dim_value)
        else:
            sizes.append(size.dim_param or None)
    return Input(value.name, TYPES[kind.elem_type], tuple(sizes), ids_below(value.name, graph))


def ids_below(name: str, graph: OnnxGraph) -> int | None:
    """How many lines the table has that is read by these ids."""
    same = {name}
    for node in graph.nodes:
        if node.op in ("Cast", "Identity", "Reshape") and node.inputs[0] in same:
            same.add(node.outputs[0])
    counts = [
        graph.constants[node.inputs[0]].shape[node.attributes.get("axis", 0)]
        for node in graph.nodes
        if node.op == "Gather" and node.inputs[1] in same and node.inputs[0] in graph.constants
    ]
    return min(counts, default=None)


# What the operands of these operators are called in PyTorch.
OPERANDS = {"Conv": ("", "weight", "bias"), "ConvTranspose": ("", "weight", "bias"),
            "Gemm": ("", "weight", "bias"), "MatMul": ("weight", "weight"),
            "Add": ("bias", "bias")}  # fmt: skip


def paths_of(graph: OnnxGraph, names: Sequence[str]) -> dict[str, str]:
    """Readable paths for tensors to which an exporter gave a number: those of the node's name."""
    uses, found = uses_of(graph), {}
    for name in names:
        node, i = uses[name][0]
        if not name.startswith("onnx::") or "/" not in node.name:
            continue
        *path, last = [part for part in node.name.split("/") if part]
        operands = OPERANDS.get(node.op, ())
        leaf = operands[i] if i < len(operands) else f"{last}_{i}"
        found[name] = ".".join([*path, leaf])
    return found
