"""Expressions of dims and indices as int64 tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from luminal.base.dtypes import bool_, int64
from luminal.onnx.errors import UnsupportedError
from luminal.onnx.writing.writer import Writer
from luminal.shape.expression import Expression, Symbol, product_of

MAX_LITERAL = 4096
"""Elements of an index map that is written as numbers rather than computed by the model."""

_COMPARED = {"lt": "Less", "le": "LessOrEqual", "eq": "Equal"}
_VARIADIC = {"add": "Add", "mul": "Mul", "min": "Min", "max": "Max", "and": "Mul", "or": "Max"}


class Expressions:
    """Writes Expressions; `dims` names the scalar that holds each dim."""

    def __init__(self, writer: Writer, dims: Mapping[str, str]) -> None:
        self._writer = writer
        self._dims = dims

    def scalar(self, expr: Expression) -> str:
        """An Expression of dims alone, as a 0-d tensor."""
        return self._written(expr, ())

    def shape(self, extents: Sequence[Expression]) -> str:
        """A shape as a vector."""
        if all(n.is_const for n in extents):
            return self._writer.ints(*(n.value for n in extents))
        zero = self._writer.ints(0)
        parts = [self._writer.op("Unsqueeze", self.scalar(n), zero) for n in extents]
        return str(self._writer.op("Concat", *parts, axis=0))

    def over(self, expr: Expression, shape: Sequence[Expression]) -> str:
        """An Expression of the indices of `shape`, as a tensor that broadcasts to it."""
        literal = all(n.is_const for n in shape) and all(
            symbol.extent is not None for symbol in expr.symbols()
        )
        used = {symbol.name for symbol in expr.symbols()}
        free = [k for k, _ in enumerate(shape) if f"i{k}" in used]
        if literal and product_of(shape[k] for k in free).value <= MAX_LITERAL:
            env = {f"i{k}": self._range(shape[k].value, k, len(shape)) for k in free}
            values = np.asarray(expr.evaluate(env), np.int64)
            return self._writer.constant(values)
        return self._written(expr, shape)

    def _range(
        self, extent: int, k: int, rank: int
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.arange(extent, dtype=np.int64).reshape(-1, *(1,) * (rank - 1 - k))

    def _written(self, expr: Expression, shape: Sequence[Expression]) -> str:
        writer = self._writer
        if isinstance(expr, Symbol):
            return self._symbol(expr, shape)
        if expr.is_const:
            return writer.scalar(expr.value, int64)
        args = [self.over(arg, shape) for arg in expr.args]
        if expr.op in _VARIADIC:
            result = args[0]
            for arg in args[1:]:
                result = writer.op(_VARIADIC[expr.op], result, arg)
            return result
        if expr.op in _COMPARED:
            return writer.cast(writer.op(_COMPARED[expr.op], *args), int64)
        if expr.op == "ne":
            return writer.cast(writer.op("Not", writer.op("Equal", *args)), int64)
        least = expr.args[1].interval.lo
        if expr.op in ("floordiv", "mod") and least is not None and least > 0:
            rest = writer.op("Mod", *args)
            if expr.op == "mod":
                return str(rest)
            return str(writer.op("Div", writer.op("Sub", args[0], rest), args[1]))
        raise UnsupportedError(f"export: the index {expr} divides by what may be 0")

    def _symbol(self, symbol: Symbol, shape: Sequence[Expression]) -> str:
        writer = self._writer
        if symbol.extent is None:
            if symbol.name not in self._dims:
                raise UnsupportedError(
                    f"export: no input has the extent {symbol.name}, so no model can know it"
                )
            return self._dims[symbol.name]
        k = int(symbol.name[1:])
        zero, one = writer.scalar(0, int64), writer.scalar(1, int64)
        numbers = writer.op("Range", zero, self.scalar(shape[k]), one)
        behind = len(shape) - 1 - k
        axes = writer.ints(*range(1, behind + 1))
        return str(writer.op("Unsqueeze", numbers, axes)) if behind else str(numbers)

    def condition(self, expr: Expression, shape: Sequence[Expression]) -> str:
        """A condition as bools that broadcast to `shape`."""
        return self._writer.cast(self.over(expr, shape), bool_)
