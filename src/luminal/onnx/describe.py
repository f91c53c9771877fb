"""What a model is made of, for a reader: operators, inputs and outputs, bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnx import GraphProto, helper

from luminal.base.records import dataclass
from luminal.onnx.model import Model, type_text


@dataclass(frozen=True, slots=True)
class Description:
    """A model's parts: names with types, how many nodes of each operator, bytes of weights."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    opsets: dict[str, int]
    operators: Counter[str]
    weights: int
    bytes: int


def describe(model: Model) -> Description:
    """Counts what the model holds; graphs inside of nodes count too."""
    proto = model.proto
    graphs = list(_graphs(proto.graph))
    operators = Counter(node.op_type for graph in graphs for node in graph.node)
    operators.update(node.op_type for function in proto.functions for node in function.node)
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    return Description(
        {entry.name: type_text(entry.type) for entry in proto.graph.input},
        {entry.name: type_text(entry.type) for entry in proto.graph.output},
        {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        operators,
        len(tensors),
        sum(_bytes(tensor.data_type, list(tensor.dims)) for tensor in tensors),
    )


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _bytes(kind: int, dims: list[int]) -> int:
    count = 1
    for n in dims:
        count *= max(n, 0)
    try:
        size = helper.tensor_dtype_to_np_dtype(kind).itemsize
    except KeyError:
        size = 1
    return count * size
