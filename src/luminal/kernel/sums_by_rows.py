"""Sums of columns that are taken row by row, with the sums of all columns in scratch.

A tile of columns that runs through all rows jumps from one to the next, where no prefetcher
follows. Here the rows' loop stands outside of the columns': some rows at a time are added to the
sums of all columns, then the next ones. The order of additions is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.frames import linear
from luminal.algebra.terms import Reduction, Term
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.guards import Range
from luminal.kernel.loops import LoopAxis
from luminal.kernel.reductions import Nest, Reductions
from luminal.kernel.schedule import TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging
from luminal.kernel.tile_ir import Carry, Tile
from luminal.shape.expression import Expression, const, maximum

Columns = Sequence[tuple[LoopAxis, Range, TileChoice]]
"""The loops inside of the rows': the columns, and rows of another factor inside of them."""


class SumsByRows:
    """The reductions of a kernel, `at_once` rows at a time, over the positions of `columns`, of
    which a chunk has `size` along the first.
    """

    def __init__(
        self, reductions: Reductions, columns: Columns, size: Expression, at_once: int
    ) -> None:
        self.reductions = reductions
        self.values = reductions.values
        self.blocks = reductions.values.blocks
        self.staging = Staging(reductions.values)
        self.columns = columns
        self.size = size
        self.at_once = at_once

    def run(self, env: Env) -> None:
        """All that is pending."""
        while self.reductions.pending:
            siblings = self.reductions.next_siblings()
            sums = {r: self.room(r) for r in siblings}
            here = self.open(env)
            for reduction, room in sums.items():
                empty = self.values.identity(reduction.monoid, reduction.dtype)
                self.values.store_staged(room, here, empty)
            # What bounds the rows' loops may not differ from column to column.
            nest = self.reductions.laid_out(siblings, here)
            self.close()
            self.add(sums, nest, env)
            for reduction, room in sums.items():
                room.is_ready = True
                self.values.staged[reduction] = room

    def room(self, reduction: Reduction) -> Staged:
        """Room for the sums of the columns, one row for each position of the loops inside."""
        (columns, (start, _), _), *others = self.columns
        inner = [
            Dimension(linear(loop.members), self.values.canonical(loop.extent))
            for loop, _, _ in reversed(others)
        ]
        along = Dimension(linear(columns.members) - start, self.size)
        return self.staging.room([*inner, along], reduction.dtype)

    def add(self, sums: Mapping[Reduction, Staged], nest: Nest, env: Env) -> None:
        """Adds all rows to the sums, as many at once as there are, the last ones one by one."""
        *outer, rows = nest.loops
        for loop, symbol in zip(outer, nest.symbols, strict=False):
            self.blocks.open(symbol, *nest.ranges[symbol])
            env = env.bind(loop.positions(symbol))
        start, stop = nest.ranges[nest.symbols[-1]]
        whole = start + maximum(stop - start, 0) // self.at_once * self.at_once
        for first, end, count in ((start, whole, self.at_once), (whole, stop, 1)):
            if first == end:
                continue
            most = maximum(rows.extent // count, 1)
            number = self.blocks.fresh_axis(self.values.canonical(most))
            self.blocks.open(number, const(0), (end - first) // count)
            here = self.open(env)
            steps = (first + number * count + k for k in range(count))
            points = [here.bind(rows.positions(step)) for step in steps]
            before = {r: self.values.load_staged(room, here) for r, room in sums.items()}
            after = self.added(nest.reduced, points, before)
            for room, tile in zip(sums.values(), after, strict=True):
                self.values.store_staged(room, here, tile)
            self.close()
            self.blocks.close()
        for _ in outer:
            self.blocks.close()

    def added(
        self, reduced: Sequence[Term], points: Sequence[Env], before: Mapping[Reduction, Tile]
    ) -> list[Tile]:
        """What sums are after some points, which a dot takes with their neighbours."""
        siblings = list(before)
        accumulate = self.reductions.accumulate
        if siblings[0] not in self.reductions.along:
            return [after for _, _, after in accumulate(siblings, reduced, points, (), before)]
        level = self.blocks.depth
        near, points = self.reductions.neighbours(siblings[0], points)
        inside = accumulate(siblings, reduced, points, [near], before)
        carries = [
            Carry(self.blocks.new(inner.axes, r.dtype, level), before[r], inner, after)
            for r, (_, inner, after) in zip(siblings, inside, strict=True)
        ]
        self.blocks.close(tuple(carries))
        return [carry.result for carry in carries]

    def open(self, env: Env) -> Env:
        """Opens the loops over the columns."""
        for loop, span, tile in self.columns:
            symbol = self.blocks.fresh_axis(self.values.canonical(loop.extent))
            self.blocks.open(symbol, *span, tile)
            env = env.bind(loop.positions(symbol))
        return env

    def close(self) -> None:
        for _ in self.columns:
            self.blocks.close()
