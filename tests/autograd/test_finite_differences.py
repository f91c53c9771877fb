"""Every op of the conformance table that takes floats, against central differences in float64."""

from __future__ import annotations

import pytest

import luminal as lm
from tests.autograd.differences import difference, is_differentiable
from tests.conformance.rows import Row, unary
from tests.conformance.table import FAMILIES
from tests.long_share import mostly_long

# Rows whose differences say nothing of the derivative.
UNLIKE = {
    "cast to float32": "differences of float32 are coarse",
    **dict.fromkeys(
        ("cast to float8_e4m3fn", "cast to float8_e5m2"), "those of eight bits are steps"
    ),
    "nanmean": "of nothing but NaN in a row, NaN",
    "hinge_embedding_loss": "the target is 1 or -1, and the loss jumps beside them",
}
CELLS = {
    ("tan", "dynamic"): "an element lies beside a pole",
    ("mean over 1", "empty"): "NaN of nothing",
}


def wrong(rows: list[Row], kind: str) -> list[str]:
    """A line for each row whose gradients differ in this shape class."""
    found = []
    for row in rows:
        known = row.op in UNLIKE or (row.op, kind) in CELLS
        if kind in row.shapes and is_differentiable(row) and not known:
            why = difference(row, kind)
            found += [f"{row.op} {kind}: {why}"] if why else []
    return found


IDS = {name: name.split()[0].strip(",:").lower() for name in FAMILIES}


@pytest.mark.parametrize("kind", mostly_long(["dynamic", "odd"], 1))
@pytest.mark.parametrize("family", FAMILIES, ids=IDS.get)
def test_gradients_are_the_limits_of_differences(family: str, kind: str) -> None:
    assert wrong(FAMILIES[family], kind) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["view", "broadcast", "0-d", "empty"])
@pytest.mark.parametrize("family", FAMILIES, ids=IDS.get)
def test_gradients_in_other_shapes(family: str, kind: str) -> None:
    assert wrong(FAMILIES[family], kind) == []


def test_the_table_has_most_ops() -> None:
    rows = [row for rows in FAMILIES.values() for row in rows if is_differentiable(row)]
    assert len({row.op for row in rows if "odd" in row.shapes}) >= 320


def test_a_wrong_derivative_is_named() -> None:
    lying = lm.custom_vjp(lambda x: x.exp(), lambda g, y, x: g * y * 1.001)
    (line,) = wrong([unary("lying", abs, call=lying)], "odd")
    assert line.startswith("lying odd: the derivative is ")
