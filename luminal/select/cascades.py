"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.terms import Term
from luminal.kernel.cascade import Cascade, below, derive, lane_axis
from luminal.select.weights import upper

LANES = 8  # fewer results side by side than this do not fill vectors


def find(order: Sequence[Term], forced: set[Term]) -> dict[Term, Cascade]:
    """Cascades by the term that their kernel stores.

    All that depends on the contractions must stay within the pass, and all that leaves it must meet
    in one pointwise value: then nothing else needs what is not stored.
    """
    reductions = [term for term in order if term.is_reduction]
    users: dict[Term, list[Term]] = {term: [] for term in order}
    for term in order:
        for arg in dict.fromkeys(term.args):
            users[arg].append(term)
    found: dict[Term, Cascade] = {}
    for maximum in reductions:
        cascade = derive(maximum, reductions, _ends)
        if cascade is None:
            continue
        lane = lane_axis(cascade)
        if lane is None or upper((lane,)) < LANES or not _closed(cascade, users, forced):
            continue
        root = _meeting_point(cascade, users, forced, order)
        if root is not None and root not in found:
            found[root] = cascade
    return found


def _ends(term: Term) -> bool:
    return term.is_leaf or term.is_opaque


def inside(cascade: Cascade) -> set[Term]:
    """What the pass computes per step and lane: all below its sums that uses the contractions."""
    (step,) = cascade.maximum.attrs
    roots = [r.args[0] for r in cascade.reductions if r not in cascade.inner]
    scope = {t for t in below(roots, _ends) if step in t.axes}
    inner = set(cascade.inner)
    return {t for t in scope if inner & below((t,), _ends).keys()}


def _closed(cascade: Cascade, users: Mapping[Term, list[Term]], forced: set[Term]) -> bool:
    scope = inside(cascade)
    allowed = scope | set(cascade.reductions)
    return all(term not in forced and allowed.issuperset(users[term]) for term in scope)


def _meeting_point(
    cascade: Cascade, users: Mapping[Term, list[Term]], forced: set[Term], order: Sequence[Term]
) -> Term | None:
    """The pointwise value in which all results of the pass meet, as far up as its axes stay."""
    scope = inside(cascade)
    results = {cascade.maximum, *(m.term for m in cascade.members)}
    if results & forced:
        return None
    number = {term: k for k, term in enumerate(order)}
    while True:
        outside = {u for t in results for u in users[t] if u not in scope and u not in results}
        if not outside:
            return None
        first = min(outside, key=number.__getitem__)
        if not first.is_pointwise or first.axes & set(cascade.maximum.attrs):
            return None
        if len(outside) == 1:
            break
        if first in forced:
            return None
        results.add(first)
    while first not in forced and len(users[first]) == 1:
        (user,) = users[first]
        if not user.is_pointwise or user.axes != first.axes:
            break
        first = user
    return first
