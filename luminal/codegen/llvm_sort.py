"""SortRow as LLVM IR, a function per key dtype: long rows by radix, short ones by rank."""

from __future__ import annotations

from luminal.codegen.llvm_builder import I64, PTR, VOID, FunctionBuilder, ModuleBuilder
from luminal.codegen.llvm_radix import RadixSort
from luminal.codegen.llvm_rank import RankSort
from luminal.codegen.llvm_values import Context
from luminal.dtypes import DType
from luminal.kernel.tile_ir import SortRow
from luminal.shape.expression import ZERO

RADIX_FROM = 256
"""Keys from which on clearing and summing 256 counters a byte costs less than all pairs do."""

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
        _write(FunctionBuilder(module, name, VOID, _PARAMS, linkage="internal"), dtype)

    name = ctx.b.module.helper(f"sort_{dtype}", build)
    rows = [statement.source, statement.values, statement.order]
    arguments = [ctx.pointer(row, statement.offset) for row in rows]
    arguments += [ctx.index.scalar(statement.stride), ctx.index.scalar(statement.extent)]
    arguments += [ctx.pointer(work, ZERO) for work in (statement.work, statement.work_order)]
    ctx.b.call(name, VOID, arguments)


def _write(b: FunctionBuilder, dtype: DType) -> None:
    extent = b.params[4]
    by_radix, by_rank = b.label("radix"), b.label("rank")
    long_row, short_row = RadixSort(b, dtype), RankSort(b, dtype, RADIX_FROM)
    b.cond_br(b.icmp("sge", extent, b.const(I64, RADIX_FROM)), by_radix, by_rank)
    for label, sort in ((by_radix, long_row), (by_rank, short_row)):
        b.block(label)
        sort.write()
        b.ret()
