"""Cascades: streaming reductions, of values of which one block after the other is computed, and
which are never stored whole (as online softmax and flash attention do).

Let X[i, j] be dear to store: a contraction. What is reduced over j of it, of values indexed by i or
j alone, and of *statistics* over j (other such reductions) needs X only as a block. A statistic is
served in one of three ways:

a. It factors out: then it is no operand any more (a respelling, see `selection.spell`).
b. It is a running maximum r1 = Max(J, x) in which r2 = Sum(J, f) is *rescalable*: f, flattened to a
   product, is `A * prod exp(p + c*r1 + d*x)` with literals c < 0 and d >= -c, and r1 nowhere else.
   When r1 moves to r1', r2 is multiplied by `exp(c*(r1' - r1))`, which never exceeds 1. Since
   x <= r1, exponents are bounded by p + (c + d)*r1 under any maximum so far.
c. Else it is known at the end of a sweep over J only, and X is computed again in the next sweep.

This is a law on expressions (for b compare RedFuser, arXiv 2603.10026): it knows of no operation
that uses it; a softmax between two products is an instance. The derivation refuses by default, and
says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import reduce

import numpy as np

from luminal.algebra.frames import upper
from luminal.algebra.terms import Index, Literal, Reduction, Term, below, dependents, term_order
from luminal.base.dtypes import float32, float64
from luminal.base.records import dataclass
from luminal.hlir.monoid import MAXIMUM
from luminal.shape.condition import negation
from luminal.shape.expression import Expression, Symbol

MOST_TERMS = 300  # read or computed for one sum of a pass: more are no kernel, and take time
MOST_SWEEPS = 3  # a statistic of a statistic of one: more are never worth computing X again
ROUNDED = 1e-5  # relative error of products of float literals


@dataclass(frozen=True, slots=True)
class Rate:
    """What a sum is multiplied by when a maximum moves: `base` (Exp, Exp2) of `factor` times it."""

    maximum: Reduction
    base: str
    factor: float


@dataclass(frozen=True, slots=True)
class Member:
    """A reduction over the steps: in which sweep, and how it follows a maximum of that sweep."""

    term: Reduction
    sweep: int = 0
    rate: Rate | None = None


# A cascade is derived from terms, not matched as a pattern: relu between two products, a variance,
# log-softmax and attention are instances with one, two or three sweeps. For the single sweep with a
# running maximum see Milakov and Gimelshein, arXiv 1805.02867, and Dao et al., arXiv 2205.14135.
@dataclass(frozen=True, slots=True)
class Cascade:
    """Reductions over the same steps, by sweep, then operands first; and the contractions done anew
    in each step. `is_rough`: factors may be rounded to what a dot multiplies.
    """

    members: tuple[Member, ...]
    inner: tuple[Reduction, ...]
    is_rough: bool = False

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return (*(m.term for m in self.members), *self.inner)

    @property
    def first(self) -> Reduction:
        """A member of the first sweep, from which the others can be derived."""
        return self.members[0].term

    @property
    def steps(self) -> frozenset[Symbol]:
        """The axes that are reduced."""
        return frozenset(self.first.attrs)

    @property
    def rows(self) -> frozenset[Symbol]:
        """The axes that all members and contractions have beside the steps."""
        common = reduce(frozenset.intersection, (r.axes for r in self.reductions))
        return common - self.steps

    @property
    def sweeps(self) -> int:
        """How often the steps are walked."""
        return 1 + max(m.sweep for m in self.members)

    @property
    def results(self) -> frozenset[Term]:
        """What is known in the end."""
        return frozenset(m.term for m in self.members)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the reductions that use what the first of them uses do not run in one kernel with it."""

    first: Term
    reason: str


IsRead = Callable[[Term], bool]


def starts(first: Reduction, is_read: IsRead) -> tuple[Reduction, ...]:
    """What a cascade that begins with `first` starts from: its largest contraction, if any."""
    seen = below(first.args, lambda t: is_read(t) or t.is_reduction, MOST_TERMS)
    steps = frozenset(first.attrs)
    contractions = [
        t for t in seen if isinstance(t, Reduction) and t.op == "Sum" and not is_read(t)
    ]
    contractions = [t for t in contractions if t.axes >= steps]
    if not contractions:
        return (first,)
    # The largest, as it is what must not be stored; among equals the one that was made first, so
    # that a program compiles alike each time.
    return first, max(contractions, key=lambda t: (upper(t.axes), -t.id))


def rows_of(first: Reduction, is_read: IsRead) -> frozenset[Symbol]:
    """The axes of its blocks: those of a factor that is computed of a contraction, if the other
    factor has axes of its own.
    """
    (x,) = first.args
    if first.op == "Sum" and x.op == "Mul":
        contraction = starts(first, is_read)[-1]
        inside = [contraction in below((arg,), is_read, MOST_TERMS) for arg in x.args]
        if any(inside) and not all(inside):
            factor, other = x.args if inside[0] else x.args[::-1]
            if not other.axes <= factor.axes:
                return factor.axes - set(first.attrs)
    return first.axes


# Refusing by default is what makes it safe: a pattern for softmax would have to be right about each
# operation in it, while here whatever is not understood ends the derivation with a reason.
def derive(
    first: Reduction, reductions: Sequence[Reduction], above: Set[Term], is_read: IsRead
) -> Cascade | Refusal:
    """The cascade of a reduction in its first sweep, among those of a program or kernel, operands
    first.

    `above`: what depends on its `starts`, these reductions at most; `is_read`: in memory before.
    Refused unless all that uses a step's values reduces over the same axes, and there is a
    contraction on either side (else reading twice costs less).
    """
    steps, rows = set(first.attrs), rows_of(first, is_read)
    if not steps <= first.args[0].axes:
        return Refusal(first, "what is reduced is the same along an axis")
    per_step = rows | steps

    def is_end(term: Term) -> bool:
        """Read from memory: also a reduction that is not computed anew in each step."""
        if not term.is_reduction:
            return is_read(term)
        return not (term.op == "Sum" and term.axes == per_step) or is_read(term)

    seen = below(first.args, is_end, MOST_TERMS)
    members: dict[Term, Member] = {}
    for r in reductions:
        reads = below(r.args, is_end, MOST_TERMS)
        # A derivation walks all of these for each reduction, so a graph of thousands of reductions
        # would take long to be refused.
        if len(seen) + len(reads) > MOST_TERMS:
            return Refusal(first, f"more than {MOST_TERMS} values make one step")
        ended = [t for t in reads if t in above and t.is_reduction and is_end(t) and not is_read(t)]
        used = [members[t] for t in ended if t in members]
        anew = any(t.is_reduction and t in seen and not is_end(t) for t in reads)
        if is_read(r) or not is_end(r) or not (used or anew or r is first):
            continue
        if steps.isdisjoint(r.attrs) and not any(steps & t.axes for t in reads):
            continue  # beyond the pass: it uses results as they are in the end
        if len(used) < len(ended):
            return Refusal(first, f"{r!r} needs the end of a sum that is no part of the pass")
        # Over fewer axes it would end while others still move; over more it adds up what
        # several maxima scale, and no one factor rescales that.
        if set(r.attrs) != steps or not r.axes >= rows:
            return Refusal(first, f"{r!r} uses values of a step and runs over other axes")
        members[r] = _member(r, used, is_end)
        seen |= reads
    return _cascade(first, tuple(members.values()), seen, is_end)


def _cascade(
    first: Reduction, members: tuple[Member, ...], seen: Iterable[Term], is_end: IsRead
) -> Cascade | Refusal:
    """The cascade of these members, if they are worth one kernel."""
    if all(m.term is not first or m.sweep for m in members):
        return Refusal(first, "others that use the same values come before it")
    last = max(m.sweep for m in members)
    if last >= MOST_SWEEPS:
        return Refusal(first, f"more than {MOST_SWEEPS} statistics, each of the one before")
    # By number, which is the order in which terms were made: a set has another order in each
    # process.
    inner = sorted((t for t in seen if isinstance(t, Reduction) and not is_end(t)), key=_number)
    summed = frozenset[Symbol]().union(*(r.attrs for r in inner))
    if any(not summed.isdisjoint(r.axes) for r in inner):
        return Refusal(first, "a sum of a step has steps that are sums themselves")
    # Beside a contraction one more exponential a block is cheap, else reading x twice is cheaper.
    if not inner:
        if last or all(m.rate is None for m in members):
            return Refusal(first, "no sum over the same axes is rescaled, nothing is dear")
        if all(m.term.axes == first.axes for m in members):
            return Refusal(first, "no contraction: two passes cost less than rescaling")
    return Cascade(tuple(sorted(members, key=lambda m: m.sweep)), tuple(inner))


def _member(r: Reduction, used: Sequence[Member], is_end: IsRead) -> Member:
    """A reduction that uses these: in the sweep of the last of them if it is rescaled when that
    moves, else when it is known.
    """
    sweep = max((m.sweep for m in used), default=-1)
    last = [m for m in used if m.sweep == sweep]
    if len(last) == 1 and last[0].term.monoid is MAXIMUM and last[0].rate is None:
        rate = _rescaled(r, last[0].term, is_end)
        if isinstance(rate, Rate):
            return Member(r, sweep, rate)
    return Member(r, sweep + 1)


def in_each_step(cascade: Cascade, is_read: IsRead) -> frozenset[Term]:
    """What a pass computes in each step of a member or of the contractions."""
    starts = (*cascade.results, *cascade.inner)

    def is_end(term: Term) -> bool:
        return is_read(term) or (term.is_reduction and term not in starts)

    args = (arg for r in cascade.reductions for arg in r.args)
    order = sorted(below(args, is_end), key=_number)  # operands have smaller numbers
    repeated = dependents(order, starts, is_end) - cascade.results
    return frozenset(t for t in repeated if cascade.steps & t.axes)


def _number(term: Term) -> int:
    return term.id


# The factor without the axis is read once for all positions along it. The longest such axis shares
# most.
def lane_axis(cascade: Cascade) -> Symbol | None:
    """The axis whose positions are worked on together: the longest one that, in each contraction,
    one factor has and the other lacks (so that what the other reads is shared).
    """
    shared = set(cascade.rows)
    for contraction in cascade.inner:
        (product,) = contraction.args
        if product.op != "Mul":
            return None
        a, b = product.args
        shared &= a.axes ^ b.axes
    steps = set(cascade.steps)
    shared = {a for a in shared if all(_is_apart(r, a, steps) for r in cascade.inner)}
    return max(shared, key=lambda a: (upper((a,)), a.sort_key), default=None)


def _is_apart(contraction: Term, lane: Symbol, steps: set[Symbol]) -> bool:
    factors = contraction.args[0].args
    # What varies along the lanes is packed once, before the pass has any steps.
    return not any(lane in factor.axes and steps & factor.axes for factor in factors)


def masked(maximum: Reduction) -> tuple[list[Expression], Term]:
    """(conditions, x): what is maximised equals x where the conditions on positions hold, and has
    no effect elsewhere.
    """
    (x,) = maximum.args
    conditions: list[Expression] = []
    while (mask := _unmasked(x)) is not None:
        condition, x = mask
        conditions.append(condition)
    return conditions, x


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
            inner = _unmasked(mask) if mask.op == "Select" else None
            if inner is not None and _is(inner[1], 0):
                return inner[0], x
    return None


def _is(term: Term, value: float) -> bool:
    return isinstance(term, Literal) and bool(term.value == value)


@dataclass(frozen=True, slots=True)
class _Factor:
    """One that is `A * base(p + slope*maximum + growth*x)`, x what is maximised."""

    base: str
    slope: float
    growth: float


def _rescaled(sum_: Reduction, maximum: Reduction, is_read: IsRead) -> Rate | str:
    """How the sum is rescaled when the maximum moves, or why it is not."""
    if sum_.op != "Sum" or sum_.dtype is not maximum.dtype:
        return f"it is a {sum_.op} of {sum_.dtype}"
    if sum_.dtype not in (float32, float64):
        return f"the maximum is {maximum.dtype}, not float32 or float64"
    (x,), (product,) = maximum.args, sum_.args

    def is_end(term: Term) -> bool:
        return term is maximum or is_read(term)

    order = term_order((product,), is_end)
    slopes, growths = _slopes(order, maximum, is_end), _slopes(order, x, is_end)
    rates: dict[Term, _Factor | str] = {}  # of the factors that use the maximum
    for term in order:
        if term not in slopes:
            continue
        moving = [rates[arg] for arg in term.args if arg in rates]
        if term.op in ("Exp", "Exp2"):
            (exponent,) = term.args
            # Not linear in x counts as not growing with it, which is refused below.
            slope, growth = slopes[exponent], growths.get(exponent)
            if slope is None:
                rates[term] = f"the exponent {exponent!r} is not linear in the maximum"
            else:
                rates[term] = _Factor(term.op, slope, growth or 0.0)
        elif term.op == "Mul" and moving:
            rates[term] = _product(term, moving)
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
    return Rate(maximum, rate.base, rate.slope)


def _product(term: Term, factors: Sequence[_Factor | str]) -> _Factor | str:
    """The rate of a product, given those of its factors that use the maximum."""
    reasons = [factor for factor in factors if isinstance(factor, str)]
    rates = [factor for factor in factors if isinstance(factor, _Factor)]
    if reasons:
        return reasons[0]
    if len({rate.base for rate in rates}) > 1:
        return f"the factor {term!r} uses the maximum"
    slope, growth = sum(rate.slope for rate in rates), sum(rate.growth for rate in rates)
    return _Factor(rates[0].base, slope, growth)


def _slopes(order: Sequence[Term], unit: Term, is_end: IsRead) -> dict[Term, float | None]:
    """The slope c of each term that is `p + c*unit`, p free of `unit`, operands first; None for a
    term that depends on `unit` and is not of that form.
    """
    by_term: dict[Term, float | None] = {}
    for term in order:
        if term is unit:
            by_term[term] = 1.0
            continue
        moving = [by_term[arg] for arg in term.args if arg in by_term]
        if not moving or is_end(term):
            continue
        by_term[term] = None
        slopes = [slope for slope in moving if slope is not None]
        if len(slopes) < len(moving):
            continue
        if term.op == "Add":
            by_term[term] = sum(slopes)
        elif term.op == "Mul" and len(slopes) == 1:
            # A value as the scale could have either sign,
            # and the sign decides whether sums may overflow.
            scale = next(arg for arg in term.args if arg not in by_term)
            if isinstance(scale, Literal):
                by_term[term] = slopes[0] * float(scale.value)
    return by_term
