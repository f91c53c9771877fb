"""Kinds of reductions that rules tell apart."""

from __future__ import annotations

from luminal.algebra.terms import Term


def is_contraction(reduction: Term) -> bool:
    """Is it a sum of products of values with different axes?"""
    (x,) = reduction.args
    return reduction.op == "Sum" and x.op == "Mul" and len({factor.axes for factor in x.args}) > 1


def is_product(reduction: Term) -> bool:
    """Is it a contraction with results along axes of either factor alone: rows and columns?"""
    if not is_contraction(reduction):
        return False
    a, b = (factor.axes & reduction.axes for factor in reduction.args[0].args)
    return bool(a - b) and bool(b - a)
