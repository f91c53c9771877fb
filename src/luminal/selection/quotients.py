"""Quotients by what a row shares, as products with its reciprocal.

`a[i, k] / l[i] -> a[i, k] * Recip(l[i])`: one division a row, and an element costs a product. It is
rounded twice, so it is of class *rounding*, and is done where a division is as dear as on GPUs.
Floats of 16 bits are divided as f32, so theirs are rounded once to 16.
"""

from __future__ import annotations

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Term
from luminal.base.costs import Costs
from luminal.selection.rewrite import Respelled
from luminal.shape.expression import ONE

DEAR = 8  # simple operations of a division, from which on a second rounding is worth it


def shared_quotients(program: Respelled, costs: Costs) -> Respelled:
    """The program with these quotients as products."""
    if costs.weights.of("Div") < DEAR:
        return program
    terms = program.lowered.terms

    def replace(old: Term, same: Term) -> Term:
        if not _is_shared(same):
            return same
        a, divisor = same.args
        reciprocal = terms.pointwise("Recip", (divisor,), same.dtype)
        return terms.pointwise("Mul", (a, reciprocal), same.dtype)

    return program.rewrite(replace)


def _is_shared(term: Term) -> bool:
    """Do several elements of a quotient have one divisor, which is computed in the kernel?"""
    if term.op != "Div" or not term.dtype.is_float:
        return False
    divisor = term.args[1]
    along = tuple(term.axes - divisor.axes)
    return bool(divisor.axes or divisor.args) and extent_of(along) is not ONE
