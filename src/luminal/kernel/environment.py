"""The point of a kernel's loops at which terms are evaluated."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.shape.expression import TRUE, Expression, Symbol


# Substitution is lazy: an At does not rewrite the terms below it, it only changes where they are
# evaluated. Terms stay shared, and reading a chain of views costs nothing until something is
# loaded.
class Env:
    """The point at which a term is evaluated: its axes in loop symbols, and the guard its loads
    need.

    It `is_base` until an At has moved it: what is staged lies at the loops' own positions.
    """

    __slots__ = ("guard", "is_base", "values")

    def __init__(
        self,
        values: Mapping[Symbol, Expression],
        guard: Expression = TRUE,
        *,
        is_base: bool = True,
    ) -> None:
        self.values = values
        self.guard = guard
        self.is_base = is_base

    def bind(self, values: Mapping[Symbol, Expression]) -> Env:
        """The environment of the same point, inside one more loop."""
        return Env({**self.values, **values}, self.guard, is_base=self.is_base)
