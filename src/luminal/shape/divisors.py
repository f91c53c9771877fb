"""Numbers that divide an Expression whatever its symbols are."""

from __future__ import annotations

from math import gcd, prod

from luminal.shape.expression import Expression


def common_divisor(e: Expression, n: int) -> int:
    """A divisor of n > 0 that surely divides the Expression, too: the greatest that is found."""
    if e.is_const:
        return gcd(e.constant, n)
    match e.op:
        case "add":
            parts = [factor * common_divisor(monomial, n) for monomial, factor in e.terms]
            return gcd(e.constant, *parts, n)
        case "mul":
            return gcd(prod(common_divisor(factor, n) for factor in e.args), n)
        case "min" | "max" | "mod":
            return gcd(*(common_divisor(arg, n) for arg in e.args), n)
    return 1


def is_multiple(e: Expression, n: int) -> bool:
    """Is the Expression surely a multiple of n?"""
    return common_divisor(e, n) == n
