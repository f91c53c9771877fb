"""Products whose results are turned in pairs, as a rotation turns those of queries and keys.

What is read at its own place and at the other one of a pair is stored first, and turned by another
kernel: neither knows the other's result. Where both are computed side by side, each pair's two sums
at one point of the grid, the rotation and what stores it are the end of the product's kernel:

    y[h, j] = f(P[h, j], P[h, 1 - j])  ->  f(j == 0 ? P0[h] : P1[h], j == 0 ? P1[h] : P0[h])

with P0 and P1 the sums at j = 0 and 1. No sum changes, so all bits stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.frames import upper
from luminal.algebra.terms import At, Reduction, Term, Terms
from luminal.base.costs import Costs
from luminal.selection.kinds import is_contraction
from luminal.selection.rewrite import Respelled
from luminal.selection.stored import stored_anyway
from luminal.selection.users import users_of
from luminal.shape.expression import Expression, Symbol, const

PAIR = const(2)
ENDS = (const(0), const(1))


def pairs_side_by_side(program: Respelled, costs: Costs) -> Respelled:
    """The program with the sums of each such pair apart, on devices where a launch costs more than
    what it takes to turn them.
    """
    if not costs.shares.passes:
        return program
    order, terms = program.order(), program.lowered.terms
    users, stored = users_of(order), stored_anyway(program.lowered.roots, order)
    turned = {
        term: axis
        for term in order
        if isinstance(term, Reduction) and is_contraction(term) and term not in stored
        if _has_few_rows(term, costs)
        if (axis := _pair(term, users[term])) is not None
    }
    if not turned:
        return program
    now: dict[Term, tuple[Term, ...]] = {}  # by the new spelling of a product, its two ends

    def replace(old: Term, same: Term) -> Term:
        if isinstance(old, Reduction) and old in turned:
            axis = turned[old]
            sums = tuple(_end(terms, same, {axis: end}) for end in ENDS)
            whole = _of_ends(terms, axis, sums)
            now[whole] = sums
            return whole
        if isinstance(old, At) and old.args[0] in turned:
            return _of_ends(terms, turned[old.args[0]], now[same.args[0]][::-1])
        return same

    return program.rewrite(replace)


def _pair(product: Reduction, users: Sequence[Term]) -> Symbol | None:
    """The axis of two positions along which a product is read at its own and at the other one."""
    axes = {_flipped(user) for user in users if isinstance(user, At)}
    if len(axes) != 1 or all(isinstance(user, At) for user in users):
        return None
    (axis,) = axes
    return axis


def _flipped(at: At) -> Symbol | None:
    """The axis of two that an At reads the other way round, if it does nothing else."""
    if len(at.attrs) != 1:
        return None
    ((axis, position),) = at.attrs
    if not isinstance(position, Expression) or axis.extent != PAIR:
        return None
    return axis if position == 1 - axis else None


def _end(terms: Terms, product: Term, position: Mapping[Symbol, Expression]) -> Term:
    """The sums of a product at one position of an axis."""
    return terms.reduce(
        product.op, product.attrs, _at(terms, product.args[0], position), merge=False
    )


def _at(terms: Terms, term: Term, position: Mapping[Symbol, Expression]) -> Term:
    """A value at a position of an axis, which only what is read has to know."""
    if term.axes.isdisjoint(position):
        return term
    if term.is_pointwise:
        args = tuple(_at(terms, arg, position) for arg in term.args)
        return terms.pointwise(term.op, args, term.dtype)
    return terms.at(term, position)


def _of_ends(terms: Terms, axis: Symbol, ends: Sequence[Term]) -> Term:
    """The first of two values where an axis is at 0, else the second."""
    first = terms.boolean(axis < 1)
    return terms.pointwise("Select", (first, *ends), ends[0].dtype)


def are_turned_by_lanes(product: Term, root: Term, costs: Costs) -> bool:
    """Does a kernel store no more of a product of few rows than its pairs, turned, wherever? The
    lanes that sum them hold all rows of a pair.
    """
    stored = root.axes
    if root.op == "Scatter":
        stored = frozenset(axis for dimension in root.attrs.frames[1] for axis in dimension)
    pair = stored - product.axes
    few = _has_few_rows(product, costs)
    return few and product.axes <= stored and upper(pair) <= len(ENDS)


# Blocks of more rows are copied to shared memory, each for its own columns, and stored in order.
def _has_few_rows(product: Term, costs: Costs) -> bool:
    sides = [upper(factor.axes & product.axes) for factor in product.args[0].args]
    return min(sides) <= max(1, costs.shares.rows)
