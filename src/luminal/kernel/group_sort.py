"""Sorts of rows by groups: a stable merge sort in which every lane finds its keys' places.

A row is sorted runs, at first of one key each, of which pairs are merged until one is left. Where a
key goes in a merge is its place in its own run plus the number of keys of the other run that come
before it: the lesser ones, and the equal ones too for a key of the second run, so that equals keep
their order. A binary search counts them, so no lane waits for another one between two barriers, and
a row of n keys takes about log2(n)^2 / 2 steps of a group for each key of a lane (Cole, Parallel
merge sort, 1988, has the idea; the search instead of his pipeline is the plain form of it).

Runs have powers of two for lengths, but the last: a key's run, and its place there, are bits of its
position. Two merges are one step of a loop, from one buffer into another and back, so that no
buffer is read and written at once.

Of a long row a group takes one block (`selection/sorts.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from luminal.algebra.sorts import SortedBlocks
from luminal.base.dtypes import int64
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_keys import KeyRow
from luminal.kernel.schedule import SINGLE
from luminal.kernel.sort_memory import order_dtype
from luminal.kernel.tile_ir import Carry, Role, Tile
from luminal.shape.expression import TRUE, Expression, ceil_div, const, minimum, sum_of

MOST_MERGES = 48
"""The merges of a row whose length has no bound: one of 2**48 keys fits no memory."""


def place_group_sort(fused: Fused, lanes: int) -> Placed:
    """The kernel of a Sort, or of one in blocks: its first store takes the values, its second their
    order.
    """
    return _Sort(fused, lanes).sort()


class _Rows(NamedTuple):
    """A row on its way: keys and where they were at first, in working memory."""

    keys: str
    order: str


class _Sort(KeyRow):
    def sort(self) -> Placed:
        (operand,) = self.term.args
        place, self.dtype = self.fused.reads[operand], operand.dtype
        self.numbers = order_dtype(self.extent)
        start = self.block()
        first, second = self.working(), self.working()
        at = self.over(self.extent)
        there = self.with_(start + at)
        offset = self.values.canonical(place.layout.offset(there, self.shape))
        source = self.values.operand(place, Role.IN)
        self.store(first.keys, at + 0, self.load(source, offset, self.dtype))
        self.store(first.order, at + 0, self.values.index(start + at, self.numbers))
        self.blocks.close()
        self.merges(first, second)
        at = self.over(self.extent)
        key = self.load(first.keys, at + 0, self.dtype)
        order = self.fused.stores[1].dtype
        position = self.cast(self.load(first.order, at + 0, self.numbers), order)
        for store, value in zip(self.fused.stores, (key, position), strict=True):
            offset = store.place.layout.offset(self.with_(start + at), self.shape)
            self.values.store(store.place, offset, value, TRUE, add=False)
        return self.values.finish()

    def block(self) -> Expression:
        """The first position that the group sorts; the extent is that of the block from here on."""
        hlir = self.term.attrs.hlir
        self.room = self.shape[self.axis]
        if not isinstance(hlir, SortedBlocks):
            return const(0)
        self.room, whole = const(hlir.size), self.extent
        start = self.values.grid_axis(ceil_div(whole, hlir.size)) * hlir.size
        is_even = whole.is_const and whole.value % hlir.size == 0
        self.extent = self.room if is_even else minimum(self.room, whole - start)
        return start

    def working(self) -> _Rows:
        return _Rows(*(self.values.new_buffer(t, self.room) for t in (self.dtype, self.numbers)))

    def merges(self, first: _Rows, second: _Rows) -> None:
        """Merges until the first buffer holds one run; one more than that changes nothing."""
        blocks, level = self.blocks, self.blocks.depth
        most = self.extent.interval.hi
        lengths = range(MOST_MERGES if most is None else max(0, most - 1).bit_length())
        merges = sum_of(const(1 << k) < self.extent for k in lengths)
        steps = ceil_div(merges, 2)
        step = blocks.fresh_axis(steps)
        blocks.open(step, const(0), steps)
        length = blocks.new((), int64, blocks.depth)
        twice = self.apply("Add", length, length)
        self.merge(first, second, length, step * 2)
        self.merge(second, first, twice, step * 2 + 1)
        after = self.apply("Add", twice, twice)
        result = blocks.new((), int64, level)
        blocks.close((Carry(result, self.number(1), length, after),))

    def merge(self, source: _Rows, target: _Rows, length: Tile, number: Expression) -> None:
        """Pairs of runs of a length, which is 2**number, become one each."""
        at = self.over(self.extent)
        position = self.values.index(at + 0, int64)
        # Lengths are powers of two, so a mask takes the place of a division, and of a search for
        # the run.
        place = self.apply("And", position, self.apply("Add", length, self.number(-1)))
        run = self.apply("Xor", position, place)  # where its run starts
        other = self.apply("Xor", run, length)
        both = self.apply("And", run, other)
        is_second = self.apply("LessThan", other, run)
        key = self.load(source.keys, at + 0, self.dtype)
        count = self.before(source, key, is_second, other, length, number)
        to = self.values.bind(self.sum(both, place, count))
        self.store(target.keys, to + 0, key)
        self.store(target.order, to + 0, self.load(source.order, at + 0, self.numbers))
        self.blocks.close()

    def before(
        self, source: _Rows, key: Tile, is_second: Tile, other: Tile, length: Tile,
        number: Expression,
    ) -> Tile:  # fmt: skip
        """How many keys of the other run come before one: bit after bit, from the highest."""
        blocks, level = self.blocks, self.blocks.depth
        axes = key.axes
        blocks.open(blocks.fresh_axis(number + 1), const(0), number + 1, SINGLE)
        count, bit = blocks.new(axes, int64, blocks.depth), blocks.new((), int64, blocks.depth)
        tried = self.apply("Add", count, bit)
        last = self.values.bind(self.sum(other, tried, self.number(-1)))
        inside = last < self.extent
        probe = self.values.emit_load(source.keys, last + 0, inside, self.dtype)
        # Of equal keys those of the first run count for one of the second, and not the reverse:
        # that makes the sort stable.
        comes = self.choose(is_second, self.less(key, probe, negated=True), self.less(probe, key))
        # The count is built from its highest bit, each tried by one probe; a run that is shorter
        # than its length (the last one) is cut by `inside`.
        fits = self.apply("LessThan", length, tried)
        comes = self.choose(fits, self.no, self.choose(self.holds(inside), comes, self.no))
        after = self.choose(comes, tried, count)
        half = self.apply("Shr", bit, self.number(1))
        result, rest = blocks.new(axes, int64, level), blocks.new((), int64, level)
        blocks.close((Carry(result, self.number(0), count, after), Carry(rest, length, bit, half)))
        return result
