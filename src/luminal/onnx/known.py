"""Values that are known before a run: constants, and integers that are Expressions of the dims.

Graphs compute shapes with the operators that compute everything else. So nothing is folded by
operator: what is recorded is evaluated by the meaning of HLIR's primitives, with Expressions in the
place of integers where a dim is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.base.dtypes import DType
from luminal.hlir.attributes import (
    AxisAttrs,
    CastAttrs,
    ConstantAttrs,
    GatherAttrs,
    IotaAttrs,
    ScanAttrs,
    ScatterAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import Expression, as_expression, const, maximum, product_of
from luminal.shape.view import index

Array = np.ndarray[Any, Any]

MAX_SIZE = 4096
"""Elements: what is larger is data, and not looked into."""

MOST = 1 << 24
"""Elements of numbers without dims: more are left to a run, as if they depended on data."""


# Operators need no second implementation for shapes: what was recorded is evaluated by the
# primitives' own meanings, with Expressions in the place of integers. The few primitives then
# decide what stays dynamic.
class Unknown(Exception):
    """The value is known at a run only; `by_data` if it depends on inputs, not on dims alone."""

    def __init__(self, *, by_data: bool) -> None:
        super().__init__()
        self.by_data = by_data


class Known:
    """Evaluates values of one graph, each once."""

    def __init__(self) -> None:
        self._found: dict[Node, tuple[Array, ...] | Unknown] = {}

    def tell(self, value: Value, array: Array) -> None:
        """Says what an Input holds."""
        self._found[value.node] = (array,)

    def array(self, value: Value) -> Array:
        """The elements; an array of objects (ints and Expressions) where dims are involved.

        Raises Unknown.
        """
        for node in topological([value]):
            if node not in self._found:
                self._found[node] = self._outcome(node)
        outcome = self._found[value.node]
        if isinstance(outcome, Unknown):
            raise outcome
        # The first operand that is not known says why, by data or by dims: the caller can cut the
        # graph at data, and cannot at dims.
        return outcome[value.index]

    def _outcome(self, node: Node) -> tuple[Array, ...] | Unknown:
        args = []
        for arg in node.args:
            outcome = self._found[arg.node]
            if isinstance(outcome, Unknown):
                return outcome
            args.append(outcome[arg.index])
        try:
            return _evaluated(node, args)
        except Unknown as unknown:
            return unknown


def _evaluated(node: Node, args: Sequence[Array]) -> tuple[Array, ...]:
    if isinstance(node.attrs, WeightAttrs):
        return (node.attrs.parameter.memory,)
    if node.op.group == "leaf" and not isinstance(node.attrs, ConstantAttrs | IotaAttrs):
        raise Unknown(by_data=True)
    if any(not extent.is_const for kind in node.types for extent in kind.shape):
        raise Unknown(by_data=False)
    if isinstance(node.attrs, IotaAttrs):
        return (_iota(node.attrs),)
    # Folding a large constant would hold up the reading for what a run does at full speed.
    if any(product_of(kind.shape).value > MOST for kind in node.types):
        raise Unknown(by_data=True)
    symbolic = any(arg.dtype == object for arg in args) or not _is_literal(node.attrs)
    if not symbolic and node.op.evaluate is not None:
        return node.op.evaluate(node.attrs, {}, args)
    if any(arg.size > MAX_SIZE for arg in args):
        raise Unknown(by_data=False)
    result = _plain(_symbolic(node, [_objects(arg) for arg in args]))
    return (result if result.dtype == object else result.astype(node.types[0].dtype.numpy),)


def _is_literal(attrs: Any) -> bool:
    """Do the index maps hold no dims?"""
    match attrs:
        case ViewAttrs(view=view):
            entries: list[Any] = [*view.map, view.domain]
        case GatherAttrs() | ScatterAttrs():
            entries = [position for position in attrs.map if isinstance(position, Expression)]
        case _:
            return True
    return all(symbol.extent is not None for entry in entries for symbol in entry.symbols())


def _iota(attrs: IotaAttrs) -> Array:
    shape = tuple(extent.value for extent in attrs.shape)
    if all(symbol.extent is not None for symbol in attrs.expr.symbols()):
        env = {f"i{k}": np.arange(n).reshape(-1, *(1,) * (len(shape) - 1 - k))
               for k, n in enumerate(shape)}  # fmt: skip
        values = np.asarray(attrs.expr.evaluate(env))
        return np.broadcast_to(values, shape).astype(attrs.dtype.numpy)
    if attrs.dtype.is_float or int(np.prod(shape)) > MAX_SIZE:
        raise Unknown(by_data=False)
    result = np.empty(shape, object)
    for place in np.ndindex(shape):
        at = {
            index(k, n): const(i) for k, (n, i) in enumerate(zip(attrs.shape, place, strict=True))
        }
        result[place] = attrs.expr.substitute(at)
    return _plain(result)


def _objects(array: Array) -> Array:
    """An array of integers as one of Expressions."""
    if array.dtype == object:
        return array
    if array.dtype.kind not in "biu":
        raise Unknown(by_data=False)
    return _each(lambda n: const(int(n)), array)


def _plain(array: Array) -> Array:
    """Numbers again where no dim is left."""
    if array.dtype == object and all(n.is_const for n in array.flat):
        return np.array([n.value for n in array.flat], np.int64).reshape(array.shape)
    return array


def _each(function: Callable[..., Any], *args: Array) -> Array:
    result = np.empty(args[0].shape, object)
    for place in np.ndindex(result.shape):
        result[place] = as_expression(function(*(arg[place] for arg in args)))
    return result


_POINTWISE: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "Maximum": maximum,
    "LessThan": lambda a, b: a < b,
    "Equal": lambda a, b: a.eq(b),
    "Detach": lambda a: a,
}
_LOGIC: dict[str, Callable[..., Any]] = {
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: a.ne(b),
}


def _symbolic(node: Node, args: Sequence[Array]) -> Array:
    name, attrs = node.op.name, node.attrs
    if name in _POINTWISE:
        return _each(_POINTWISE[name], *args)
    if name in _LOGIC and node.types[0].dtype.kind == "bool":
        return _each(_LOGIC[name], *args)
    match attrs:
        case CastAttrs(dtype=dtype) if name == "Cast":
            return _cast(args[0], dtype)
        case ViewAttrs() | GatherAttrs() | ScatterAttrs() if _is_literal(attrs):
            return _moved(node, args)
        case AxisAttrs(axis=axis) if name in ("Sum", "Max") and args[0].shape[axis]:
            combine = _POINTWISE["Add" if name == "Sum" else "Maximum"]
            return np.asarray(np.frompyfunc(combine, 2, 1).reduce(args[0], axis=axis), object)
        case ScanAttrs(kind=kind, axis=axis):
            combine = _POINTWISE[{"add": "Add", "mul": "Mul", "max": "Maximum"}[kind]]
            sums = np.frompyfunc(combine, 2, 1).accumulate(args[0], axis=axis, dtype=object)
            return np.asarray(sums, object)
    if name == "Select":
        return _each(_chosen, *args)
    raise Unknown(by_data=False)


def _chosen(condition: Expression, a: Expression, b: Expression) -> Expression:
    if condition.is_const:
        return a if condition.value else b
    if a == b:
        return a
    raise Unknown(by_data=False)


def _cast(x: Array, dtype: DType) -> Array:
    if dtype.is_float:
        raise Unknown(by_data=False)
    return _each(lambda n: n.ne(0) if dtype.kind == "bool" and not n.is_condition else n, x)


def _moved(node: Node, args: Sequence[Array]) -> Array:
    """Views, Gather and Scatter: the op's own meaning, on numbers that name the elements."""
    operands = args[:2] if node.op.name == "Scatter" else args[:1]
    if node.op.name == "Scatter" and node.attrs.mode != "set":
        raise Unknown(by_data=False)
    # Moves do not look at what they move. So numbers stand for the elements while NumPy moves them,
    # and are looked up afterwards; 0 is number 0, which is what views fill with.
    elements: list[Expression] = [const(0)]
    numbers = []
    for operand in operands:
        count = np.arange(len(elements), len(elements) + operand.size)
        numbers.append(count.reshape(operand.shape))
        elements += operand.flat
    places = [_plain(arg) for arg in args[len(operands) :]]
    if any(place.dtype == object for place in places):
        raise Unknown(by_data=False)
    assert node.op.evaluate is not None
    (picked,) = node.op.evaluate(node.attrs, {}, [*numbers, *places])
    return _each(lambda n: elements[n], picked)
