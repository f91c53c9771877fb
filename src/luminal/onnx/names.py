"""What a name stands for must be one thing: the rule that ONNX's graphs are in static single
assignment form, and that functions do not call themselves. And a name must be a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from luminal.base.errors import LoadError
from luminal.loaders.shown import shown
from luminal.onnx.budget import DEPTH


def check_names(proto: ModelProto, model: str) -> None:
    """Raises LoadError for a name that is given twice in one graph or is no text, and for functions
    that call themselves.
    """
    _check_graph(proto.graph, model)
    for function in proto.functions:
        _texts((function.name, function.domain, *function.input, *function.output), model)
        _once(function.input, f"{model}: function {function.name!r}", "two inputs")
        names = {*function.input}
        _check_nodes(function.node, names, f"{model}: function {function.name!r}")
    _check_calls({(body.domain, body.name): body for body in proto.functions}, model)


def _check_graph(graph: GraphProto, where: str) -> None:
    inputs = [entry.name for entry in graph.input]
    _texts((*inputs, *(entry.name for entry in graph.output)), where)
    # An initializer may have the name of an input, whose default it then is: names are unique among
    # each kind only (before IR version 4 every initializer had to be an input as well).
    initial = [entry.name for entry in graph.initializer]
    initial += [entry.values.name for entry in graph.sparse_initializer]
    _texts(initial, where)
    _once(inputs, where, "two inputs")
    _once(initial, where, "two initializers")
    _check_nodes(graph.node, {*inputs, *initial}, where)


def _check_nodes(nodes: Iterable[NodeProto], names: set[str], where: str) -> None:
    for node in nodes:
        _texts((node.name, node.op_type, node.domain, *node.input, *node.output), where)
        _texts((attribute.name for attribute in node.attribute), where)
        # An empty name is an output that nobody takes, and there may be several.
        for name in filter(None, node.output):
            if name in names:
                raise LoadError(
                    f"{where}: {name!r} is an output of {node.op_type} and made before; "
                    "a name stands for one value"
                )
            names.add(name)
        for graph in _graphs(node):
            _check_graph(graph, where)


def _all(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """The nodes and those of their branches and bodies."""
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from _all(graph.node)


def count_nodes(proto: ModelProto) -> int:
    """The nodes in the file, each once: those of functions and bodies too."""
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    return sum(1 for nodes in bodies for _ in _all(nodes))


def _graphs(node: NodeProto) -> Iterable[GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH)


def _texts(names: Iterable[str], where: str) -> None:
    """The message gives what is no UTF-8 as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise LoadError(f"{where}: the name {shown(name)} is no UTF-8; the file is damaged")


def _once(names: Iterable[str], where: str, what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise LoadError(f"{where}: {what} have the name {name!r}; the file is damaged")
        seen.add(name)


def _check_calls(functions: Mapping[tuple[str, str], FunctionProto], model: str) -> None:
    """Goes down the calls of functions, which must end soon."""
    done: set[tuple[str, str]] = set()

    def go_down(key: tuple[str, str], above: tuple[tuple[str, str], ...]) -> None:
        if key in above:
            raise LoadError(f"{model}: the function {key[1]!r} calls itself; the file is damaged")
        if key in done or key not in functions:
            return
        if len(above) > DEPTH:
            raise LoadError(
                f"{model}: the function {key[1]!r} is called through more than {DEPTH} others, one "
                "within the other; inline them"
            )
        for node in _all(functions[key].node):
            go_down((node.domain, node.op_type), (*above, key))
        done.add(key)

    for key in functions:
        go_down(key, ())
