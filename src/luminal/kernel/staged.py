"""A value that is kept in a buffer while loops read it again."""

from __future__ import annotations

from luminal.base.dtypes import DType
from luminal.kernel.environment import Env
from luminal.shape.expression import ZERO, Expression, Symbol


class Staged:
    """The place of a staged value: a local row, a block, a packed strip, sums of columns.

    `position` is the element in the buffer, in terms of what an environment binds; `turn`, where
    there are several buffers that are filled in turns, stands for the number of one. `level` is the
    block in which it is written anew and read, and `is_ready` says that all of it is written.
    `straight` is the position before pieces move along.
    """

    __slots__ = ("buffer", "dtype", "is_ready", "level", "offsets", "position", "straight", "turn")

    def __init__(
        self,
        buffer: str,
        dtype: DType,
        position: Expression,
        level: int,
        turn: Symbol | None = None,
        straight: Expression | None = None,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.position = position
        self.straight = position if straight is None else straight
        self.level = level
        self.turn = turn
        self.offsets: set[Expression] = set()  # written in a loop nest that may still be open
        self.is_ready = False

    def offset(self, env: Env, turn: Expression = ZERO, *, straight: bool = False) -> Expression:
        """The element of the buffer at which a point lies, or did before pieces moved along."""
        position = self.straight if straight else self.position
        turns = {} if self.turn is None else {self.turn: turn}
        return position.substitute({**env.values, **turns})
