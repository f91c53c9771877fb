"""Scans of rows by groups.

One goes through a row in blocks of `run` positions a lane. Each lane scans its own; what the lanes
end with is scanned in shared memory, each adding what lies one, two, four ... lanes before (Hillis
and Steele, Data parallel algorithms, 1986); then every lane knows what comes before its positions.

Where rows are short, or lie side by side, lanes are shared out to several: so all lanes have work,
and what shares a sector of memory is read together.
"""

from __future__ import annotations

from luminal.algebra.frames import spread_frame
from luminal.algebra.scans import block_size
from luminal.base.records import dataclass
from luminal.hlir.monoid import SCANS, Monoid
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_rows import GroupRow
from luminal.kernel.tile_ir import Carry, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, all_of, ceil_div, const, minimum


@dataclass(frozen=True, slots=True)
class Deal:
    """How a group's lanes are dealt: lane `(row * positions + position) * columns + column` has
    that position of a row; `rows` are along the dimension `outer`, `columns` along `inner`.
    """

    positions: int
    rows: int = 1
    columns: int = 1
    outer: int = 0
    inner: int = 0

    @property
    def lanes(self) -> int:
        """The lanes of a group."""
        return self.rows * self.positions * self.columns

    @property
    def together(self) -> dict[int, int]:
        """How many positions of a dimension are one chunk, where there are several."""
        both = ((self.outer, self.rows), (self.inner, self.columns))
        return {dimension: count for dimension, count in both if count > 1}


def place_group_scan(fused: Fused, deal: Deal, run: int) -> Placed:
    """The kernel of a Scan; a lane takes `run` neighbours of a row at a time."""
    scan = _Scan(fused, deal)
    return scan.of_several(run) if deal.together else scan.of_one(run)


class _Scan(GroupRow):
    def __init__(self, fused: Fused, deal: Deal) -> None:
        super().__init__(fused, deal.lanes, deal.together)
        self.deal = deal
        self.chunk = tuple(self.at)
        self.edge: Expression = TRUE  # which lanes have a row at all

    def of_one(self, run: int) -> Placed:
        """All lanes share each row, whose total they carry on."""
        blocks, size = self.blocks, self.lanes * run
        combine = self.monoid.combine
        sums = self.working()
        first, start = self.begin(), self.before()
        steps = ceil_div(self.end - first, size)
        number = blocks.fresh_axis(steps)
        level = blocks.depth
        blocks.open(number, const(0), steps)
        before = blocks.new((), self.dtype, blocks.depth)
        lane = self.over(const(self.lanes))
        source, _ = self.step(lane, lane + 0, first + number * size, run, sums, before)
        blocks.close()
        total = self.load(source, const(self.lanes - 1), self.dtype)
        after = self.apply(combine, before, total)
        result = blocks.new((), self.dtype, level)
        blocks.close((Carry(result, start, before, after),))
        return self.values.finish()

    def of_several(self, run: int) -> Placed:
        """Each row has some of the lanes, of which the last leaves the total in shared memory."""
        blocks, deal, size = self.blocks, self.deal, self.deal.positions * run
        sums = self.working()
        totals = self.values.new_buffer(self.dtype, const(deal.rows * deal.columns))
        first = self.begin()
        lane = self.over(const(self.lanes))
        row, at = self.dealt(lane)
        self.store(totals, row, self.before(), at < 1)
        blocks.close()
        steps = ceil_div(self.end - first, size)
        number = blocks.fresh_axis(steps)
        blocks.open(number, const(0), steps)
        lane = self.over(const(self.lanes))
        row, at = self.dealt(lane)
        before = self.load(totals, row, self.dtype)
        _, last = self.step(lane, at, first + number * size, run, sums, before)
        self.store(totals, row, last, at >= deal.positions - 1)
        blocks.close()
        blocks.close()
        return self.values.finish()

    def step(
        self, lane: Symbol, at: Expression, start: Expression, run: int, sums: list[str],
        before: Tile,
    ) -> tuple[str, Tile]:  # fmt: skip
        """Scans the next positions of a row. Gives the buffer of what the lanes end with, and what
        all positions up to a lane's last one amount to.
        """
        combine, none = self.monoid.combine, self.values.identity(self.monoid, self.dtype)
        positions = [start + at * run + k for k in range(run)]
        scanned = self.own(positions)
        source = self.scanned(lane, at, scanned[-1], sums)
        left = self.load(source, lane - self.deal.columns, self.dtype, at >= 1)
        ahead = self.apply(combine, before, self.where(at >= 1, left, none))
        for position, value in zip(positions, scanned, strict=True):
            self.put(position, last := self.apply(combine, ahead, value))
        return source, last

    def working(self) -> list[str]:
        """Two buffers: in each step lanes read what others wrote in the one before, which may not
        be written over until all have read it.
        """
        return [self.values.new_buffer(self.dtype, const(self.lanes)) for _ in range(2)]

    def dealt(self, lane: Symbol) -> tuple[Expression, Expression]:
        """The number of a lane's row in the chunk, and which of the row's positions it has; from
        here on `at` is that row.
        """
        deal = self.deal
        column, rest = lane % deal.columns, lane // deal.columns
        row, at = rest // deal.positions, rest % deal.positions
        edges = []
        for dimension, inner in ((deal.outer, row), (deal.inner, column)):
            if inner is not const(0):
                count = deal.together[dimension]
                place = self.chunk[dimension] * count + inner
                self.at[dimension] = place
                edges.append(place < self.values.canonical(self.shape[dimension]))
        self.edge = all_of(edge for edge in edges if not self.values.holds(edge))
        return row * deal.columns + column, at

    def begin(self) -> Expression:
        """The first position of the row, or of the block."""
        size, self.end = block_size(self.term), self.extent
        if not size:
            return const(0)
        self.block = self.values.grid_axis(ceil_div(self.extent, size))
        self.end = minimum(self.block * size + size, self.extent)
        return self.block * size

    def before(self) -> Tile:
        """What stands before the first position."""
        if not block_size(self.term):
            return self.values.identity(self.monoid, self.dtype)
        there = spread_frame(self.term.attrs.frames[1], self.with_(self.block))
        return self.values.evaluate(self.term.args[1], Env(there, self.edge))

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
        return self.edge if self.values.holds(condition) else all_of((condition, self.edge))

    def scanned(self, lane: Symbol, at: Expression, value: Tile, sums: list[str]) -> str:
        """Scans the lanes' values; the buffer that they lie in."""
        source, target = sums
        self.store(source, lane + 0, value)
        distance = 1
        while distance < self.deal.positions:
            far = at >= distance
            mine = self.load(source, lane + 0, self.dtype)
            other = self.load(source, lane - distance * self.deal.columns, self.dtype, far)
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
