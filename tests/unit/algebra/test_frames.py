"""What is known of extents before a run: the most positions, and that there is one."""

from __future__ import annotations

import pytest

from luminal.algebra.frames import UNBOUNDED, is_never_empty, most, upper
from luminal.shape.expression import MAX_DIM, Expression, axis, const, maximum, opaque, symbol

N = symbol("n", 0, 12)
EXTENTS = [
    pytest.param(const(7), 7, id="literal"),
    pytest.param(const(0), 1, id="none"),
    pytest.param(N, 12, id="dim"),
    pytest.param(N * 5 + 1, 61, id="of-a-dim"),
    pytest.param(N // 5, 2, id="part-of-a-dim"),
    pytest.param(symbol("m"), MAX_DIM, id="any-dim"),
    pytest.param(opaque("v"), UNBOUNDED, id="unbounded"),
    pytest.param(maximum(opaque("v"), 3), UNBOUNDED, id="bounded-below-only"),
]


@pytest.mark.parametrize(("extent", "positions"), EXTENTS)
def test_most_positions_of_an_extent(extent: Expression, positions: int) -> None:
    assert most(extent) == positions
    assert upper([axis("a", extent), axis("b", 3)]) == 3 * positions


def test_no_axes_have_one_point() -> None:
    assert upper([]) == 1


def test_what_nothing_bounds_is_larger_than_any_dim() -> None:
    assert UNBOUNDED > MAX_DIM


def test_an_axis_that_may_be_empty() -> None:
    extents = (const(0), const(1), N, N + 1, opaque("v"))
    assert [is_never_empty(axis("a", extent)) for extent in extents] == [
        False, True, False, True, False,
    ]  # fmt: skip
