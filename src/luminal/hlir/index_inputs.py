"""Integer inputs that serve as indices: found in the graph, checked before a run as NumPy would.

The frontend records an index `x` into an extent n as `Select(x < 0, x + n, x)`, so that negative
indices count from the end, and one without a sign as it is. Where that x is an Input (through casts
and views), every index of it must lie in [-n, n).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.base.lines import Recorded, told
from luminal.base.records import dataclass
from luminal.hlir.attributes import (
    ConstantAttrs,
    InputAttrs,
    LoopAttrs,
    ViewAttrs,
)
from luminal.hlir.graph import ByOp, Graph, by_op, topological
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import Expression, Symbol

Array = np.ndarray[Any, Any]
Arguments = Mapping[Node, Value | None]
"""Of Loop bodies: the outer value that an argument is, or is a slice of; None for any other."""


class OutOfRangeError(InputError):
    """An index of an Input is out of range; `use`: of which extent."""

    use: IndexInput | None = None


@dataclass(frozen=True, slots=True)
class IndexInput:
    """The input `name` indexes an extent; `steps` lead from it to the indices, nearest first."""

    name: str
    extent: Expression
    steps: tuple[Node, ...]  # that matter for which elements are read: Casts, Views, `_ignored`
    recorded: Recorded | None = field(default=None, compare=False)

    def check(self, array: Array, dims: Mapping[str, int]) -> None:
        """Raises OutOfRangeError, which names the first index that is out of range."""
        indices = array
        for node in self.steps:
            number = _ignored(node)
            if number is not None:
                indices = np.where(indices == number, indices.dtype.type(0), indices)
                continue
            assert node.op.evaluate is not None
            (indices,) = node.op.evaluate(node.attrs, dims, [indices])
        if not indices.size:
            return
        n = int(self.extent.evaluate(dims))
        # Two passes of NumPy and no mask: which index is wrong is only asked where one is.
        if -n <= int(indices.min()) and int(indices.max()) < n:
            return
        wrong = int(indices[(indices < -n) | (indices >= n)].flat[0])
        error = OutOfRangeError(
            f"{self.name}: index {wrong} is out of range for an extent of {n}; "
            f"indices lie in -{n}..{n - 1}{told(self.recorded)}"
        )
        error.use = self
        raise error


def index_inputs(graph: Graph) -> tuple[IndexInput, ...]:
    """Every use of an Input as indices, in Loop bodies too; each use once."""
    return tuple(dict.fromkeys(_uses(graph.by_op(), {}, 0)))


def index_uses(values: Sequence[Value]) -> frozenset[IndexInput]:
    """Every use of an Input as indices in the graph of these values: what its runs check."""
    return frozenset(_uses(by_op(topological(values)), {}, 0))


def _uses(block: ByOp, outer: Arguments, depth: int) -> Iterator[IndexInput]:
    """`depth`: how many Loop bodies the nodes lie in; `outer`: the arguments of all of them."""
    for first, name in ((1, "Gather"), (2, "Scatter")):
        for node in block.get(name, ()):
            for extent, entry in zip(node.args[0].shape, node.attrs.map, strict=True):
                if isinstance(entry, int):
                    use = _use(node.args[first + entry], extent, outer, depth)
                    yield from (replace(index, recorded=node.recorded) for index in use)
    for node in block.get("Loop", ()):
        # The arguments of a body stand for operands outside of it, so the walk takes along what
        # each of them is and goes on there.
        inner = by_op(topological(node.attrs.body.results))
        yield from _uses(inner, {**outer, **dict(_arguments(node))}, depth + 1)


def _use(index: Value, extent: Expression, outer: Arguments, depth: int) -> Iterator[IndexInput]:
    wrapped = _wrapped(index)
    source = None if wrapped is None else _input_below(wrapped, outer, depth)
    if source is not None:
        yield IndexInput(source[0], extent, source[1])


def index_use(index: Value, extent: Expression) -> IndexInput | None:
    """The use of an Input that `index` would be, if an extent is indexed by it."""
    source = _input_below(index, {}, 0)
    return None if source is None else IndexInput(source[0], extent, source[1])


def _wrapped(value: Value) -> Value | None:
    """The x of `Select(x < 0, x + n, x)`, or one without a sign, seen through casts and views."""
    below = value
    while below.node.op.name in ("Cast", "View"):
        below = below.node.args[0]
    if below.node.op.name != "Select":
        return value if "uint" in (value.dtype.kind, below.dtype.kind) else None
    condition, shifted, x = below.node.args
    # The frontend records this form and no other, and interning makes its three `x` one value. What
    # a user wrote by hand in another form wraps nothing, and so promises nothing to check.
    is_wrap = (
        condition.node.op.name == "LessThan"
        and condition.node.args[0] == x
        and shifted.node.op.name == "Add"
        and x in shifted.node.args
    )
    return x if is_wrap else None


def _input_below(value: Value, outer: Arguments, depth: int) -> tuple[str, tuple[Node, ...]] | None:
    """The Input that `value` is a cast or view of, and the steps to evaluate on its array."""
    # Only what leads straight to an Input is checked: an index that is computed has no array to
    # look at before the run, and reads 0 where it is outside.
    steps: list[Node] = []
    while True:
        node = value.node
        if node in outer:
            whole = outer[node]
            if whole is None:
                return None
            value, depth = whole, depth - 1
        elif isinstance(node.attrs, InputAttrs):
            return node.attrs.name, tuple(reversed(steps))
        elif node.op.name == "Cast" and node.args[0].dtype.is_int:
            source_dtype, cast = node.args[0].dtype, node.types[0].dtype
            # A cast that widens changes no index; any other may wrap it, and is evaluated before
            # the check.
            if source_dtype.kind != cast.kind or source_dtype.size > cast.size:
                steps.append(node)
            value = node.args[0]
        elif isinstance(node.attrs, ViewAttrs):
            if not _reads_all(node):
                if depth:  # the view takes from a slice; which slices exist is the Loop's business
                    return None
                steps.append(node)
            value = node.args[0]
        elif _ignored(node) is not None:
            steps.append(node)
            value = node.args[1]
        else:
            return None


def _ignored(node: Node) -> int | None:
    """The number c of `Select(x != c, x, 0)`, as losses record it of targets that do not count."""
    if node.op.name != "Select":
        return None
    condition, x, other = node.args
    if condition.node.op.name != "Xor" or _literal(other) != 0:
        return None
    equal, true = condition.node.args
    if equal.node.op.name != "Equal" or equal.node.args[0] != x or _literal(true) is not True:
        return None
    number = _literal(equal.node.args[1])
    return None if number is None else int(number)


def _literal(value: Value) -> Any:
    """The number that a value is everywhere; None where it is more than a scalar that was given."""
    node = value.node
    if isinstance(node.attrs, ViewAttrs) and node.attrs.view.domain.is_const:
        node = node.args[0].node
    attrs = node.attrs
    if not isinstance(attrs, ConstantAttrs) or attrs.shape:
        return None
    return np.frombuffer(attrs.data, attrs.dtype.numpy)[0].item()


def _reads_all(node: Node) -> bool:
    """Does a View read every element of its source and nothing else?"""
    view = node.attrs.view
    source = node.args[0].shape
    axes = [entry for entry in view.map if isinstance(entry, Symbol)]
    whole = all(
        entry.extent == extent if isinstance(entry, Symbol) else extent == 1
        for entry, extent in zip(view.map, source, strict=True)
    )
    return whole and len(set(axes)) == len(axes) and view.domain.is_const


def _arguments(node: Node) -> Iterator[tuple[Node, Value | None]]:
    """The argument nodes of a Loop's body, each with the operand that it is, or is one slice of."""
    attrs: LoopAttrs = node.attrs
    carried, streams, invariants = attrs.split(node.args)
    whole = (args[0] if not n else None for n, args in zip(attrs.streams, streams, strict=True))
    operands = (*(None for _ in carried), *whole, *invariants)
    yield from zip(attrs.body.arguments, operands, strict=True)
