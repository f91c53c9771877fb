"""Checks of HLIR's own invariants; run between steps, always on in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.base.errors import GraphError, LuminalError, VerifyError
from luminal.hlir.attributes import (
    ConstantAttrs,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    MarkAttrs,
    ScatterAttrs,
    Shape,
    ViewAttrs,
)
from luminal.hlir.graph import Assign, Graph, check_sinks, topological
from luminal.hlir.ops import OPS, Node, Value, infer
from luminal.hlir.printer import Printer
from luminal.hlir.types import TensorType
from luminal.memory.state import Assignable
from luminal.shape.expression import Expression, Symbol, const
from luminal.shape.view import index


def verify(graph: Graph) -> None:
    """Raises VerifyError that prints the node which breaks a rule.

    Types follow from operands and attributes; equal nodes are one; a View's operand is no View;
    Expressions use declared dims and the node's own axes; Loop bodies are closed; names of inputs,
    outputs and dims are unique; a State is assigned once, a value of its own type.
    """
    try:
        _Verifier(graph).run()
    except GraphError as error:
        raise VerifyError(str(error)) from error


class _Verifier:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dims = frozenset(graph.dims)
        self.assigned: set[Assignable] = set()

    def run(self) -> None:
        check_sinks(self.graph.sinks)
        names = [dim.name for dim in self.graph.dims]
        if len(set(names)) < len(names):
            raise VerifyError(f"dims: a name is declared twice in {', '.join(names)}")
        for requirement in self.graph.requirements:
            _check_symbols(requirement, self.dims)
        self._block(self.graph.nodes(), None)
        for sink in self.graph.sinks:
            if isinstance(sink, Assign):
                self._assignment(sink.state, sink.value.type)

    def _block(self, nodes: Sequence[Node], loop: LoopAttrs | None) -> None:
        """The nodes of the graph, or of a Loop's body; printed only if one breaks a rule."""
        inputs: set[str] = set()
        contents: set[object] = set()
        for node in nodes:
            try:
                self._node(node)
                content = (node.op.name, node.args, node.attrs)
                if content in contents:
                    raise VerifyError("this node is there twice; make nodes with one Builder")
                contents.add(content)
                if isinstance(node.attrs, InputAttrs):
                    if node.attrs.name in inputs:
                        raise VerifyError("two inputs have this name")
                    inputs.add(node.attrs.name)
                if isinstance(node.attrs, LoopAttrs):
                    self._loop(node, node.attrs)
            except LuminalError as error:
                printer = Printer.of_body(self.graph, loop) if loop else Printer(self.graph)
                line = printer.node(node)[0].removesuffix(" {")
                raise VerifyError(f"{line}: {error}") from error

    def _node(self, node: Node) -> None:
        if OPS.get(node.op.name) is not node.op:
            raise VerifyError("the op is not a row of the table")
        is_mark = node.op.name == "Detach" and isinstance(node.attrs, MarkAttrs)
        if not (is_mark or isinstance(node.attrs, node.op.attrs or type(None))):
            raise VerifyError(f"the attributes are {type(node.attrs).__name__}")
        for arg in node.args:
            if not 0 <= arg.index < len(arg.node.types):
                raise VerifyError(f"{arg.node!r} has no result {arg.index}")
        # Inferred anew, not believed: a pass that builds nodes by hand may have given any types.
        types = infer(node.op, node.args, node.attrs)
        if types != node.types:
            raise VerifyError(f"the op gives {', '.join(map(str, types))}")
        if isinstance(node.attrs, ViewAttrs) and isinstance(node.args[0].node.attrs, ViewAttrs):
            raise VerifyError("the operand is a View itself; compose the two")
        if node.op.name == "After" and node.args[0].node.op.name in ("Weight", "State"):
            raise VerifyError(f"the operand is {node.args[0].node!r}, which a run may overwrite")
        if isinstance(node.attrs, ConstantAttrs):
            _check_literal(node.attrs)
        for type_ in node.types:
            for extent in type_.shape:
                _check_symbols(extent, self.dims)
        expressions, shape = _indexing(node)
        allowed = self.dims | {index(k, extent) for k, extent in enumerate(shape)}
        for expression in expressions:
            _check_symbols(expression, allowed)

    def _loop(self, node: Node, attrs: LoopAttrs) -> None:
        """The body is closed, its arguments are distinct, and lists of leaves have one per trip."""
        arguments = attrs.body.arguments
        if len(set(arguments)) < len(arguments):
            raise VerifyError("an argument of the body stands there twice")
        inner = topological([*(a.value for a in arguments), *attrs.body.results])
        for leaf in inner:
            # What is the same in every trip may be made inside.
            closed = leaf in arguments or leaf.op.name in ("Constant", "Iota")
            if leaf.op.group == "leaf" and not closed:
                raise VerifyError(f"the body reads {leaf!r}, which is no argument of it")
        self._block(inner, attrs)
        counts = [count for count in attrs.streams if count]
        counts += [len(states) for states in attrs.assigned if states is not None]
        for count in counts:
            if attrs.trips != const(count):
                raise VerifyError(f"a list of {count} leaves for {attrs.trips} trips")
        for y, states in zip(node.types[attrs.carried :], attrs.assigned, strict=True):
            for state in states or ():
                self._assignment(state, TensorType(y.shape[1:], y.dtype))

    def _assignment(self, state: Assignable, type_: TensorType) -> None:
        shape, dtype = state.memory_type
        expected = TensorType(tuple(map(const, shape)), dtype)
        if type_ != expected:
            raise VerifyError(f"{state!r} is assigned a {type_}")
        if state in self.assigned:
            raise VerifyError(f"{state!r} is assigned twice")
        self.assigned.add(state)


def _check_symbols(expression: Expression, allowed: frozenset[Symbol]) -> None:
    unknown = sorted(s.name for s in expression.symbols() - allowed)
    if unknown:
        raise VerifyError(
            f"{expression} uses {', '.join(unknown)}, which is neither a declared dim nor an axis "
            "of the node"
        )


def _check_literal(attrs: ConstantAttrs) -> None:
    expected = attrs.dtype.size
    for extent in attrs.shape:
        expected *= extent
    if len(attrs.data) != expected:
        raise VerifyError(f"{len(attrs.data)} bytes of data, the type has {expected}")


def _indexing(node: Node) -> tuple[Iterable[Expression], Shape]:
    """The Expressions among a node's attributes and the shape whose axes they may use."""
    match node.attrs:
        case IotaAttrs(expr=expr, shape=shape):
            return (expr,), shape
        case GatherAttrs(shape=shape, map=entries):
            return [e for e in entries if isinstance(e, Expression)], shape
        case ScatterAttrs(map=entries):
            source: Value = node.args[1]
            return [e for e in entries if isinstance(e, Expression)], source.shape
        case ViewAttrs(view=view):
            return (*view.map, view.domain), view.shape
        case LoopAttrs(trips=trips):
            return (trips,), ()
    return (), ()
