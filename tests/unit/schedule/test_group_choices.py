"""What products by groups may choose from."""

from __future__ import annotations

from typing import Any

import pytest

from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.products import ProductChoices


@pytest.mark.parametrize(("most", "lanes"), [(16, {4, 8, 16}), (8, {4, 8})])
def test_groups_have_half_the_usual_lanes_as_many_or_twice(most: int, lanes: set[int]) -> None:
    groups = Groups(lanes=8, most=most, shared_bytes=0, is_rule=True)
    nothing: Any = None  # no product is asked
    shapes = [*ProductChoices(nothing, nothing, groups).arrangements()]
    assert {down * across for down, across in shapes} == lanes
    assert {(1, 8), (2, 4), (4, 2), (8, 1)} <= {*shapes}
