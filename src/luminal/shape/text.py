"""Text of Expressions: readable (and parsed back by `parse`), Python, and C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from luminal.shape import expression as expressions

if TYPE_CHECKING:
    from luminal.shape.expression import Expression

_INFIX = {
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "floordiv": "//",
    "mod": "%",
    "and": "&",
    "or": "|",
}
_LEVEL = {"or": 1, "and": 2, "lt": 3, "le": 3, "eq": 3, "ne": 3, "add": 4}
_LEVEL |= {"mul": 5, "floordiv": 5, "mod": 5}
_UNARY = 6
_LEAF = 7
_LONG = 100
"""Sums beyond this length are Python `sum` calls: the compiler recurses into chains of `+`."""

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def quoted(name: str) -> str:
    """A symbol's name as text: in backquotes unless it reads as a name."""
    plain = IDENTIFIER.fullmatch(name) and name not in ("min", "max")
    return name if plain else f"`{name}`"


def _level(e: Expression) -> int:
    if e.is_const and e.constant < 0:
        return _UNARY
    return _LEVEL.get(e.op, _LEAF)


def _in(e: Expression, level: int) -> str:
    """The text of an operand, bracketed if it binds less tightly than `level`."""
    return f"({to_text(e)})" if _level(e) < level else to_text(e)


def to_text(e: Expression) -> str:
    """Python-like text with few brackets; comparisons bind more tightly than & and |."""
    if isinstance(e, expressions.Symbol):
        return quoted(e.name)
    if e.is_const:
        return str(e.constant)
    if e.op == "add":
        return _sum_text(e)
    if e.op in ("min", "max"):
        return f"{e.op}({', '.join(to_text(arg) for arg in e.args)})"
    if e.op == "mul":
        return _product_text(e)
    level = _LEVEL[e.op]
    joined = f" {_INFIX[e.op]} "
    first, *others = e.args
    if e.op == "le" and first.is_const:
        return f"{_in(others[0], level + 1)} >= {first}"
    strict = level + 1
    texts = [_in(first, strict if level == 3 else level)]
    texts += [_in(other, strict) for other in others]
    return joined.join(texts)


def _product_text(e: Expression) -> str:
    args = e.args
    sign = ""
    if args[-1].is_const and args[-1].constant < 0:
        sign = "-"
        magnitude = expressions.const(-args[-1].constant)
        args = (*args[:-1], magnitude) if magnitude is not expressions.ONE else args[:-1]
    first, *others = args
    level = _UNARY if sign else _LEVEL["mul"]
    return sign + " * ".join([_in(first, level), *(_in(o, _UNARY) for o in others)])


def _sum_text(e: Expression) -> str:
    """Positive terms first, so that no sum that can avoid it starts with a sign."""
    args = e.args
    first = next((a for a in args if not _is_negative(a)), args[0])
    text = _in(first, _LEVEL["add"])
    for arg in args:
        if arg is first:
            continue
        if _is_negative(arg):
            text += " - " + _in(expressions.as_expression(-arg), _LEVEL["mul"])
        else:
            text += " + " + _in(arg, _LEVEL["mul"])
    return text


def _is_negative(e: Expression) -> bool:
    return e.constant < 0 if e.is_const else e.terms[0][1] < 0


def _has_positive_divisor(e: Expression) -> bool:
    return e.args[1].interval.at_least(1)


def to_python(e: Expression, names: Mapping[str, str]) -> str:
    """Fully bracketed Python text; `names` gives the variable of each symbol."""
    if isinstance(e, expressions.Symbol):
        return names[e.name]
    if e.is_const:
        return f"({e.constant})" if e.constant < 0 else str(e.constant)
    args = [to_python(arg, names) for arg in e.args]
    if e.op in ("min", "max"):
        return f"{e.op}({', '.join(args)})"
    if len(args) > _LONG and e.op == "add":
        return f"sum(({', '.join(args)}))"
    if e.op in ("add", "mul"):
        return f"({(' + ' if e.op == 'add' else ' * ').join(args)})"
    joined = f"({f' {_INFIX[e.op]} '.join(args)})"
    if e.op in ("floordiv", "mod"):
        return joined if _has_positive_divisor(e) else f"({joined} if {args[1]} else 0)"
    return joined if e.op in ("and", "or") else f"(1 if {joined} else 0)"
