"""What kernels of groups may choose from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from luminal.schedule.groups import nests
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.products import ProductChoices


@pytest.mark.parametrize(("most", "lanes"), [(16, {4, 8, 16}), (8, {4, 8})])
def test_groups_have_half_the_usual_lanes_as_many_or_twice(most: int, lanes: set[int]) -> None:
    groups = Groups(lanes=8, most=most, shared_bytes=0, is_rule=True)
    nothing: Any = None  # no product is asked
    shapes = [*ProductChoices(nothing, nothing, groups).arrangements()]
    assert {down * across for down, across in shapes} == lanes
    assert {(1, 8), (2, 4), (4, 2), (8, 1)} <= {*shapes}


@pytest.mark.parametrize("longest", [4, 16])
def test_a_lane_has_any_power_of_two_of_neighbours_up_to_the_longest(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nests, "longest_run", lambda loop, accesses: longest)
    facts: Any = SimpleNamespace(accesses=(), grid=())
    choices: Any = SimpleNamespace(pick=None)
    loop: Any = SimpleNamespace(estimate=1 << 20)
    rule, runs = nests._Rules(facts, choices, 32, False).runs(loop)
    assert rule == longest
    assert [*runs] == [n for n in (1, 2, 4, 8, 16) if n <= longest]
