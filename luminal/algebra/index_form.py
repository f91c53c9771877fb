"""Integer terms of positions, dims and literals are Expressions where nothing can overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from luminal.algebra.terms import Term
from luminal.dtypes import DType
from luminal.shape.expression import Expression, const, maximum

_INTEGER: dict[str, Callable[[Expression, Expression], Expression]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "Maximum": maximum,
    "LessThan": lambda a, b: a < b,
    "Equal": lambda a, b: a.eq(b),
}
_BOOLEAN: dict[str, Callable[[Expression, Expression], Expression]] = {
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: (a & ~b) | (b & ~a),
}
MAX_OPS = 64  # symbols and constants of an Expression worth forming


def index_form(op: str, args: Sequence[Term], dtype: DType) -> Expression | None:
    """`op(args)` as an Expression, or None if it is not one or its value may leave `dtype`."""
    if not any(arg.op == "Index" for arg in args):
        return None
    values = [_expression(arg) for arg in args]
    exact = [v for v in values if v is not None]
    if len(exact) < len(values):
        return None
    if op == "Cast" and (dtype.is_int or dtype is args[0].dtype):
        formed = exact[0]
    elif len(exact) == 2 and args[0].dtype.kind == "bool" and op in _BOOLEAN:
        formed = _BOOLEAN[op](*exact)
    elif len(exact) == 2 and args[0].dtype.is_int and op in _INTEGER:
        formed = _INTEGER[op](*exact)
    else:
        return None
    return formed if _fits(formed, dtype) and _size(formed) <= MAX_OPS else None


def _expression(term: Term) -> Expression | None:
    if term.op == "Index" and _fits(term.attrs, term.dtype):
        value: Expression = term.attrs
        return value
    if term.op == "Literal" and not term.dtype.is_float:
        return const(int(term.attrs.value(term.dtype)))
    return None


def _fits(value: Expression, dtype: DType) -> bool:
    if dtype.kind == "bool":
        return value.is_condition
    if not dtype.is_int:
        return False
    interval, limits = value.interval, np.iinfo(dtype.numpy)
    low, high = interval.lo, interval.hi
    return low is not None and high is not None and low >= limits.min and high <= limits.max


def _size(value: Expression) -> int:
    total, stack = 0, [value]
    while stack and total <= MAX_OPS:
        total += 1
        stack.extend(stack.pop().args)
    return total
