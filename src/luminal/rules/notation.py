"""The notation of rules: Python expressions that stand for terms, sets of axes and guards.

    x * 1          variables are lower case; numbers are literals of the dtype around them
    Sum(K, a * b)  sets of axes are upper case: K - axes(a), K & J, K | J, {}
    Cast(d, x)     d stands for a dtype; f32 is one
    K & axes(a) == {}, literal(c), float(x)    guards; all are listed in `egraph.rule_text`
    growth(run(x)) a guard without which the rule is as right and the e-graph larger: tests see both

Concrete terms, for examples: `a[i, k]` is a leaf over two axes, `{k}` a set, `i32(a[k])` a leaf of
another dtype than f32, `weight(a[k])` one that is set rarely; `At(a[i], i=3 - j)` and
`Index(i * 2)` hold index Expressions.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import TypeAlias

from luminal.base import dtypes
from luminal.base.records import dataclass
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import OPS

BINARY: dict[type[ast.AST], str] = {
    ast.Add: "Add",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.FloorDiv: "FloorDiv",
    ast.Mod: "Mod",
    ast.BitAnd: "And",
    ast.BitOr: "Or",
    ast.BitXor: "Xor",
    ast.LShift: "Shl",
    ast.RShift: "Shr",
    ast.Lt: "LessThan",
    ast.Eq: "Equal",
}
COMMUTATIVE = frozenset(("Add", "Mul", "Maximum", "Equal", "And", "Or", "Xor"))
SHORT = {dtype.short for dtype in dtypes.ALL}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern, which stands for any term."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; `text` as in `literal_text`."""

    text: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation. `attrs`: the set of a reduction, the dtype of a Cast (or a variable for it)."""

    op: str
    args: tuple[Pattern, ...]
    attrs: SetPattern | str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A concrete leaf of an example, over some axes."""

    name: str
    axes: tuple[str, ...]
    dtype: str = "f32"
    weight: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A concrete At: index texts by axis."""

    arg: Pattern
    indices: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A concrete Index of an example: an Expression as text."""

    text: str


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A variable of a pattern, which stands for any set of axes."""

    name: str


@dataclass(frozen=True, slots=True)
class AxesOf:
    """The axes of what a variable stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class SetOf:
    """The set of these axes, by their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`-`, `|` or `&` of two sets."""

    op: str
    left: SetPattern
    right: SetPattern


@dataclass(frozen=True, slots=True)
class Compare:
    """A guard on sets: `==`, `!=` against {}, or `<=`."""

    op: str
    left: SetPattern
    right: SetPattern


@dataclass(frozen=True, slots=True)
class Property:
    """A guard on a variable: `literal(c)`; of a set: `nonempty(K)`; of dtypes: `holds(d, x)`."""

    name: str
    args: tuple[str, ...]


Pattern: TypeAlias = "Variable | Number | Apply | Leaf | Move | Position"
SetPattern: TypeAlias = "SetVariable | AxesOf | SetOf | SetOperation"
Guard: TypeAlias = "Compare | Property"


@functools.cache
def pattern(text: str) -> Pattern:
    """The term that the text stands for; ValueError if it stands for none."""
    return _pattern(ast.parse(text, mode="eval").body)


@functools.cache
def guard(text: str) -> Guard:
    """The guard of a text, marked `growth` or not; ValueError if it is none."""
    node = ast.parse(text, mode="eval").body
    if is_growth(text):
        assert isinstance(node, ast.Call)
        (node,) = node.args
    if isinstance(node, ast.Compare):
        op = {ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<="}[type(node.ops[0])]
        return Compare(op, _set(node.left), _set(node.comparators[0]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Property(node.func.id, tuple(ast.unparse(arg) for arg in node.args))
    raise ValueError(f"rule: {text!r} is no guard; see rules/notation.py")


@functools.cache
def axes(text: str) -> SetPattern:
    """The set of axes that the text stands for; ValueError if it stands for none."""
    return _set(ast.parse(text, mode="eval").body)


def is_growth(text: str) -> bool:
    """Does the guard only keep the e-graph small?"""
    return text.startswith("growth(")


def parts(term: Pattern) -> Iterator[Pattern]:
    """The pattern and all in it, from left to right, with repetitions."""
    yield term
    for arg in term.args if isinstance(term, Apply) else ():
        yield from parts(arg)


def numbers(term: Pattern) -> Iterator[Number]:
    """The numbers in a pattern."""
    return (part for part in parts(term) if isinstance(part, Number))


def _pattern(node: ast.expr) -> Pattern:
    match node:
        case ast.Name(id=name):
            return Number(name) if name in ("inf", "nan") else Variable(name)
        case ast.Constant(value=bool() | int() | float() as value):
            return Number(number_text(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return Number(number_text(-float(value) if value == 0 else -value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return Number("-inf")
        case ast.BinOp(left=left, op=op, right=right):
            return Apply(BINARY[type(op)], (_pattern(left), _pattern(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Apply(BINARY[type(op)], (_pattern(left), _pattern(right)))
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return Leaf(name, tuple(ast.unparse(part) for part in parts))
        case ast.Call(func=ast.Name(id="At"), args=[arg], keywords=keywords):
            indices = ((str(keyword.arg), ast.unparse(keyword.value)) for keyword in keywords)
            return Move(_pattern(arg), tuple(indices))
        case ast.Call(func=ast.Name(id="Index"), args=[arg]):
            return Position(ast.unparse(arg))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, args)
    raise ValueError(f"rule: {ast.unparse(node)!r} is no term; see rules/notation.py")


def _call(name: str, args: list[ast.expr]) -> Pattern:
    if name in REDUCTIONS:
        return Apply(name, (_pattern(args[1]),), _set(args[0]))
    if name in ("Cast", "Bitcast"):
        return Apply(name, (_pattern(args[1]),), ast.unparse(args[0]))
    if name in SHORT or name == "weight":
        leaf = _pattern(args[0])
        if isinstance(leaf, Variable):
            leaf = Leaf(leaf.name, ())
        assert isinstance(leaf, Leaf), name
        dtype = leaf.dtype if name == "weight" else name
        return Leaf(leaf.name, leaf.axes, dtype, leaf.weight or name == "weight")
    if name not in OPS or not OPS[name].is_pointwise:
        raise ValueError(f"rule: {name!r} is no operation of a rule; see rules/notation.py")
    return Apply(name, tuple(map(_pattern, args)))


def _set(node: ast.expr) -> SetPattern:
    match node:
        case ast.Name(id=name):
            return SetVariable(name)
        case ast.Dict(keys=[]):
            return SetOf(())
        case ast.Set(elts=elements):
            return SetOf(tuple(ast.unparse(element) for element in elements))
        case ast.Call(func=ast.Name(id="axes"), args=[ast.Name(id=name)]):
            return AxesOf(name)
        case ast.BinOp(left=left, op=op, right=right):
            sign = {ast.Sub: "-", ast.BitOr: "|", ast.BitAnd: "&"}[type(op)]
            return SetOperation(sign, _set(left), _set(right))
    raise ValueError(f"rule: {ast.unparse(node)!r} is no set of axes; see rules/notation.py")


def number_text(value: bool | int | float) -> str:
    """One text for one number: `1` for 1, 1.0 and True; `-0`, `inf`, `0.1`."""
    if isinstance(value, bool | int):
        return str(int(value))
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 62 else repr(value)
