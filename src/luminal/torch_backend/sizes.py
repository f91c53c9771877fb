"""Sizes that Dynamo leaves open: SymPy's formulas as Expressions over dims of the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy import functions as torch_sympy

import luminal as lm
from luminal.base.errors import DimError
from luminal.frontend.graph import Recorder
from luminal.shape.expression import (
    MAX_DIM,
    Expression,
    Symbol,
    ceil_div,
    const,
    maximum,
    minimum,
    product_of,
    sum_of,
)
from luminal.torch_backend.errors import UnsupportedError

Size = int | Expression


class Computed(NamedTuple):
    """A size as PyTorch spells it, with its symbols as the library does."""

    formula: sympy.Expr
    symbols: Mapping[sympy.Symbol, Expression]

    def value(self, dims: Mapping[str, int]) -> int:
        """What it is for these dims."""
        return int(self.formula.xreplace(
            {symbol: sympy.Integer(size.evaluate(dims)) for symbol, size in self.symbols.items()}
        ))  # fmt: skip


# PyTorch's guards know that `2 * (s // 2)` is `s`, and its graphs say either. Asked of the sizes
# that have one value in the traced call, what was met first is the spelling of all: then the
# library's rule stays that Expressions which differ do not fit.
class Sizes:
    """The dims that a graph's sizes are made of: one for each symbol, with its interval.

    Sizes that PyTorch knows to be equal have one spelling, a literal or a dim where there is one:
    `2 * (s // 2)` is `s` where it was asked to be even. `given` are the sizes that arguments say.
    One whose symbols no other says is a dim of its own; from `2 * s` alone follows what `s` is.

    A formula that Expressions have no rule for (`2**s`, the root of `s`) is a dim too, one of
    `computed`: PyTorch's own formula says before each run how long it is.
    """

    def __init__(self, graph: Recorder, sizes: Sequence[torch.SymInt] = ()) -> None:
        self._graph = graph
        self.computed: dict[str, Computed] = {}
        self._known: dict[sympy.Expr, Expression] = {}
        self._spelled: dict[sympy.Expr, Size] = {}
        self._met: dict[int | None, list[tuple[Any, Size]]] = {}  # SymInts, by their examples
        open_sizes = filter(is_known_in_a_run, filter(_is_open, sizes))
        left = list({size.node.expr: size for size in open_sizes}.values())
        while left:
            lacking = [size.node.expr.free_symbols - self._known.keys() for size in left]
            first = min(range(len(left)), key=lambda k: _rank(left[k], lacking[k]))
            self._take(left.pop(first), lacking[first])

    def _take(self, size: torch.SymInt, lacking: Collection[sympy.Symbol]) -> None:
        """One of the given sizes, of whose symbols these are not yet known."""
        expr = size.node.expr
        if not expr.is_Symbol and (lacking or not _is_formula(expr)):
            self._known[expr] = self._dim_of(size, lacking)
        elif not lacking:
            self.of(size)
            return
        spelled = self._spelled[expr] = _literal(self._expression(expr, size.node.shape_env))
        self._met.setdefault(_hint(size), []).append((size, spelled))

    def _dim_of(self, size: torch.SymInt, lacking: Collection[sympy.Symbol]) -> Expression:
        """A dim for a formula; its one unknown symbol is solved for, alone in a sum or product."""
        expr, env = size.node.expr, size.node.shape_env
        name = f"given{len(self._graph.dims)}"
        if not _is_formula(expr):
            return self._graph.dim(name, 0)
        # Tried in a graph of its own: what is made on the way leaves no dims in this one.
        trial = Sizes(lm.Graph())
        trial._known.update(self._known)
        whole = trial._expression(expr, env)
        if trial.computed:
            return self._graph.dim(name, 0)
        low, high = whole.interval.lo or 0, whole.interval.hi
        dim = self._graph.dim(name, max(low, 0), MAX_DIM if high is None else min(high, MAX_DIM))
        if len(lacking) == 1:
            (symbol,) = lacking
            alone = trial._expression(symbol, env)
            factor = whole.coefficient(alone) if isinstance(alone, Symbol) else None
            if factor is not None and factor != const(0):
                self._known[symbol] = (dim - (whole - factor * alone)) // factor
        return dim

    def of(self, size: Any) -> Size:
        """An int as it is, a SymInt as an Expression. Raises UnsupportedError for one whose value
        tensors would decide.
        """
        if not _is_open(size):
            return int(size.node.expr if isinstance(size, torch.SymInt) else size)
        node = size.node
        if node.expr not in self._spelled:
            self._spelled[node.expr] = self._spell(size)
        return self._spelled[node.expr]

    def _spell(self, size: torch.SymInt) -> Size:
        """Spells a size as an equal one that was met before, if there is one."""
        hint = _hint(size)
        if hint is not None and statically_known_true(size == hint):
            return hint
        alike = self._met.setdefault(hint, [])
        for other, spelled in alike:
            if statically_known_true(size == other):
                return spelled
        spelling = _literal(self._expression(size.node.expr, size.node.shape_env))
        alike.append((size, spelling))
        return spelling

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
        if (scaled := _scaled(expr)) is not None:
            whole, (count, parts) = scaled
            return self._expression(whole, env) * count // parts
        rule = _RULES.get(type(expr))
        if rule is None or not _is_exact(expr):
            return self._computed(expr, env)
        return rule([self._expression(arg, env) for arg in expr.args])

    def _computed(self, expr: sympy.Expr, env: Any) -> Expression:
        symbols = {symbol: self._expression(symbol, env) for symbol in expr.free_symbols}
        name, interval = f"computed{len(self.computed)}", env.bound_sympy(expr)
        low, high = _bound(interval.lower, 0), _bound(interval.upper, MAX_DIM)
        self.computed[name] = Computed(expr, symbols)
        return self._graph.dim(name, min(max(low, 0), MAX_DIM), min(high, MAX_DIM))

    def completed(self, dims: Mapping[str, int]) -> dict[str, int]:
        """The dims with the values of those that are computed from them. Raises DimError for one
        that is no size.
        """
        values = dict(dims)
        for name, computed in self.computed.items():
            value = values[name] = computed.value(values)
            if not 0 <= value <= MAX_DIM:
                raise DimError(f"size {computed.formula}: is {value}; sizes are 0 to {MAX_DIM}")
        return values

    def _dim(self, symbol: sympy.Symbol, env: Any) -> Expression:
        if why := _why_unknown(symbol, env):
            raise UnsupportedError(f"size {symbol}: {why}")
        if not env.var_to_range[symbol].lower >= 0 and not _stays_a_size(symbol, env):
            # Asked so, PyTorch guards the value: a call with another one is compiled anew.
            return const(int(env.evaluate_expr(symbol)))
        interval = env.var_to_range[symbol]
        low, high = _bound(interval.lower, 0), _bound(interval.upper, MAX_DIM)
        return self._graph.dim(str(symbol), max(low, 0), min(high, MAX_DIM))


def _is_open(size: Any) -> bool:
    """Is it a formula of symbols?"""
    if not isinstance(size, torch.SymInt) or size.node.is_constant():
        return False
    return isinstance(size.node.expr, sympy.Expr) and not size.node.expr.is_Integer


def _hint(size: torch.SymInt) -> int | None:
    """A size's value in the call that was traced."""
    hint = size.node.hint
    return hint if isinstance(hint, int) else None


def _literal(size: Expression) -> Size:
    return size.value if size.is_const else size


def is_known_in_a_run(size: torch.SymInt) -> bool:
    """Are the formula's symbols such as have intervals, and do no elements of tensors decide it?"""
    if size.node.is_constant():
        return True
    env = size.node.shape_env
    return not any(_why_unknown(symbol, env) for symbol in size.node.expr.free_symbols)


def _is_formula(expr: sympy.Expr) -> bool:
    """Is it made of symbols by rules that are known?"""
    if expr.is_Integer or expr.is_Symbol:
        return True
    if (scaled := _scaled(expr)) is not None:
        return _is_formula(scaled[0])
    return type(expr) in _RULES and _is_exact(expr) and all(map(_is_formula, expr.args))


def _scaled(expr: sympy.Expr) -> tuple[sympy.Expr, tuple[int, int]] | None:
    """The size n and the factor 3 / 2 of `int(n * 1.5)`. None for factors whose product with a size
    is rounded.
    """
    if not isinstance(expr, _FLOORS):
        return None
    (inner,) = expr.args
    if isinstance(inner, torch_sympy.IntTrueDiv) and inner.args[1].is_Integer:
        divisor = int(inner.args[1])
        return (inner.args[0], (1, divisor)) if divisor > 0 else None
    floats = [factor for factor in inner.args if factor.is_Float] if inner.is_Mul else []
    sizes = [factor for factor in inner.args if isinstance(factor, torch_sympy.ToFloat)]
    if len(inner.args) != 2 or not len(floats) == len(sizes) == 1:
        return None
    count, parts = float(floats[0]).as_integer_ratio()
    return (sizes[0].args[0], (count, parts)) if 0 < count < _EXACT else None


def _why_unknown(symbol: sympy.Symbol, env: Any) -> str:
    """Why a run does not know a symbol's value; empty if it does."""
    if symbol in getattr(env, "unbacked_renamings", {}) or str(symbol).startswith("u"):
        return "elements of a tensor would decide it"
    if symbol not in env.var_to_range:  # of nested tensors, whose rows differ in length
        return "PyTorch gives no interval for it"
    return ""


def _rank(size: torch.SymInt, lacking: Collection[sympy.Symbol]) -> tuple[bool, int]:
    """Symbols come first, then what few unknown ones make."""
    return not size.node.expr.is_Symbol, len(lacking)


def _stays_a_size(symbol: sympy.Symbol, env: Any) -> bool:
    """Does an int of Python's lie where sizes do? Dynamo guards the answer; others are literals."""
    return all(env.evaluate_expr(condition) for condition in (symbol >= 0, symbol <= MAX_DIM))


def _bound(bound: Any, otherwise: int) -> int:
    return int(bound) if bound.is_Integer else otherwise


def _is_exact(expr: sympy.Expr) -> bool:
    """Has an Expression such a formula? Powers have literal exponents."""
    if not isinstance(expr, sympy.Pow | torch_sympy.PowByNatural):
        return True
    exponent = expr.args[1]
    return bool(exponent.is_Integer and exponent >= 0)


def _power(args: Sequence[Expression]) -> Expression:
    base, exponent = args
    return product_of([base] * exponent.value)


_FLOORS = (torch_sympy.TruncToInt, torch_sympy.FloorToInt)
_EXACT = 2**22  # by sizes below 2**31, within the 53 bits of a float

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
