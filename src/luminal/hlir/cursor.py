"""A cursor over one line of HLIR text: names, numbers, lists that may hold quotes, brackets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from luminal.base.errors import GraphError
from luminal.hlir.printer import WORD

_QUOTES = '"`'
_CLOSING = {"(": ")", "[": "]", "{": "}", '"': '"', "`": "`"}


class Line:
    """A cursor over one line."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.at = 0

    def error(self, problem: str) -> GraphError:
        return GraphError(f"line {self.number}: {problem} in {self.text!r}")

    def skip(self) -> None:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1

    def accept(self, mark: str) -> bool:
        """Steps over `mark` if it comes next."""
        self.skip()
        is_next = self.text.startswith(mark, self.at)
        self.at += len(mark) if is_next else 0
        return is_next

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.error(f"expected {mark!r} at column {self.at + 1}")

    def match(self, pattern: re.Pattern[str]) -> str:
        self.skip()
        matched = pattern.match(self.text, self.at)
        if matched is None:
            raise self.error(f"expected {pattern.pattern} at column {self.at + 1}")
        self.at = matched.end()
        return matched.group()

    def name(self) -> str:
        """A word or a JSON string."""
        self.skip()
        if self.text[self.at : self.at + 1] != '"':
            return self.match(WORD)
        value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        return str(value)

    def json(self) -> Any:
        """A value in JSON's notation."""
        self.skip()
        value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        return value

    def integer(self) -> int:
        return int(self.match(re.compile(r"-?\d+")))

    def until(self, stops: str) -> str:
        """The text up to the next of `stops` outside brackets and quotes, which is not taken."""
        # A stack of what is still open, not a count of brackets: inside of quotes a bracket is
        # text, and names in quotes may hold any.
        start, waiting = self.at, ""
        while self.at < len(self.text):
            mark = self.text[self.at]
            if waiting and mark == waiting[-1]:
                waiting = waiting[:-1]
            elif waiting and waiting[-1] in _QUOTES:
                self.at += mark == "\\"  # an escape takes the next mark with it
            elif mark in _CLOSING:
                waiting += _CLOSING[mark]
            elif mark in stops and not waiting:
                return self.text[start : self.at].strip()
            self.at += 1
        raise self.error(f"expected one of {stops!r}")

    def rest(self) -> str:
        """What is left of the line."""
        start, self.at = self.at, len(self.text)
        return self.text[start:].strip()

    def items(self, brackets: str = "[]") -> Iterator[str]:
        """The entries of a bracketed list `[a, b]`; every entry is to be read where it stands."""
        opening, closing = brackets[0], brackets[1]
        self.expect(opening)
        if self.accept(closing):
            return
        while True:
            yield self.until("," + closing)
            if self.accept(closing):
                return
            self.expect(",")
