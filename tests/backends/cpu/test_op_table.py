"""Every op of HLIR's table on the CPU: see op_table.py."""

from __future__ import annotations

import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from tests.backends.op_table import check
from tests.fuzz.cpu_run import compiled
from tests.long_share import long_but

OFTEN = dtypes.float32, dtypes.bool_
"""The short tests': the others are long, their neighbours stand for them."""


@pytest.mark.parametrize("dtype", long_but(dtypes.ALL, OFTEN), ids=str)
def test_every_op_agrees_with_the_reference(dtype: DType) -> None:
    check(lambda graph: compiled(graph)[0], dtype)
