"""The table of conformance on each device that is here: see tests/conformance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.c_family.present import present
from tests.conformance.check_row import check
from tests.conformance.rows import Row
from tests.conformance.table import ROWS

pytestmark = pytest.mark.long
SERIAL = 8.0
"""Sums have a partial sum for each lane of a group here, some one in all; the CPU has dozens."""
HOST = "is a Python function, which runs on the host"


@pytest.mark.parametrize("name", present())
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_row(name: str, row: Row) -> None:
    if row.largest:
        row = replace(row, ulp=row.ulp * SERIAL)
    try:
        check(row, name)
    except AssertionError as error:
        _, *cells = str(error).splitlines()
        if cells and all(HOST in cell for cell in cells):
            pytest.skip(f"{row.op}: {HOST}")
        raise
