"""Integer terms of positions, dims and literals are Expressions where nothing can overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from luminal.algebra.terms import Index, Literal, Term
from luminal.base.dtypes import DType, int64
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
    # Numbers are folded where they stand beside positions: `i - 512` is `i + 512 * -1`.
    folded = op in ("Add", "Mul") and dtype is int64 and all(isinstance(x, Literal) for x in args)
    if not folded and not any(isinstance(arg, Index) for arg in args):
        return None
    # As an Expression, a position can be simplified, bounded and folded into an address; as a term
    # it would be a tensor of integers that a kernel loads.
    values = [exact(arg) for arg in args]
    exact_values = [v for v in values if v is not None]
    if len(exact_values) < len(values):
        return None
    formed = combined(op, args[0].dtype, exact_values, dtype)
    # Expressions are unbounded, integers of a dtype wrap:
    # one stands for the other only where no value is beyond.
    return formed if formed is not None and is_held_by(formed, dtype) else None


def combined(
    op: str, operands: DType, values: Sequence[Expression], dtype: DType
) -> Expression | None:
    """`op` of the exact values of operands of one dtype."""
    # To bool a Cast is the question x != 0, not x.
    if op == "Cast" and (dtype.is_int or dtype is operands):
        formed = values[0]
    elif len(values) == 2 and operands.kind == "bool" and op in _BOOLEAN:
        formed = _BOOLEAN[op](*values)
    elif len(values) == 2 and operands.is_int and op in _INTEGER:
        formed = _INTEGER[op](*values)
    else:
        return None
    return formed if _size(formed) <= MAX_OPS else None


def exact(term: Term) -> Expression | None:
    """The Expression that an integer term is."""
    if isinstance(term, Index) and is_held_by(term.attrs, term.dtype):
        value: Expression = term.attrs
        return value
    if isinstance(term, Literal) and not term.dtype.is_float:
        return const(int(term.attrs.value(term.dtype)))
    return None


def is_held_by(value: Expression, dtype: DType) -> bool:
    """Can the dtype hold all that the value can be?"""
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
