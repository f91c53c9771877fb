"""Digits of positions: what reshapes make of an index, and how they are found in a map again."""

from __future__ import annotations

from typing import NamedTuple

from luminal.shape.expression import Expression, Symbol, const


class Digit(NamedTuple):
    """`coefficient * (i_dimension // divisor % positions)`, a summand of an entry of a map."""

    coefficient: Expression
    dimension: int
    divisor: Expression
    positions: Expression


def digit(monomial: Expression, factor: int, shape: tuple[Expression, ...]) -> Digit | None:
    """The monomial times its factor as a digit of a position in `shape`; None if it is none."""
    parts = monomial.args if monomial.op == "mul" else (monomial,)
    coefficient, position = const(factor), None
    for part in parts:
        if any(s.extent is not None for s in part.symbols()):
            if position is not None:
                return None
            position = part
        else:
            coefficient = coefficient * part
    if position is None:
        return None
    count = divisor = None
    if position.op == "mod":
        position, count = position.args
    if position.op == "floordiv":
        position, divisor = position.args
    if not isinstance(position, Symbol):
        return None
    # `index(d, n)` is named after its dimension.
    dimension = int(position.name[1:])
    divisor = const(1) if divisor is None else divisor
    if count is None:
        count = shape[dimension].exact_div(divisor)
    return None if count is None else Digit(coefficient, dimension, divisor, count)
