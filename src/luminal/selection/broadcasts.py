"""Reductions along axes that their operand lacks: no position of these is visited.

`Sum(K, x) -> extent(K - axes(x)) * Sum(K & axes(x), x)` and `Max(K, x) -> Max(K & axes(x), x)`. The
gradient of what was broadcast is full of these sums. A product is rounded once; a million equal
numbers added one by one are rounded a million times, and each time in the same direction.
"""

from __future__ import annotations

from luminal.algebra.frames import extent_of, is_never_empty
from luminal.algebra.terms import Reduction, Term, Terms
from luminal.base.numerics import ROUNDING, Numerics
from luminal.selection.rewrite import Respelled

NARROW = 4  # bytes: the count of positions may be beyond what a narrower float holds


def without_broadcasts(program: Respelled, numerics: Numerics) -> Respelled:
    """The program without axes that only repeat a value in a reduction; sums of floats, which round
    otherwise, where `numerics` allows it.
    """
    rounds = numerics.allows(ROUNDING)
    if not any(_is_wanted(term, rounds) for term in program.order()):
        return program
    terms = program.lowered.terms

    def replace(old: Term, same: Term) -> Term:
        return _without(terms, same) if _is_wanted(same, rounds) else same

    return program.rewrite(replace)


def _is_wanted(term: Term, rounds: bool) -> bool:
    if not isinstance(term, Reduction) or term.op not in ("Sum", "Max"):
        return False
    idle = [a for a in term.attrs if a not in term.args[0].axes]
    if not idle or not all(map(is_never_empty, idle)):
        return False
    is_exact = term.op == "Max" or not term.dtype.is_float
    return is_exact or (rounds and term.dtype.size >= NARROW)


def _without(terms: Terms, term: Term) -> Term:
    (x,) = term.args
    idle = tuple(a for a in term.attrs if a not in x.axes)
    rest = terms.reduce(term.op, (a for a in term.attrs if a not in idle), x, merge=False)
    if term.op == "Max":
        return rest
    return terms.pointwise("Mul", (rest, terms.index(extent_of(idle), term.dtype)), term.dtype)
