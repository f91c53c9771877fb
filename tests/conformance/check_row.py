"""How the test files of the families check a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from tests.conformance.cells import failures
from tests.conformance.rows import CLASSES, Row

SHARES = 14  # of a row's cells, one of which a day's short tests run


def check(row: Row, backend: str = "cpu") -> None:
    """Every cell passes but those that `known` says fail; raises AssertionError that lists them."""
    _check(row, row.cells(), backend)


def check_share(row: Row) -> None:
    """The same of today's share of the cells, on the CPU."""
    _check(row, share(row, date.today().toordinal() % SHARES), "cpu")


def share(row: Row, number: int) -> list[tuple[str, str]]:
    """One cell of every other dtype; so many shares hold each cell once, and two that are seven
    apart some of each dtype.
    """
    return [
        (dtype, kind)
        for dtype, kind in row.cells()
        if (8 * row.dtypes.index(dtype) + CLASSES.index(kind)) % SHARES == number
    ]


def _check(row: Row, cells: Sequence[tuple[str, str]], backend: str) -> None:
    found = failures(row, cells, backend)
    known = row.known.keys() & {" ".join(cell) for cell in cells}
    lines = [f"{row.op} {cell}: {why}" for cell, why in found.items() if cell not in known]
    lines += [f"{row.op} {cell}: passes now; drop it from `known`"
              for cell in sorted(known) if cell not in found]  # fmt: skip
    assert not lines, "\n".join([f"{len(lines)} of {len(cells)} cells fail", *lines])
