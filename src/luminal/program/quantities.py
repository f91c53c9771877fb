"""Many Expressions of a program's dims, evaluated together: what a binding of dims costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from luminal.shape.evaluation import function_of
from luminal.shape.expression import Expression
from luminal.shape.text import to_python


class Quantities:
    """Distinct Expressions by number. One generated function evaluates those that vary."""

    def __init__(self, dims: tuple[str, ...]) -> None:
        self._dims = dims
        self._used: tuple[str, ...] = ()  # those that the Expressions mention
        self._numbers: dict[Expression, int] = {}
        self._function: Callable[..., tuple[int, ...]] | None = None

    def add(self, expression: Expression) -> int:
        """The expression's number: where its value stands in `evaluate`'s result."""
        number = self._numbers.setdefault(expression, len(self._numbers))
        self._function = None if number == len(self._numbers) - 1 else self._function
        return number

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The Expressions, by number."""
        return tuple(self._numbers)

    def evaluate(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Every value, by number."""
        # One generated function of all quantities: a call binds dims anew, and walking every
        # Expression node by node would cost a small model more than its kernels.
        if self._function is None:
            used_dims = {symbol.name for quantity in self._numbers for symbol in quantity.symbols()}
            self._used = tuple(name for name in self._dims if name in used_dims)
            names = {name: f"d{k}" for k, name in enumerate(self._used)}
            texts = "".join(f"{to_python(quantity, names)}, " for quantity in self._numbers)
            self._function = function_of(names.values(), f"({texts})")
        return self._function(*(dims[name] for name in self._used))
