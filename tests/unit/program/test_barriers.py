"""Where barriers stand in a launch list, by hand and against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.kernel.tile_ir import Role
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand, Program, barriers
from luminal.shape.expression import const
from tests.unit.program.launches import KERNELS, launch, program

COUNT = 4  # buffers


def update(buffer: int) -> KernelLaunch:
    return launch(buffer, update=True)


def flags(*launches: Launch) -> tuple[bool, ...]:
    return barriers(program(COUNT, *launches), launches)


@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [
        (launch(0), launch(1), False),
        (launch(0), launch(0, 1), True),  # read after write
        (launch(0, 1), launch(0), True),  # write after read
        (launch(0, 1), launch(2, 0), True),
        (launch(0), launch(0), True),  # write after write
        (launch(0, 1), launch(0, 2), False),  # two readers
        (update(0), launch(0, 1), True),
        (launch(0, 1), update(0), True),
        (update(0), update(0), True),
        (update(0), update(1), False),
        (launch(0), update(0), True),
        (launch(0, 1), launch(2, 3), False),
    ],
)
def test_two_launches(first: KernelLaunch, second: KernelLaunch, needed: bool) -> None:
    assert flags(first, second) == (False, needed)


def test_a_barrier_clears_what_was_read_and_written() -> None:
    assert flags(launch(0, 1), launch(1, 2), launch(3, 0)) == (False, True, False)
    assert flags(launch(0), launch(0, 1), launch(0, 2)) == (False, True, False)


def test_launches_since_the_barrier_count_together() -> None:
    assert flags(launch(0), launch(1), launch(2), launch(0, 3)) == (False, False, False, True)
    assert flags(launch(0, 1), launch(2), launch(3), launch(0)) == (False, False, False, True)


def test_a_loop_touches_what_its_body_touches_and_ends_with_a_barrier() -> None:
    loop = LoopLaunch(const(2), (launch(0, 1),))
    assert flags(launch(0), loop) == (False, True)
    assert flags(launch(2), loop, launch(1, 0), launch(2, 3)) == (False, False, False, False)
    assert flags(launch(2, 1), loop) == (False, True)  # the body writes 1


def test_every_entry_of_a_moving_operand_is_touched() -> None:
    moving = Operand(1, 0, modulus=3)
    assert flags(launch(3), launch(moving, 0)) == (False, True)
    assert flags(launch(3, 0), launch(0, moving)) == (False, True)
    assert flags(launch(0), launch(moving, 0)) == (False, True)


steps = st.one_of(
    st.integers(0, 3).map(launch),
    st.integers(0, 3).map(update),
    st.permutations(range(COUNT)).flatmap(
        lambda order: st.integers(2, 3).map(lambda n: launch(*order[:n]))
    ),
)


@given(st.lists(st.one_of(steps, st.lists(steps, min_size=1, max_size=3)), max_size=8))
@settings(max_examples=100, derandomize=True)
def test_a_barrier_stands_where_an_order_matters(
    drawn: list[KernelLaunch | list[KernelLaunch]],
) -> None:
    launches = tuple(LoopLaunch(const(2), tuple(d)) if isinstance(d, list) else d for d in drawn)
    made = program(COUNT, *launches)
    since: list[Launch] = []
    for launch_, flag in zip(launches, barriers(made, launches), strict=True):
        assert flag == any(conflict(made, before, launch_) for before in since)
        since = [] if flag else since
        since = [] if isinstance(launch_, LoopLaunch) else [*since, launch_]


def conflict(made: Program, first: Launch, second: Launch) -> bool:
    """Do both touch a buffer that one of them writes?"""
    return any(
        a == b and not (first_role is second_role is Role.IN)
        for a, first_role in made.accesses(first)
        for b, second_role in made.accesses(second)
    )


def test_the_kernels_have_all_roles() -> None:
    assert {b.role for kernel in KERNELS for b in kernel.buffers} == set(Role)
