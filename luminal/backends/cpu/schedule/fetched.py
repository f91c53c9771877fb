"""Which loads fetch a row ahead.

A kernel that walks a row several times waits for memory in its first loop, while memory waits for
the others. So a later loop that computes much asks for the next row where it reads this one
(`Load.ahead`), which is there when its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.backends.cpu.costs import WEIGHTS
from luminal.backends.cpu.schedule.vector_target import VectorTarget
from luminal.kernel.tile_ir import NESTED, Buffer, Kernel, Load, Loop, Map, Role, Statement
from luminal.shape.expression import TRUE, Expression, Symbol, opaque

HEAVY = 10  # operations for an element that leave memory idle
SHARE = 4  # of a core's own cache that the next row may take
_POSITION = opaque("position")


def fetched(kernel: Kernel, target: VectorTarget) -> Kernel:
    """The kernel, with the loads marked that fetch a row ahead of arrays that no cache holds."""
    large = {
        buffer.name: buffer
        for buffer in kernel.buffers
        if buffer.role is Role.IN
        and buffer.size.interval.at_least(target.l3_bytes // buffer.dtype.size)
    }
    if not large or not kernel.grid:
        return kernel
    rows = _Rows(large, target.l2_bytes // SHARE)
    return replace(kernel, body=rows.marked(kernel.body, kernel.grid[-1].axis))


class _Rows:
    """Marks loads of these buffers, whose rows take so many bytes at most."""

    def __init__(self, buffers: dict[str, Buffer], most: int) -> None:
        self.buffers, self.most = buffers, most

    def marked(self, body: Sequence[Statement], row: Symbol) -> tuple[Statement, ...]:
        """A body in which `row` counts the rows."""
        known: set[tuple[str, Expression]] = set()
        out: list[Statement] = []
        for statement in body:
            if not isinstance(statement, Loop):
                out.append(statement)
                continue
            if any(isinstance(each, NESTED) for each in statement.body):
                of_rows = statement.tile == 1
                inside = self.marked(statement.body, statement.axis) if of_rows else statement.body
                out.append(replace(statement, body=inside))
                continue
            out.append(self.ahead(statement, row, known))
            known |= {_place(each, statement) for each in statement.body if isinstance(each, Load)}
        return tuple(out)

    def ahead(self, loop: Loop, row: Symbol, known: set[tuple[str, Expression]]) -> Loop:
        """A loop along a row, of which some places are known to have been read just before."""
        work = sum(WEIGHTS.of(each.op) for each in loop.body if isinstance(each, Map))
        if work < HEAVY or loop.vector == 1:
            return loop
        return replace(
            loop,
            body=tuple(
                replace(each, ahead=self.distance(each, row))
                if isinstance(each, Load) and _place(each, loop) in known
                else each
                for each in loop.body
            ),
        )

    def distance(self, load: Load, row: Symbol) -> int:
        """Elements from a row to the next; 0 where that is no place to fetch."""
        buffer = self.buffers.get(load.buffer)
        step = load.offset.substitute({row: row + 1}) - load.offset
        if buffer is None or load.guard is not TRUE or load.indices or not step.is_const:
            return 0
        size = step.constant * buffer.dtype.size
        return step.constant if 0 < size <= self.most else 0


def _place(load: Load, loop: Loop) -> tuple[str, Expression]:
    """What it reads, the same for loops over the same positions."""
    return load.buffer, load.offset.substitute({loop.axis: _POSITION})
