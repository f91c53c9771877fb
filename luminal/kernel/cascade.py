"""Cascaded reductions: sums that depend on a running maximum, all in one pass.

Let `r1 = Max(J, x)` and `r2 = Sum(J, f)`. r2 is *rescalable* in r1 if f, flattened to a product,
is `A * prod exp(p + c*r1 + d*x)` with literals c < 0 and d >= -c, and r1 nowhere else. Then one
pass over J keeps (r1, r2): when r1 moves to r1', r2 is multiplied by `exp(c*(r1' - r1))`, which
never exceeds 1. Since x <= r1, exponents are bounded by p + (c + d)*r1 under any maximum so far.

This is a law on expressions (compare RedFuser, arXiv 2603.10026): it knows of no operation that
uses it. The derivation refuses by default, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from luminal.algebra.frames import upper
from luminal.algebra.terms import Index, Literal, Reduction, Term, below, dependents, term_order
from luminal.dtypes import float32, float64
from luminal.shape.condition import negation
from luminal.shape.expression import TRUE, Expression, Symbol, all_of

MOST_TERMS = 300  # read or computed for one sum of a pass: more are no kernel, and take time
ROUNDED = 1e-5  # relative error of products of float literals


@dataclass(frozen=True, slots=True)
class Member:
    """A sum in the pass: `base` (Exp or Exp2) and `factor` c of what it is rescaled by."""

    term: Reduction
    base: str
    factor: float


@dataclass(frozen=True, slots=True)
class Cascade:
    """The maximum, the sums rescaled when it moves, and the contractions done anew in each step."""

    maximum: Reduction
    members: tuple[Member, ...]
    inner: tuple[Reduction, ...]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return (self.maximum, *(m.term for m in self.members), *self.inner)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the sums that use a maximum do not run in one pass with it."""

    maximum: Term
    reason: str


def derive(
    maximum: Reduction,
    reductions: Sequence[Reduction],
    above: Set[Term],
    is_read: Callable[[Term], bool],
) -> Cascade | Refusal:
    """The cascade of a maximum among the reductions of a program or kernel, operands first.

    `above`: what depends on the maximum, these reductions at most; `is_read`: in memory before.
    Refused unless every sum over the same axes that uses the maximum is rescalable, and there is a
    contraction on either side of the maximum (else two passes cost less than rescaling).
    """
    if maximum.dtype not in (float32, float64):
        return Refusal(maximum, f"the maximum is {maximum.dtype}, not float32 or float64")
    step = set(maximum.attrs)
    if not step <= maximum.args[0].axes:
        return Refusal(maximum, "what is maximised is the same along an axis")
    per_step = maximum.axes | step

    def ends(term: Term) -> bool:
        """Read from memory: also a reduction that is not computed anew in each step."""
        if not term.is_reduction:
            return is_read(term)
        inner = term is maximum or (term.op == "Sum" and term.axes >= per_step)
        return not inner or is_read(term)

    seen = below(maximum.args, ends, MOST_TERMS)
    members: list[Member] = []
    for r in reductions:
        reads = below(r.args, ends, MOST_TERMS)
        if len(seen) + len(reads) > MOST_TERMS:
            return Refusal(maximum, f"more than {MOST_TERMS} values make one step")
        if r is maximum or is_read(r) or maximum not in reads:
            continue
        if step.isdisjoint(r.attrs) and not any(step & t.axes for t in reads):
            continue  # beyond the pass: it uses the maximum as it is in the end
        # A pass has no end of a sum to offer before all of its steps are done.
        if any(t in above and ends(t) and t.is_reduction for t in reads):
            return Refusal(maximum, f"{r!r} needs the end of a sum of the same pass")
        # Over fewer axes it would end while the maximum still moves; over more it adds up what
        # several maxima scale, and no one factor rescales that.
        if set(r.attrs) != step:
            return Refusal(maximum, f"{r!r} uses the maximum and runs over other axes")
        member = _rescaled(r, maximum, ends)
        if isinstance(member, str):
            return Refusal(maximum, f"{r!r} is not rescalable: {member}")
        members.append(member)
        seen |= reads
    if not members:
        return Refusal(maximum, "no sum over the same axes uses it")
    within = (t for t in seen if isinstance(t, Reduction))
    inner = sorted((r for r in within if r is not maximum and not ends(r)), key=_number)
    # Beside a contraction one more exponential a block is cheap, else reading x twice is cheaper.
    if not inner and all(m.term.axes == maximum.axes for m in members):
        return Refusal(maximum, "no contraction: two passes cost less than rescaling")
    return Cascade(maximum, tuple(members), tuple(inner))


def in_each_step(cascade: Cascade, is_read: Callable[[Term], bool]) -> frozenset[Term]:
    """What a pass computes in each step of the maximum or of the contractions."""
    starts = (cascade.maximum, *cascade.inner)

    def ends(term: Term) -> bool:
        return is_read(term) or (term.is_reduction and term not in starts)

    args = (arg for r in cascade.reductions for arg in r.args)
    order = sorted(below(args, ends), key=_number)  # operands have smaller numbers
    found = dependents(order, starts, ends) - {cascade.maximum}
    step = set(cascade.maximum.attrs)
    return frozenset(t for t in found if step & t.axes)


def _number(term: Term) -> int:
    return term.id


def lane_axis(cascade: Cascade) -> Symbol | None:
    """The axis whose positions are worked on together: the longest one that, in each contraction,
    one factor has and the other lacks (so that what the other reads is shared).
    """
    shared = set(cascade.maximum.axes)
    for contraction in cascade.inner:
        (product,) = contraction.args
        if product.op != "Mul":
            return None
        a, b = product.args
        shared &= a.axes ^ b.axes
    steps = set(cascade.maximum.attrs)
    shared = {a for a in shared if all(_apart(r, a, steps) for r in cascade.inner)}
    return max(shared, key=lambda a: (upper((a,)), a.sort_key), default=None)


def _apart(contraction: Term, lane: Symbol, steps: set[Symbol]) -> bool:
    factors = contraction.args[0].args
    # What varies along the lanes is packed once, before the pass has any steps.
    return not any(lane in factor.axes and steps & factor.axes for factor in factors)


def masked(maximum: Reduction) -> tuple[Expression, Term]:
    """(condition, x): what is maximised equals x where the condition on positions holds, and has
    no effect elsewhere. TRUE if there is no such condition.
    """
    (x,) = maximum.args
    conditions: list[Expression] = []
    while (found := _unmasked(x)) is not None:
        condition, x = found
        conditions.append(condition)
    return all_of(conditions) if conditions else TRUE, x


def _unmasked(term: Term) -> tuple[Expression, Term] | None:
    """One mask less: `Select(c, x, -inf)`, `Select(c, -inf, x)`, `x + Select(c, 0, -inf)`."""
    if term.op == "Select" and isinstance(term.args[0], Index):
        condition, x, y = term.args
        if _is(y, -np.inf):
            return condition.attrs, x
        if _is(x, -np.inf):
            return negation(condition.attrs), y
    if term.op == "Add":
        for mask, x in (term.args, term.args[::-1]):
            found = _unmasked(mask) if mask.op == "Select" else None
            if found is not None and _is(found[1], 0):
                return found[0], x
    return None


def _is(term: Term, value: float) -> bool:
    return isinstance(term, Literal) and bool(term.value == value)


@dataclass(frozen=True, slots=True)
class _Rate:
    """A factor that is `A * base(p + slope*maximum + growth*x)`, x what is maximised."""

    base: str
    slope: float
    growth: float


def _rescaled(sum_: Reduction, maximum: Reduction, is_read: Callable[[Term], bool]) -> Member | str:
    """How the sum is rescaled when the maximum moves, or why it is not."""
    if sum_.op != "Sum" or sum_.dtype is not maximum.dtype:
        return f"it is a {sum_.op} of {sum_.dtype}"
    (x,), (product,) = maximum.args, sum_.args

    def ends(term: Term) -> bool:
        return term is maximum or is_read(term)

    order = term_order((product,), ends)
    slopes, growths = _slopes(order, maximum, ends), _slopes(order, x, ends)
    rates: dict[Term, _Rate | str] = {}  # of the factors that use the maximum
    for term in order:
        if term not in slopes:
            continue
        found = [rates[arg] for arg in term.args if arg in rates]
        if term.op in ("Exp", "Exp2"):
            (exponent,) = term.args
            # Not linear in x counts as not growing with it, which is refused below.
            slope, growth = slopes[exponent], growths.get(exponent)
            if slope is None:
                rates[term] = f"the exponent {exponent!r} is not linear in the maximum"
            else:
                rates[term] = _Rate(term.op, slope, growth or 0.0)
        elif term.op == "Mul" and found:
            rates[term] = _product(term, found)
        else:
            rates[term] = f"the factor {term!r} uses the maximum"
    rate = rates[product]
    if isinstance(rate, str):
        return rate
    # The maximum only grows: with a negative slope the factor of each move is at most 1, so sums
    # never overflow for being rescaled.
    if not rate.slope < 0:
        return f"it changes by exp({rate.slope:g} * the maximum), which may grow"
    # x <= r, so exp(slope*r + growth*x) <= exp((slope + growth)*r): under an early, small r that is
    # bounded by what the last r gives only if the exponent does not fall with r.
    if rate.growth + rate.slope < -ROUNDED * abs(rate.slope):
        return "an early maximum does not bound it: it could overflow where the last one is larger"
    return Member(sum_, rate.base, rate.slope)


def _product(term: Term, factors: Sequence[_Rate | str]) -> _Rate | str:
    """The rate of a product, given those of its factors that use the maximum."""
    reasons = [each for each in factors if isinstance(each, str)]
    rates = [each for each in factors if isinstance(each, _Rate)]
    if reasons:
        return reasons[0]
    if len({rate.base for rate in rates}) > 1:
        return f"the factor {term!r} uses the maximum"
    slope, growth = sum(rate.slope for rate in rates), sum(rate.growth for rate in rates)
    return _Rate(rates[0].base, slope, growth)


def _slopes(
    order: Sequence[Term], unit: Term, ends: Callable[[Term], bool]
) -> dict[Term, float | None]:
    """By each term that depends on `unit`, operands first: c where it is `p + c*unit`, p free of
    it; None if it is not of that form.
    """
    found: dict[Term, float | None] = {}
    for term in order:
        if term is unit:
            found[term] = 1.0
            continue
        moving = [found[arg] for arg in term.args if arg in found]
        if not moving or ends(term):
            continue
        found[term] = None
        slopes = [slope for slope in moving if slope is not None]
        if len(slopes) < len(moving):
            continue
        if term.op == "Add":
            found[term] = sum(slopes)
        elif term.op == "Mul" and len(slopes) == 1:
            # A value as the scale could have either sign,
            # and the sign decides whether sums may overflow.
            scale = next(arg for arg in term.args if arg not in found)
            if isinstance(scale, Literal):
                found[term] = slopes[0] * float(scale.value)
    return found
