"""Cascaded reductions: sums that depend on a running maximum, all in one pass.

Let `r1 = Max(J, x)` and `r2 = Sum(J, f)`. r2 is *rescalable* in r1 if f, flattened to a product,
is `A * prod exp(p + c*r1)` with c < 0 a literal and r1 nowhere else. Then one pass over J keeps
(r1, r2): when r1 moves to r1', r2 is multiplied by `exp(c*(r1' - r1))`, which never exceeds 1.

This is a law on expressions (compare RedFuser, arXiv 2603.10026): it knows of no operation that
uses it. The derivation refuses by default, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from luminal.algebra.terms import Term, below, factors
from luminal.dtypes import float32, float64
from luminal.shape.condition import negation
from luminal.shape.expression import TRUE, Expression, Symbol, all_of


@dataclass(frozen=True, slots=True)
class Member:
    """A sum in the pass: `base` (Exp or Exp2) and `factor` c of what it is rescaled by.

    `vanishes`: its terms are 0 where what is maximised is -inf.
    """

    term: Term
    base: str
    factor: float
    vanishes: bool


@dataclass(frozen=True, slots=True)
class Cascade:
    """The maximum, the sums rescaled when it moves, the contractions done anew in each step, and
    all that depends on these within the pass.
    """

    maximum: Term
    members: tuple[Member, ...]
    inner: tuple[Term, ...]
    scope: frozenset[Term]

    @property
    def reductions(self) -> tuple[Term, ...]:
        return (self.maximum, *(m.term for m in self.members), *self.inner)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the sums that use a maximum do not run in one pass with it."""

    maximum: Term
    reason: str


def derive(
    maximum: Term, reductions: Sequence[Term], is_read: Callable[[Term], bool]
) -> Cascade | Refusal:
    """The cascade of a maximum among the reductions of a program or kernel, operands first.

    Refused unless every sum over the same axes that uses the maximum is rescalable, and there is a
    contraction on either side of the maximum (else two passes cost less than rescaling).
    """
    if maximum.dtype not in (float32, float64):
        return Refusal(maximum, f"the maximum is {maximum.dtype}, not float32 or float64")
    step = set(maximum.attrs)
    per_step = maximum.axes | step

    def ends(term: Term) -> bool:
        """Read from memory: also a reduction that is not computed anew in each step."""
        inner = term is maximum or (term.op == "Sum" and term.axes >= per_step)
        return is_read(term) or (term.is_reduction and not inner)

    seen = set(below(maximum.args, ends))
    members: list[Member] = []
    for r in reductions:
        reads = below(r.args, ends)
        if r is maximum or is_read(r) or maximum not in reads:
            continue
        if step.isdisjoint(r.attrs) and not any(step & t.axes for t in reads):
            continue  # beyond the pass: it uses the maximum as it is in the end
        stale = (t for t in reads if ends(t) and t.is_reduction and not is_read(t))
        if any(maximum in below(t.args, is_read) for t in stale):
            return Refusal(maximum, f"{r!r} needs the end of a sum of the same pass")
        if set(r.attrs) != step:
            return Refusal(maximum, f"{r!r} uses the maximum and runs over other axes")
        member = _rescaled(r, maximum, ends)
        if isinstance(member, str):
            return Refusal(maximum, f"{r!r} is not rescalable: {member}")
        members.append(member)
        seen.update(reads)
    if not members:
        return Refusal(maximum, "no sum over the same axes uses it")
    inner = sorted((t for t in seen - {maximum} if t.is_reduction and not ends(t)), key=_number)
    if not inner and all(m.term.axes == maximum.axes for m in members):
        return Refusal(maximum, "no contraction: two passes cost less than rescaling")
    scope = frozenset(t for t in _moving(maximum, inner, seen, ends) if step & t.axes)
    return Cascade(maximum, tuple(members), tuple(inner), scope)


def _moving(
    maximum: Term, inner: Sequence[Term], seen: Iterable[Term], ends: Callable[[Term], bool]
) -> set[Term]:
    """All that depends on the maximum or a contraction within a step, and these contractions."""
    found = {maximum, *inner}
    for term in sorted(seen, key=_number):  # operands have smaller numbers
        if not ends(term) and not found.isdisjoint(term.args):
            found.add(term)
    return found - {maximum}


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
    return max(shared, key=lambda a: (_most(a), a.sort_key), default=None)


def _apart(contraction: Term, lane: Symbol, steps: set[Symbol]) -> bool:
    factors = contraction.args[0].args
    return not any(lane in factor.axes and steps & factor.axes for factor in factors)


def _most(axis: Symbol) -> int:
    hi = None if axis.extent is None else axis.extent.interval.hi
    return 1 << 62 if hi is None else hi


def masked(maximum: Term) -> tuple[Expression, Term]:
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
    if term.op == "Select" and term.args[0].op == "Index":
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
    return term.op == "Literal" and bool(term.attrs.value(term.dtype) == value)


def _rescaled(sum_: Term, maximum: Term, is_read: Callable[[Term], bool]) -> Member | str:
    """How the sum is rescaled when the maximum moves, or why it is not."""
    if sum_.op != "Sum" or sum_.dtype is not maximum.dtype:
        return f"it is a {sum_.op} of {sum_.dtype}"
    base, total, growth = None, 0.0, 0.0
    (x,) = maximum.args

    def ends(term: Term) -> bool:
        return term is maximum or is_read(term)

    for factor in factors(sum_.args[0]):
        if maximum not in below((factor,), is_read):
            continue
        if factor.op not in ("Exp", "Exp2") or base not in (None, factor.op):
            return f"the factor {factor!r} uses the maximum"
        base = factor.op
        slope = _slope(factor.args[0], maximum, is_read)
        if slope is None:
            return f"the exponent {factor.args[0]!r} is not linear in the maximum"
        total += slope
        growth += _slope(factor.args[0], x, ends) or 0
    if base is None or not total < 0:
        return f"it changes by exp({total:g} * the maximum), which may grow"
    return Member(sum_, base, total, growth > 0)


def _slope(term: Term, maximum: Term, is_read: Callable[[Term], bool]) -> float | None:
    """c where `term = p + c*maximum`, p free of it; None if it is not of that form."""
    if term is maximum:
        return 1.0
    if maximum not in below((term,), is_read):
        return 0.0
    if term.op == "Add":
        slopes = [_slope(arg, maximum, is_read) for arg in term.args]
        return None if None in slopes else sum(s for s in slopes if s is not None)
    if term.op == "Mul":
        for x, scale in (term.args, term.args[::-1]):
            if scale.op == "Literal":
                slope = _slope(x, maximum, is_read)
                return None if slope is None else slope * float(scale.attrs.value(scale.dtype))
    return None
