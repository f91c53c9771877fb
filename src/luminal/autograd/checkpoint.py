"""Activation checkpointing: parts of a graph that derivatives compute again instead of keeping.

Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost" (arXiv 1604.06174).
`checkpoint` notes which nodes a call recorded. Where the walk back meets one of them, the rules see
a copy of it, which needs the part's inputs and the first gradient that arrives at the part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from luminal.autograd.rules import Applied, Gradients
from luminal.base.errors import GraphError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.pointwise.derivatives import Derivative
from luminal.frontend.scan import flatten
from luminal.frontend.tensor import Tensor
from luminal.hlir.ops import Node, Value
from luminal.hlir.recompute import Parts, Recomputation

F = TypeVar("F", bound=Callable[..., Any])


# Rules get copies made on the part's inputs behind an After, whose token is the gradient that
# arrives first: so no schedule can run them early, and nothing merges them with the forward pass.
# What depends on weights alone is not put behind one. Copying launches behind the selection would
# need no such op, but could fuse nothing.
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
        start, part = len(graph.builder), object()
        result = function(*args, **kwargs)
        for y in flatten(result)[0]:
            if is_tensor(y) and y.graph.depth > graph.depth:
                raise GraphError(
                    f"checkpoint: the result {describe(y)} is of {y.graph.name}, the arguments of "
                    f"{graph.name}; pass a Tensor of the former as an argument"
                )
        for node in graph.builder.since(start):
            graph.parts[node] = (*graph.parts.get(node, ()), part)
        return result

    return cast("F", recorded)


class Again(Recomputation):
    """What the rules of one walk back see of checkpointed nodes."""

    def __init__(self, graph: Recorder) -> None:
        super().__init__(graph.builder, graph.parts)
        self.graph = graph

    def applied(self, node: Node, arrived: Gradients) -> Applied:
        """The operation, whose results have these gradients."""
        results = self.tensors(node, [Value(node, k) for k in range(len(node.types))], arrived)
        operands = self.tensors(node, node.args, arrived)
        return Applied(self.graph, node, operands, results)

    def tensors(
        self, node: Node, values: Sequence[Value], arrived: Gradients
    ) -> tuple[Tensor, ...]:
        """What the derivative of a node reads."""
        self.reach(node, next(g.value for g in arrived if g is not None))
        return tuple([self.graph.wrap(self.value(node, value)) for value in values])

    def operands(self, value: Value) -> Sequence[Value]:
        """The operands of the region, those of the known derivative among them."""
        derivative = self.graph.derivatives.get(value)
        return value.node.args if derivative is None else (*value.node.args, *derivative.operands)

    def made(self, parts: Parts, value: Value, copy: Value) -> None:
        """A copy has the derivative that is known of its original."""
        derivative = self.graph.derivatives.get(value)
        if derivative is not None:
            copies = [self.found(parts, operand) for operand in derivative.operands]
            operands = tuple([operand for operand in copies if operand is not None])
            self.graph.derivatives.setdefault(copy, Derivative(operands, derivative.pull))
