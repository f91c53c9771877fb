"""`luminal.onnx.export`: a graph, or a module, as an ONNX model."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from onnx import ModelProto, helper

from luminal.base.dtypes import dtype_of, int64
from luminal.base.errors import GraphError, InputError
from luminal.frontend.graph import Recorder
from luminal.frontend.scan import flatten
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import InputAttrs
from luminal.hlir.graph import Assign, Graph, Output
from luminal.hlir.ops import Value
from luminal.loaders.mapped import given_path
from luminal.memory.data import is_array
from luminal.onnx.errors import UnsupportedError
from luminal.onnx.writing.primitives import Block, type_proto
from luminal.onnx.writing.writer import IR_VERSION, OPSET, Writer
from luminal.session.eager import recording
from luminal.session.graph import Graph as LazyGraph


def export(what: Any, path: str | Path | None = None, *inputs: Any) -> ModelProto:
    """Writes a Graph with its outputs, or a module called on `inputs`, as a model of opset 21.

    Of a module, each input is a shape of float32, a pair (shape, dtype), or an array that
    has them; shapes may name dims. Weights and States are written with their present values.
    Returns the model; without a path it is only returned. Raises GraphError where there is nothing
    to compute, UnsupportedError for what ONNX has nothing for.
    """
    if isinstance(what, Recorder):
        if inputs:
            raise InputError("export: a Graph has its inputs; give no others")
        model = model_of(what.graph(), what.name)
    else:
        model = model_of(_recorded(what, inputs), type(what).__name__)
    if path is not None:
        try:
            given_path(path).write_bytes(model.SerializeToString())
        except OSError as error:
            raise InputError(f"export: {path}: cannot be written: {error.strerror}") from None
    return model


def _recorded(module: Any, inputs: tuple[Any, ...]) -> Graph:
    """The graph of a call."""
    graph = LazyGraph(type(module).__name__)
    forward = getattr(module, "forward", module)
    names = [p.name for p in inspect.signature(forward).parameters.values()]
    with recording(graph):
        tensors = [
            graph.tensor(*_type_of(example), name=name)
            for example, name in zip(inputs, names, strict=False)
        ]
        outputs = module(*tensors)
    for number, value in enumerate(flatten(outputs)[0]):
        if not isinstance(value, Tensor):
            raise GraphError(f"export: output {number} is a {type(value).__name__}, no Tensor")
        value.output("output" if number == 0 else f"output{number}")
    return graph.graph()


def _type_of(example: Any) -> tuple[tuple[Any, ...], Any]:
    if is_array(example):
        return tuple(example.shape), dtype_of(example)
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[0], tuple):
        return example
    return tuple(example), None


def model_of(graph: Graph, name: str) -> ModelProto:
    """A frozen graph as a model."""
    if any(isinstance(sink, Assign) for sink in graph.sinks):
        raise UnsupportedError("export: the graph assigns States; make them inputs and outputs")
    outputs = [s for s in graph.sinks if isinstance(s, Output) and not s.hidden]
    if not outputs:
        raise GraphError("export: the graph has no outputs; mark some with .output(name)")
    leaves: list[tuple[str, Value]] = [
        (node.attrs.name, node.value)
        for node in graph.nodes()
        if isinstance(node.attrs, InputAttrs)
    ]
    # A name stands for one value in ONNX (IR.md, "Names Within a Graph"), so an input cannot be an
    # output as well.
    both = {label for label, _ in leaves} & {sink.name for sink in outputs}
    if both:
        raise GraphError(f"export: {sorted(both)} name inputs and outputs; rename one of each")
    taken = [*(label for label, _ in leaves), *(sink.name for sink in outputs)]
    writer = Writer(taken=taken)
    block = Block(writer, _dims(writer, leaves))
    names = block.write([sink.value for sink in outputs])
    # One value may be two outputs, or be an input: an Identity gives each the name that was asked
    # for.
    for written, sink in zip(names, outputs, strict=True):
        writer.nodes.append(helper.make_node("Identity", [written], [sink.name]))
    proto = helper.make_graph(
        writer.nodes,
        name,
        [helper.make_value_info(label, type_proto(value.type)) for label, value in leaves],
        [helper.make_value_info(sink.name, type_proto(sink.value.type)) for sink in outputs],
        writer.initializers,
    )
    return helper.make_model(
        proto,
        producer_name="luminal",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )


def _dims(writer: Writer, leaves: list[tuple[str, Value]]) -> dict[str, str]:
    """For each dim a scalar: the extent of an input that has it."""
    extents: dict[str, str] = {}
    for label, value in leaves:
        for k, n in enumerate(value.shape):
            if n.op == "symbol" and str(n) not in extents:
                extent = writer.op("Shape", label, start=k, end=k + 1)
                extents[str(n)] = writer.cast(writer.op("Squeeze", extent), int64)
    return extents
