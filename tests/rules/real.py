"""Values of terms in real arithmetic, as near as long double comes, and what was met on the way.

Written apart from `algebra.evaluate`: one plain walk over whole grids. Nothing overflows or is lost
near 0 (that raises FloatingPointError), so what is infinite or NaN is so in real arithmetic: by an
operand, by a pole (1/0, log 0) or where no value is (0*inf, inf - inf, the root of -1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.algebra.terms import Axes, Term, axis_order
from luminal.hlir.ops import OPS, Value
from luminal.hlir.semantics import convert
from luminal.shape.expression import Expression

Array = np.ndarray[Any, Any]
Wide = np.longdouble

FLOATS: dict[str, Callable[..., Array]] = {
    "Exp": np.exp,
    "Log": np.log,
    "Exp2": np.exp2,
    "Log2": np.log2,
    "Sin": np.sin,
    "Cos": np.cos,
    "Sqrt": np.sqrt,
    "Recip": lambda x: np.divide(Wide(1), x),
    "Floor": np.floor,
    "Add": np.add,
    "Mul": np.multiply,
    "Div": np.divide,
    "FloorDiv": np.floor_divide,
    "Mod": np.remainder,
    "Maximum": np.maximum,
    "LessThan": np.less,
    "Equal": np.equal,
}


@dataclass(frozen=True, slots=True)
class Real:
    """Over the grid of a term's axes, in `axis_order`. `odd`: where an operand or an intermediate,
    not the value itself, is NaN or infinite; `scale`: the largest finite number met.
    """

    value: Array
    odd: Array
    scale: float


class Reals:
    """Terms at one binding of leaves and dims."""

    def __init__(self, leaves: Mapping[Value, Array], dims: Mapping[str, int]) -> None:
        self.leaves = leaves
        self.dims = dims
        self.known: dict[Term, Real] = {}

    def of(self, term: Term) -> Real:
        if term not in self.known:
            with np.errstate(over="raise", under="raise", divide="ignore", invalid="ignore"):
                self.known[term] = self._compute(term)
        return self.known[term]

    def size(self, axis: Any) -> int:
        return int(axis.extent.evaluate(self.dims))

    # --- one operation

    def _compute(self, term: Term) -> Real:
        args = [self.of(arg) for arg in term.args]
        value = _widened(self._value(term, [arg.value for arg in args]))
        value = np.broadcast_to(value, [self.size(a) for a in axis_order(term.axes)])
        odd = self._odd(term, args)
        finite = np.abs(value[np.isfinite(value)]) if value.dtype == Wide else np.empty(0)
        largest = max((float(np.max(finite, initial=0)), *(arg.scale for arg in args)))
        return Real(value, np.broadcast_to(odd, value.shape), largest)

    def _value(self, term: Term, args: list[Array]) -> Array:
        order = axis_order(term.axes)
        if term.op == "Leaf":
            own = tuple(a for dimension in term.attrs.frame for a in dimension)
            array = self._leaf(term.attrs.value).reshape([self.size(a) for a in own])
            return array.transpose([own.index(a) for a in order])
        if term.op == "Literal":
            return np.asarray(term.attrs.value(term.dtype))
        if term.op == "Index":
            return convert(self._index(term.attrs, order), term.dtype)
        if term.op == "At":
            return self._at(term, args[0], args[1:])
        if term.is_reduction:
            return self._reduce(term, args[0])
        spread = [_spread(x, arg, order) for x, arg in zip(args, term.args, strict=True)]
        if term.op == "Cast":
            return _cast(spread[0], term)
        if term.op in FLOATS and spread[-1].dtype == Wide:
            return FLOATS[term.op](*spread)
        meaning = OPS[term.op].evaluate
        assert meaning is not None
        assert term.op != "Bitcast"
        return meaning(None, self.dims, spread)[0]

    def _leaf(self, value: Value) -> Array:
        if value in self.leaves:
            return self.leaves[value]
        return np.asarray(value.node.attrs.parameter.numpy())  # type: ignore[union-attr]

    def _odd(self, term: Term, args: list[Real]) -> Array:
        """Where an operand, or something below one, is NaN or infinite."""
        order = axis_order(term.axes)
        found = []
        for x in args:
            wide = x.value.dtype == Wide
            found.append(x.odd | ~np.isfinite(x.value) if wide else x.odd)
        if term.op == "At":
            return self._at(term, found[0], [x.value for x in args[1:]])
        if term.is_reduction:
            along = tuple(axis_order(term.args[0].axes).index(a) for a in _inside(term))
            return np.any(found[0], along) & (self._repeats(term) > 0)
        result = np.zeros(1, bool)
        for here, arg in zip(found, term.args, strict=True):
            result = result | _spread(here, arg, order)
        return result if order else result.reshape(())

    # --- forms

    def _reduce(self, term: Term, x: Array) -> Array:
        order = axis_order(term.args[0].axes)
        along = tuple(order.index(a) for a in _inside(term))
        repeats = self._repeats(term)
        if term.op == "Sum":
            total = np.asarray(np.sum(x, along, dtype=x.dtype))
            return total * x.dtype.type(repeats) if repeats else np.zeros_like(total)
        lowest = term.dtype.lowest
        largest = np.asarray(np.max(x, along, initial=lowest))
        return largest if repeats else np.full_like(largest, lowest)

    def _repeats(self, reduction: Term) -> int:
        """How often it meets each of its operand's values."""
        idle = [self.size(a) for a in reduction.attrs if a not in reduction.args[0].axes]
        return int(np.prod(idle, dtype=np.int64))

    def _at(self, term: Term, x: Array, terms: list[Array]) -> Array:
        """Out of range: anything."""
        order, read = axis_order(term.axes), axis_order(term.args[0].axes)
        sizes = [self.size(a) for a in order]
        if 0 in sizes or 0 in x.shape:
            return np.zeros(sizes, x.dtype)
        where = dict(term.attrs)
        places = []
        for axis, extent in zip(read, x.shape, strict=True):
            index = where.get(axis, axis)
            if isinstance(index, Expression):
                place = self._index(index, order)
            else:
                place = _spread(terms[index], term.args[1 + index], order)
            places.append(np.clip(place, 0, extent - 1))
        return np.asarray(x[tuple(places)])

    def _index(self, expr: Expression, order: Axes) -> Array:
        dims = {s: self.dims[s.name] for s in expr.symbols() if s.extent is None}
        env: dict[str, Any] = {}
        for place, axis in enumerate(order):
            shape = [1] * len(order)
            shape[place] = -1
            env[axis.name] = np.arange(self.size(axis)).reshape(shape)
        return np.asarray(expr.substitute(dims).evaluate(env), np.int64)


def _inside(reduction: Term) -> list[Any]:
    return [a for a in reduction.attrs if a in reduction.args[0].axes]


def _widened(array: Array) -> Array:
    array = np.asarray(array)
    return array.astype(Wide) if array.dtype.kind in "fV" else array  # V: of ml_dtypes


def _cast(x: Array, term: Term) -> Array:
    if term.dtype.is_float:
        return x.astype(Wide)
    return convert(x.astype(np.float64) if x.dtype == Wide else x, term.dtype)


def _spread(array: Array, term: Term, order: Axes) -> Array:
    """A term's value with dimensions `order`, of size 1 where it has no such axis."""
    sizes = iter(array.shape)
    return array.reshape([next(sizes) if a in term.axes else 1 for a in order])
