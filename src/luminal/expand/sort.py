"""SortRow: long rows by radix, short ones by rank.

Keys are taken for unsigned integers in the same order. A rank is how many keys come before one: of
up to some hundred, comparing all pairs is less work than moving them in turns (counting by
comparison: Knuth, The Art of Computer Programming 3, 5.2). By radix, one sweep counts every byte of
the keys; then, from the least byte up, keys and positions move to where the counts say, in order,
so that equals keep it; bytes that all keys share move nothing (the same, 5.2.5).
"""

from __future__ import annotations

import numpy as np

from luminal.base.dtypes import dtype_of, int32, int64
from luminal.expand.access import read
from luminal.expand.builder import Builder, integer
from luminal.expand.fold import constant
from luminal.expand.ir import INDEX, Constant, Operand, Type
from luminal.expand.tiles import Tiles
from luminal.kernel.sort_memory import BUCKETS, COUNTS, LANES, key_dtype
from luminal.kernel.tile_ir import SortRow

RADIX_FROM = 256
"""Keys from which on clearing and summing 256 counters a byte costs less than all pairs do."""


def write_sort(tiles: Tiles, statement: SortRow) -> None:
    """Write the sort of one row."""
    sort = _Sort(tiles, statement)
    is_long = tiles.index.condition(statement.extent >= RADIX_FROM)
    tiles.b.where(is_long, sort.by_radix)
    tiles.b.where(tiles.b.negation(is_long), sort.by_rank)


def ordered_bits(b: Builder, key: Operand) -> Operand:
    """The key's bits, made to count up as the keys do: -0 as +0, every NaN the greatest."""
    dtype = key.type.dtype
    unsigned = key_dtype(dtype)
    last, sign = dtype.bits - 1, 1 << dtype.bits - 1
    if not dtype.is_float:
        return b.op("xor", b.bitcast(key, unsigned), sign) if dtype.is_signed else key
    # As integers positive floats count up as they do, negative ones down: so all bits of a negative
    # one are flipped, and of others the sign.
    bits = b.op("select", b.op("eq", key, 0.0), 0, b.bitcast(key, unsigned))
    signed = b.op("shr", b.bitcast(bits, dtype_of(f"int{dtype.bits}")), last)
    flipped = b.op("xor", bits, b.op("or", b.bitcast(signed, unsigned), sign))
    return b.op("select", b.op("ne", key, key), -1, flipped)


class _Sort:
    def __init__(self, tiles: Tiles, statement: SortRow) -> None:
        self.tiles = tiles
        self.b = tiles.b
        self.row = statement
        scalar = tiles.index.scalar
        self.offset, self.stride = scalar(statement.offset), scalar(statement.stride)
        self.extent = scalar(statement.extent)
        self.keys = key_dtype(tiles.buffers[statement.source].dtype)
        self.places = Type(tiles.buffers[statement.work_order].dtype)

    def at(self, position: Operand) -> Operand:
        """The address of a position of the row."""
        return self.b.op("add", self.offset, self.b.op("mul", position, self.stride))

    def source(self, position: Operand) -> Operand:
        return read(self.tiles, self.row.source, (self.at(position), 0), None)

    def put(self, rank: Operand, position: Operand) -> None:
        """The key from a position of the source, and that position, where their rank says."""
        to = self.at(rank)
        self.b.store(self.row.values, to, self.source(position))
        self.b.store(self.row.order, to, position)

    # --- by rank ----------------------------------------------------------------------------------

    def by_rank(self) -> None:
        b, zero, lanes = self.b, integer(0), min(LANES, self.tiles.most)
        if lanes > 1:  # what the last vector has beyond the row counts before no key
            last = b.op("max", b.op("and", b.op("sub", self.extent, 1), -lanes), 0)
            b.store(self.row.work, last, constant(Type(self.keys, lanes), -1))
        with b.loop(zero, self.extent, 1) as loop:
            b.store(self.row.work, loop.index, ordered_bits(b, self.source(loop.index)))
        with b.loop(zero, self.extent, 1) as loop:
            self.put(self.rank(loop.index), loop.index)

    # Insertion and merges were here before: comparing all pairs has no branch and runs in vectors,
    # and takes half the time for rows of 16.
    def rank(self, position: Operand) -> Operand:
        """How many keys come before one: the lesser, and of equals those before it."""
        b, count = self.b, min(LANES, self.tiles.most)
        key = b.spread(b.load(Type(self.keys), self.row.work, position), count)
        numbers = Constant(Type(int32, count), np.arange(count, dtype=np.int32).tobytes())
        with b.loop(integer(0), self.extent, count, (integer(0),)) as loop:
            other = b.load(Type(self.keys, count), self.row.work, loop.index)
            distance = b.cast(b.op("sub", position, loop.index), int32)
            # Ranks of equal keys differ by their positions: so
            # the order is stable, and no two keys share one.
            earlier = b.op("lt", numbers, b.spread(distance, count))
            equal = b.op("and", b.op("eq", other, key), earlier)
            before = b.op("or", b.op("lt", other, key), equal)
            loop.next = (b.op("add", loop.inner[0], b.count_of(before)),)
        return loop.results[0]

    # --- by radix ---------------------------------------------------------------------------------

    def by_radix(self) -> None:
        """Keys and positions lie in one half of the working memory and move to the other."""
        b, zero = self.b, integer(0)
        self.count()
        bits = integer(self.keys.bits)
        with b.loop(zero, bits, 8, (zero, self.extent)) as loop:
            loop.next = self.by_byte(loop.index, *loop.inner)
        count = loop.results[0]
        with b.loop(zero, self.extent, 1) as loop:
            position = b.load(self.places, self.row.work_order, b.op("add", count, loop.index))
            self.put(loop.index, b.cast(position, int64))

    def bucket(self, key: Operand, bit: Operand) -> Operand:
        """The address of the counter of a key's byte that begins at a bit: 8 bits are 256 buckets,
        32 a bit.
        """
        b = self.b
        byte = b.op("and", b.op("shr", key, b.cast(bit, self.keys)), BUCKETS - 1)
        return b.op("add", b.op("mul", bit, BUCKETS // 8), b.cast(byte, int64))

    def count(self) -> None:
        """Keys and their positions into the working memory; how often each byte occurs."""
        b, zero = self.b, integer(0)
        with b.loop(zero, integer(self.keys.size * BUCKETS), 1) as loop:
            b.store(COUNTS, loop.index, zero)
        with b.loop(zero, self.extent, 1) as loop:
            key = ordered_bits(b, self.source(loop.index))
            b.store(self.row.work, loop.index, key)
            b.store(self.row.work_order, loop.index, b.cast(loop.index, self.places.dtype))
            # All bytes in one sweep: how often one occurs does not change as keys move.
            for bit in range(0, self.keys.bits, 8):
                bucket = self.bucket(key, integer(bit))
                b.store(COUNTS, bucket, b.op("add", b.load(INDEX, COUNTS, bucket), 1))

    def by_byte(self, bit: Operand, at: Operand, room: Operand) -> tuple[Operand, Operand]:
        """Sorts the keys by one byte; gives where they begin then, and where there is room for the
        next time.
        """
        b = self.b
        first = b.load(Type(self.keys), self.row.work, at)
        alike = b.load(INDEX, COUNTS, self.bucket(first, bit))
        with b.branch(b.op("ne", alike, self.extent)) as choose:
            self.starts(b.op("mul", bit, BUCKETS // 8))
            with b.loop(integer(0), self.extent, 1) as loop:
                self.move(bit, b.op("add", at, loop.index), room)
            # Where nothing moved, the halves keep their parts.
            return choose(room, at), choose(at, room)

    def starts(self, table: Operand) -> None:
        """The counts of one byte become the places where each bucket starts."""
        b = self.b
        with b.loop(integer(0), integer(BUCKETS), 1, (integer(0),)) as loop:
            (total,) = loop.inner
            place = b.op("add", table, loop.index)
            count = b.load(INDEX, COUNTS, place)
            b.store(COUNTS, place, total)
            loop.next = (b.op("add", total, count),)

    def move(self, bit: Operand, at: Operand, room: Operand) -> None:
        """One key to the next place of its bucket."""
        b = self.b
        key = b.load(Type(self.keys), self.row.work, at)
        bucket = self.bucket(key, bit)
        place = b.load(INDEX, COUNTS, bucket)
        b.store(COUNTS, bucket, b.op("add", place, 1))
        to = b.op("add", room, place)
        b.store(self.row.work, to, key)
        b.store(self.row.work_order, to, b.load(self.places, self.row.work_order, at))
