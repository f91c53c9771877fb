"""A stable radix sort of one row as LLVM IR: keys as unsigned integers, a byte at a time.

One sweep maps the keys and counts every byte of them; then, from the least byte up, keys and
positions move to where the counts say, in order, so that equals keep it. Bytes that all keys share
move nothing. (Knuth, The Art of Computer Programming 3, 5.2.5.)
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.codegen.llvm_builder import I64, PTR, FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_cast import memory_type
from luminal.codegen.llvm_control import counted
from luminal.codegen.llvm_keys import ordered_bits
from luminal.dtypes import DType

BUCKETS = 256

Rows = Sequence[IRValue]  # keys and their positions


class RadixSort:
    """Writes the sort into an open function; its parameters are those of SortRow's function."""

    def __init__(self, b: FunctionBuilder, dtype: DType) -> None:
        self.b = b
        self.dtype = dtype
        self.type = memory_type(dtype)
        self.bits = IRType(f"i{self.type.bits}")
        self.counts = b.alloca(I64, self.type.bits // 8 * BUCKETS)

    def write(self) -> None:
        """Sorts the row: the open block begins it, the block open afterwards is its end."""
        b = self.b
        source, values, order, stride, extent, work, work_order = b.params
        whole = (b.const(I64, 0), extent)
        self.count(source, stride, extent, work, work_order)
        rows = [work, work_order, b.gep(work, extent, self.bits), b.gep(work_order, extent, I64)]

        def sort_by_byte(bit: IRValue, rows: list[IRValue]) -> list[IRValue]:
            return self.sort_by_byte(bit, rows, extent)

        bits = (b.const(I64, 0), b.const(I64, self.type.bits))
        found = counted(b, "byte", bits, 8, rows, sort_by_byte, (1, None))[1]

        def copy_out(k: IRValue, _: list[IRValue]) -> list[IRValue]:
            at, place = b.binary("mul", k, stride), self.get(found, k, I64)
            value = self.get(source, b.binary("mul", place, stride), self.type)
            self.put(values, at, value)
            self.put(order, at, place)
            return []

        counted(b, "copy", whole, 1, (), copy_out)

    def get(self, row: IRValue, at: IRValue, type_: IRType) -> IRValue:
        return self.b.load(type_, self.b.gep(row, at, type_), type_.bits // 8)

    def put(self, row: IRValue, at: IRValue, value: IRValue) -> None:
        self.b.store(value, self.b.gep(row, at, value.type), value.type.bits // 8)

    def bucket(self, bits: IRValue, shift: IRValue) -> IRValue:
        """Where the byte of `bits` from bit `shift` on is counted."""
        b = self.b
        byte = b.binary("and", b.binary("lshr", bits, shift), b.const(self.bits, BUCKETS - 1))
        wide = b.cast("zext", byte, I64)
        first = b.cast("zext", shift, I64)  # 8 bits are 256 buckets: 32 a bit
        table = b.binary("mul", first, b.const(I64, BUCKETS // 8))
        return b.gep(self.counts, b.binary("add", table, wide), I64)

    def count(
        self, source: IRValue, stride: IRValue, extent: IRValue, keys: IRValue, order: IRValue
    ) -> None:
        """Mapped keys and their positions into the work rows; how often each byte occurs."""
        b = self.b
        zero, one = b.const(I64, 0), b.const(I64, 1)

        def clear(k: IRValue, _: list[IRValue]) -> list[IRValue]:
            self.put(self.counts, k, zero)
            return []

        counters = b.const(I64, self.type.bits // 8 * BUCKETS)
        counted(b, "clear", (zero, counters), 1, (), clear, (1, None))

        def count_key(i: IRValue, _: list[IRValue]) -> list[IRValue]:
            key = self.get(source, b.binary("mul", i, stride), self.type)
            bits = ordered_bits(b, self.dtype, key)
            self.put(keys, i, bits)
            self.put(order, i, i)
            for shift in range(0, self.type.bits, 8):
                place = self.bucket(bits, b.const(self.bits, shift))
                b.store(b.binary("add", b.load(I64, place, 8), one), place, 8)
            return []

        counted(b, "count", (zero, extent), 1, (), count_key)

    def sort_by_byte(self, bit: IRValue, rows: list[IRValue], extent: IRValue) -> list[IRValue]:
        """(keys, positions, and room for them), sorted by one byte; the room becomes the rows."""
        b = self.b
        keys, order, to_keys, to_order = rows
        shift = b.cast("trunc", bit, self.bits)
        move, done = b.label("byte.move"), b.label("byte.next")
        first = self.bucket(self.get(keys, b.const(I64, 0), self.bits), shift)
        all_equal = b.icmp("eq", b.load(I64, first, 8), extent)
        before = b.current
        b.cond_br(all_equal, done, move)
        b.block(move)
        self.starts(bit)

        def place_key(i: IRValue, _: list[IRValue]) -> list[IRValue]:
            bits = self.get(keys, i, self.bits)
            bucket = self.bucket(bits, shift)
            place = b.load(I64, bucket, 8)
            b.store(b.binary("add", place, b.const(I64, 1)), bucket, 8)
            self.put(to_keys, place, bits)
            self.put(to_order, place, self.get(order, i, I64))
            return []

        counted(b, "place", (b.const(I64, 0), extent), 1, (), place_key, (1, None))
        moved = b.current
        b.br(done)
        b.block(done)
        swapped = (to_keys, to_order, keys, order)
        return [
            b.phi(PTR, [(old, before), (new, moved)])
            for old, new in zip(rows, swapped, strict=True)
        ]

    def starts(self, bit: IRValue) -> None:
        """The counts of one byte become the places where each bucket starts."""
        b = self.b
        table = b.gep(self.counts, b.binary("mul", bit, b.const(I64, BUCKETS // 8)), I64)
        zero = b.const(I64, 0)

        def start(k: IRValue, carried: list[IRValue]) -> list[IRValue]:
            (total,) = carried
            count = self.get(table, k, I64)
            self.put(table, k, total)
            return [b.binary("add", total, count)]

        counted(b, "start", (zero, b.const(I64, BUCKETS)), 1, (zero,), start, (1, None))
