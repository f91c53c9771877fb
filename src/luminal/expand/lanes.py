"""Expressions along the lanes of one axis: vectors of integers, and masks.

Integers are i32 where an Expression and all its parts fit, else i64. What all lanes share is
computed once, as a scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from luminal.base.dtypes import DType, int32, int64
from luminal.base.records import dataclass
from luminal.expand.builder import integer
from luminal.expand.division import int_floor_div, int_mod
from luminal.expand.index import COMPARISONS, LAST_I32, Indexer
from luminal.expand.ir import Constant, Operand, Type
from luminal.shape.condition import linear_form
from luminal.shape.expression import Expression, Symbol, sum_of_terms


@dataclass(frozen=True, slots=True)
class Lanes:
    """`count` positions of `axis`, which is bound to the first of them; `values` are symbols with a
    value of their own in each lane.
    """

    index: Indexer
    axis: Symbol
    count: int
    values: Mapping[Symbol, Operand]

    def is_varying(self, expr: Expression) -> bool:
        """Does the Expression differ between lanes?"""
        symbols = expr.symbols()
        return self.axis in symbols or not self.values.keys().isdisjoint(symbols)

    def step(self, expr: Expression) -> Expression | None:
        """What it grows by from lane to lane, where that is one number."""
        if self.values.keys() & expr.symbols():
            return None
        return expr.coefficient(self.axis)

    def numbers(self, dtype: DType) -> Constant:
        """The lanes' own numbers."""
        return Constant(Type(dtype, self.count), np.arange(self.count, dtype=dtype.numpy).tobytes())

    def spread(self, value: Operand) -> Operand:
        """A scalar in every lane; a vector as it is."""
        return self.index.b.spread(value, self.count)

    # --- integers ---------------------------------------------------------------------------------

    def integers(self, expr: Expression) -> Operand:
        """The i64 in each lane."""
        narrow = _is_narrow(expr) and not expr.is_condition
        value = self._vector(expr, int32 if narrow else int64)
        return self.index.b.cast(value, int64, hoisted=True)

    def _vector(self, expr: Expression, dtype: DType) -> Operand:
        index, op = self.index, self.index.op
        if not self.is_varying(expr):
            return self.spread(index.b.cast(index.scalar(expr), dtype, hoisted=True))
        if expr is self.axis:
            first = index.b.cast(index.scalar(expr), dtype, hoisted=True)
            return op("add", self.spread(first), self.numbers(dtype))
        if isinstance(expr, Symbol):
            return index.b.cast(self.values[expr], dtype, hoisted=True)
        if expr.op == "add":
            return self._sum(expr, dtype)
        if expr.is_condition:
            return index.b.cast(self.mask(expr), dtype, hoisted=True)
        args = [self._vector(arg, dtype) for arg in expr.args]
        if expr.op in ("mul", "min", "max"):
            return reduce(lambda x, y: op(expr.op, x, y), args)
        return self._divided(expr, args, dtype)

    def _sum(self, expr: Expression, dtype: DType) -> Operand:
        """The terms that vary, then what all lanes share."""
        varying = [sum_of_terms((term,), 0) for term in expr.terms if self.is_varying(term[0])]
        shared = tuple(term for term in expr.terms if not self.is_varying(term[0]))
        parts = [self._vector(part, dtype) for part in varying]
        parts.append(self._vector(sum_of_terms(shared, expr.constant), dtype))
        return reduce(lambda x, y: self.index.op("add", x, y), parts)

    def _divided(self, expr: Expression, args: list[Operand], dtype: DType) -> Operand:
        """Floor division or modulo; by zero gives 0."""
        a, d = expr.args
        is_quotient = expr.op == "floordiv"
        if d.is_const and d.constant > 0 and a.interval.at_least(0):
            if d.constant.bit_count() > 1:
                return self.index.op("quotient" if is_quotient else "remainder", *args)
            if is_quotient:
                return self.index.op("shr", args[0], d.constant.bit_length() - 1)
            return self.index.op("and", args[0], d.constant - 1)
        return (int_floor_div if is_quotient else int_mod)(self.index.b, dtype, args)

    # --- masks ------------------------------------------------------------------------------------

    def mask(self, expr: Expression) -> Operand:
        """The mask of the lanes in which a condition holds."""
        index, op = self.index, self.index.op
        if not self.is_varying(expr):
            return self.spread(index.condition(expr))
        if expr.op in ("and", "or"):
            parts = sorted(expr.args, key=self.is_varying)
            return reduce(lambda x, y: op(expr.op, x, y), map(self.mask, parts))
        if expr.op not in COMPARISONS:
            return op("ne", self.integers(expr), 0)
        form = linear_form(expr)
        step = self.step(form)
        if step is not None and step.is_const and abs(step.constant) == 1:
            return self._threshold(expr.op, form, step.constant)
        left, right = expr.args
        dtype = int32 if _is_narrow(left) and _is_narrow(right) else int64
        return op(expr.op, self._vector(left, dtype), self._vector(right, dtype))

    def _threshold(self, name: str, form: Expression, step: int) -> Operand:
        """The lanes where `form >= 0` (or == 0, != 0), for form = value in lane 0 + step * lane."""
        scalar, op = self.index.scalar, self.index.op
        if name in ("eq", "ne"):
            place = self._near(scalar(form if step < 0 else -form))
            return op(name, self.numbers(int32), place)
        if step < 0:
            return self.below(scalar(form + 1))
        return op("le", self._near(scalar(-form)), self.numbers(int32))

    def below(self, bound: Operand) -> Operand:
        """The lanes whose number is less than an i64."""
        return self.index.op("lt", self.numbers(int32), self._near(bound))

    def _near(self, bound: Operand) -> Operand:
        """An i64 that lanes' numbers are compared with as i32: one far away is as good as -1 or the
        number of lanes.
        """
        op, b = self.index.op, self.index.b
        near = op("max", op("min", bound, integer(self.count)), -1)
        return self.spread(b.cast(near, int32, hoisted=True))


def _is_narrow(expr: Expression) -> bool:
    """Can the Expression and all its parts be computed in 32 bits?"""
    lo, hi = expr.interval
    if lo is None or hi is None or lo < -LAST_I32 or hi > LAST_I32:
        return False
    return all(map(_is_narrow, expr.args))
