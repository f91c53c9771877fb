"""What each form of the notation stands for, and the texts that stand for nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from luminal.rules import notation
from luminal.rules.notation import (
    Apply,
    AxesOf,
    Compare,
    Guard,
    Leaf,
    Move,
    Number,
    Pattern,
    Position,
    Property,
    SetOf,
    SetOperation,
    SetPattern,
    SetVariable,
    Variable,
)

X, Y = Variable("x"), Variable("y")
K = SetVariable("K")

NUMBERS: list[tuple[bool | int | float, str]] = [
    (True, "1"), (1, "1"), (1.0, "1"), (False, "0"), (0.0, "0"), (-0.0, "-0"), (-2.0, "-2"),
    (2**70, "1180591620717411303424"), (0.1, "0.1"), (3.5, "3.5"), (-1e-300, "-1e-300"),
    (2.0**61, "2305843009213693952"), (2.0**62, "4.611686018427388e+18"),
    (-(2.0**62), "-4.611686018427388e+18"), (float("inf"), "inf"), (float("-inf"), "-inf"),
    (float("nan"), "nan"),
]  # fmt: skip

PATTERNS: list[tuple[str, Pattern]] = [
    ("x", X),
    ("inf", Number("inf")),
    ("nan", Number("nan")),
    ("-inf", Number("-inf")),
    ("-0.0", Number("-0")),
    ("-0", Number("-0")),
    ("-2", Number("-2")),
    ("True", Number("1")),
    ("1.5", Number("1.5")),
    *((f"x {sign} y", Apply(op, (X, Y))) for sign, op in (
        ("+", "Add"), ("*", "Mul"), ("/", "Div"), ("//", "FloorDiv"), ("%", "Mod"), ("&", "And"),
        ("|", "Or"), ("^", "Xor"), ("<<", "Shl"), (">>", "Shr"), ("<", "LessThan"),
        ("==", "Equal"),
    )),
    ("Exp(x)", Apply("Exp", (X,))),
    ("Select(c, x, y)", Apply("Select", (Variable("c"), X, Y))),
    ("Sum(K, x)", Apply("Sum", (X,), K)),
    ("Max({i, k}, x)", Apply("Max", (X,), SetOf(("i", "k")))),
    ("Cast(d, x)", Apply("Cast", (X,), "d")),
    ("Bitcast(i32, x)", Apply("Bitcast", (X,), "i32")),
    ("x[i]", Leaf("x", ("i",), "f32", weight=False)),
    ("x[i, k]", Leaf("x", ("i", "k"), "f32", weight=False)),
    ("i32(x)", Leaf("x", (), "i32", weight=False)),
    ("i32(x[i])", Leaf("x", ("i",), "i32", weight=False)),
    ("weight(x[i])", Leaf("x", ("i",), "f32", weight=True)),
    ("weight(i32(x[i]))", Leaf("x", ("i",), "i32", weight=True)),
    ("i32(weight(x[i]))", Leaf("x", ("i",), "i32", weight=True)),
    ("At(x[i], i=3 - j, k=l)", Move(Leaf("x", ("i",)), (("i", "3 - j"), ("k", "l")))),
    ("Index(i * 2)", Position("i * 2")),
]  # fmt: skip

SETS: list[tuple[str, SetPattern]] = [
    ("K", K),
    ("{}", SetOf(())),
    ("{i, k}", SetOf(("i", "k"))),
    ("axes(x)", AxesOf("x")),
    ("K - axes(x)", SetOperation("-", K, AxesOf("x"))),
    ("K | axes(x)", SetOperation("|", K, AxesOf("x"))),
    ("K & axes(x)", SetOperation("&", K, AxesOf("x"))),
]

GUARDS: list[tuple[str, Guard]] = [
    ("K == {}", Compare("==", K, SetOf(()))),
    ("K != {}", Compare("!=", K, SetOf(()))),
    ("K <= axes(x)", Compare("<=", K, AxesOf("x"))),
    ("literal(x)", Property("literal", ("x",))),
    ("holds(d, x)", Property("holds", ("d", "x"))),
    ("nonempty(K - axes(x))", Property("nonempty", ("K - axes(x)",))),
    ("growth(literal(x))", Property("literal", ("x",))),
    ("growth(K <= axes(x))", Compare("<=", K, AxesOf("x"))),
]


def texts(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """The names of the cases."""
    return [text for text, _ in pairs]


@pytest.mark.parametrize(("number", "text"), NUMBERS)
def test_a_number_has_one_text(number: float, text: str) -> None:
    assert notation.number_text(number) == text


@pytest.mark.parametrize(("text", "expected"), PATTERNS, ids=texts(PATTERNS))
def test_a_text_of_a_term(text: str, expected: Pattern) -> None:
    assert notation.pattern(text) == expected


@pytest.mark.parametrize(("text", "expected"), SETS, ids=texts(SETS))
def test_a_text_of_a_set(text: str, expected: SetPattern) -> None:
    assert notation.axes(text) == expected


@pytest.mark.parametrize(("text", "expected"), GUARDS, ids=texts(GUARDS))
def test_a_text_of_a_guard(text: str, expected: Guard) -> None:
    assert notation.guard(text) == expected
    assert notation.is_growth(text) is text.startswith("growth")


@pytest.mark.parametrize("text", ["'x'", "-x", "not x", "x < y < z", "[x]", "x.y(z)"])
def test_no_term(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no term; see rules/notation\.py"):
        notation.pattern(text)


@pytest.mark.parametrize("text", ["Unheard(x)", "sum(x)", "f31(x)", "Gather(x)"])
def test_no_operation_of_a_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no operation of a rule; see rules/notation\.py"):
        notation.pattern(text)


@pytest.mark.parametrize("text", ["3", "{i: k}", "extents(x)", "axes(x + y)", "axes(x, y)"])
def test_no_set(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no set of axes; see rules/notation\.py"):
        notation.axes(text)


@pytest.mark.parametrize("text", ["x", "x.y(z)", "3"])
def test_no_guard(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no guard; see rules/notation\.py"):
        notation.guard(text)


def test_the_parts_of_a_pattern() -> None:
    term = notation.pattern("Sum(K, x * 2) + x * 3")
    two, three = Number("2"), Number("3")
    first, second = Apply("Mul", (X, two)), Apply("Mul", (X, three))
    assert [*notation.parts(term)] == [
        term, Apply("Sum", (first,), K), first, X, two, second, X, three
    ]  # fmt: skip
    assert [*notation.numbers(term)] == [two, three]
