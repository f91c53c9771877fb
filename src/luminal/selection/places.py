"""Where the greatest is first, of a reduction in chunks: one chunk is searched, not all of x.

An argmax is `Max{a} Select(x == m, last - a, 0)` with `m = Max{a} x`. Cut into chunks, m is the
greatest of P, their greatest values: `x == m` holds somewhere in a chunk if and only if `P == m`
does, and there is a NaN in it if and only if P is one. The first such chunk has the first such
position, if the positions of each chunk are before those of the next. So x is read once, and one
chunk of it again.
"""

from __future__ import annotations

from luminal.algebra.reductions import Cut
from luminal.algebra.terms import Axes, Index, Literal, Reduction, Term, Terms
from luminal.base.dtypes import DType, bool_, int64
from luminal.base.records import dataclass
from luminal.hlir.monoid import MAXIMUM
from luminal.shape.expression import Expression, Symbol, axis, const


@dataclass(frozen=True, slots=True)
class FirstMaximum:
    """`Max{axes} Select(hit, position, 0)`, where x is the `greatest`, or NaN if `hits` says so."""

    greatest: Reduction
    position: Index

    def outermost(self) -> Symbol | None:
        """The axis along which positions fall whatever the others are, if there is one."""
        slopes = {a: self.slope(a) for a in self.greatest.attrs}
        along = max(slopes, key=lambda a: slopes[a])
        rest = 0
        for a, slope in slopes.items():
            if slope <= 0 or a.extent is None or not a.extent.is_const:
                return None
            rest += slope * (a.extent.value - 1) if a is not along else 0
        return along if slopes[along] > rest else None

    def slope(self, a: Symbol) -> int:
        """The number by which positions fall with each step along an axis; 0 where nobody knows."""
        factor = self.position.attrs.coefficient(a)
        return -factor.value if factor is not None and factor.is_const else 0


def place(term: Term) -> FirstMaximum | None:
    """The search for a maximum's first position that the term is; None if it is none."""
    if not isinstance(term, Reduction) or term.monoid is not MAXIMUM:
        return None
    (x,) = term.args
    if x.op != "Select":
        return None
    hit, position, other = x.args
    if not isinstance(position, Index) or not isinstance(other, Literal) or not other.is_zero:
        return None
    lo = position.attrs.interval.lo
    greatest = _greatest(hit, term.attrs)
    if greatest is None or lo is None or lo < 0:
        return None
    search = FirstMaximum(greatest, position)
    return None if search.outermost() is None else search


def _greatest(hit: Term, axes: Axes) -> Reduction | None:
    """The greatest of x over these axes, if `hit` says no more than that x is that, or NaN."""
    parts = hit.args if hit.op == "Or" else (hit,)
    for part in parts:
        if part.op == "Equal":
            for x, other in (part.args, part.args[::-1]):
                if not isinstance(other, Reduction) or other.monoid is not MAXIMUM:
                    continue
                rest = [candidate for candidate in parts if candidate is not part]
                if other.args == (x,) and other.attrs == axes and all(_is_nan(r, x) for r in rest):
                    return other
    return None


def _is_nan(term: Term, x: Term) -> bool:
    """Is the term `not x == x`, which holds of NaN alone?"""
    return term.op == "Xor" and any(
        same.op == "Equal" and same.args == (x, x) and isinstance(true, Literal) and true.value
        for same, true in (term.args, term.args[::-1])
    )


# An argmax is a maximum and then a search for it, which would read everything twice. Cut into
# chunks, the maxima say in which chunk it is first, and the second read is of that chunk only.
# Positions carried along in each lane would take one sweep, but of six operations a vector, not
# three.
def first_place(terms: Terms, wanted: FirstMaximum, parts: Cut, inner: Term, x: Term) -> Term:
    """The reduction of `wanted`, whose greatest values of the chunks are `inner`, all of x.

    What is searched is as long as a chunk and begins with the right one, or ends with the last.
    """
    dtype, along, chunk, size = (
        wanted.position.dtype,
        parts.along,
        parts.chunk,
        _length(parts.within),
    )
    last, begins = _length(chunk) - 1, _length(along) - size
    greatest = terms.reduce("Max", (chunk,), inner, merge=False)
    is_first = _select(terms, _hit(terms, inner, greatest), const(last) - chunk, dtype)
    from_end = terms.reduce("Max", (chunk,), is_first, merge=False)
    nothing = terms.index(const(0), dtype)
    before_end = _linear(terms, from_end, size, begins - last * size)
    back = terms.pointwise("Maximum", (before_end, nothing), dtype)

    window = axis(f"{along.name}.from{size}", begins + 1)
    start = terms.pointwise("Cast", (_linear(terms, back, -1, begins),), int64)
    there = terms.at(x, {along: window + parts.within})
    there = terms.at(there, {window: start}, inside=(start,))
    inside = wanted.position.attrs.substitute({along: parts.within})
    lowest = inside.interval.lo
    assert lowest is not None
    first = _select(terms, _hit(terms, there, greatest), inside - const(lowest), dtype)
    first = terms.reduce("Max", parts.inner(wanted.greatest.attrs), first, merge=False)
    slope = wanted.slope(along)
    outside = _linear(terms, back, slope, lowest - slope * begins)
    return terms.pointwise("Add", (first, outside), dtype)


def _length(a: Symbol) -> int:
    assert a.extent is not None
    return a.extent.value


def _hit(terms: Terms, x: Term, greatest: Term) -> Term:
    is_equal = terms.pointwise("Equal", (x, greatest), bool_)
    if not x.dtype.is_float:
        return is_equal
    number = terms.pointwise("Equal", (x, x), bool_)
    true = terms.boolean(const(1))
    is_nan = terms.pointwise("Xor", (number, true), bool_)
    return terms.pointwise("Or", (is_equal, is_nan), bool_)


def _select(terms: Terms, hit: Term, position: Expression, dtype: DType) -> Term:
    nothing = terms.index(const(0), dtype)
    return terms.pointwise("Select", (hit, terms.index(position, dtype), nothing), dtype)


def _linear(terms: Terms, x: Term, factor: int, start: int) -> Term:
    """`start + factor * x`."""
    scaled = terms.pointwise("Mul", (x, terms.index(const(factor), x.dtype)), x.dtype)
    return terms.pointwise("Add", (scaled, terms.index(const(start), x.dtype)), x.dtype)
