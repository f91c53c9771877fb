"""What a graph computes, apart from the names of its inputs: equal structures share a program."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from luminal.hlir.attributes import InputAttrs, LoopAttrs, MarkAttrs
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value


# Two graphs with equal structures are one program, and only what is given differs: names of inputs,
# values of constants that are inputs. A loop that records the same lines over new data so compiles
# once.
def structure(roots: Sequence[Value]) -> tuple[Hashable, tuple[Node, ...]]:
    """The structure of all below `roots`, and its Input nodes in the order that it counts them in.

    Where structures are equal, so are the values for equal inputs: operations, attributes, Weights'
    Parameters and States are all part of it.
    """
    numbers: dict[Node, int] = {}
    rows = [_row(node, numbers) for node in topological(roots)]
    inputs = tuple(node for node in numbers if isinstance(node.attrs, InputAttrs))
    return (tuple(rows), _places(roots, numbers)), inputs


def _row(node: Node, numbers: dict[Node, int]) -> Hashable:
    """A node by its operands' numbers; it gets the next one."""
    row = (node.op.name, _places(node.args, numbers), _attributes(node))
    numbers[node] = len(numbers)
    return row


def _places(values: Sequence[Value], numbers: dict[Node, int]) -> tuple[tuple[int, int], ...]:
    return tuple([(numbers[value.node], value.index) for value in values])


def _attributes(node: Node) -> Any:
    attrs = node.attrs
    if isinstance(attrs, InputAttrs):
        # Without the name, by which programs are not told apart.
        return attrs.shape, attrs.dtype
    if isinstance(attrs, MarkAttrs):
        return None  # what only derivatives tell apart; it has a number of its own
    if isinstance(attrs, LoopAttrs):
        numbers = {argument: k for k, argument in enumerate(attrs.body.arguments)}
        types = tuple(argument.types for argument in attrs.body.arguments)
        inside = [n for n in topological(attrs.body.results) if n not in numbers]
        rows = tuple([_row(n, numbers) for n in inside])
        body = (types, rows, _places(attrs.body.results, numbers))
        return attrs._replace(body=body)  # type: ignore[arg-type]  # a key is all it serves as
    return attrs
