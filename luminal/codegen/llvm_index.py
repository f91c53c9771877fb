"""Expressions as LLVM IR: scalar i64 arithmetic, vectors over the lanes of one axis, and masks.

What is computed is remembered in a stack of scopes, one per block that dominates what follows, so
that an Expression is emitted once. `prepare` emits what can be known before a loop is entered; sums
are formed from the outermost symbols inwards for that purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from luminal.codegen.llvm_builder import I1, I64, FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_math import POINTWISE
from luminal.dtypes import int32, int64
from luminal.shape.condition import linear_form
from luminal.shape.expression import ZERO, Expression, Symbol, sum_of_terms

LAST_I32 = 2**31 - 1
_PREDICATES = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}
_COMPARISONS = frozenset(_PREDICATES)


class Lanes:
    """One vector axis: its symbol, whose bound value is lane 0, and the number of lanes.

    `values` are symbols with a value of their own in each lane (data-dependent indices).
    """

    __slots__ = ("axis", "count", "symbols", "values")

    def __init__(self, axis: Symbol, count: int, values: Mapping[Symbol, IRValue]) -> None:
        self.axis = axis
        self.count = count
        self.values = values
        self.symbols = frozenset((axis, *values))


class Indexer:
    """Emits Expressions into one function; symbols are bound to i64 values."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.b = builder
        self.scopes: list[dict[object, IRValue]] = [{}]
        self.depths: dict[Symbol, int] = {}  # bound symbols, with the scope they belong to

    # --- scopes -----------------------------------------------------------------------------------

    def push(self) -> None:
        """Enter code that this point dominates, but that does not dominate what comes after."""
        self.scopes.append({})

    def pop(self) -> None:
        """Leave it; symbols bound inside are unbound."""
        self.scopes.pop()
        here = len(self.scopes) - 1
        self.depths = {symbol: d for symbol, d in self.depths.items() if d <= here}

    def bind(self, symbol: Symbol, value: IRValue) -> None:
        """Give a symbol its i64 value in the present scope."""
        self.depths[symbol] = len(self.scopes) - 1
        self.scopes[-1][symbol] = value

    def find(self, key: object) -> IRValue | None:
        """What was remembered under `key` where it still holds."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def keep(self, key: object, value: IRValue) -> IRValue:
        """Remember a value that holds in the present scope."""
        self.scopes[-1][key] = value
        return value

    def is_bound(self, expr: Expression) -> bool:
        """Are all symbols of the Expression bound?"""
        return self.depths.keys() >= expr.symbols()

    def depth(self, expr: Expression) -> int:
        """The scope in which the last of its symbols is bound."""
        return max((self.depths[symbol] for symbol in expr.symbols()), default=0)

    # --- scalars ----------------------------------------------------------------------------------

    def scalar(self, expr: Expression) -> IRValue:
        """The i64 value; every symbol of it is bound."""
        if expr.is_const:
            return self.b.const(I64, expr.constant)
        found = self.find(expr)
        if found is None:
            found = self.keep(expr, self._scalar(expr))
        return found

    def _scalar(self, expr: Expression) -> IRValue:
        if expr.op == "add":
            return self._sum(expr)
        if expr.op == "mul":
            return self._product(expr)
        if expr.op in ("floordiv", "mod"):
            return self._divided(expr)
        if expr.op in ("min", "max"):
            args = [self.scalar(arg) for arg in expr.args]
            name = "llvm.smin" if expr.op == "min" else "llvm.smax"
            return reduce(lambda x, y: self.b.intrinsic(name, I64, [x, y]), args)
        assert expr.op != "symbol", f"{expr} is not bound"
        return self.b.cast("zext", self.condition(expr), I64)

    def split(self, expr: Expression) -> tuple[Expression, Expression]:
        """(outer, inner) with outer + inner == expr; inner has the terms of the deepest scope.

        The constant goes with inner where outer is 0, else with outer.
        """
        deepest = self.depth(expr)
        inner = tuple(t for t in expr.terms if self.depth(t[0]) == deepest)
        outer = tuple(t for t in expr.terms if self.depth(t[0]) < deepest)
        if not outer:
            return ZERO, expr
        return sum_of_terms(outer, expr.constant), sum_of_terms(inner, 0)

    def _sum(self, expr: Expression) -> IRValue:
        outer, inner = self.split(expr)
        if outer is not ZERO:
            return self.b.binary("add", self.scalar(outer), self.scalar(inner))
        parts = [self.scalar(sum_of_terms((term,), 0)) for term in expr.terms]
        if expr.constant:
            parts.append(self.b.const(I64, expr.constant))
        return reduce(lambda x, y: self.b.binary("add", x, y), parts)

    def _product(self, expr: Expression) -> IRValue:
        args = sorted(expr.args, key=lambda arg: (arg.is_const, self.depth(arg)))
        return reduce(self._times, map(self.scalar, args))

    def _times(self, x: IRValue, y: IRValue) -> IRValue:
        factor = y.name
        if factor.isdigit() and int(factor).bit_count() == 1:
            return self.b.binary("shl", x, self.b.const(I64, int(factor).bit_length() - 1))
        return self.b.binary("mul", x, y)

    def _divided(self, expr: Expression) -> IRValue:
        """Floor division or modulo; by zero gives 0."""
        a, d = expr.args
        x, y = self.scalar(a), self.scalar(d)
        op = expr.op
        if a.interval.at_least(0) and d.interval.at_least(1):
            return self._divided_unsigned(op, a, d, x, y)
        zero, one = self.b.const(I64, 0), self.b.const(I64, 1)
        if d.interval.at_least(1):
            return self._divided_signed(op, x, y)
        # Divisors 0 and -1 would trap: divide by 1 there and choose the result.
        odd = self.b.icmp("ult", self.b.binary("add", y, one), self.b.const(I64, 2))
        safe = self._divided_signed(op, x, self.b.select(odd, one, y))
        at_minus_one = self.b.binary("mul", x, y) if op == "floordiv" else zero
        return self.b.select(odd, at_minus_one, safe)

    def _divided_unsigned(
        self, op: str, a: Expression, d: Expression, x: IRValue, y: IRValue
    ) -> IRValue:
        b = self.b
        if d.is_const and d.constant.bit_count() == 1:
            if op == "mod":
                return b.binary("and", x, b.const(I64, d.constant - 1))
            return b.binary("lshr", x, b.const(I64, d.constant.bit_length() - 1))
        name = "udiv" if op == "floordiv" else "urem"
        if a.interval.at_most(LAST_I32) and d.interval.at_most(LAST_I32):
            narrow = IRType("i32")
            x, y = b.cast("trunc", x, narrow), b.cast("trunc", y, narrow)
            return b.cast("zext", b.binary(name, x, y), I64)
        return b.binary(name, x, y)

    def _divided_signed(self, op: str, x: IRValue, y: IRValue) -> IRValue:
        """Floors, for a divisor other than 0 and -1."""
        b, zero = self.b, self.b.const(I64, 0)
        rest = b.binary("srem", x, y)
        differ = b.icmp("slt", b.binary("xor", rest, y), zero)
        wrong = b.binary("and", differ, b.icmp("ne", rest, zero))
        if op == "mod":
            return b.binary("add", rest, b.select(wrong, y, zero))
        return b.binary("add", b.binary("sdiv", x, y), b.cast("sext", wrong, I64))

    def condition(self, expr: Expression) -> IRValue:
        """The i1 truth of a bound Expression."""
        if expr.is_const:
            return self.b.const(I1, expr.constant != 0)
        key = ("i1", expr)
        found = self.find(key)
        if found is None:
            found = self.keep(key, self._condition(expr))
        return found

    def _condition(self, expr: Expression) -> IRValue:
        if expr.op in _COMPARISONS:
            left, right = map(self.scalar, expr.args)
            return self.b.icmp(_PREDICATES[expr.op], left, right)
        if expr.op in ("and", "or"):
            parts = map(self.condition, expr.args)
            return reduce(lambda x, y: self.b.binary(expr.op, x, y), parts)
        return self.b.icmp("ne", self.scalar(expr), self.b.const(I64, 0))

    # --- ahead of a loop --------------------------------------------------------------------------

    def prepare(self, expr: Expression) -> None:
        """Emit the largest parts whose symbols are bound by now."""
        if self.is_bound(expr):
            if expr.is_condition:
                self.condition(expr)
            else:
                self.scalar(expr)
            return
        if expr.op == "add":
            self.scalar(self.available(expr))
        for arg in expr.args:
            if expr.op != "add" or not self.is_bound(arg):
                self.prepare(arg)

    def available(self, expr: Expression) -> Expression:
        """The terms of a sum whose symbols are bound by now, with its constant."""
        known = tuple(term for term in expr.terms if self.is_bound(term[0]))
        return sum_of_terms(known, expr.constant) if known else ZERO

    # --- lanes ------------------------------------------------------------------------------------

    def vector(self, expr: Expression, lanes: Lanes) -> IRValue:
        """The value in each lane: i32 where everything fits, else i64."""
        width = "i32" if _fits_i32(expr) else "i64"
        return self._vector(expr, lanes, IRType(width, lanes.count))

    def _vector(self, expr: Expression, lanes: Lanes, type_: IRType) -> IRValue:
        key = (expr, lanes.axis, type_)
        found = self.find(key)
        if found is None:
            found = self.keep(key, self._emit_vector(expr, lanes, type_))
        return found

    def _emit_vector(self, expr: Expression, lanes: Lanes, type_: IRType) -> IRValue:
        b = self.b
        if not expr.symbols() & lanes.symbols:
            return b.splat(_resized(b, self.scalar(expr), type_.with_lanes(1)), lanes.count)
        if expr is lanes.axis:
            first = _resized(b, b.unknown(self.scalar(expr)), type_.with_lanes(1))
            steps = b.vector_const(type_, range(lanes.count))
            return b.binary("add", b.splat(first, lanes.count), steps)
        if isinstance(expr, Symbol):
            return _resized(b, lanes.values[expr], type_)
        if expr.op == "add":
            return self._vector_sum(expr, lanes, type_)
        if expr.is_condition:
            return b.cast("zext", self.spread(self.mask(expr, lanes), lanes.count), type_)
        args = [self._vector(arg, lanes, type_) for arg in expr.args]
        if expr.op == "mul":
            return reduce(lambda x, y: b.binary("mul", x, y), args)
        if expr.op in ("min", "max"):
            name = "llvm.smin" if expr.op == "min" else "llvm.smax"
            return reduce(lambda x, y: b.intrinsic(name, type_, [x, y]), args)
        return self._vector_divided(expr, args, type_)

    def vector_steps(self, step: Expression, lanes: int) -> IRValue:
        """`lane * step` in each lane, for a step that all lanes share."""
        b = self.b
        far = step * (lanes - 1)
        type_ = IRType("i32" if _fits_i32(far) and _fits_i32(step) else "i64", lanes)
        if step.is_const:
            return b.vector_const(type_, [lane * step.constant for lane in range(lanes)])
        scalar = _resized(b, self.scalar(step), type_.with_lanes(1))
        return b.binary("mul", b.splat(scalar, lanes), b.vector_const(type_, range(lanes)))

    def _vector_sum(self, expr: Expression, lanes: Lanes, type_: IRType) -> IRValue:
        """The lane-free part as one scalar, then the terms that vary."""
        free = tuple(t for t in expr.terms if not t[0].symbols() & lanes.symbols)
        varying = [sum_of_terms((t,), 0) for t in expr.terms if t[0].symbols() & lanes.symbols]
        parts = [self._vector(part, lanes, type_) for part in varying]
        if free or expr.constant:
            parts.append(self._vector(sum_of_terms(free, expr.constant), lanes, type_))
        return reduce(lambda x, y: self.b.binary("add", x, y), parts)

    def _vector_divided(self, expr: Expression, args: list[IRValue], type_: IRType) -> IRValue:
        """Floor division or modulo; by zero gives 0."""
        b = self.b
        a, d = expr.args
        if d.is_const and d.constant > 0 and a.interval.at_least(0):
            if d.constant.bit_count() > 1:
                return b.binary("udiv" if expr.op == "floordiv" else "urem", *args)
            if expr.op == "mod":
                return b.binary("and", args[0], b.const(type_, d.constant - 1))
            return b.binary("lshr", args[0], b.const(type_, d.constant.bit_length() - 1))
        dtype = int32 if type_.bits == 32 else int64
        return POINTWISE["FloorDiv" if expr.op == "floordiv" else "Mod"](b, dtype, args, dtype)

    # --- masks ------------------------------------------------------------------------------------

    def mask(self, expr: Expression, lanes: Lanes) -> IRValue:
        """Where a condition holds: one i1 for all lanes where they agree, else one per lane."""
        if not expr.symbols() & lanes.symbols:
            return self.condition(expr)
        key = ("mask", expr, lanes.axis)
        found = self.find(key)
        if found is None:
            found = self.keep(key, self._mask(expr, lanes))
        return found

    def _mask(self, expr: Expression, lanes: Lanes) -> IRValue:
        b = self.b
        if expr.op in ("and", "or"):
            # The lane-free part first: it is one scalar, spread once.
            args = sorted(expr.args, key=lambda arg: bool(arg.symbols() & lanes.symbols))
            parts = [self.spread(self.mask(arg, lanes), lanes.count) for arg in args]
            return reduce(lambda x, y: b.binary(expr.op, x, y), parts)
        if expr.op not in _COMPARISONS:
            value = self.vector(expr, lanes)
            return b.icmp("ne", value, b.const(value.type, 0))
        form = linear_form(expr)
        if not form.symbols() & lanes.values.keys():
            step = form.coefficient(lanes.axis)
            if step is not None and step.is_const and abs(step.constant) == 1:
                return self._threshold(expr.op, form, step.constant, lanes)
        left, right = expr.args
        type_ = IRType("i32" if _fits_i32(left) and _fits_i32(right) else "i64", lanes.count)
        sides = [self._vector(side, lanes, type_) for side in (left, right)]
        return b.icmp(_PREDICATES[expr.op], *sides)

    def _threshold(self, op: str, form: Expression, step: int, lanes: Lanes) -> IRValue:
        """The lanes where `form >= 0` (or == 0, != 0), for form = value at lane 0 + step*lane."""
        if op in ("eq", "ne"):
            return self.compare_lanes(op, self.scalar(form if step < 0 else -form), lanes.count)
        if step < 0:  # lane < form + 1
            return self.compare_lanes("slt", self.scalar(form + 1), lanes.count)
        return self.compare_lanes("sge", self.scalar(-form), lanes.count)

    def compare_lanes(
        self, predicate: str, bound: IRValue, count: int, positive: bool = False
    ) -> IRValue:
        """`lane predicate bound` per lane; the bound is any i64, or known to be positive."""
        b = self.b
        near = b.intrinsic("llvm.smin", I64, [bound, b.const(I64, count)])
        if not positive:
            near = b.intrinsic("llvm.smax", I64, [near, b.const(I64, -1)])
        # Narrow lanes keep the comparison in one register.
        type_ = IRType("i32" if count <= 16 else "i8" if count <= 64 else "i16", count)
        limit = b.splat(b.cast("trunc", b.unknown(near), type_.with_lanes(1)), count)
        return b.icmp(predicate, b.vector_const(type_, range(count)), limit)

    def spread(self, value: IRValue, lanes: int) -> IRValue:
        """A scalar in every lane, emitted once; a vector as it is."""
        if value.type.lanes == lanes:
            return value
        key = ("splat", value.name, value.type, lanes)
        found = self.find(key)
        if found is None:
            found = self.keep(key, self.b.splat(value, lanes))
        return found


def _fits_i32(expr: Expression) -> bool:
    """Can the Expression and all its parts be computed in 32 bits?"""
    lo, hi = expr.interval
    if lo is None or hi is None or lo < -LAST_I32 or hi > LAST_I32:
        return False
    return all(_fits_i32(arg) for arg in expr.args)


def _resized(b: FunctionBuilder, value: IRValue, type_: IRType) -> IRValue:
    """An integer brought to the width of an index, keeping its value (or its low bits)."""
    if value.type.bits > type_.bits:
        return b.cast("trunc", value, type_)
    return b.cast("sext", value, type_)
