"""Compute the outputs of a graph: what is known by onnx's reference, the rest by PyTorch."""

from __future__ import annotations

import warnings
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from ...errors import FrontendError, UnsupportedOps, WhetError
from ..torch.interpreted import Interpreted
from .graph import Node, OnnxGraph
from .rows import ROWS, Call, Value, check_known, is_known, operands, tensor
from .sizes import check_size, check_total, count

Env = MutableMapping[str, Value]
MOST_TURNED = 100_000  # nodes of bodies, each counted in every turn
GRAPHS = ("If", "Loop", "Scan")  # their bodies see the values around them
RANDOM = (
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
)  # fmt: skip


class OnnxWalk:
    """A graph that `Interpreted` runs."""

    def __init__(self, graph: OnnxGraph, outputs: tuple[str, ...], kept: frozenset[str]) -> None:
        self.graph, self.outputs = graph, outputs
        self.kept = kept  # constants that are tensors of the module
        self.needed = needed(graph, outputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxWalk:
        return self

    def doubled(self, module: Interpreted) -> bool:
        """Whether the tensors of the file are floats, and those of the module were made doubles."""
        single = (n for n in self.kept if self.graph.constants[n].dtype == np.float32)
        return any(module.tensor(name).dtype == torch.float64 for name in single)

    def __call__(self, module: Interpreted, inputs: Sequence[Tensor]) -> Any:
        run = Run(module, frozenset(self.graph.inputs), self.doubled(module))
        env: Env = {
            name: module.tensor(name) if name in self.kept else array
            for name, array in self.graph.constants.items()
        }
        env.update(zip(self.graph.inputs, inputs, strict=True))
        run.nodes(self.needed, env)
        found = tuple(outwards(env[name]) for name in self.outputs)
        return found[0] if len(found) == 1 else found


def outwards(value: Value) -> Any:
    return [outwards(v) for v in value] if isinstance(value, list) else tensor(value)


def needed(graph: OnnxGraph, outputs: Sequence[str]) -> tuple[Node, ...]:
    """The nodes that these outputs depend on."""
    wanted, found = set(outputs), []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            found.append(node)
            wanted.update(reads(node))
    return tuple(reversed(found))


def reads(node: Node) -> set[str]:
    """What a node reads, the values that its inner graphs take from around it too."""
    names = set(node.inputs)
    for value in node.attributes.values():
        if isinstance(value, OnnxGraph):
            names.update(value.outputs)
            for inner in value.nodes:
                names |= reads(inner)
    return names


class Run:
    def __init__(self, module: Interpreted, inputs: frozenset[str], double: bool) -> None:
        self.module, self.inputs, self.double = module, inputs, double
        self.turned = 0  # nodes of bodies that were computed
        self.known = 0.0  # elements of values that were computed beforehand

    def graph(self, graph: OnnxGraph, inputs: Sequence[Value], around: Env) -> list[Value]:
        """The outputs of the body of an If, a Loop or a Scan."""
        env: Env = ChainMap({}, around)
        env.update(graph.constants)
        env.update(zip(graph.inputs, inputs, strict=True))
        body = needed(graph, graph.outputs)
        self.turned += 1 + len(body)
        if self.turned > MOST_TURNED:
            raise FrontendError(
                "the loops of the file are too long",
                why=f"they compute more than {MOST_TURNED:,} nodes",
            )
        self.nodes(body, env)
        return [env[name] for name in graph.outputs]

    def nodes(self, nodes: Sequence[Node], env: Env) -> None:
        for node in nodes:
            try:
                results = self.node(node, env)
            except WhetError:
                raise
            except RecursionError:
                raise
            except Exception as error:
                raise failed(node, error) from error
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    env[name] = value

    def node(self, node: Node, env: Env) -> Sequence[Value]:
        values = [env[name] if name else None for name in node.inputs]
        row = ROWS.get((node.domain, node.op))
        call = Call(node, self)
        if node.op in GRAPHS and row is not None:
            return row.compute(call, env, *values)
        if row is not None:
            check_known(row, node, values)
        check_size(node, values, self.double)
        if all(map(is_known, values)) and not (row and row.from_known) and node.op not in RANDOM:
            found = by_reference(node, values, row is not None)
            if found is not None:
                if node.inputs:  # a constant is no larger than the file
                    self.known += sum(map(count, found))
                check_total(node, self.known)
                return found
        if row is None:
            raise UnsupportedOps(f"whet has no row for {node.op} of ONNX", at=node.place)
        found = row.compute(call, *operands(row, call, values))
        return found if isinstance(found, tuple) else (found,)


def failed(node: Node, error: Exception) -> FrontendError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = lines[0] if lines else "no message"
    what = f"{node.op} of ONNX cannot be computed with these operands"
    return FrontendError(what, at=node.place, why=f"{type(error).__name__}: {why}"[:300])


def by_reference(node: Node, values: Sequence[Value], row: bool) -> Sequence[Value] | None:
    """The results of a node whose operands are all known.

    None if the reference, which lacks some older forms, cannot compute them and a row may.
    """
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(values)]
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:]
    proto.input.extend(names)
    outputs = [name for name in node.outputs if name]
    opsets = [onnx.helper.make_opsetid(node.domain, node.version)]
    function = onnx.helper.make_function(
        "whet", "known", [n for n in names if n], outputs, [proto], opsets
    )
    feeds = {name: value for name, value in zip(names, values, strict=True) if name}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = ReferenceEvaluator(function).run(None, feeds, attributes={})
        except Exception:
            if row:
                return None
            raise
    by_name = dict(zip(outputs, results, strict=True))
    return [by_name.get(name) for name in node.outputs]
