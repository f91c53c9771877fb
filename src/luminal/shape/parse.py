"""Reads the text of an Expression back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from luminal.base.errors import DimError
from luminal.shape.expression import Expression, const, maximum, minimum
from luminal.shape.text import IDENTIFIER

_TOKEN = re.compile(rf"\s*(?:(\d+)|({IDENTIFIER.pattern})|`([^`]*)`|(//|<=|>=|==|!=|.))", re.DOTALL)

_BINARY: dict[str, tuple[int, Callable[[Expression, Expression], Expression]]] = {
    "|": (1, lambda a, b: a | b),
    "&": (2, lambda a, b: a & b),
    "<": (3, lambda a, b: a < b),
    "<=": (3, lambda a, b: a <= b),
    ">": (3, lambda a, b: a > b),
    ">=": (3, lambda a, b: a >= b),
    "==": (3, lambda a, b: a.eq(b)),
    "!=": (3, lambda a, b: a.ne(b)),
    "+": (4, lambda a, b: a + b),
    "-": (4, lambda a, b: a - b),
    "*": (5, lambda a, b: a * b),
    "//": (5, lambda a, b: a // b),
    "%": (5, lambda a, b: a % b),
}
_UNARY = 6


def parse(text: str, symbols: Mapping[str, Expression]) -> Expression:
    """The Expression of a text as `str` prints it; DimError for a wrong text or unknown name."""
    parser = _Parser(text, symbols)
    result = parser.expression(0)
    if parser.peek() != "":
        raise parser.error(f"unexpected {parser.peek()!r}")
    return result


class _Parser:
    """A precedence climber over the tokens (kind, text): number, name, operator."""

    def __init__(self, text: str, symbols: Mapping[str, Expression]) -> None:
        self.text = text
        self.symbols = symbols
        self.position = 0
        self.tokens: list[tuple[str, str]] = []
        for number, name, quoted, operator in _TOKEN.findall(text.rstrip()):
            if number or operator:
                self.tokens.append(("number" if number else "operator", number or operator))
            else:
                plain_call = name in ("min", "max")
                self.tokens.append(("call" if plain_call else "name", name or quoted))

    def error(self, problem: str) -> DimError:
        return DimError(f"cannot read the expression {self.text!r}: {problem}")

    def peek(self) -> str:
        """The next token if it is an operator; empty at the end, and its text otherwise."""
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        if self.position == len(self.tokens):
            raise self.error("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, operator: str) -> None:
        if self.take() != ("operator", operator):
            raise self.error(f"{operator!r} expected before {self.peek()!r}")

    def expression(self, least: int) -> Expression:
        left = self.operand()
        while self.position < len(self.tokens):
            kind, text = self.tokens[self.position]
            level, combine = _BINARY.get(text, (-1, None)) if kind == "operator" else (-1, None)
            if combine is None or level < least:
                break
            self.position += 1
            left = combine(left, self.expression(level + 1))
        return left

    def operand(self) -> Expression:
        kind, text = self.take()
        if kind == "number":
            return const(int(text))
        if kind == "name":
            if text not in self.symbols:
                names = ", ".join(sorted(self.symbols)) or "none"
                raise self.error(f"unknown name {text!r}; the known names are {names}")
            return self.symbols[text]
        if kind == "call":
            return self.extreme(minimum if text == "min" else maximum)
        if text == "-":
            return -self.expression(_UNARY)
        if text == "~":
            return ~self.expression(_UNARY)
        if text == "(":
            inner = self.expression(0)
            self.expect(")")
            return inner
        raise self.error(f"unexpected {text!r}")

    def extreme(self, combine: Callable[[Expression, Expression], Expression]) -> Expression:
        self.expect("(")
        result = self.expression(0)
        while self.peek() == ",":
            self.take()
            result = combine(result, self.expression(0))
        self.expect(")")
        return result
