"""Cascaded reductions: sums that depend on a running maximum, all in one pass.

Let `r1 = Max(J, x)` and `r2 = Sum(J, f)`. r2 is *rescalable* in r1 if f, flattened to a product,
is `A * prod exp(p + c*r1)` with c < 0 a literal and r1 nowhere else. Then one pass over J keeps
(r1, r2): when r1 moves to r1', r2 is multiplied by `exp(c*(r1' - r1))`, which never exceeds 1.

This is a law on expressions (compare RedFuser, arXiv 2603.10026): it knows of no operation that
uses it. The derivation refuses by default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from luminal.algebra.terms import Term, below
from luminal.dtypes import float32
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Member:
    """A sum in the pass: `base` (Exp or Exp2) and `factor` c of what it is rescaled by."""

    term: Term
    base: str
    factor: float


@dataclass(frozen=True, slots=True)
class Cascade:
    """The maximum, the sums rescaled when it moves, the contractions below it, and all that depends
    on these within the pass.
    """

    maximum: Term
    members: tuple[Member, ...]
    inner: tuple[Term, ...]
    scope: frozenset[Term]

    @property
    def reductions(self) -> tuple[Term, ...]:
        return (self.maximum, *(m.term for m in self.members), *self.inner)


def derive(
    maximum: Term, reductions: Sequence[Term], is_read: Callable[[Term], bool]
) -> Cascade | None:
    """The cascade of a maximum among the reductions of a program or kernel, operands first.

    None unless every sum over the same axes that uses the maximum is rescalable, and what is
    maximised holds a contraction (else two passes over memory cost less than rescaling).
    """
    if maximum.op != "Max" or maximum.dtype is not float32 or len(maximum.attrs) != 1:
        return None
    step = set(maximum.attrs)
    per_step = maximum.axes | step

    def ends(term: Term) -> bool:
        """Read from memory: also a reduction that is not computed anew in each step."""
        inner = term is maximum or (term.op == "Sum" and term.axes >= per_step)
        return is_read(term) or (term.is_reduction and not inner)

    found = below(maximum.args, ends)
    contractions = tuple(r for r in found if r.is_reduction and not ends(r))
    if not contractions:
        return None
    members = []
    seen = set(found)
    for r in reductions:
        reads = below(r.args, ends)
        if r is maximum or is_read(r) or maximum not in reads:
            continue
        if step.isdisjoint(r.attrs) and not any(step & t.axes for t in reads):
            continue  # beyond the pass: it uses the maximum as it is in the end
        stale = (t for t in reads if ends(t) and t.is_reduction and not is_read(t))
        if any(maximum in below(t.args, is_read) for t in stale):
            return None  # it needs the end of a sum of this pass
        member = _rescaled(r, maximum, ends) if set(r.attrs) == step else None
        if member is None:
            return None
        members.append(member)
        seen.update(reads)
    if not members:
        return None
    scope = set(contractions)
    for term in sorted(seen - {maximum}, key=lambda t: t.id):  # operands have smaller numbers
        if not ends(term) and not scope.isdisjoint(term.args):
            scope.add(term)
    return Cascade(maximum, tuple(members), contractions, frozenset(scope))


def lane_axis(cascade: Cascade) -> Symbol | None:
    """The axis whose positions run side by side: the longest one that, in each contraction below
    the maximum, one factor has and the other lacks (so that what the other reads is shared).
    """
    shared = set(cascade.maximum.axes)
    for contraction in cascade.inner:
        (product,) = contraction.args
        if product.op != "Mul":
            return None
        a, b = product.args
        shared &= a.axes ^ b.axes
    (step,) = cascade.maximum.attrs
    shared = {a for a in shared if all(_apart(r, a, step) for r in cascade.inner)}
    return max(shared, key=lambda a: (_most(a), a.sort_key), default=None)


def _apart(contraction: Term, lane: Symbol, step: Symbol) -> bool:
    return all(not {lane, step} <= factor.axes for factor in contraction.args[0].args)


def _most(axis: Symbol) -> int:
    hi = None if axis.extent is None else axis.extent.interval.hi
    return 1 << 62 if hi is None else hi


def _rescaled(sum_: Term, maximum: Term, is_read: Callable[[Term], bool]) -> Member | None:
    """How the sum is rescaled when the maximum moves; None if it is not rescalable."""
    if sum_.op != "Sum" or sum_.dtype is not float32:
        return None
    base, total = None, 0.0
    for factor in _factors(sum_.args[0]):
        if maximum not in below((factor,), is_read):
            continue
        if factor.op not in ("Exp", "Exp2") or base not in (None, factor.op):
            return None
        base = factor.op
        slope = _slope(factor.args[0], maximum, is_read)
        if slope is None:
            return None
        total += slope
    return Member(sum_, base, total) if base is not None and total < 0 else None


def _factors(term: Term) -> list[Term]:
    """A product, flattened."""
    if term.op != "Mul":
        return [term]
    return [factor for arg in term.args for factor in _factors(arg)]


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
