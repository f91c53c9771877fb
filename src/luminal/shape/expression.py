"""Symbolic integers: the class, its leaves and its operators.

An `Expression` is canonical from construction on and interned globally (weakly), so two equal
expressions are one object, and compare and hash as objects do. The canonical form is a sum: an
integer constant plus integer multiples of *monomials*, where a monomial is a sorted product of
atoms (symbols, `//`, `%`, min, max, conditions). Conditions are Expressions with the values 0, 1.

`//` and `%` floor as in Python; by zero they give 0, so every Expression is total.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from luminal.base import forks
from luminal.base.errors import DimError
from luminal.shape.interval import Interval

MAX_DIM = 2**31 - 1
"""The default upper end of a dim's interval."""

_INTEGER = (int, np.integer)

CONDITION_OPS = frozenset(("lt", "le", "eq", "ne", "and", "or"))

ExpressionLike: TypeAlias = "Expression | int"
Term: TypeAlias = "tuple[Expression, int]"
"""A monomial and its coefficient."""
SortKey: TypeAlias = tuple[str, int, int, int, bytes]


_Method: TypeAlias = "Callable[[Expression, ExpressionLike], Expression]"


def _operators(rule: Callable[[Expression, Expression], Expression]) -> tuple[_Method, _Method]:
    """The method for `self op other` and its mirror; other types than integers get their turn."""

    def method(self: Expression, other: object) -> Any:
        if isinstance(other, Expression):
            return rule(self, other)
        return rule(self, const(int(other))) if isinstance(other, _INTEGER) else NotImplemented

    def mirrored(self: Expression, other: object) -> Any:
        if isinstance(other, Expression):
            return rule(other, self)
        return rule(const(int(other)), self) if isinstance(other, _INTEGER) else NotImplemented

    return method, mirrored


def _sum(a: Expression, b: Expression) -> Expression:
    return arithmetic.add(a, b)


def _difference(a: Expression, b: Expression) -> Expression:
    return arithmetic.subtract(a, b)


def _product(a: Expression, b: Expression) -> Expression:
    return arithmetic.multiply(a, b)


def _quotient(a: Expression, b: Expression) -> Expression:
    return division.floordiv(a, b)


def _remainder(a: Expression, b: Expression) -> Expression:
    return division.mod(a, b)


class Expression:
    """An immutable, canonical symbolic integer.

    `==` is structural and gives a bool; the order comparisons, `eq` and `ne` give conditions.
    `op` is one of const, symbol, add, mul, floordiv, mod, min, max, lt, le, eq, ne, and, or.
    add, mul, min, max, and, or have any number of args; a product's coefficient is its last arg.
    """

    __slots__ = (
        "__weakref__",
        "_args",
        "_interval",
        "_key",
        "_symbols",
        "_terms",
        "constant",
        "op",
    )
    op: str
    constant: int
    """The constant part of the sum."""
    _args: tuple[Expression, ...] | None
    _terms: tuple[Term, ...] | None
    _key: SortKey | None
    _interval: Interval | None
    _symbols: frozenset[Symbol] | None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The monomials of the sum with their coefficients, sorted; an atom is its own monomial."""
        return ((self, 1),) if self._terms is None else self._terms

    @property
    def args(self) -> tuple[Expression, ...]:
        """The operands, for renderers and rewrites."""
        if self._args is None:
            self._args = _args_of_sum(self)
        return self._args

    @property
    def interval(self) -> Interval:
        """A sound interval of the values, for symbols within their own intervals."""
        if self._interval is None:
            self._interval = bounds.interval_of(self)
        return self._interval

    @property
    def is_const(self) -> bool:
        """Is this Expression a literal integer?"""
        return self.op == "const"

    @property
    def is_condition(self) -> bool:
        """Is this Expression a truth value: a comparison, `&`, `|`, or the constants 0 and 1?"""
        return self.op in CONDITION_OPS or (self.op == "const" and self.constant in (0, 1))

    @property
    def value(self) -> int:
        """The integer of a constant; DimError for anything else."""
        if self.op != "const":
            raise DimError(f"{self} is not a constant; evaluate it with the values of its dims")
        return self.constant

    @property
    def sort_key(self) -> SortKey:
        """A total order that depends on nothing but the structure."""
        if self._key is None:
            self._key = ordering.sort_key(self)
        return self._key

    def symbols(self) -> frozenset[Symbol]:
        """The symbols that occur (not those that occur only in extents)."""
        if self._symbols is None:
            self._symbols = evaluation.symbols_of(self)
        return self._symbols

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The value for symbol values by name: ints, or int64 arrays (elementwise, broadcast)."""
        return evaluation.evaluate(self, env)

    def compiled(self, names: tuple[str, ...]) -> Callable[..., int]:
        """A fast Python function of the named symbols' int values (cached)."""
        return evaluation.compiled(self, names)

    def substitute(self, values: Mapping[Symbol, ExpressionLike]) -> Expression:
        """Replace symbols simultaneously; the values must lie in the symbols' intervals."""
        wanted = {s: as_expression(v) for s, v in values.items()}
        return evaluation.substitute(self, wanted)

    def coefficient(self, symbol: Symbol) -> Expression | None:
        """`f` where this is `f*symbol + rest`, both free of `symbol`; None if not affine in it."""
        return arithmetic.coefficient(self, symbol)

    def exact_div(self, divisor: ExpressionLike) -> Expression | None:
        """The `q` with `self == q * divisor` as polynomials, or None."""
        return arithmetic.exact_div(self, as_expression(divisor))

    def divides(self, other: ExpressionLike) -> bool:
        """Is `other` a multiple of this Expression, as polynomials?"""
        return as_expression(other).exact_div(self) is not None

    __array_ufunc__ = None  # numpy leaves `np.int64(4) * e` to the operators here

    __add__, __radd__ = _operators(_sum)
    __sub__, __rsub__ = _operators(_difference)
    __mul__, __rmul__ = _operators(_product)
    __floordiv__, __rfloordiv__ = _operators(_quotient)
    __mod__, __rmod__ = _operators(_remainder)
    __lt__, __gt__ = _operators(lambda a, b: condition.less(a, b))
    __le__, __ge__ = _operators(lambda a, b: condition.less_equal(a, b))
    __and__, __rand__ = _operators(lambda a, b: condition.conjunction((a, b)))
    __or__, __ror__ = _operators(lambda a, b: condition.disjunction((a, b)))

    def __neg__(self) -> Expression:
        return arithmetic.scale(self, -1)

    def __pos__(self) -> Expression:
        return self

    def eq(self, other: ExpressionLike) -> Expression:
        """The condition that both have the same value."""
        return condition.equal(self, as_expression(other))

    def ne(self, other: ExpressionLike) -> Expression:
        """The condition that the values differ."""
        return condition.negation(self.eq(other))

    def __invert__(self) -> Expression:
        return condition.negation(self)

    def __bool__(self) -> bool:
        if self.op == "const":
            return self.constant != 0
        return condition.decided(self)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        if self.op != "const":
            raise DimError(
                f"{self} is known in a run only; loop over it with lm.scan, or compile for one "
                "value of it: lm.compile(graph, dims={...})"
            )
        return self.constant

    if TYPE_CHECKING:  # an Expression may be a Constant, which equals integers

        def __eq__(self, other: object) -> bool: ...
        def __hash__(self) -> int: ...

    def __str__(self) -> str:
        return text.to_text(self)

    def __repr__(self) -> str:
        return text.to_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.op, self.args, self.constant))


class Constant(Expression):
    """A literal integer, which equals Python's and NumPy's."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expression):
            return self is other
        is_number = other.__class__ in (int, bool) or isinstance(other, np.integer)
        return is_number and self.constant == int(other)  # type: ignore[call-overload]

    def __hash__(self) -> int:
        return hash(self.constant)


class Symbol(Expression):
    """A named integer in lo..hi: a dim, or an axis of some extent (values 0..extent-1)."""

    __slots__ = ("extent", "hi", "lo", "name")
    name: str
    lo: int | None
    hi: int | None
    extent: Expression | None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_symbol, (self.name, self.lo, self.hi, self.extent))


_interned: WeakValueDictionary[tuple[Any, ...], Expression] = WeakValueDictionary()
_intern_lock = forks.lock()


# Equal Expressions are one object, so dicts of them hash by identity, which passes do millions of
# times. They are held weakly: a process that compiles many graphs keeps none of their shapes.
def _intern(
    key: tuple[Any, ...],
    op: str,
    args: tuple[Expression, ...] | None,
    terms: tuple[Term, ...] | None = None,
    constant: int = 0,
    kind: type[Expression] = Expression,
) -> Expression:
    """The one object for `key`; the caller has canonicalised its content."""
    interned = _interned.get(key)
    # Equal content is one object, so equality is `is` and every analysis is kept on the node. The
    # second look, under the lock, is for a thread that made the same node meanwhile.
    if interned is not None:
        return interned
    node = kind.__new__(kind)
    node.op, node._args, node._terms, node.constant = op, args, terms, constant
    node._key = node._interval = node._symbols = None
    if isinstance(node, Symbol):
        _, node.name, node.lo, node.hi, node.extent = key
        node._interval = Interval(node.lo, node.hi)
    with _intern_lock:
        interned = _interned.get(key)
        if interned is None:
            _interned[key] = interned = node
    return interned


def const(value: int) -> Expression:
    """The literal integer as an Expression."""
    small = _SMALL.get(value)
    if small is not None:
        return small
    value = int(value)
    return _intern(("const", value), "const", (), (), value, Constant)


_SMALL: dict[int, Expression] = {}
_SMALL.update({n: const(n) for n in range(-64, 1025)})
ZERO = _SMALL[0]
ONE = _SMALL[1]
FALSE = ZERO
TRUE = ONE


def as_expression(value: ExpressionLike) -> Expression:
    """An int or Expression as an Expression; TypeError for anything else."""
    if isinstance(value, Expression):
        return value
    return const(operator.index(value))


def _symbol(name: str, lo: int | None, hi: int | None, extent: Expression | None) -> Symbol:
    node = _intern(("symbol", name, lo, hi, extent), "symbol", (), kind=Symbol)
    assert isinstance(node, Symbol)
    return node


def symbol(name: str, lo: int = 1, hi: int = MAX_DIM) -> Symbol:
    """A dim: an integer known by its name and interval; DimError if the interval is empty."""
    if lo > hi:
        raise DimError(f"dim {name}: the interval {lo}..{hi} is empty; give lo <= hi")
    return _symbol(name, int(lo), int(hi), None)


def opaque(name: str, lo: int | None = None, hi: int | None = None) -> Symbol:
    """A symbol that stands for a run-time integer; None leaves an end unbounded."""
    return _symbol(name, lo, hi, None)


def axis(name: str, extent: ExpressionLike) -> Symbol:
    """A position 0..extent-1 along an axis (an axis of extent 0 has no position; 0 stands in)."""
    extent = as_expression(extent)
    hi = extent.interval.hi
    return _symbol(name, 0, None if hi is None else max(0, hi - 1), extent)


def atom(op: str, args: tuple[Expression, ...]) -> Expression:
    """The interned node itself, without simplification: for the modules that canonicalise."""
    return _intern((op, args), op, args)


def sum_of_terms(terms: tuple[Term, ...], constant: int) -> Expression:
    """The interned sum of sorted, non-zero terms: for the modules that canonicalise."""
    if not terms:
        return const(constant)
    if len(terms) == 1 and constant == 0:
        monomial, factor = terms[0]
        if factor == 1:
            return monomial
        return _intern(("mul", monomial, factor), "mul", None, terms, 0)
    return _intern(("add", terms, constant), "add", None, terms, constant)


def _args_of_sum(node: Expression) -> tuple[Expression, ...]:
    """The operands of a sum, or of a monomial with a coefficient."""
    if node.op == "mul":
        ((monomial, factor),) = node.terms
        factors = monomial.args if monomial.op == "mul" else (monomial,)
        return (*factors, const(factor))
    parts = tuple(sum_of_terms((term,), 0) for term in node.terms)
    return (*parts, const(node.constant)) if node.constant else parts


def _rebuild(op: str, args: tuple[Expression, ...], constant: int) -> Expression:
    """Unpickle: canonicalise again, since the text may come from another version."""
    return const(constant) if op == "const" else evaluation.REBUILD[op](args)


def sum_of(values: Iterable[ExpressionLike]) -> Expression:
    """The sum of many values at once (linear in their number)."""
    return arithmetic.add_all([as_expression(v) for v in values])


def product_of(values: Iterable[ExpressionLike]) -> Expression:
    """The product of many values; 1 for none."""
    result = ONE
    for value in values:
        result = arithmetic.multiply(result, as_expression(value))
    return result


def minimum(a: ExpressionLike, b: ExpressionLike) -> Expression:
    """The Expression of the lesser of two values."""
    return arithmetic.extreme("min", (as_expression(a), as_expression(b)))


def maximum(a: ExpressionLike, b: ExpressionLike) -> Expression:
    """The Expression of the greater of two values."""
    return arithmetic.extreme("max", (as_expression(a), as_expression(b)))


def ceil_div(a: ExpressionLike, b: ExpressionLike) -> Expression:
    """a / b rounded up, for b > 0; 0 for b = 0."""
    b = as_expression(b)
    return division.floordiv(as_expression(a) + b - 1, b)


def all_of(conditions: Iterable[ExpressionLike]) -> Expression:
    """The conjunction of conditions; TRUE for none."""
    return condition.conjunction(tuple(as_expression(c) for c in conditions))


# The operators above call the rules; the rules build the nodes above. The class comes first.
from luminal.shape import (  # noqa: E402
    arithmetic,
    bounds,
    condition,
    division,
    evaluation,
    ordering,
    text,
)
