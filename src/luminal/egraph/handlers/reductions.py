"""Reductions of what they do not depend on, in two stages, and of each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from luminal.algebra.frames import extent_of
from luminal.algebra.reductions import around, cut, longest
from luminal.algebra.terms import axis_order
from luminal.base.dtypes import DType
from luminal.egraph.guards import Guards
from luminal.egraph.handlers.handler import Found, each
from luminal.egraph.intern import is_fixed, literal_data, literal_text
from luminal.egraph.table import New, Node, Table
from luminal.shape.expression import Expression, Symbol


@each("Sum")
def sum_broadcast(table: Table, number: int, node: Node, guards: Guards) -> New | int | None:
    """`Sum(K, x) -> extent(K - axes(x)) * Sum(K & axes(x), x)`."""
    (x,) = node.args
    idle = [a for a in node.attrs if a not in table.axes[x]]
    if not idle or not guards.hold(K=frozenset(node.attrs), x=x):
        return None
    count = _number(extent_of(tuple(idle)), table.dtype[number])
    rest = tuple(a for a in node.attrs if a not in idle)
    return New("Mul", None, (New("Sum", rest, (x,)) if rest else x, count))


def _number(value: Expression, dtype: DType) -> New:
    """A count as a term: rounded as floats are, or wrapped as sums of integers are."""
    if value.is_const:
        return New("Literal", literal_text(literal_data(str(value.value), dtype), dtype), (), dtype)
    return New("Index", value, (), dtype)


def nest(table: Table, nodes: Iterable[tuple[int, Node]], guards: Guards) -> Found:
    """`Sum(J | K, x) -> Sum(J, Sum(K, x))` where `Sum(K, x)` is there as well; so with Max."""
    alike: defaultdict[tuple[str, int], list[tuple[int, Node]]] = defaultdict(list)
    for number, node in nodes:
        alike[node.op, node.args[0]].append((number, node))
    for group in alike.values():
        for number, node in group:
            for inner, other in group:
                rest = around(other.attrs, node.attrs)
                if rest is not None and inner != number:
                    yield number, New(node.op, rest, (inner,))


def split(table: Table, nodes: Iterable[tuple[int, Node]], guards: Guards) -> Found:
    """`Sum{k} x -> Sum{k.chunk} Sum{k.in} x[k := chunk * n + in]` where the results are too few
    to keep all units busy; so with Max.
    """
    for number, node in nodes:
        (x,) = node.args
        along = longest(node.attrs)
        bound = frozenset(node.attrs)
        # Whether chunks are even is known of a literal extent only.
        if not is_fixed(along) or not guards.hold(y=number, x=x, K=bound, J=frozenset((along,))):
            continue
        for chunks in guards.shares.tried:
            staged = _split(node, x, along, chunks)
            if staged is not None:
                yield number, staged


def _split(node: Node, x: int, along: Symbol, chunks: int) -> New | None:
    assert along.extent is not None
    size, rest = divmod(along.extent.value, chunks)
    # Even chunks only: in a short one x would need a mask.
    if rest or size < 2:
        return None
    parts = cut(along, size)
    moved = New("At", ((along, parts.position),), (x,))
    inner = New(node.op, axis_order(parts.inner(node.attrs)), (moved,))
    return New(node.op, (parts.chunk,), (inner,))
