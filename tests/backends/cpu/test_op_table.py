"""Every op of HLIR's table on the CPU: see op_table.py."""

from __future__ import annotations

import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from tests.backends.op_table import check
from tests.fuzz.cpu_run import compiled

RARE = (  # long: their neighbours stand for them
    dtypes.float64, dtypes.float16, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint16,
    dtypes.uint32, dtypes.uint64,
)  # fmt: skip


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=pytest.mark.long if d in RARE else ()) for d in dtypes.ALL],
    ids=str,
)
def test_every_op_agrees_with_the_reference(dtype: DType) -> None:
    check(lambda graph: compiled(graph)[0], dtype)
