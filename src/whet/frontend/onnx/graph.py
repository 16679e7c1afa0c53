"""Graphs of ONNX as records: nodes with their attributes as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx
from onnx import AttributeProto, numpy_helper

from ...errors import FrontendError
from ...ir import Array


@dataclass(frozen=True, eq=False)
class Node:
    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    version: int  # of the operator set of its domain
    proto: onnx.NodeProto

    @property
    def place(self) -> str:
        """Where it is in the file, for messages."""
        return f"{self.op} {self.name or '-> ' + ', '.join(self.outputs)}"


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: dict[str, Array]


def plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def graph_of(proto: onnx.GraphProto, versions: dict[str, int]) -> OnnxGraph:
    constants = {t.name: array_of(t) for t in proto.initializer}
    return OnnxGraph(
        inputs=tuple(i.name for i in proto.input if i.name not in constants),
        outputs=tuple(o.name for o in proto.output),
        nodes=tuple(node_of(n, versions) for n in proto.node),
        constants=constants,
    )


def node_of(proto: onnx.NodeProto, versions: dict[str, int]) -> Node:
    domain = plain_domain(proto.domain)
    return Node(
        op=proto.op_type,
        domain=domain,
        name=proto.name,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={a.name: attribute(a, versions) for a in proto.attribute},
        version=versions.get(domain, 1),
        proto=proto,
    )


def attribute(proto: AttributeProto, versions: dict[str, int]) -> Any:
    if proto.type == AttributeProto.GRAPH:
        return graph_of(proto.g, versions)
    if proto.type == AttributeProto.TENSOR:
        return array_of(proto.t)
    if proto.type == AttributeProto.STRING:
        return proto.s.decode(errors="replace")
    if proto.type == AttributeProto.STRINGS:
        return [s.decode(errors="replace") for s in proto.strings]
    found = onnx.helper.get_attribute_value(proto)
    return list(found) if isinstance(found, (list, tuple)) or hasattr(found, "extend") else found


def array_of(proto: onnx.TensorProto) -> Array:
    try:
        return numpy_helper.to_array(proto)
    except Exception as error:
        raise FrontendError(
            f"the numbers of tensor {proto.name!r} cannot be read", why=str(error)
        ) from error
