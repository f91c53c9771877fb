"""Expressions as i64 arithmetic, each part in the outermost block that knows its symbols."""

from __future__ import annotations

from functools import reduce

from luminal.base import dtypes
from luminal.expand.builder import Builder, integer, truth
from luminal.expand.fold import constant, uniform
from luminal.expand.ir import CONDITION, Operand
from luminal.shape.expression import Expression, Symbol, sum_of_terms

COMPARISONS = frozenset(("lt", "le", "eq", "ne"))
LAST_I32 = 2**31 - 1


def without_constant(expr: Expression) -> Expression:
    """The terms of a sum that are not known."""
    return sum_of_terms(expr.terms, 0) if expr.constant else expr


class Indexer:
    """Writes Expressions; symbols are bound to i64 values."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.bound: dict[Symbol, Operand] = {}
        self.known: dict[Expression, Operand] = {}
        self.users: dict[Symbol, list[Expression]] = {}  # what is known that has the symbol

    def bind(self, symbol: Symbol, value: Operand) -> None:
        """Give a symbol its value from here on."""
        self.bound[symbol] = value
        # A loop in phases binds its symbol anew in each:
        # what was made of the old value is another one.
        for expr in self.users.pop(symbol, ()):
            self.known.pop(expr, None)

    def op(self, name: str, *args: Operand | int) -> Operand:
        """An operation where it is hoisted."""
        return self.b.op(name, *args, hoisted=True)

    def scalar(self, expr: Expression) -> Operand:
        """The i64 value; every symbol is bound."""
        if expr.is_const:
            return integer(expr.constant)
        if isinstance(expr, Symbol):
            return self.bound[expr]
        value = self.known.get(expr)
        if value is None:
            value = self._keep(expr, self._scalar(expr))
        return value

    def place(self, offset: Expression, distance: int) -> tuple[Operand, int]:
        """An address, and how far what is meant lies from it: offsets that are a constant apart
        share the address.
        """
        distance += offset.constant
        address = self.scalar(without_constant(offset))
        constant = uniform(address)
        return (address, distance) if constant is None else (integer(constant + distance), 0)

    def _keep(self, expr: Expression, value: Operand) -> Operand:
        self.known[expr] = value
        for symbol in expr.symbols():
            self.users.setdefault(symbol, []).append(expr)
        return value

    def _scalar(self, expr: Expression) -> Operand:
        if expr.op == "add":
            return self._sum(expr)
        if expr.op == "mul":
            return self._product([self.scalar(arg) for arg in expr.args])
        if expr.op in ("floordiv", "mod"):
            return self._divided(expr)
        if expr.op in ("min", "max"):
            # Outermost first, here and in sums and products:
            # what outer loops know is then one value there.
            args = sorted(map(self.scalar, expr.args), key=self.b.depth)
            return reduce(lambda x, y: self.op(expr.op, x, y), args)
        return self.b.cast(self.condition(expr), dtypes.int64, hoisted=True)

    def _sum(self, expr: Expression) -> Operand:
        """A sum, written from the outermost terms inwards; the constant comes last, where positions
        that are a constant apart share the rest.
        """
        if expr.constant:
            return self.op("add", self.scalar(without_constant(expr)), expr.constant)
        terms = [(self.scalar(monomial), factor) for monomial, factor in expr.terms]
        # Positive terms first among equals, so that a sum does not begin with a negation.
        terms.sort(key=lambda term: (self.b.depth(term[0]), term[1] < 0))
        (first, factor), *others = terms
        total = self._times(first, integer(factor))
        for value, factor in others:
            part = self._times(value, integer(abs(factor)))
            total = self.op("sub" if factor < 0 else "add", total, part)
        return total

    def _product(self, factors: list[Operand]) -> Operand:
        """A product, written from the outermost factors inwards; constants come last."""
        factors.sort(key=lambda factor: (uniform(factor) is not None, self.b.depth(factor)))
        return reduce(self._times, factors)

    def _times(self, x: Operand, y: Operand) -> Operand:
        factor = uniform(y)
        if factor == 1:
            return x
        if factor is not None and factor > 1 and factor.bit_count() == 1:
            return self.op("shl", x, factor.bit_length() - 1)
        return self.op("mul", x, y)

    def _divided(self, expr: Expression) -> Operand:
        """Floor division or modulo; by zero gives 0."""
        a, d = expr.args
        if a.interval.at_least(0) and d.interval.at_least(1):
            return self._divided_unsigned(expr)
        x, y = self.scalar(a), self.scalar(d)
        if d.interval.at_least(1):
            return self._divided_signed(expr.op, x, y)
        # Nothing is divided by 0 and -1: they are replaced, and the result is chosen.
        odd = self.op("and", self.op("lt", y, 1), self.op("lt", integer(-2), y))
        safe = self._divided_signed(expr.op, x, self.op("select", odd, integer(1), y))
        at_minus_one = self.op("mul", x, y) if expr.op == "floordiv" else integer(0)
        return self.op("select", odd, at_minus_one, safe)

    def _divided_unsigned(self, expr: Expression) -> Operand:
        a, d = expr.args
        x, y = self.scalar(a), self.scalar(d)
        if d.is_const and d.constant.bit_count() == 1:
            if expr.op == "mod":
                return self.op("and", x, d.constant - 1)
            return self.op("shr", x, d.constant.bit_length() - 1)
        name = "quotient" if expr.op == "floordiv" else "remainder"
        # 64 bits take longer to divide than 32.
        if a.interval.at_most(LAST_I32) and d.interval.at_most(LAST_I32):
            narrow = [self.b.cast(operand, dtypes.uint32, hoisted=True) for operand in (x, y)]
            return self.b.cast(self.op(name, *narrow), dtypes.int64, hoisted=True)
        return self.op(name, x, y)

    def _divided_signed(self, name: str, x: Operand, y: Operand) -> Operand:
        """Floors, for a divisor other than 0 and -1."""
        # Machines round to zero: a remainder of the other
        # sign than the divisor is one divisor short.
        rest = self.op("remainder", x, y)
        differ = self.op("lt", self.op("xor", rest, y), 0)
        wrong = self.op("and", differ, self.op("ne", rest, 0))
        if name == "mod":
            return self.op("add", rest, self.op("select", wrong, y, 0))
        down = self.b.cast(wrong, dtypes.int64, hoisted=True)
        return self.op("sub", self.op("quotient", x, y), down)

    def condition(self, expr: Expression) -> Operand:
        """The truth of an Expression."""
        if expr.is_const:
            return constant(CONDITION, expr.constant != 0)
        if expr.op in COMPARISONS:
            left, right = map(self.scalar, expr.args)
            return self.op(expr.op, left, right)
        if expr.op in ("and", "or"):
            args = sorted(map(self.condition, expr.args), key=self.b.depth)
            return reduce(lambda x, y: self.op(expr.op, x, y), args)
        return truth(self.b, self.scalar(expr), hoisted=True)
