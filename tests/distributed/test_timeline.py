"""The predicted step of a launch list: kernels one after another, collectives beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from luminal.base.costs import Link
from luminal.base.dtypes import float32
from luminal.hlir.attributes import CollectiveAttrs
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Phase,
)
from luminal.runtime.report import COLLECTIVE, KernelRow
from luminal.runtime.timeline import Step, predicted
from luminal.shape.expression import const

LINK = Link(0.5, 8.0)
SIZE = 4  # elements: two ranks exchange half of 16 bytes in 0.5 + 8 / 8 seconds


def sends(phase: Phase, ticket: int = 0) -> CollectiveLaunch:
    """An end of an exchange of two ranks that takes 1.5 seconds."""
    attrs = CollectiveAttrs("all_to_all", "data", 2)
    sizes = (const(SIZE), const(SIZE))
    return CollectiveLaunch(attrs, float32, (Operand(0), Operand(1)), sizes, "w", phase, ticket)


COMPUTES = KernelLaunch(0, (), (), const(1), "k")


def step(launches: Sequence[Launch], *seconds: float | None) -> Step:
    """The prediction for launches whose sites have taken so long; None: a collective."""
    rows = [
        KernelRow("", 0 if taken is not None else COLLECTIVE, 1, 1, 0, 0, taken or 9.0)
        for taken in seconds
    ]
    return predicted(launches, rows, {}, {"data": LINK})


def test_what_runs_between_a_start_and_its_wait_is_hidden() -> None:
    took = step((COMPUTES, sends("start"), COMPUTES, sends("wait"), COMPUTES), 1, None, 1, None, 2)
    assert took == Step(1 + 1.5 + 2, 4.0, 1.5)
    assert took.hidden == pytest.approx(1 / 1.5)


def test_a_collective_that_is_waited_for_at_once_hides_nothing() -> None:
    took = step((COMPUTES, sends("both"), COMPUTES), 1, None, 2)
    assert took == Step(4.5, 3.0, 1.5)
    assert took.hidden == 0


def test_collectives_follow_one_another_on_their_link() -> None:
    launches = (
        sends("start", 1), sends("start", 2), COMPUTES, sends("wait", 1), COMPUTES,
        sends("wait", 2),
    )  # fmt: skip
    assert step(launches, None, None, 1, None, 0.25, None).seconds == 3.0


def test_each_trip_of_a_loop_has_its_share_of_a_site() -> None:
    body = (sends("start"), COMPUTES, sends("wait"))
    took = step((LoopLaunch(const(3), body), COMPUTES), None, 6, None, 1)
    assert took == Step(3 * 2 + 1, 7.0, 4.5)
    assert took.hidden == 1


def test_a_loop_in_a_loop_and_one_without_trips() -> None:
    inner = LoopLaunch(const(2), (COMPUTES, sends("both")))
    took = step((LoopLaunch(const(3), (inner,)), LoopLaunch(const(0), (COMPUTES,))), 6, None, 0)
    assert took == Step(6 + 6 * 1.5, 6.0, 9.0)
