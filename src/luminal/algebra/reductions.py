"""Laws of reductions over sets of axes: nested, in chunks, rid of factors.

They speak of axes alone, so that a rewriting of terms (`selection/`) and a handler that looks for
equal spellings in an e-graph (`egraph/handlers`) apply the same ones. A reduction combines the
values at all points of its axes, in an order that only rounding can tell (`hlir/monoid.py`): so the
points may be visited in any grouping, and each law is one grouping.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from luminal.algebra.frames import upper
from luminal.algebra.terms import Axes, Index, Literal, Term, Terms
from luminal.base.records import dataclass
from luminal.hlir.monoid import SUM, Monoid
from luminal.shape.condition import linear_form
from luminal.shape.expression import TRUE, Expression, Symbol, all_of, axis, ceil_div, const


def around(inner: Collection[Symbol], outer: Axes) -> Axes | None:
    """The axes J with `op(outer, x) = op(J, op(inner, x))`; None if `inner` is no proper part."""
    rest = tuple(a for a in outer if a not in inner)
    return rest if rest and len(rest) + len(inner) == len(outer) else None


def may_leave(factor: frozenset[Symbol], bound: Iterable[Symbol]) -> bool:
    """Can a factor with these axes be taken out of a sum over `bound`, or a divisor out of its
    quotients?

    It is the same at all points that are summed. An empty sum is 0 whatever its factors are, so
    none of the axes may be empty (`is_never_empty`) where the factor could be NaN or infinite.
    """
    return factor.isdisjoint(bound)


def longest(axes: Iterable[Symbol]) -> Symbol:
    """The axis with most positions, the first of several."""
    return max(axes, key=lambda a: upper((a,)))


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis walked in chunks: `op({along}, x) = op({chunk}, op({within}, x[along := position]))`.

    The last chunk may be short: then x counts only where `inside` holds.
    """

    along: Symbol
    chunk: Symbol
    within: Symbol

    @property
    def position(self) -> Expression:
        assert self.within.extent is not None
        return self.chunk * self.within.extent + self.within

    @property
    def inside(self) -> Expression:
        """TRUE where the chunks are known to fill the axis."""
        assert self.along.extent is not None
        return self.position < self.along.extent

    def inner(self, bound: Axes) -> Axes:
        """The axes of the inner reduction, in place of `bound`."""
        return (self.within, *(a for a in bound if a is not self.along))


def cut(along: Symbol, size: int, number: int | None = None) -> Cut:
    """The Cut of an axis into chunks of `size` positions. The axes are named by the size, so that a
    cut made again gives the same ones, or by a `number` of its own.
    """
    assert along.extent is not None
    label = size if number is None else number
    chunk = axis(f"{along.name}.chunk{label}", ceil_div(along.extent, size))
    return Cut(along, chunk, axis(f"{along.name}.in{label}", size))


# A sum over all positions of which one condition leaves a single one is that one position: a
# one-hot vector times a matrix reads a row, and no loop is made.
def without_points(terms: Terms, bound: Axes, x: Term, monoid: Monoid) -> tuple[Axes, Term]:
    """The axes that a reduction of x over `bound` walks, and what it reduces: not those of which a
    mask leaves one position, as in `Select(a == i + 2 & rest, x, empty)`. There x is read.

    Transposed views are full of these: the gradient of one element that was read is such a sum.
    """
    mask = masked(x, monoid)
    if mask is None:
        return bound, x
    condition, walked, reduced = mask[0].attrs, [*bound], mask[1]
    for a in bound:
        position = _only_position(condition, a, walked)
        if position is not None:
            assert a.extent is not None
            walked.remove(a)
            there = {a: position}
            inside = (const(-1) < position, position < a.extent)
            condition = all_of((condition.substitute(there), *inside))
            reduced = terms.at(reduced, there)
    if len(walked) == len(bound):
        return bound, x
    reduced = only_inside(terms, condition, reduced, monoid)
    if not walked and monoid is SUM and x.dtype.is_float:  # -0 among others sums up to 0
        reduced = terms.pointwise("Add", (reduced, x.args[2]), x.dtype)
    return tuple(walked), reduced


def _only_position(condition: Expression, a: Symbol, walked: Iterable[Symbol]) -> Expression | None:
    """The position on `a` where alone the condition may hold, if a bound from below is one from
    above: the same on all axes that are walked.
    """
    bounds: dict[int, list[Expression]] = {1: [], -1: []}
    for part in condition.args if condition.op == "and" else (condition,):
        if part.op in ("eq", "le", "lt"):
            slack = linear_form(part)
            factor = slack.coefficient(a)
            if factor is not None and factor.is_const and factor.value in bounds:
                bound = a - slack * factor
                for sign in (1, -1) if part.op == "eq" else (factor.value,):
                    bounds[sign] += [bound] if bound.symbols().isdisjoint(walked) else []
    return next((bound for bound in bounds[1] if bound in bounds[-1]), None)


def masked(x: Term, monoid: Monoid) -> tuple[Index, Term] | None:
    """(condition, value) of what adds nothing to a reduction where an index condition fails."""
    if x.op != "Select":
        return None
    condition, value, other = x.args
    if not isinstance(condition, Index) or not isinstance(other, Literal):
        return None
    return (condition, value) if other.value == monoid.identity(other.dtype) else None


def only_inside(terms: Terms, inside: Expression, x: Term, monoid: Monoid) -> Term:
    """`x`, or what adds nothing to a reduction where `inside` does not hold."""
    if inside is TRUE:
        return x
    nothing = terms.literal(monoid.identity_bytes(x.dtype), x.dtype)
    return terms.pointwise("Select", (terms.boolean(inside), x, nothing), x.dtype)
