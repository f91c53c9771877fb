"""Every row of rows_functions: see cells.py."""

from __future__ import annotations

import pytest

from tests.conformance.check_row import check, check_share
from tests.conformance.rows import Row
from tests.conformance.rows_functions import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_row(row: Row) -> None:
    check_share(row)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_all_of_row(row: Row) -> None:
    check(row)
