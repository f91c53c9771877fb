"""Scans and sorts of rows by groups: a group takes a row whole, its lanes the positions.

A scan goes through the row in blocks of `run` positions a lane. Each lane scans its own; what the
lanes end with is scanned in shared memory, each adding what lies one, two, four ... lanes before
(Hillis and Steele, Data parallel algorithms, 1986); then every lane knows what comes before its
positions. A sort counts for each key those that come before it, which is where it goes.
"""

from __future__ import annotations

from luminal.algebra.frames import shape_of, spread
from luminal.algebra.terms import Term
from luminal.dtypes import DType, bool_, int64
from luminal.hlir.monoid import SCANS, SUM, Monoid
from luminal.kernel.evaluate import Env, Evaluator, Placed
from luminal.kernel.fused import Fused
from luminal.kernel.lanes import Lanes
from luminal.kernel.schedule import SINGLE, TileChoice
from luminal.kernel.tile_ir import Carry, Load, Role, Store, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const


def place_group_scan(fused: Fused, lanes: int, run: int) -> Placed:
    """The kernel of a Scan; a lane takes `run` neighbours of a row at a time."""
    return _Row(fused, lanes).scan(run)


def place_group_sort(fused: Fused, lanes: int) -> Placed:
    """The kernel of a Sort: its first store takes the values, its second their order."""
    return _Row(fused, lanes).sort()


class _Row:
    """One chunk: a row, by all lanes of a group."""

    def __init__(self, fused: Fused, lanes: int) -> None:
        self.fused = fused
        self.values = Evaluator(fused)
        self.blocks = self.values.blocks
        self.lanes = lanes
        self.tile = TileChoice(1, 1, Lanes(lanes))
        self.term: Term = fused.stores[0].term
        self.dtype = self.term.dtype
        self.axis: int = self.term.attrs.hlir.axis
        self.shape = shape_of(self.term.attrs.result)
        self.extent = self.values.canonical(self.shape[self.axis])
        self.at = [
            const(0) if k == self.axis else self.values.grid_axis(extent)
            for k, extent in enumerate(self.shape)
        ]

    # --- statements

    def apply(self, op: str, *args: Tile) -> Tile:
        dtype = bool_ if op in ("LessThan", "Equal") else args[-1].dtype
        return self.values.map(op, args, dtype)

    def holds(self, condition: Expression) -> Tile:
        return self.values.index(condition, bool_)

    def where(self, condition: Expression, value: Tile, otherwise: Tile) -> Tile:
        if condition is TRUE:
            return value
        return self.apply("Select", self.holds(condition), value, otherwise)

    def load(self, buffer: str, offset: Expression, dtype: DType, guard: Expression = TRUE) -> Tile:
        """In the innermost loop."""
        level = self.blocks.depth
        tile = self.blocks.new(offset.symbols() | guard.symbols(), dtype, level)
        self.blocks.put(Load(tile, buffer, offset, guard), level)
        return tile

    def store(self, buffer: str, offset: Expression, value: Tile) -> None:
        self.blocks.put(Store(buffer, offset, value), self.blocks.depth)

    def each_lane(self) -> Symbol:
        """Opens a loop over the lanes."""
        lane = self.blocks.fresh_axis(const(self.lanes))
        self.blocks.open(lane, const(0), const(self.lanes), self.tile)
        return lane

    # --- scans

    def scan(self, run: int) -> Placed:
        blocks, extent, size = self.blocks, self.extent, self.lanes * run
        combine, none = self.monoid.combine, self.values.identity(self.monoid, self.dtype)
        sums = [self.values.new_scratch(self.dtype, const(self.lanes)) for _ in range(2)]
        number = blocks.fresh_axis(ceil_div(extent, size))
        level = blocks.depth
        blocks.open(number, const(0), ceil_div(extent, size))
        before = blocks.new((), self.dtype, blocks.depth)
        lane = self.each_lane()
        positions = [number * size + lane * run + k for k in range(run)]
        own = self.own(positions)
        source = self.scanned(lane, own[-1], sums)
        left = self.load(source, lane - 1, self.dtype, lane >= 1)
        start = self.apply(combine, before, self.where(lane >= 1, left, none))
        for position, value in zip(positions, own, strict=True):
            self.put(position, self.apply(combine, start, value))
        blocks.close()
        total = self.load(source, const(self.lanes - 1), self.dtype)
        after = self.apply(combine, before, total)
        result = blocks.new((), self.dtype, level)
        blocks.close((Carry(result, none, before, after),))
        return self.values.finish()

    @property
    def monoid(self) -> Monoid:
        return SCANS[self.term.attrs.hlir.kind]

    def own(self, positions: list[Expression]) -> list[Tile]:
        """What a lane's positions amount to, each with those before it; beyond the row nothing."""
        none = self.values.identity(self.monoid, self.dtype)
        found: list[Tile] = []
        for position in positions:
            inside = self.inside(position)
            env: dict[Symbol, Expression] = {}
            for dimension, index in zip(
                self.term.attrs.frames[0], self.with_(position), strict=True
            ):
                env.update(spread(index, dimension))
            x = self.values.evaluate(self.term.args[0], Env(env, inside))
            x = self.where(inside, x, none)
            found.append(self.apply(self.monoid.combine, found[-1], x) if found else x)
        return found

    def inside(self, position: Expression) -> Expression:
        condition = position < self.extent
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

    def with_(self, position: Expression) -> list[Expression]:
        """The index of a position of the row."""
        return [position if k == self.axis else at for k, at in enumerate(self.at)]

    def put(self, position: Expression, value: Tile) -> None:
        """Stores a result of the scan."""
        place = self.fused.stores[0].place
        offset = place.layout.offset(self.with_(position), self.shape)
        self.values.store(place, offset, value, self.inside(position), add=False)

    # --- sorts

    def sort(self) -> Placed:
        values, order = self.fused.stores
        (operand,) = self.term.args
        place = self.fused.reads[operand]
        dtype, blocks = operand.dtype, self.blocks
        keys = self.values.new_scratch(dtype, self.shape[self.axis])
        at = self.over_row()
        offset = place.layout.offset(self.with_(at), self.shape)
        source = self.values.operand(place, Role.IN)
        self.store(keys, at + 0, self.load(source, self.values.canonical(offset), dtype))
        blocks.close()
        at = self.over_row()
        key = self.load(keys, at + 0, dtype)
        rank = self.rank(keys, at, key)
        to = self.values.bind(rank)
        position = self.values.index(at + 0, int64)
        for store, value in ((values, key), (order, position)):
            offset = store.place.layout.offset(self.with_(to), self.shape)
            self.values.store(store.place, offset, value, TRUE, add=False)
        return self.values.finish()

    def over_row(self) -> Symbol:
        """Opens a loop over the row, by lanes."""
        at = self.blocks.fresh_axis(self.extent)
        self.blocks.open(at, const(0), self.extent, self.tile)
        return at

    def rank(self, keys: str, at: Symbol, key: Tile) -> Tile:
        """How many keys come before one: those that are less, and of equals those before it."""
        blocks, level = self.blocks, self.blocks.depth
        other = blocks.fresh_axis(self.extent)
        blocks.open(other, const(0), self.extent, SINGLE)
        before = blocks.new((at,), int64, blocks.depth)
        found = self.load(keys, other + 0, key.dtype)
        tie = self.apply("Select", self.less(key, found), self.no, self.holds(other < at))
        comes_first = self.apply("Select", self.less(found, key), self.yes, tie)
        one = self.values.map("Cast", (comes_first,), int64)
        after = self.apply(SUM.combine, before, one)
        result = blocks.new((at,), int64, level)
        zero = self.values.identity(SUM, int64)
        blocks.close((Carry(result, zero, before, after),))
        return result

    @property
    def no(self) -> Tile:
        return self.values.constant(False, bool_)

    @property
    def yes(self) -> Tile:
        return self.values.constant(True, bool_)

    def less(self, a: Tile, b: Tile) -> Tile:
        """NaN is the greatest."""
        less = self.apply("LessThan", a, b)
        if not a.dtype.is_float:
            return less
        return self.apply("Select", self.apply("Equal", b, b), less, self.apply("Equal", a, a))
