"""At: composed, dropped, pushed towards the leaves."""

from __future__ import annotations

from luminal.algebra.terms import axis_order
from luminal.egraph.guards import Guards
from luminal.egraph.handlers.handler import each
from luminal.egraph.intern import positions
from luminal.egraph.table import New, Node, Table
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import REDUCTIONS
from luminal.shape.expression import Expression, Symbol, axis

Where = dict[Symbol, "Expression | New | int"]
"""Indices by axis: Expressions, or integer terms."""


def at(table: Table, x: int, where: Where) -> New | int:
    """`x` read there; axes that it lacks drop out."""
    kept = [(a, i) for a, i in where.items() if a in table.axes[x] and i is not a]
    kept.sort(key=lambda pair: pair[0].sort_key)
    entries: list[tuple[Symbol, Expression | int]] = []
    terms: list[New | int] = []
    for a, index in kept:
        if isinstance(index, Expression):
            entries.append((a, index))
        else:
            entries.append((a, Slot(len(terms))))
            terms.append(index)
    return New("At", tuple(entries), (x, *terms)) if kept else x


def where_of(node: Node) -> Where:
    """The indices of an At."""
    return {a: node.args[1 + i] if isinstance(i, int) else i for a, i in node.attrs}


@each("At")
def drop(table: Table, number: int, node: Node, guards: Guards) -> int | None:
    """`x[s] -> x` where x depends on none of the axes."""
    x = node.args[0]
    replaced = {a for a, _ in node.attrs}
    return x if replaced.isdisjoint(table.axes[x]) and x != number else None


@each("At")
def substitute(table: Table, number: int, node: Node, guards: Guards) -> New | None:
    """`e[s] -> e of s` for an Index."""
    index = next(iter(table.of(node.args[0], "Index")), None)
    if index is None:
        return None
    moved = {a: i for a, i in node.attrs if a in index.attrs.symbols()}
    # An Expression has no place for an integer term.
    if any(isinstance(i, int) for i in moved.values()):
        return None
    return New("Index", index.attrs.substitute(moved), (), index.dtype)


@each("At")
def compose(table: Table, number: int, node: Node, guards: Guards) -> New | int | None:
    """`x[s][t] -> x[s of t]`."""
    inner = next(iter(table.of(node.args[0], "At")), None)
    if inner is None or number == node.args[0]:
        return None
    outer = where_of(node)
    # An axis that the inner At replaces is x's no more: outside, its name stands in indices only.
    composed: Where = {a: i for a, i in outer.items() if a not in dict(inner.attrs)}
    for a, index in where_of(inner).items():
        if not isinstance(index, Expression):
            assert isinstance(index, int)
            composed[a] = at(table, index, outer)
        elif isinstance(index, Symbol) and index in outer:
            composed[a] = outer[index]
        else:
            used = {s: outer[s] for s in positions(index) if s in outer}
            if not all(isinstance(i, Expression) for i in used.values()):
                return None
            composed[a] = index.substitute(used)  # type: ignore[arg-type]
    return at(table, inner.args[0], composed)


@each("At")
def push(table: Table, number: int, node: Node, guards: Guards) -> New | None:
    """`f(x, y)[s] -> f(x[s], y[s])`; renames cost nothing where they are, and nor does what is
    computed before runs.
    """
    if not guards.hold(y=number, s=node.attrs):
        return None
    x = node.args[0]
    inner = next((n for n in table.nodes[x] if n.is_pointwise and x not in n.args), None)
    if inner is None:
        return None
    where = where_of(node)
    args = tuple(at(table, arg, where) for arg in inner.args)
    return New(inner.op, inner.attrs, args, inner.dtype)


@each("At")
def push_below(table: Table, number: int, node: Node, guards: Guards) -> New | None:
    """`Sum(K, x)[s] -> Sum(K, x[s])` for shifts and flips; bound axes of K that occur in the
    indices are renamed first. So with Max.
    """
    if not guards.hold(y=number, s=node.attrs):
        return None
    x = node.args[0]
    inner = next((n for n in table.nodes[x] if n.op in REDUCTIONS and x not in n.args), None)
    if inner is None:
        return None
    (operand,) = inner.args
    where = where_of(node)
    # In Sum({k}, x[i, k]) at i = k the k outside is not the one that is summed over.
    used = frozenset[Symbol]().union(*(_axes_of(table, i) for i in where.values()))
    taken = used | table.axes[operand] | frozenset(inner.attrs)
    renamed = {k: _other(k, taken) for k in inner.attrs if k in used}
    # The sum has no axes of K: an index for one moves nothing, and inside it would the bound one.
    inside = {a: i for a, i in where.items() if a not in inner.attrs}
    moved = at(table, operand, {**inside, **renamed})
    bound = axis_order(renamed.get(k, k) for k in inner.attrs)
    return New(inner.op, bound, (moved,))


def _axes_of(table: Table, index: Expression | New | int) -> frozenset[Symbol]:
    """The axes that an index depends on."""
    if isinstance(index, Expression):
        return positions(index)
    assert isinstance(index, int)
    return table.axes[index]


def _other(bound: Symbol, taken: frozenset[Symbol]) -> Symbol:
    """The bound axis under a name that is not taken yet."""
    other = bound
    while other in taken:
        other = axis(f"{other.name}.bound", bound.extent)  # type: ignore[arg-type]
    return other
