"""Which loads fetch what is read soon (`Load.prefetch`).

A kernel that walks a row several times waits for memory in its first loop, while memory waits for
the others. So a later loop that computes much asks for the next row where it reads this one, which
is there when its turn comes.

A tile of dot products reads several rows at once, of each a vector at a time. No prefetcher follows
that: time for memory and time for arithmetic add up. So where a weight or a cache of keys comes
from memory such a tile asks for the lines of one some way on, in the order in which they lie, and a
prefetcher follows these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.kernel.tile_ir import NESTED, Buffer, Kernel, Load, Loop, Map, Role, Statement
from luminal.schedule.vectors.costs import WEIGHTS
from luminal.schedule.vectors.nest import STREAMED_CACHES
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import TRUE, ZERO, Expression, Symbol, const, opaque

AHEAD = 4096  # bytes from rows that are read to those that are fetched: 2 to 8 KiB are alike
HEAVY = 10  # operations for an element that leave memory idle
SHARE = 4  # of a core's own cache that the next row may take
_POSITION = opaque("position")


def with_prefetches(kernel: Kernel, target: VectorTarget) -> Kernel:
    """The kernel, with the loads marked that fetch a row ahead of arrays that no cache holds, and
    those of dot products that fetch a tile of rows ahead.
    """
    kernel = _with_tiles(kernel, target)
    large = {
        buffer.name: buffer
        for buffer in kernel.buffers
        if buffer.role is Role.IN
        and buffer.size.interval.at_least(target.l3_bytes // buffer.dtype.size)
    }
    if not large or not kernel.grid:
        return kernel
    rows = _RowPrefetches(large, target.l2_bytes // SHARE)
    return replace(kernel, body=rows.marked(kernel.body, kernel.grid[-1].axis))


def _with_tiles(kernel: Kernel, target: VectorTarget) -> Kernel:
    least = STREAMED_CACHES * target.l2_bytes
    large = {
        buffer.name: buffer.dtype.size
        for buffer in kernel.buffers
        if buffer.role is Role.IN and buffer.size.interval.at_least(least // buffer.dtype.size)
    }
    return replace(kernel, body=_tiled(kernel.body, (), large)) if large else kernel


def _tiled(
    body: Sequence[Statement], around: tuple[Loop, ...], large: Mapping[str, int]
) -> tuple[Statement, ...]:
    """A body inside of these loops, its loads of `large` buffers of elements of a size marked where
    they read several rows of which one begins where another ends.
    """
    out: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = replace(statement, body=_tiled(statement.body, (*around, statement), large))
        elif isinstance(statement, Load) and statement.buffer in large and around:
            statement = replace(
                statement, prefetch=_tile_ahead(statement, around, large[statement.buffer])
            )
        out.append(statement)
    return tuple(out)


def _tile_ahead(load: Load, around: Sequence[Loop], size: int) -> Expression:
    """Elements from a tile to where the one is fetched that is some way on; 0: none is."""
    *around, along = around
    count = along.neighbours
    if count > 1 and around:  # words along the loop outside of it
        *around, along = around
    tiles = [loop for loop in around if loop.tile > 1 and loop.axis in load.offset.symbols()]
    if len(tiles) != 1 or load.guard is not TRUE or load.indices or not along.carries:
        return ZERO
    (rows,) = tiles
    row, step = (load.offset.substitute({a: a + 1}) - load.offset for a in (rows.axis, along.axis))
    whole = along.start is ZERO and (along.stop - along.start) * count == row
    if along.vector == 1 or step != const(count) or not whole or not row.is_const:
        return ZERO
    if rows.tile * row.constant * size > AHEAD:  # it would be read before it is fetched
        return ZERO
    # Each vector of a row stands for as many, one after the other, as there are rows.
    return const(AHEAD // size) + along.axis * (count * (rows.tile - 1))


class _RowPrefetches:
    """Marks loads of these buffers, whose rows take so many bytes at most."""

    def __init__(self, buffers: dict[str, Buffer], most: int) -> None:
        self.buffers, self.most = buffers, most

    def marked(self, body: Sequence[Statement], row: Symbol) -> tuple[Statement, ...]:
        """A body in which `row` counts the rows."""
        places: set[tuple[str, Expression]] = set()
        out: list[Statement] = []
        for statement in body:
            if not isinstance(statement, Loop):
                out.append(statement)
                continue
            if any(isinstance(inner, NESTED) for inner in statement.body):
                of_rows = statement.tile == 1
                inside = self.marked(statement.body, statement.axis) if of_rows else statement.body
                out.append(replace(statement, body=inside))
                continue
            out.append(self.ahead(statement, row, places))
            places |= {
                _place(inner, statement) for inner in statement.body if isinstance(inner, Load)
            }
        return tuple(out)

    def ahead(self, loop: Loop, row: Symbol, places: set[tuple[str, Expression]]) -> Loop:
        """A loop along a row, of which some places are known to have been read just before."""
        work = sum(
            WEIGHTS.of(statement.op) for statement in loop.body if isinstance(statement, Map)
        )
        if work < HEAVY or loop.vector == 1:
            return loop
        return replace(
            loop,
            body=tuple(
                replace(statement, prefetch=self.distance(statement, row))
                if isinstance(statement, Load) and _place(statement, loop) in places
                else statement
                for statement in loop.body
            ),
        )

    def distance(self, load: Load, row: Symbol) -> Expression:
        """Elements from a row to the next; 0 where that is no place to fetch."""
        buffer = self.buffers.get(load.buffer)
        step = load.offset.substitute({row: row + 1}) - load.offset
        if buffer is None or load.guard is not TRUE or load.indices or not step.is_const:
            return ZERO
        size = step.constant * buffer.dtype.size
        return step if 0 < size <= self.most else ZERO


def _place(load: Load, loop: Loop) -> tuple[str, Expression]:
    """What it reads, the same for loops over the same positions."""
    return load.buffer, load.offset.substitute({loop.axis: _POSITION})
