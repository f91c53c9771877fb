"""Low bits that integers surely have not set, as far as it follows from how they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from luminal.expand.fold import uniform
from luminal.expand.ir import Apply, Loop, Operand, Value

ALL = 64


class Zeros:
    """The number of low zero bits by value; of what is not known it may be none."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def of(self, operand: Operand) -> int:
        """How many low bits of the integer are surely 0."""
        if isinstance(operand, Value):
            return self.known.get(operand.id, 0)
        value = uniform(operand)
        return 0 if value is None else _trailing(value)

    def note(self, statement: Apply) -> None:
        """Learn what an operation gives."""
        rule, out = RULES.get(statement.op), statement.out
        if rule is None or not out.type.dtype.is_int or not statement.args[-1].type.dtype.is_int:
            return
        if statement.op in ("shl", "shr"):
            count = uniform(statement.args[1])
            zeros = 0 if count is None else rule(self.of(statement.args[0]), count)
        else:
            zeros = rule(*map(self.of, statement.args))
        self.known[out.id] = min(zeros, ALL)

    def enter(self, loop: Loop) -> None:
        """Learn of a loop's index."""
        self.known[loop.index.id] = min(self.of(loop.start), _trailing(loop.step))


def _trailing(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else ALL


RULES: Mapping[str, Callable[..., int]] = {
    **dict.fromkeys(("add", "sub", "or", "xor", "min", "max", "remainder"), min),
    "and": max,
    "mul": lambda x, y: x + y,
    "shl": lambda x, count: x + count,
    "shr": lambda x, count: max(0, x - count),
    "select": lambda condition, x, y: min(x, y),
    "cast": lambda x: x,
}
