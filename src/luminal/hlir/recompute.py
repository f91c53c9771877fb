"""Copies of operations, to be computed again where their values are needed late.

A copy reads what its part of the graph reads, each value behind an After: a value of its own, which
is not there before a token is computed. So equal operations stay apart, and the copy cannot be
computed before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.hlir.graph import Builder, copied
from luminal.hlir.ops import Node, Value

Parts = tuple[object, ...]
"""The parts that a node is of, innermost first; for each a nested one is copied anew."""


# Copies of a part must stay copies: hash-consing would make them the values of the forward pass
# again, and so would the e-graph. An After on the part's inputs tells them apart; behind it all
# operations differ.
class Recomputation:
    """Records copies of the nodes of `parts`."""

    def __init__(self, builder: Builder, parts: Mapping[Node, Parts]) -> None:
        self.builder = builder
        self.parts = parts
        self._tokens: dict[object, Value] = {}
        self._copies: dict[tuple[object, Value], Value] = {}
        self._inputs = InputReaders()

    def reach(self, node: Node, token: Value) -> None:
        """The node's parts are needed once `token` is there; the first token of each counts."""
        # A view is there when its operand is, and is never computed itself.
        if token.node.op.name == "View":
            token = token.node.args[0]
        for part in self.parts.get(node, ()):
            self._tokens.setdefault(part, token)

    def value(self, node: Node, wanted: Value) -> Value:
        """What stands for a value where an operation of the parts of `node` reads it."""
        # A stack in place of recursion: a model's forward pass is deeper than Python's stack.
        tasks = [(self.parts.get(node, ()), wanted)]
        while tasks:
            parts, value = tasks[-1]
            # A value is looked at twice: first it waits for its operands, then it is recorded.
            waiting = [task for task in self._needs(parts, value) if self.found(*task) is None]
            if waiting:
                tasks += waiting
            else:
                tasks.pop()
                if self.found(parts, value) is None:
                    self._record(parts, value)
        copy = self.found(self.parts.get(node, ()), wanted)
        assert copy is not None
        return copy

    def found(self, parts: Parts, value: Value) -> Value | None:
        """The copy for the innermost of these parts, if it is recorded."""
        return self._copies.get((parts[0], value)) if parts else value

    def operands(self, value: Value) -> Sequence[Value]:
        """The values that a copy of this one needs copies of."""
        return value.node.args

    def made(self, parts: Parts, value: Value, copy: Value) -> None:
        """Is called for each copy that is recorded, after those of its operands."""

    def _is_inside(self, parts: Parts, value: Value) -> bool:
        """Is the value an operation of the innermost part?"""
        return bool(value.node.args) and parts[0] in self.parts.get(value.node, ())

    def _needs(self, parts: Parts, value: Value) -> list[tuple[Parts, Value]]:
        if not parts:
            return []
        if not self._is_inside(parts, value):
            return [(parts[1:], value)]
        return [(parts, operand) for operand in self.operands(value)]

    def _record(self, parts: Parts, value: Value) -> None:
        part, node = parts[0], value.node
        if not self._is_inside(parts, value):
            outside = self.found(parts[1:], value)
            assert outside is not None
            # Values of Weights and literals alone are computed before any run, so there is nothing
            # to be gained by computing them late.
            if outside.node in self._inputs:
                outside = self.builder.after(outside, self._tokens[part])
            self._copies[part, value] = outside
            return
        args = [self._copies[part, arg] for arg in node.args]
        for k, copy in enumerate(copied(self.builder, node, args)):
            self._copies[part, Value(node, k)] = copy
            self.made(parts, Value(node, k), copy)


class InputReaders:
    """The nodes that depend on Inputs. Others are there in any case: values of literals, Weights
    and States alone.
    """

    def __init__(self) -> None:
        self._known: dict[Node, bool] = {}

    def __contains__(self, node: Node) -> bool:
        answers, stack = self._known, [node]
        while stack:
            top = stack[-1]
            waiting = [arg.node for arg in top.args if arg.node not in answers]
            if waiting:
                stack += waiting
            else:
                stack.pop()
                is_input = top.op.name == "Input"
                answers[top] = is_input or any(answers[arg.node] for arg in top.args)
        return answers[node]
