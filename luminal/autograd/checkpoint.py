"""Activation checkpointing: parts of a graph that derivatives compute again instead of keeping.

Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost" (arXiv 1604.06174).
`checkpoint` notes which nodes a call recorded. Where the walk back meets one of them, the rules see
a copy of it, recorded on the part's inputs, each behind an After: a value of its own, which is not
there before the gradient that arrives at the part. So equal operations stay apart, and the copy
cannot be computed before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from luminal.autograd.rules import Applied, Gradients
from luminal.errors import GraphError
from luminal.frontend.binary import graph_of
from luminal.frontend.derivatives import Derivative
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.tree import flatten
from luminal.hlir.graph import copied
from luminal.hlir.ops import Node, Value

F = TypeVar("F", bound=Callable[..., Any])

Parts = tuple[object, ...]
"""The checkpointed parts that a node is of, innermost first."""


def checkpoint(function: F) -> F:
    """`function`, whose derivative keeps what it reads and computes all else in it again.

    The function (a module, say) is called once, so what it draws and assigns is drawn and assigned
    once; the results are the same. What of it is used outside stays there. Calls may be nested. At
    least one argument is a Tensor (or a tree with one); raises GraphError where the function gives
    Tensors of a graph that none of its arguments is of.
    """

    @wraps(function, updated=())
    def recorded(*args: Any, **kwargs: Any) -> Any:
        graph = graph_of("checkpoint", flatten((args, kwargs))[0])
        known, part = len(graph.builder), object()
        result = function(*args, **kwargs)
        for y in flatten(result)[0]:
            if is_tensor(y) and y.graph.depth > graph.depth:
                raise GraphError(
                    f"checkpoint: the result {describe(y)} is of {y.graph.name}, the arguments of "
                    f"{graph.name}; pass a Tensor of the former as an argument"
                )
        for node in graph.builder.since(known):
            graph.parts[node] = (*graph.parts.get(node, ()), part)
        return result

    return cast("F", recorded)


class Recomputation:
    """The copies of checkpointed nodes that one walk back records."""

    def __init__(self, graph: Recorder) -> None:
        self.graph = graph
        self._tokens: dict[object, Value] = {}  # by part: the gradient that came first
        self._copies: dict[tuple[object, Value], Value] = {}
        self._reads_inputs: dict[Node, bool] = {}

    def reach(self, node: Node, arrived: Gradients) -> None:
        """The gradients of a node's results have come, before any of an operand's."""
        first = next(g.value for g in arrived if g is not None)
        for part in self.graph.parts.get(node, ()):
            self._tokens.setdefault(part, first)

    def applied(self, node: Node) -> Applied:
        """The operation as a rule sees it."""
        results = (self.value(node, Value(node, k)) for k in range(len(node.types)))
        operands = (self.value(node, arg) for arg in node.args)
        wrap = self.graph.wrap
        return Applied(self.graph, node, tuple(map(wrap, operands)), tuple(map(wrap, results)))

    def value(self, node: Node, wanted: Value) -> Value:
        """What stands for a value where the derivative of `node` reads it."""
        tasks = [(self.graph.parts.get(node, ()), wanted)]
        while tasks:
            parts, value = tasks[-1]
            waiting = [task for task in self._needs(parts, value) if self._found(*task) is None]
            if waiting:
                tasks += waiting
            else:
                tasks.pop()
                self._record(parts, value)
        found = self._found(self.graph.parts.get(node, ()), wanted)
        assert found is not None
        return found

    def _found(self, parts: Parts, value: Value) -> Value | None:
        return self._copies.get((parts[0], value)) if parts else value

    def _is_inside(self, parts: Parts, value: Value) -> bool:
        """Is it an operation of the innermost part?"""
        return bool(value.node.args) and parts[0] in self.graph.parts.get(value.node, ())

    def _needs(self, parts: Parts, value: Value) -> list[tuple[Parts, Value]]:
        if not parts:
            return []
        if not self._is_inside(parts, value):
            return [(parts[1:], value)]
        known = self.graph.derivatives.get(value)
        return [(parts, each) for each in (*value.node.args, *(known.operands if known else ()))]

    def _record(self, parts: Parts, value: Value) -> None:
        if self._found(parts, value) is not None:
            return
        part, builder = parts[0], self.graph.builder
        if not self._is_inside(parts, value):
            outside = self._found(parts[1:], value)
            assert outside is not None
            if self._depends_on_inputs(outside.node):
                outside = builder.after(outside, self._tokens[part])
            self._copies[part, value] = outside
            return
        node = value.node
        args = [self._copies[part, arg] for arg in node.args]
        for k, again in enumerate(copied(builder, node, args)):
            self._copies[part, Value(node, k)] = again
            known = self.graph.derivatives.get(Value(node, k))
            if known is not None:
                operands = tuple([self._copies[part, each] for each in known.operands])
                self.graph.derivatives.setdefault(again, Derivative(operands, known.pull))

    def _depends_on_inputs(self, node: Node) -> bool:
        """Or is it there in any case, a value of literals, Weights and States alone?"""
        known, stack = self._reads_inputs, [node]
        while stack:
            top = stack[-1]
            waiting = [arg.node for arg in top.args if arg.node not in known]
            if waiting:
                stack += waiting
            else:
                stack.pop()
                is_input = top.op.name == "Input"
                known[top] = is_input or any(known[arg.node] for arg in top.args)
        return known[node]
