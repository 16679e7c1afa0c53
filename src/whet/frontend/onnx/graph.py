"""Graphs of ONNX as records: nodes with their attributes as Python values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, numpy_helper

from ...errors import FrontendError
from ...ir import Array

Part = TypeVar("Part", bound=Message)


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
    if proto.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
        raise FrontendError(
            f"attribute {proto.name!r} is a sparse tensor, which whet does not know"
        )
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


def parts(message: Message, kind: type[Part]) -> Iterator[Part]:
    """Every message of this kind in a message, wherever it is; tensors have no parts."""
    if isinstance(message, kind):
        yield message
    if isinstance(message, onnx.TensorProto):
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in (value,) if isinstance(value, Message) else value:
                yield from parts(part, kind)


def tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Every tensor: of graphs, of functions, of attributes, of sparse tensors, of training."""
    return parts(message, onnx.TensorProto)


def array_of(proto: onnx.TensorProto) -> Array:
    if proto.data_location == onnx.TensorProto.EXTERNAL:  # onnx would look in the current folder
        raise FrontendError(f"the numbers of tensor {proto.name!r} are not in the file")
    try:
        return numpy_helper.to_array(proto)
    except Exception as error:
        raise FrontendError(
            f"the numbers of tensor {proto.name!r} cannot be read", why=str(error)
        ) from error
