"""Every op on the interpreted device, near the reference; no access leaves its buffer."""

from __future__ import annotations

import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from tests.backends import op_table
from tests.backends.interpreted.devices import compiled

SAMPLE = (op_table.memory, op_table.leaves, op_table.loops)


def test_a_sample_agrees_with_the_reference() -> None:
    op_table.check(compiled, dtypes.float32, SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_op_agrees_with_the_reference(dtype: DType) -> None:
    op_table.check(compiled, dtype)
