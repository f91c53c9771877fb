"""SortRow as LLVM IR, a function per key dtype: long rows by radix, short ones by merges.

The merge sort is stable and bottom-up: runs of RUN keys are sorted by insertion, then merged
pairwise between the two halves of the work buffers, keys and positions together. NaN comes last
and -0 equals +0.
"""

from __future__ import annotations

from luminal.codegen.llvm_builder import (
    I1,
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    IRType,
    IRValue,
    ModuleBuilder,
)
from luminal.codegen.llvm_cast import memory_type
from luminal.codegen.llvm_control import counted
from luminal.codegen.llvm_radix import RadixSort
from luminal.codegen.llvm_values import Context
from luminal.dtypes import DType
from luminal.kernel.tile_ir import SortRow
from luminal.shape.expression import ZERO

RADIX_FROM = 256
"""Keys from which on clearing and summing 256 counters a byte costs less than merges (measured)."""
RUN = 8  # insertion sort moves at most 28 keys of a run: less work than three merges

_PARAMS = [
    ("source", PTR),
    ("values", PTR),
    ("order", PTR),
    ("stride", I64),
    ("extent", I64),
    ("work", PTR),
    ("work_order", PTR),
]


def emit_sort(ctx: Context, statement: SortRow) -> None:
    """Call the sort of the keys' dtype, writing it into the module at its first use."""
    dtype = ctx.buffers[statement.source].dtype

    def build(module: ModuleBuilder, name: str) -> None:
        b = FunctionBuilder(module, name, VOID, _PARAMS, linkage="internal")
        _Sorter(b, dtype).write()

    name = ctx.b.module.helper(f"sort_{dtype}", build)
    rows = [statement.source, statement.values, statement.order]
    arguments = [ctx.pointer(row, statement.offset) for row in rows]
    arguments += [ctx.index.scalar(statement.stride), ctx.index.scalar(statement.extent)]
    arguments += [ctx.pointer(work, ZERO) for work in (statement.work, statement.work_order)]
    ctx.b.call(name, VOID, arguments)


class _Rows:
    """A row of keys and the row of their positions."""

    def __init__(self, keys: IRValue, order: IRValue) -> None:
        self.keys = keys
        self.order = order


class _Sorter:
    def __init__(self, b: FunctionBuilder, dtype: DType) -> None:
        self.b = b
        self.dtype = dtype
        self.type = memory_type(dtype)

    def write(self) -> None:
        b = self.b
        radix, merges = b.label("radix"), b.label("merges")
        long_row = RadixSort(b, self.dtype)
        b.cond_br(b.icmp("sge", b.params[4], b.const(I64, RADIX_FROM)), radix, merges)
        b.block(radix)
        long_row.write()
        b.ret()
        b.block(merges)
        self.merge_sort()

    def merge_sort(self) -> None:
        b = self.b
        source, values, order, stride, extent, work, work_order = b.params
        whole = (b.const(I64, 0), extent)

        def insert_run(start: IRValue, _: list[IRValue]) -> list[IRValue]:
            self.insert_run(source, stride, start, self.least(start, RUN, extent), first)
            return []

        first = _Rows(work, work_order)
        counted(b, "run", whole, RUN, (), insert_run)
        second = _Rows(b.gep(work, extent, self.type), b.gep(work_order, extent, I64))
        merged = self.merge_runs(extent, first, second)

        def copy_out(k: IRValue, _: list[IRValue]) -> list[IRValue]:
            at = b.binary("mul", k, stride)
            self.put(values, at, self.get(merged.keys, k, self.type))
            self.put(order, at, self.get(merged.order, k, I64))
            return []

        counted(b, "copy", whole, 1, (), copy_out)
        b.ret()

    def get(self, row: IRValue, at: IRValue, type_: IRType) -> IRValue:
        return self.b.load(type_, self.b.gep(row, at, type_), type_.bits // 8)

    def put(self, row: IRValue, at: IRValue, value: IRValue) -> None:
        self.b.store(value, self.b.gep(row, at, value.type), value.type.bits // 8)

    def least(self, start: IRValue, count: int | IRValue, extent: IRValue) -> IRValue:
        """min(start + count, extent)."""
        count = self.b.const(I64, count) if isinstance(count, int) else count
        return self.b.intrinsic("llvm.smin", I64, [self.b.binary("add", start, count), extent])

    def less(self, x: IRValue, y: IRValue) -> IRValue:
        """Does x come before y? False where they are equal."""
        b = self.b
        if not self.dtype.is_float:
            return b.icmp("slt" if self.dtype.is_signed else "ult", x, y)
        only_y_is_nan = b.binary("and", b.fcmp("ord", x, x), b.fcmp("uno", y, y))
        return b.binary("or", b.fcmp("olt", x, y), only_y_is_nan)

    def insert_run(
        self, source: IRValue, stride: IRValue, start: IRValue, stop: IRValue, to: _Rows
    ) -> None:
        """Sort source[start..stop-1] into the same places of `to`."""
        b = self.b

        def insert(i: IRValue, _: list[IRValue]) -> list[IRValue]:
            key = self.get(source, b.binary("mul", i, stride), self.type)
            place = self.shift_greater(key, i, start, to)
            self.put(to.keys, place, key)
            self.put(to.order, place, i)
            return []

        counted(b, "insert", (start, stop), 1, (), insert, (1, None))

    def shift_greater(self, key: IRValue, i: IRValue, start: IRValue, rows: _Rows) -> IRValue:
        """Move the keys before i that are greater than `key` up by one; gives the place left."""
        b = self.b
        test, look, move, done = (
            b.label(f"shift.{part}") for part in ("test", "look", "up", "out")
        )
        before = b.current
        b.block(test)
        place = b.phi(I64, [(i, before)])
        b.cond_br(b.icmp("sgt", place, start), look, done)
        b.block(look)
        below = b.binary("sub", place, b.const(I64, 1))
        other = self.get(rows.keys, below, self.type)
        b.cond_br(self.less(key, other), move, done)
        b.block(move)
        self.put(rows.keys, place, other)
        self.put(rows.order, place, self.get(rows.order, below, I64))
        b.add_incoming(place, below, b.current)
        b.br(test)
        b.block(done)
        return place

    def merge_runs(self, extent: IRValue, first: _Rows, second: _Rows) -> _Rows:
        """Merge sorted runs, doubling their width, until one is left; gives where it lies."""
        b = self.b
        test, body, done = (b.label(f"merge.{part}") for part in ("test", "pass", "out"))
        before = b.current
        b.block(test)
        width = b.phi(I64, [(b.const(I64, RUN), before)])
        starts = (first.keys, first.order, second.keys, second.order)
        rows = [b.phi(PTR, [(row, before)]) for row in starts]
        b.cond_br(b.icmp("slt", width, extent), body, done)
        b.block(body)
        source, to = _Rows(*rows[:2]), _Rows(*rows[2:])
        doubled = b.binary("shl", width, b.const(I64, 1))

        def merge(low: IRValue, _: list[IRValue]) -> list[IRValue]:
            middle = self.least(low, width, extent)
            self.merge_pair(source, to, (low, middle, self.least(low, doubled, extent)))
            return []

        counted(b, "pair", (b.const(I64, 0), extent), doubled, (), merge, (1, None))
        for phi, value in zip((width, *rows), (doubled, *rows[2:], *rows[:2]), strict=True):
            b.add_incoming(phi, value, b.current)
        b.br(test)
        b.block(done)
        return source

    def merge_pair(
        self, source: _Rows, to: _Rows, bounds: tuple[IRValue, IRValue, IRValue]
    ) -> None:
        """Merge source[low..middle-1] and source[middle..high-1]; of equals the left goes first."""
        b = self.b
        low, middle, high = bounds

        def take(k: IRValue, heads: list[IRValue]) -> list[IRValue]:
            left, right = heads
            left_over = b.icmp("sge", left, middle)
            right_over = b.icmp("sge", right, high)
            # Past its end a side is not read: the other's head stands in.
            at_left, at_right = b.select(left_over, right, left), b.select(right_over, left, right)
            x, y = (self.get(source.keys, at, self.type) for at in (at_left, at_right))
            chosen = b.select(right_over, b.const(I1, False), self.less(y, x))
            chosen = b.select(left_over, b.const(I1, True), chosen)
            self.put(to.keys, k, b.select(chosen, y, x))
            self.put(to.order, k, self.get(source.order, b.select(chosen, right, left), I64))
            one = b.cast("zext", chosen, I64)
            return [
                b.binary("add", left, b.binary("sub", b.const(I64, 1), one)),
                b.binary("add", right, one),
            ]

        counted(b, "take", (low, high), 1, (low, middle), take, (1, None))
