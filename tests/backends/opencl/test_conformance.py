"""The table of conformance on OpenCL: see tests/conformance."""

from __future__ import annotations

import pytest

from tests.backends.opencl import devices  # noqa: F401  skips where there is none
from tests.conformance.check_row import check
from tests.conformance.rows import Row
from tests.conformance.table import ROWS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_row(row: Row) -> None:
    check(row, "opencl")
