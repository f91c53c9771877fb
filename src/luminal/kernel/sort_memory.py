"""What a kernel that sorts rows needs of working memory."""

from __future__ import annotations

from dataclasses import replace

from luminal.base.dtypes import DType, dtype_of, int32, int64
from luminal.kernel.tile_ir import Buffer, Kernel, Role, SortRow, Space
from luminal.shape.expression import Expression, const

LANES = 16
"""Keys that one is compared with at a time, where there are vectors."""
BUCKETS = 256
COUNTS = "sort_counts"


def order_dtype(extent: Expression) -> DType:
    """What the positions of a row are moved as: half of an i64 where that holds them."""
    return int32 if extent.interval.at_most(2**31 - 1) else int64


def key_dtype(dtype: DType) -> DType:
    """What keys are sorted as."""
    return dtype_of(f"uint{dtype.bits}")


def working_memory(kernel: Kernel) -> tuple[Buffer, ...]:
    """The scratch memory of a kernel: what it sorts in holds keys as integers, and a vector more,
    and there is a counter for each value of each byte of a key.
    """
    scratch = {buffer.name: buffer for buffer in kernel.scratch}
    works = [scratch[s.work] for s in kernel.statements() if isinstance(s, SortRow)]
    if works:
        for work in works:
            keys = replace(work, dtype=key_dtype(work.dtype), size=work.size + LANES)
            scratch[work.name] = keys
        counters = const(max(work.dtype.size for work in works) * BUCKETS)
        scratch[COUNTS] = Buffer(COUNTS, int64, counters, Space.SCRATCH, Role.INOUT)
    return tuple(scratch.values())
