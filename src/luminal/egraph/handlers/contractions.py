"""Sums of products: factors that leave them, and contractions that share an operand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from luminal.algebra.frames import extent_of, linear, spread
from luminal.algebra.reductions import may_leave
from luminal.algebra.terms import Axes, axis_order
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.egraph.guards import Guards
from luminal.egraph.handlers.handler import Found
from luminal.egraph.table import New, Node, Table
from luminal.shape.expression import ZERO, Expression, Symbol, axis

MAX_PRODUCTS = 4  # spellings of one summand that are looked into
MAX_FACTORS = 16


def product(factors: Sequence[New | int]) -> New | int:
    """The product of one or more, from left to right."""
    result = factors[0]
    for factor in factors[1:]:
        result = New("Mul", None, (result, factor))
    return result


def factor_out(table: Table, nodes: Iterable[tuple[int, Node]], guards: Guards) -> Found:
    """`Sum(K, (a * (b / c)) * d) -> a / c * Sum(K, b * d)` for a, c without axes of K."""
    for number, node in nodes:
        (x,) = node.args
        bound = frozenset(node.attrs)
        if not guards.hold(K=bound):
            continue
        products = [n for n in table.nodes[x] if n.op in ("Mul", "Div") and x not in n.args]
        for product_node in products[:MAX_PRODUCTS]:
            over, under = _factors(table, x, product_node)
            free = [f for f in over if may_leave(table.axes[f], bound)]
            gone = [f for f in under if may_leave(table.axes[f], bound)]
            rest = [f for f in over if f not in free]
            if not rest or not (free or gone):
                continue
            inner = product(rest)
            left = [f for f in under if f not in gone]
            if left:
                inner = New("Div", None, (inner, product(left)))
            total: New | int = New("Sum", node.attrs, (inner,))
            if free:
                total = New("Mul", None, (product(free), total))
            if gone:
                total = New("Div", None, (total, product(gone)))
            yield number, total


def _factors(table: Table, x: int, node: Node) -> tuple[list[int], list[int]]:
    """Factors above and below the line of a product: by the first spelling of each."""
    # Through Mul and Div alone: a factor is whatever stands above or below the line once the
    # product is written as one fraction. A class that refers to itself is opened once on each path.
    over: list[int] = []
    under: list[int] = []
    stack: list[tuple[int, Node | None, bool, frozenset[int]]] = [(x, node, True, frozenset())]
    while stack:
        number, forced, above, path = stack.pop()
        inside = forced or _quotient_or_product(table, number, path)
        if inside is None or len(over) + len(under) + len(stack) > MAX_FACTORS:
            (over if above else under).append(number)
            continue
        a, b = inside.args
        path = path | {number}
        # What divides a divisor is above the line again.
        stack.append((b, None, above == (inside.op == "Mul"), path))
        stack.append((a, None, above, path))
    return over, under


def _quotient_or_product(table: Table, number: int, path: frozenset[int]) -> Node | None:
    for node in table.nodes[number]:
        # A class may be its own factor, by x = x * 1 or
        # further down: the way back to it never ends.
        if node.op in ("Mul", "Div") and path.isdisjoint(node.args) and number not in node.args:
            return node
    return None


class Member(NamedTuple):
    """A contraction that may be merged: its class, its weight, the axes that only that one has."""

    number: int
    weight: int
    own: Axes


def merge(table: Table, nodes: Iterable[tuple[int, Node]], guards: Guards) -> Found:
    """Contractions of one value with several weights are one with the weights side by side.

    Weights are joined when they are set, not in a run; and a run needs all contractions that the
    program itself has.
    """
    # Products of one input with several weights (q, k and v) are one product of the weights side by
    # side: one kernel reads the input once and fills the machine better.
    groups: defaultdict[tuple[Axes, int, frozenset[Symbol]], dict[int, Member]] = defaultdict(dict)
    for number, node in nodes:
        for factors in table.of(node.args[0], "Mul"):
            x, w = factors.args
            shared = table.axes[x] | frozenset(node.attrs)
            alone = axis_order(table.axes[w] - shared)
            if alone and guards.hold(y=number, x=x, w=w, J=frozenset(alone)):
                # Weights lie side by side where they have the same axes in common with the rest.
                key = (node.attrs, x, table.axes[w] & shared)
                groups[key].setdefault(number, Member(number, w, alone))
    for (bound, x, _), group in groups.items():
        members = sorted(group.values())
        if len({member.weight for member in members}) > 1:
            yield from _merged(table, bound, x, members)


def _merged(table: Table, bound: Axes, x: int, members: Sequence[Member]) -> Found:
    sizes = [extent_of(member.own) for member in members]
    name = "+".join("*".join(a.name for a in member.own) for member in members)
    total = sum(sizes, start=ZERO)
    along = axis(f"{name}.cat", total)
    weights = _joined(table, along, members, sizes)
    whole = New("Sum", bound, (New("Mul", None, (x, weights)),))
    offset = ZERO
    for member, size in zip(members, sizes, strict=True):
        yield member.number, New("At", ((along, linear(member.own) + offset),), (whole,))
        offset = offset + size


def _joined(
    table: Table, along: Symbol, members: Sequence[Member], sizes: Sequence[Expression]
) -> New | int:
    """The weights side by side; Casts that all have in common are done afterwards."""
    narrow = [_before_cast(table, member.weight) for member in members]
    # Weights side by side are a copy: as narrow as they are held.
    kept = {table.dtype[w] for w in narrow}
    if len(kept) > 1:
        narrow = [member.weight for member in members]
    start = sum(sizes[:-1], start=ZERO)
    result = _part(narrow[-1], members[-1].own, along - start)
    for k in range(len(members) - 2, -1, -1):
        end = start
        start = end - sizes[k]
        inside = New("Index", along < end, (), dtypes.bool_)
        part = _part(narrow[k], members[k].own, along - start)
        result = New("Select", None, (inside, part, result))
    dtype: DType = table.dtype[members[0].weight]
    return result if table.dtype[narrow[0]] is dtype else New("Cast", None, (result,), dtype)


def _part(weight: int, axes: Axes, position: Expression) -> New:
    where = spread(position, axes)
    entries = sorted(where.items(), key=lambda pair: pair[0].sort_key)
    return New("At", tuple(entries), (weight,))


def _before_cast(table: Table, number: int) -> int:
    """What a widening Cast makes it of; itself if none does."""
    cast = next(iter(table.of(number, "Cast")), None)
    narrower = cast is not None and table.dtype[cast.args[0]].size < table.dtype[number].size
    return cast.args[0] if cast is not None and narrower else number
