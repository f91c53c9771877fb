"""Memory plans: buffers that live at one time share no bytes; Loops, epochs and gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.program.launch_list import Launch, LoopLaunch, Operand, Program
from luminal.program.memory_plan import Lifetime, MemoryPlan, place, plan
from luminal.program.memory_plan import conflicts as all_conflicts
from luminal.program.verify import verify_placement
from luminal.shape.expression import const
from tests.unit.program.launches import launch, program


def planned(made: Program) -> dict[int, Lifetime]:
    found = plan(made, made.launches)
    return dict(zip(found.buffers, found.lifetimes, strict=True))


def test_a_chain_needs_two_buffers_worth_of_memory() -> None:
    made = program(5, launch(0), *(launch(k, k + 1) for k in range(4)))
    found = plan(made, made.launches)
    placement = place(found, [64] * 5)
    assert placement.arena_bytes == 2 * 64
    verify_placement(made, made.launches, found, placement)


def test_launches_without_a_barrier_between_share_an_epoch() -> None:
    made = program(4, launch(0), launch(1), launch(0, 1, 2), launch(2, 3))
    lives = planned(made)
    assert lives[0] == lives[1] == Lifetime((), 0, 1)
    assert lives[2] == Lifetime((), 1, 2)
    # 0 is dead when 3 is written, one barrier later.
    assert not lives[0].overlaps(lives[3])


def test_what_a_body_writes_anew_lives_inside_it() -> None:
    # 0 is read by the body, 1 and 2 are its temporaries, 3 is carried (read before written).
    body = (launch(0, 3, 1), launch(1, 2), launch(2, 3))
    made = program(5, launch(0), launch(3), LoopLaunch(const(4), body), launch(3, 4))
    lives = planned(made)
    assert lives[1].loops == lives[2].loops != ()
    assert lives[0].loops == lives[3].loops == ()
    assert lives[0].overlaps(lives[1])
    assert lives[3].overlaps(lives[2])
    assert not lives[1].overlaps(lives[4])
    found = plan(made, made.launches)
    verify_placement(made, made.launches, found, place(found, [64] * 5))


def test_buffers_that_take_turns_live_through_the_loop() -> None:
    now, after = Operand(0, 1, const(0), 2), Operand(0, 1, const(1), 2)
    body = (launch(now, 2), launch(2, after))
    made = program(3, launch(0), LoopLaunch(const(4), body))
    lives = planned(made)
    assert lives[1].loops == ()
    assert lives[1].overlaps(lives[2])


def test_bodies_of_two_loops_share_memory() -> None:
    one = LoopLaunch(const(2), (launch(0, 1), launch(1, 2)))
    other = LoopLaunch(const(2), (launch(2, 3), launch(3, 4)))
    made = program(5, launch(0), one, other)
    lives = planned(made)
    assert not lives[1].overlaps(lives[3])


def test_an_update_keeps_its_buffer_from_iteration_to_iteration() -> None:
    made = program(2, launch(0), LoopLaunch(const(3), (launch(0, update=True), launch(0, 1))))
    assert planned(made)[0] == Lifetime((), 0, 1)


def test_lifetimes_count_barriers_and_loops() -> None:
    loop = LoopLaunch(const(2), (launch(0, 1), launch(1, 2), launch(2, 3)))
    made = program(8, launch(0), loop, launch(3, 4), launch(5), launch(4, 6), launch(7), launch(7))
    assert planned(made) == {
        0: Lifetime((), 0, 1),
        1: Lifetime((1,), 0, 1),
        2: Lifetime((1,), 1, 2),
        3: Lifetime((), 1, 2),  # the Loop is an epoch, and it ends with a barrier
        4: Lifetime((), 2, 3),
        5: Lifetime((), 2, 2),
        6: Lifetime((), 3, 3),
        7: Lifetime((), 3, 4),
    }


def test_what_several_inner_loops_touch_lives_in_the_body_around_them() -> None:
    one = LoopLaunch(const(2), (launch(0, 1), launch(1, 2)))
    other = LoopLaunch(const(2), (launch(2, 3), launch(3, 4)))
    outer = LoopLaunch(const(2), (one, other, launch(4, 5)))
    lives = planned(program(7, launch(0), outer, launch(5, 6)))
    assert lives[0] == Lifetime((), 0, 1)
    assert lives[1] == Lifetime((1, 0), 0, 1)
    assert lives[2] == Lifetime((1,), 0, 1)
    assert lives[3] == Lifetime((1, 1), 0, 1)
    assert lives[4] == Lifetime((1,), 1, 2)
    assert lives[5] == Lifetime((), 1, 2)


def test_a_buffer_of_two_loops_side_by_side_belongs_to_neither() -> None:
    one = LoopLaunch(const(2), (launch(0, 1),))
    other = LoopLaunch(const(2), (launch(1, 2),))
    assert planned(program(3, launch(0), one, other))[1] == Lifetime((), 1, 2)


def test_what_moves_with_a_loop_lives_through_it() -> None:
    """Other iterations need it, though each one writes before it reads."""
    now, after = Operand(1, 1, const(0), 2), Operand(1, 1, const(1), 2)
    turns = LoopLaunch(const(4), (launch(0, after), launch(now, 3)))
    lives = planned(program(4, launch(0), turns))
    assert lives[1] == lives[2] == Lifetime((), 1, 1)
    here = Operand(1, 1, stride=const(64))
    stack = LoopLaunch(const(4), (launch(0, here), launch(here, 2)))
    assert planned(program(3, launch(0), stack))[1] == Lifetime((), 1, 1)


def test_what_a_body_reads_before_it_writes_lives_through_the_loop() -> None:
    made = program(4, launch(0), LoopLaunch(const(4), (launch(1, 2), launch(2, 1), launch(0, 3))))
    lives = planned(made)
    assert lives[1] == Lifetime((), 1, 1)
    assert lives[2].loops == (1,)


# --- places ---------------------------------------------------------------------------------------


def placed(lives: list[tuple[int, int]], sizes: list[int]) -> tuple[list[int], int]:
    """Offsets in lines of 64 bytes, and their number."""
    lifetimes = tuple(Lifetime((), first, last) for first, last in lives)
    found = MemoryPlan(tuple(range(len(lives))), lifetimes, all_conflicts(lifetimes))
    placement = place(found, [64 * size for size in sizes])
    return [offset // 64 for offset in placement.offsets], placement.arena_bytes // 64


def test_the_largest_comes_first() -> None:
    assert placed([(0, 1), (1, 2), (2, 3)], [2, 2, 4]) == ([0, 4, 0], 6)


def test_sizes_of_more_than_64_bits_are_placed_exactly() -> None:
    huge = 2**80 + 1  # lines at the upper ends of dims without bounds
    expected = [0, 2 * huge, huge], 2 * huge + 1
    assert placed([(0, 9), (0, 9), (0, 9)], [huge, 1, huge]) == expected


def test_equals_come_in_their_order() -> None:
    assert placed([(0, 9), (0, 9), (0, 9)], [2, 2, 2]) == ([0, 2, 4], 6)


@pytest.mark.parametrize(
    ("size", "offset"), [(1, 25), (6, 25), (7, 9), (8, 9)], ids=["small", "exact", "next", "large"]
)
def test_the_smallest_gap_that_holds_a_buffer_is_taken(size: int, offset: int) -> None:
    """In epoch 0, between lines 0..9, 17..25 and 31..39, which are taken."""
    lives = [(5, 5), (0, 1), (1, 1), (0, 1), (0, 5)]
    sizes = [31, 9, 8, 8, 8]
    assert placed(lives, sizes)[0] == [0, 0, 9, 17, 31]
    assert placed([*lives, (0, 0)], [*sizes, size])[0][-1] == offset


def test_of_equal_gaps_the_first_is_taken() -> None:
    taken, free = (0, 1), (1, 1)
    lives, sizes = [taken, free, taken, free, taken], [9, 8, 8, 8, 8]
    assert placed(lives, sizes)[0] == [0, 9, 17, 25, 33]
    assert placed([*lives, (0, 0)], [*sizes, 7])[0][-1] == 9


def test_a_buffer_that_spans_others_closes_gaps() -> None:
    """[0, 9) is taken by one of epoch 0; what lies in it of other epochs leaves no gap before 9."""
    assert placed([(0, 0), (1, 1), (0, 1)], [9, 4, 3]) == ([0, 0, 9], 12)


@st.composite
def bodies(draw: st.DrawFn, written: list[int], fresh: list[int], depth: int) -> list[Launch]:
    """Launches that read what is written and write fresh or known buffers; Loops inside."""
    launches: list[Launch] = []
    written = list(written)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["make", "step", "step", "join", "update", "loop"]))
        if kind == "loop" and depth < 2:
            body = draw(bodies(written, fresh, depth + 1))
            launches.append(LoopLaunch(const(2), tuple(body)))
            continue
        if kind == "update" and written:
            launches.append(launch(draw(st.sampled_from(written)), update=True))
            continue
        reads = {"make": 0, "step": 1, "join": 2}.get(kind, 0) if written else 0
        sources = [draw(st.sampled_from(written)) for _ in range(reads)]
        targets = [b for b in written if b not in sources]
        if fresh and (not targets or draw(st.booleans())):
            target = fresh.pop()
        elif targets:
            target = draw(st.sampled_from(targets))
        else:
            continue
        launches.append(launch(*sources, target))
        written.append(target)
    return launches


@given(st.data())
@settings(max_examples=150)
def test_random_launch_lists_are_placed_soundly(data: st.DataObject) -> None:
    fresh = list(range(24))
    made = program(24, *data.draw(bodies([], fresh, 0)))
    found = plan(made, made.launches)
    sizes = [data.draw(st.integers(0, 400)) for _ in found.buffers]
    verify_placement(made, made.launches, found, place(found, sizes))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(0, 1000)), max_size=25)
)
def test_no_two_live_buffers_overlap_in_bytes(intervals: list[tuple[int, int, int]]) -> None:
    lives = tuple(Lifetime((), first, first + length) for first, length, _ in intervals)
    sizes = [size for _, _, size in intervals]
    conflicts = np.array([[a.overlaps(b) for b in lives] for a in lives], np.bool_)
    np.testing.assert_array_equal(all_conflicts(lives), conflicts.reshape(len(lives), len(lives)))
    found = MemoryPlan(tuple(range(len(lives))), lives, conflicts.reshape(len(lives), len(lives)))
    placement = place(found, sizes)
    for a, (start, size) in enumerate(zip(placement.offsets, sizes, strict=True)):
        assert start % 64 == 0
        assert start + size <= placement.arena_bytes
        for b in range(a):
            other = placement.offsets[b]
            apart = start + size <= other or other + sizes[b] <= start
            assert apart or not lives[a].overlaps(lives[b])
    # Never worse than one after the other.
    assert placement.arena_bytes <= sum(-(-size // 64) * 64 for size in sizes)
