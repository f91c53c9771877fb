"""How the test files of the families check a row."""

from __future__ import annotations

from tests.conformance.cells import failures
from tests.conformance.rows import Row


def check(row: Row, backend: str = "cpu") -> None:
    """Every cell passes but those that `known` says fail; raises AssertionError that lists them."""
    found = failures(row, backend)
    lines = [f"{row.op} {cell}: {why}" for cell, why in found.items() if cell not in row.known]
    lines += [f"{row.op} {cell}: passes now; drop it from `known`"
              for cell in row.known if cell not in found]  # fmt: skip
    assert not lines, "\n".join([f"{len(lines)} of {len(row.cells())} cells fail", *lines])
