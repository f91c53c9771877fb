"""Merges of sorted runs by many groups: every lane finds where its part of the result comes from.

The keys before any position of a merge's result are the first i of one run and the first k - i of
the other, and a binary search along that diagonal finds i (Green, McColl and Bader, GPU merge path,
2012). So each lane merges some neighbours of the result alone, knowing nothing of the others.
"""

from __future__ import annotations

from luminal.algebra.sorts import MergedRuns
from luminal.base.dtypes import int64
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_keys import KeyRow
from luminal.kernel.schedule import SINGLE
from luminal.kernel.tile_ir import Carry, Role, Tile
from luminal.shape.expression import (
    Expression,
    Symbol,
    all_of,
    ceil_div,
    const,
    maximum,
    minimum,
)


def place_merge(fused: Fused, lanes: int, run: int) -> Placed:
    """The kernel that makes one of each pair of runs; a lane gives `run` neighbours. Its first
    store takes the keys, its second their places.
    """
    return _Merge(fused, lanes).merge(run)


class _Merge(KeyRow):
    def __init__(self, fused: Fused, lanes: int) -> None:
        super().__init__(fused, lanes)
        hlir: MergedRuns = self.term.attrs.hlir
        self.length = hlir.size
        keys, order = (fused.reads[arg] for arg in self.term.args)
        self.dtype, self.numbers = keys.dtype, order.dtype
        self.keys = self.values.operand(keys, Role.IN)
        self.order = self.values.operand(order, Role.IN)
        self.row = self.values.canonical(keys.layout.offset(self.with_(const(0)), self.shape))

    def merge(self, run: int) -> Placed:
        chunk = self.values.grid_axis(ceil_div(self.extent, self.lanes * run))
        lane = self.over(const(self.lanes))
        first = (chunk * self.lanes + lane) * run
        self.pair(first)
        taken = self.search(lane)
        blocks, level = self.blocks, self.blocks.depth
        step = blocks.fresh_axis(const(run))
        blocks.open(step, const(0), const(run), SINGLE)
        i = blocks.new(taken.axes, int64, blocks.depth)
        position = first + step
        after = self.put(position, i, position < self.extent)
        result = blocks.new(taken.axes, int64, level)
        blocks.close((Carry(result, taken, i, after),))
        return self.values.finish()

    def pair(self, first: Expression) -> None:
        """Where the two runs are that a position of the result is of."""
        pair = first // (2 * self.length) * (2 * self.length)
        self.one, self.other = pair, minimum(pair + self.length, self.extent)
        self.end = minimum(pair + 2 * self.length, self.extent)
        self.diagonal = first - pair

    def search(self, lane: Symbol) -> Tile:
        """How many keys of the first run come before a lane's positions: bit after bit, from the
        highest.
        """
        blocks, level = self.blocks, self.blocks.depth
        axes = (lane,)
        least = maximum(self.diagonal - (self.end - self.other), const(0))
        most = minimum(self.diagonal, self.other - self.one)
        steps = const(self.length.bit_length())
        blocks.open(blocks.fresh_axis(steps), const(0), steps, SINGLE)
        count, bit = blocks.new(axes, int64, blocks.depth), blocks.new((), int64, blocks.depth)
        more = self.apply("Add", count, bit)
        tried = self.values.bind(more)
        is_open = all_of((tried > least, tried <= most))
        mine = self.key(self.one + tried - 1, is_open)
        theirs = self.key(self.other + self.diagonal - tried, is_open)
        # Of equal keys those of the first run come first.
        comes = self.less(theirs, mine, negated=True)
        comes = self.choose(self.holds(is_open), comes, self.holds(tried <= least))
        after = self.choose(comes, more, count)
        half = self.apply("Shr", bit, self.number(1))
        result, rest = blocks.new(axes, int64, level), blocks.new((), int64, level)
        whole = self.number(self.length)
        blocks.close((Carry(result, self.number(0), count, after), Carry(rest, whole, bit, half)))
        return result

    def put(self, position: Expression, taken: Tile, inside: Expression) -> Tile:
        """Stores the key at a position, before which so many are of the first run; gives how
        many are then.
        """
        i = self.values.bind(taken)
        one = self.one + i
        other = self.other + (position - self.one) - i
        has_one, has_other = one < self.other, other < self.end
        mine, theirs = (
            self.key(one, all_of((inside, has_one))),
            self.key(other, all_of((inside, has_other))),
        )
        is_first = self.less(theirs, mine, negated=True)
        is_first = self.choose(self.holds(has_other), is_first, self.yes)
        is_first = self.choose(self.holds(has_one), is_first, self.no)
        source = self.choose(
            is_first, self.values.index(one, int64), self.values.index(other, int64)
        )
        offset = self.row + self.values.bind(source)
        place = self.values.emit_load(self.order, offset, inside, self.numbers)
        place = self.cast(place, self.fused.stores[1].dtype)
        for store, value in zip(
            self.fused.stores, (self.choose(is_first, mine, theirs), place), strict=True
        ):
            to = store.place.layout.offset(self.with_(position), self.shape)
            self.values.store(store.place, to, value, inside, add=False)
        return self.choose(is_first, self.apply("Add", taken, self.number(1)), taken)

    def key(self, position: Expression, inside: Expression) -> Tile:
        return self.values.emit_load(self.keys, self.row + position, inside, self.dtype)
