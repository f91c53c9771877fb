"""Meaning of Expressions: evaluation, compiled evaluation, substitution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import DimError
from luminal.shape import condition
from luminal.shape.arithmetic import CACHE, add_all, extreme, multiply
from luminal.shape.division import floordiv, mod
from luminal.shape.expression import ONE, Symbol
from luminal.shape.text import to_python

if TYPE_CHECKING:
    from luminal.shape.expression import Expression


def _product(args: Sequence[Expression]) -> Expression:
    return reduce(multiply, args, ONE)


REBUILD: dict[str, Callable[[Sequence[Expression]], Expression]] = {
    "add": add_all,
    "mul": _product,
    "floordiv": lambda args: floordiv(*args),
    "mod": lambda args: mod(*args),
    "min": lambda args: extreme("min", tuple(args)),
    "max": lambda args: extreme("max", tuple(args)),
    "lt": lambda args: condition.less(*args),
    "le": lambda args: condition.less_equal(*args),
    "eq": lambda args: condition.equal(*args),
    "ne": lambda args: condition.negation(condition.equal(*args)),
    "and": lambda args: condition.conjunction(tuple(args)),
    "or": lambda args: condition.disjunction(tuple(args)),
}
"""How to build a node of each op from its operands, canonically."""


def postorder(root: Expression) -> Iterator[Expression]:
    """Every node once, operands before their users."""
    seen: set[Expression] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((arg, False) for arg in node.args)


def symbols_of(e: Expression) -> frozenset[Symbol]:
    """The symbols that occur in the expression."""
    if isinstance(e, Symbol):
        return frozenset((e,))
    return frozenset().union(*(arg.symbols() for arg in e.args))


@lru_cache(CACHE)
def _substitute_one(e: Expression, values: tuple[tuple[Symbol, Expression], ...]) -> Expression:
    # Rebuilt through the operators, so that what the values decide is simplified on the way.
    table = dict(values)
    rebuilt: dict[Expression, Expression] = {}
    for node in postorder(e):
        if isinstance(node, Symbol):
            rebuilt[node] = table.get(node, node)
            continue
        args = [rebuilt[arg] for arg in node.args]
        same = all(new is old for new, old in zip(args, node.args, strict=True))
        rebuilt[node] = node if same else REBUILD[node.op](args)
    return rebuilt[e]


def substitute(e: Expression, values: Mapping[Symbol, Expression]) -> Expression:
    """Simultaneous substitution; memoised on the symbols that occur."""
    occurring = e.symbols()
    used = [(s, v) for s, v in values.items() if s in occurring and s is not v]
    if not used:
        return e
    used.sort(key=lambda pair: pair[0].sort_key)
    return _substitute_one(e, tuple(used))


def evaluate(e: Expression, env: Mapping[str, Any]) -> Any:
    """The value: an int for ints, an int64 array where an array is involved."""
    if e.is_const:
        return e.constant
    values: dict[Expression, Any] = {}
    for node in postorder(e):
        if isinstance(node, Symbol):
            if node.name not in env:
                raise DimError(f"no value for {node.name} in {e}; pass {{{node.name!r}: ...}}")
            values[node] = env[node.name]
        elif node.is_const:
            values[node] = node.constant
        else:
            values[node] = _apply(node.op, [values[arg] for arg in node.args])
    return values[e]


def _divided(op: str, a: Any, b: Any) -> Any:
    """Floor division or modulo, 0 where b is 0."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        if b == 0:
            return 0
        return a // b if op == "floordiv" else a % b
    safe = np.where(np.equal(b, 0), 1, b)
    result = np.floor_divide(a, safe) if op == "floordiv" else np.remainder(a, safe)
    return np.where(np.equal(b, 0), 0, result)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: _divided("floordiv", a, b),
    "mod": lambda a, b: _divided("mod", a, b),
    "min": lambda a, b: np.minimum(a, b) if _has_array(a, b) else min(a, b),
    "max": lambda a, b: np.maximum(a, b) if _has_array(a, b) else max(a, b),
    "lt": lambda a, b: _truth(a < b),
    "le": lambda a, b: _truth(a <= b),
    "eq": lambda a, b: _truth(a == b),
    "ne": lambda a, b: _truth(a != b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


def _has_array(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) or isinstance(b, np.ndarray)


def _truth(value: Any) -> Any:
    return value.astype(np.int64) if isinstance(value, np.ndarray) else int(value)


def _apply(op: str, args: list[Any]) -> Any:
    return reduce(_BINARY[op], args)


@lru_cache(4096)
def compiled(e: Expression, names: tuple[str, ...]) -> Callable[..., int]:
    """A Python lambda of the named symbols, in this order."""
    missing = sorted({s.name for s in e.symbols()} - set(names))
    if missing:
        raise DimError(f"no value for {missing[0]} in {e}; add it to the names {names}")
    variables = {name: f"v{position}" for position, name in enumerate(names)}
    return function_of(variables.values(), to_python(e, variables))


def function_of(arguments: Iterable[str], text: str) -> Callable[..., Any]:
    """A Python lambda of a text that `to_python` wrote."""
    # not of the text itself: see luminal.base.records
    code = compile(f"lambda {', '.join(arguments)}: {text}", "<expression>", "eval")
    function: Callable[..., Any] = eval(code, {"min": min, "max": max, "sum": sum})
    return function
