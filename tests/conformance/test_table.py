"""The table as a whole: its size, its document, and that a wrong op would be found."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conformance import table
from tests.conformance.cells import failures
from tests.conformance.check_row import SHARES, share
from tests.conformance.rows import by_torch, pointwise, unary


def test_the_table_is_large_and_names_are_unique() -> None:
    assert sum(len(row.cells()) for row in table.ROWS) >= 3000
    names = [row.op for row in table.ROWS]
    assert sorted(set(names)) == sorted(names)


def test_the_document_is_up_to_date(update_golden: bool) -> None:
    if update_golden:
        table.DOCUMENT.write_text(table.document())
    assert table.DOCUMENT.read_text() == table.document(), "run pytest with --update-golden"


def test_a_row_names_what_it_is_tested_against() -> None:
    named = {
        "numpy.exp": np.exp,
        "numpy expression": lambda x: x,
        "torch.frac": by_torch(torch.frac),
        "torch.nn.functional.relu6": by_torch(torch.nn.functional.relu6),
        "torch expression": by_torch(lambda x: 2 * torch.tanh(x / 2)),
    }
    for name, expected in named.items():
        assert unary("op", expected).against == name


def test_known_failures_are_of_the_table() -> None:
    for row in table.ROWS:
        assert set(row.known) <= {" ".join(cell) for cell in row.cells()}, row.op


def test_shares_hold_every_cell_once_and_two_of_them_some_of_every_dtype() -> None:
    for row in table.ROWS:
        shares = [share(row, number) for number in range(SHARES)]
        assert sorted(itertools.chain(*shares)) == sorted(row.cells()), row.op
    exp = unary("exp", np.exp)
    for number in range(7):
        both = [*share(exp, number), *share(exp, number + 7)]
        assert {dtype for dtype, _ in both} == set(exp.dtypes)


def test_wrong_values_are_found_in_every_cell() -> None:
    right = unary("exp", np.exp)
    wrong = replace(right, expected=lambda x: np.exp(x) * (1 + 2.0**-6))
    full = {" ".join(cell) for cell in right.cells() if cell[1] != "empty"}
    assert not failures(right, right.cells())
    assert set(failures(wrong, wrong.cells())) == full


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (lambda x, y: (x < y).astype(np.int8), "dtype bool, expected int8"),
        (lambda x, y: (x < y)[..., None], "shape"),
        (lambda x, y: x <= y, "differ"),
        (lambda x, y: (x < y, x > y), "1 results, not 2"),
    ],
)
def test_wrong_kinds_are_found(expected: object, text: str) -> None:
    row = pointwise("lt", expected, (0, 2), (0, 2), dtypes=("int32",), against="a lie")  # type: ignore[arg-type]
    found = failures(row, row.cells())
    assert "int32 odd" in found
    assert all(text in why for why in found.values())


def test_a_missing_op_names_its_cells() -> None:
    row = unary("no_such_op", np.exp, dtypes=("float32",))
    found = failures(row, row.cells())
    assert len(found) == 7
    assert "no_such_op" in found["float32 odd"]
