"""Kernels that take rows whole: a Scan or a Sort along one dimension, each a fixed loop nest."""

from __future__ import annotations

from luminal.algebra.frames import shape_of, spread_frame
from luminal.algebra.scans import block_size, may_regroup
from luminal.algebra.terms import Term
from luminal.hlir.attributes import AxisAttrs
from luminal.hlir.monoid import SCANS, Monoid
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator, Placed
from luminal.kernel.fused import Fused
from luminal.kernel.loops import estimate
from luminal.kernel.schedule import SINGLE, TileChoice
from luminal.kernel.sort_memory import order_dtype
from luminal.kernel.tile_ir import Carry, Map, Prefix, Role, SortRow, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, minimum


def place_scan(fused: Fused, tile: TileChoice, chunk: int) -> Placed:
    """The kernel of a Scan: where rows run along another dimension than the last, in such tiles.
    `chunk`: elements of a chunk, about.
    """
    return _WholeRows(fused, chunk, tile).scan()


def place_sort(fused: Fused, chunk: int) -> Placed:
    """The kernel of a Sort: its first store takes the values, its second their order. `chunk`: keys
    of a chunk, about.
    """
    return _WholeRows(fused, chunk, SINGLE).sort()


class _WholeRows:
    """A grid over all dimensions but one; the rows along that one are taken whole.

    `chunk`: elements of one, about; `tile`: positions of the last dimension walked together.
    """

    def __init__(self, fused: Fused, chunk: int, tile: TileChoice) -> None:
        self.fused = fused
        self.values = Evaluator(fused)
        self.blocks = self.values.blocks
        self.term: Term = fused.stores[0].term
        self.axis: int = self.term.attrs.hlir.axis
        self.shape = shape_of(self.term.attrs.result)
        self.chunk = chunk
        self.tile = tile
        self.size = block_size(self.term)
        self.blocked: Expression = const(0)  # the number of the block, in a Scan in blocks

    def rows(self) -> list[Expression]:
        """Opens the grid: the position of each dimension, 0 for the row's own.

        The last dimension is walked in vectors where the row runs along another one.
        """
        position: list[Expression] = []
        others = [k for k in range(len(self.shape)) if k != self.axis]
        length = self.size or estimate(self.shape[self.axis])
        for k, extent in enumerate(self.shape):
            if k == self.axis:
                if self.size:
                    self.blocked = self.values.grid_axis(ceil_div(extent, self.size))
                position.append(const(0))
                continue
            tile = self.tile if k == len(self.shape) - 1 else SINGLE
            last = k == others[-1]
            rows = max(1, self.chunk // length) if last else 1
            # Whole tiles, or each chunk would end in a tail.
            rows = -(-rows // tile.size) * tile.size
            position.append(self.loop(extent, rows, tile))
        return position

    def loop(self, extent: Expression, count: int, tile: TileChoice) -> Symbol:
        chunk = self.values.grid_axis(ceil_div(extent, count))
        if count == 1:
            return chunk
        whole = self.values.canonical(extent)
        symbol = self.blocks.fresh_axis(whole)
        stop = minimum(chunk * count + count, whole)
        self.blocks.open(symbol, chunk * count, stop, tile)
        return symbol

    def scan(self) -> Placed:
        """The accumulator is carried along the row, or the block, and stored at each step."""
        (store,) = self.fused.stores
        monoid = SCANS[self.term.attrs.hlir.kind]
        along = self.along()
        position = self.rows()
        init = self.before(monoid, position)
        level = self.blocks.depth
        start, stop = const(0), self.values.canonical(self.shape[self.axis])
        step = self.blocks.fresh_axis(stop)
        if self.size:
            start = self.blocked * self.size
            stop = minimum(start + self.size, stop)
        self.blocks.open(step, start, stop, along)
        position[self.axis] = step
        env = Env(spread_frame(self.term.attrs.frames[0], position))
        x = self.values.evaluate(self.term.args[0], env)
        axes = {a for index in position for a in index.symbols()} | set(x.axes)
        carried = axes - {step}
        inner = self.blocks.new(carried, self.term.dtype, self.blocks.depth)
        stored = after = self.blocks.new(carried, self.term.dtype, self.blocks.depth)
        # A vector is scanned in registers, and only its total is carried on: one combination of
        # latency a vector, not one a position.
        if along.size > 1:
            prefix = self.blocks.new(axes | {step}, self.term.dtype, self.blocks.depth)
            total = self.blocks.new(carried, self.term.dtype, self.blocks.depth)
            self.blocks.put(Prefix(prefix, total, monoid.combine, x, step), self.blocks.depth)
            stored = self.values.map(monoid.combine, (inner, prefix), self.term.dtype)
            x = total
        self.blocks.put(Map(after, monoid.combine, (inner, x)), self.blocks.depth)
        self.values.store(
            store.place, store.place.layout.offset(position, self.shape), stored, TRUE, add=False
        )
        result = self.blocks.new(carried, self.term.dtype, level)
        self.blocks.close((Carry(result, init, inner, after),))
        return self.values.finish()

    def along(self) -> TileChoice:
        """Rows whose positions lie side by side are scanned in vectors, where order is free. Not of
        integers, which one by one take a cycle each, nor of rows that fill a quarter of a vector or
        less, of which several are under way at once: the rounds of a vector take longer.
        """
        is_last = self.axis == len(self.shape) - 1
        is_filled = 4 * estimate(self.shape[self.axis]) > self.tile.vector
        pays = is_last and is_filled and self.tile.vector > 1 and self.term.dtype.is_float
        return self.tile if pays and may_regroup(self.term) else SINGLE

    def before(self, monoid: Monoid, position: list[Expression]) -> Tile:
        """What a row or a block begins with."""
        if not self.size:
            return self.values.identity(monoid, self.term.dtype)
        there = [self.blocked if k == self.axis else at for k, at in enumerate(position)]
        env = Env(spread_frame(self.term.attrs.frames[1], there))
        return self.values.evaluate(self.term.args[1], env)

    def sort(self) -> Placed:
        """One SortRow per row; keys and order go to their places."""
        assert isinstance(self.term.attrs.hlir, AxisAttrs), "groups sort in blocks"
        values, order = self.fused.stores
        (operand,) = self.term.args
        source = self.fused.reads[operand]
        extent = self.shape[self.axis]
        position = self.rows()
        offset = values.place.layout.offset(position, self.shape)
        stride = const(1)
        for inner in self.shape[self.axis + 1 :]:
            stride = stride * inner
        # Two halves: keys and positions of long rows go to and fro, a byte of the keys at a time.
        work = self.values.new_buffer(operand.dtype, extent * 2)
        work_order = self.values.new_buffer(order_dtype(extent), extent * 2)
        self.blocks.put(
            SortRow(
                self.values.operand(source, Role.IN),
                self.values.operand(values.place, Role.OUT),
                self.values.operand(order.place, Role.OUT),
                self.values.canonical(offset),
                self.values.canonical(stride),
                self.values.canonical(extent),
                work,
                work_order,
            ),
            self.blocks.depth,
        )
        return self.values.finish()
