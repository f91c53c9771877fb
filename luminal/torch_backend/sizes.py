"""Sizes that Dynamo leaves open: SymPy's formulas as Expressions over dims of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as torch_sympy

from luminal.frontend.graph import Recorder
from luminal.shape.expression import (
    MAX_DIM,
    Expression,
    ceil_div,
    const,
    maximum,
    minimum,
    product_of,
    sum_of,
)
from luminal.torch_backend.errors import UnsupportedError

Size = int | Expression


class Sizes:
    """The dims that a graph's sizes are made of: one for each symbol, with its interval."""

    def __init__(self, graph: Recorder) -> None:
        self._graph = graph
        self._known: dict[sympy.Expr, Expression] = {}

    def of(self, size: Any) -> Size:
        """An int as it is, a SymInt as an Expression. Raises UnsupportedError for one whose value
        tensors would decide.
        """
        if not isinstance(size, torch.SymInt):
            return int(size)
        node = size.node
        if node.is_constant() or not isinstance(node.expr, sympy.Expr) or node.expr.is_Integer:
            return int(node.expr)
        found = self._expression(node.expr, node.shape_env)
        return found.value if found.is_const else found

    def shape(self, sizes: Sequence[Any]) -> tuple[Size, ...]:
        """All sizes of a tensor."""
        return tuple(map(self.of, sizes))

    def _expression(self, expr: sympy.Expr, env: Any) -> Expression:
        if expr not in self._known:
            self._known[expr] = self._made(expr, env)
        return self._known[expr]

    def _made(self, expr: sympy.Expr, env: Any) -> Expression:
        if expr.is_Integer:
            return const(int(expr))
        if expr.is_Symbol:
            return self._dim(expr, env)
        rule = _RULES.get(type(expr))
        if rule is None:
            raise UnsupportedError(f"size {expr}: {type(expr).__name__} of sizes is not known")
        return rule([self._expression(each, env) for each in expr.args])

    def _dim(self, symbol: sympy.Symbol, env: Any) -> Expression:
        if symbol in getattr(env, "unbacked_renamings", {}) or str(symbol).startswith("u"):
            raise UnsupportedError(f"size {symbol}: elements of a tensor would decide it")
        if symbol not in env.var_to_range:  # of nested tensors, whose rows differ in length
            raise UnsupportedError(f"size {symbol}: PyTorch gives no interval for it")
        if not env.var_to_range[symbol].lower >= 0 and not _stays_a_size(symbol, env):
            return const(int(env.evaluate_expr(symbol)))
        interval = env.var_to_range[symbol]
        low, high = _bound(interval.lower, 0), _bound(interval.upper, MAX_DIM)
        return self._graph.dim(str(symbol), max(low, 0), min(high, MAX_DIM))


def _stays_a_size(symbol: sympy.Symbol, env: Any) -> bool:
    """Does an int of Python's lie where sizes do? Dynamo guards the answer; others are literals."""
    return all(env.evaluate_expr(each) for each in (symbol >= 0, symbol <= MAX_DIM))


def _bound(bound: Any, otherwise: int) -> int:
    return int(bound) if bound.is_Integer else otherwise


def _power(args: Sequence[Expression]) -> Expression:
    base, exponent = args
    if not exponent.is_const or exponent.value < 0:
        raise UnsupportedError(f"size {base}**{exponent}: the exponent is not a literal >= 0")
    return product_of([base] * exponent.value)


_RULES: dict[type, Callable[[Sequence[Expression]], Expression]] = {
    sympy.Add: sum_of,
    sympy.Mul: product_of,
    sympy.Pow: _power,
    sympy.Max: lambda args: reduce(maximum, args),
    sympy.Min: lambda args: reduce(minimum, args),
    torch_sympy.Max: lambda args: reduce(maximum, args),
    torch_sympy.Min: lambda args: reduce(minimum, args),
    torch_sympy.PowByNatural: _power,
    torch_sympy.FloorDiv: lambda args: args[0] // args[1],
    torch_sympy.CleanDiv: lambda args: args[0] // args[1],
    torch_sympy.CeilToInt: lambda args: args[0],
    torch_sympy.Mod: lambda args: args[0] % args[1],
    torch_sympy.PythonMod: lambda args: args[0] % args[1],
    torch_sympy.CeilDiv: lambda args: ceil_div(args[0], args[1]),
    torch_sympy.ModularIndexing: lambda args: args[0] // args[1] % args[2],
}
