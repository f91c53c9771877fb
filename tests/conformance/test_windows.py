"""Every row of rows_windows: see cells.py."""

from __future__ import annotations

import pytest

from tests.conformance.check_row import check, check_share
from tests.conformance.rows import Row
from tests.conformance.rows_windows import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_row(row: Row) -> None:
    check_share(row)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_all_of_row(row: Row) -> None:
    check(row)
