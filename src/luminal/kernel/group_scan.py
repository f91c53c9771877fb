"""Scans of rows by groups.

One goes through a row in blocks of `run` positions a lane. Each lane scans its own; what the lanes
end with is scanned in shared memory, each adding what lies one, two, four ... lanes before (Hillis
and Steele, Data parallel algorithms, 1986); then every lane knows what comes before its positions.
"""

from __future__ import annotations

from luminal.algebra.frames import spread_frame
from luminal.algebra.scans import block_size
from luminal.hlir.monoid import SCANS, Monoid
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_rows import GroupRow
from luminal.kernel.tile_ir import Carry, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, minimum


def place_group_scan(fused: Fused, lanes: int, run: int) -> Placed:
    """The kernel of a Scan; a lane takes `run` neighbours of a row at a time."""
    return _Scan(fused, lanes).scan(run)


class _Scan(GroupRow):
    def scan(self, run: int) -> Placed:
        blocks, size = self.blocks, self.lanes * run
        combine, none = self.monoid.combine, self.values.identity(self.monoid, self.dtype)
        # Two: in each step lanes read what others wrote in the one before, which may not be written
        # over until all have read it.
        sums = [self.values.new_buffer(self.dtype, const(self.lanes)) for _ in range(2)]
        first, start = self.begin()
        steps = ceil_div(self.end - first, size)
        number = blocks.fresh_axis(steps)
        level = blocks.depth
        blocks.open(number, const(0), steps)
        before = blocks.new((), self.dtype, blocks.depth)
        lane = self.over(const(self.lanes))
        positions = [first + number * size + lane * run + k for k in range(run)]
        scanned = self.own(positions)
        source = self.scanned(lane, scanned[-1], sums)
        left = self.load(source, lane - 1, self.dtype, lane >= 1)
        ahead = self.apply(combine, before, self.where(lane >= 1, left, none))
        for position, value in zip(positions, scanned, strict=True):
            self.put(position, self.apply(combine, ahead, value))
        blocks.close()
        total = self.load(source, const(self.lanes - 1), self.dtype)
        after = self.apply(combine, before, total)
        result = blocks.new((), self.dtype, level)
        blocks.close((Carry(result, start, before, after),))
        return self.values.finish()

    def begin(self) -> tuple[Expression, Tile]:
        """The first position of the row, or of the block, and what stands before it."""
        size, self.end = block_size(self.term), self.extent
        if not size:
            return const(0), self.values.identity(self.monoid, self.dtype)
        block = self.values.grid_axis(ceil_div(self.extent, size))
        self.end = minimum(block * size + size, self.extent)
        env = Env(spread_frame(self.term.attrs.frames[1], self.with_(block)))
        return block * size, self.values.evaluate(self.term.args[1], env)

    @property
    def monoid(self) -> Monoid:
        return SCANS[self.term.attrs.hlir.kind]

    def own(self, positions: list[Expression]) -> list[Tile]:
        """What a lane's positions amount to, each with those before it; beyond the row nothing."""
        none = self.values.identity(self.monoid, self.dtype)
        prefixes: list[Tile] = []
        for position in positions:
            inside = self.inside(position)
            there = spread_frame(self.term.attrs.frames[0], self.with_(position))
            x = self.values.evaluate(self.term.args[0], Env(there, inside))
            x = self.where(inside, x, none)
            prefixes.append(self.apply(self.monoid.combine, prefixes[-1], x) if prefixes else x)
        return prefixes

    def inside(self, position: Expression) -> Expression:
        condition = position < self.end
        return TRUE if self.values.holds(condition) else condition

    def scanned(self, lane: Symbol, value: Tile, sums: list[str]) -> str:
        """Scans the lanes' values; the buffer that they lie in."""
        source, target = sums
        self.store(source, lane + 0, value)
        distance = 1
        while distance < self.lanes:
            far = lane >= distance
            mine = self.load(source, lane + 0, self.dtype)
            other = self.load(source, lane - distance, self.dtype, far)
            both = self.apply(self.monoid.combine, other, mine)
            self.store(target, lane + 0, self.where(far, both, mine))
            source, target = target, source
            distance *= 2
        return source

    def put(self, position: Expression, value: Tile) -> None:
        """Stores a result of the scan."""
        place = self.fused.stores[0].place
        offset = place.layout.offset(self.with_(position), self.shape)
        self.values.store(place, offset, value, self.inside(position), add=False)
