"""A stable sort of one short row as LLVM IR: a key's place is how many come before it.

All pairs are compared, a vector at a time and without a branch: of up to some hundred keys that is
less work than moving them in turns, each of which the processor has to guess. (Counting by
comparison: Knuth, The Art of Computer Programming 3, 5.2.)
"""

from __future__ import annotations

from luminal.codegen.llvm_builder import I32, I64, FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_cast import memory_type
from luminal.codegen.llvm_control import counted
from luminal.codegen.llvm_keys import ordered_bits
from luminal.dtypes import DType

LANES = 16
_COUNT = IRType(f"i{LANES}")


class RankSort:
    """Writes the sort of fewer than `most` keys into an open function with SortRow's parameters."""

    def __init__(self, b: FunctionBuilder, dtype: DType, most: int) -> None:
        self.b = b
        self.dtype = dtype
        self.type = memory_type(dtype)
        self.bits = IRType(f"i{self.type.bits}")
        self.keys = b.alloca(self.bits, -(-most // LANES) * LANES)

    def write(self) -> None:
        """Sorts the row: the open block begins it, the block open afterwards is its end."""
        b = self.b
        source, values, order, stride, extent, *_ = b.params
        whole = (b.const(I64, 0), extent)
        last = b.binary("and", b.binary("sub", extent, b.const(I64, 1)), b.const(I64, -LANES))
        greatest = b.const_bits(self.bits.with_lanes(LANES), (1 << self.bits.bits) - 1)
        # What the last vector has beyond the row counts before no key.
        b.store(greatest, self.key(last), self.bits.bits // 8)

        def read(i: IRValue, _: list[IRValue]) -> list[IRValue]:
            found = b.load(self.type, self.at(source, i, stride), self.type.bits // 8)
            b.store(ordered_bits(b, self.dtype, found), self.key(i), self.bits.bits // 8)
            return []

        def place(i: IRValue, _: list[IRValue]) -> list[IRValue]:
            rank = self.rank(i, extent)
            found = b.load(self.type, self.at(source, i, stride), self.type.bits // 8)
            b.store(found, self.at(values, rank, stride), self.type.bits // 8)
            b.store(i, b.gep(order, b.binary("mul", rank, stride), I64), 8)
            return []

        counted(b, "read", whole, 1, (), read)
        counted(b, "place", whole, 1, (), place)

    def rank(self, i: IRValue, extent: IRValue) -> IRValue:
        """How many keys come before the i-th one: the lesser, and of equals those before it."""
        b = self.b
        key = b.splat(b.load(self.bits, self.key(i), self.bits.bits // 8), LANES)
        lane = b.vector_const(I32.with_lanes(LANES), range(LANES))

        def count(start: IRValue, carried: list[IRValue]) -> list[IRValue]:
            found = b.load(self.bits.with_lanes(LANES), self.key(start), self.bits.bits // 8)
            distance = b.cast("trunc", b.binary("sub", i, start), I32)
            earlier = b.icmp("slt", lane, b.splat(distance, LANES))
            equal = b.binary("and", b.icmp("eq", found, key), earlier)
            before = b.binary("or", b.icmp("ult", found, key), equal)
            ones = b.intrinsic("llvm.ctpop", _COUNT, [b.cast("bitcast", before, _COUNT)])
            return [b.binary("add", carried[0], b.cast("zext", ones, I64))]

        (total,) = counted(b, "count", (b.const(I64, 0), extent), LANES, (b.const(I64, 0),), count)
        return total

    def key(self, i: IRValue) -> IRValue:
        return self.b.gep(self.keys, i, self.bits)

    def at(self, row: IRValue, i: IRValue, stride: IRValue) -> IRValue:
        return self.b.gep(row, self.b.binary("mul", i, stride), self.type)
