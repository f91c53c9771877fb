"""A kernel of tile IR that sums rows."""

from __future__ import annotations

import numpy as np

from luminal.base import dtypes
from luminal.kernel.tile_ir import (
    Buffer,
    Carry,
    Grid,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Reduce,
    Role,
    Store,
    Tile,
)
from luminal.shape.expression import axis, const, symbol

F32, I64, BOOL, U8 = dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.uint8
N = symbol("n", 0, 1000)
ROW, J = axis("row", 4), axis("j", N)
ZERO_TILE = Tile(0, (), F32)
INNER, NEXT, RESULT = Tile(1, (J,), F32), Tile(3, (J,), F32), Tile(4, (J,), F32)
READ, TOTAL = Tile(2, (J,), F32), Tile(5, (), F32)


def row_sum() -> Kernel:
    """y[row] = the sum of x[row, :], with 2 vectors of 8 partial sums."""
    body = (
        Load(READ, "x", ROW * N + J),
        Map(NEXT, "Add", (INNER, READ)),
    )
    carry = Carry(RESULT, ZERO_TILE, INNER, NEXT)
    return Kernel(
        params=(N,),
        buffers=(
            Buffer("x", F32, N * 4),
            Buffer("y", F32, const(4), role=Role.OUT),
        ),
        scratch=(),
        grid=(Grid(ROW, const(4)),),
        body=(
            Literal(ZERO_TILE, np.float32(0).tobytes()),
            Loop(J, const(0), N, body, (carry,), unroll=2, vector=8),
            Reduce(TOTAL, "Add", RESULT, J),
            Store("y", ROW, TOTAL),
        ),
    )
