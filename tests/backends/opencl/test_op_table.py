"""Every op of HLIR's table on OpenCL: see op_table.py."""

from __future__ import annotations

import pytest

from luminal import dtypes
from luminal.dtypes import DType
from tests.backends import op_table
from tests.backends.opencl.devices import compiled

SAMPLE = (op_table.leaves, op_table.loops)


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int8, dtypes.bool_], ids=str
)
def test_a_sample_agrees_with_the_reference(dtype: DType) -> None:
    op_table.check(compiled, dtype, SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_op_agrees_with_the_reference(dtype: DType) -> None:
    op_table.check(compiled, dtype)
