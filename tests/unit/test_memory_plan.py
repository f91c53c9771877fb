"""Memory plans: buffers that live at one time share no bytes; Loops, epochs and gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dtypes import float32
from luminal.kernel.tile_ir import Buffer as KernelBuffer
from luminal.kernel.tile_ir import Kernel, Role, Space
from luminal.program.buffers import Buffer, BufferKind
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand, Program
from luminal.program.memory_plan import Lifetime, MemoryPlan, place, plan
from luminal.program.memory_plan import conflicts as all_conflicts
from luminal.program.verify import verify_placement
from luminal.shape.expression import const

SIZE = const(16)  # elements: one cache line


def kernel(*roles: Role) -> Kernel:
    buffers = tuple(
        KernelBuffer(f"x{k}", float32, SIZE, Space.GLOBAL, role) for k, role in enumerate(roles)
    )
    return Kernel((), buffers, (), (), ())


KERNELS = (
    kernel(Role.OUT),
    kernel(Role.IN, Role.OUT),
    kernel(Role.IN, Role.IN, Role.OUT),
    kernel(Role.INOUT),
)


def launch(*buffers: int | Operand, update: bool = False) -> KernelLaunch:
    """The last buffer is written, the others are read."""
    operands = tuple(b if isinstance(b, Operand) else Operand(b) for b in buffers)
    return KernelLaunch(3 if update else len(operands) - 1, operands, (), const(1), "step")


def program(count: int, *launches: Launch) -> Program:
    """`count` arena buffers."""
    buffers = tuple(Buffer(k, BufferKind.ARENA, float32, (SIZE,)) for k in range(count))
    return Program((), (), buffers, tuple(range(count)), KERNELS, (), launches, (), ())


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
@settings(max_examples=300, deadline=None)
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
