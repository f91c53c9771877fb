"""The CPU's runner: memory that grows, placements that are kept, who runs alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device, frame, launch_ir, target, team
from luminal.backends.cpu.device import CpuRunner
from luminal.backends.cpu.launch_rows import LaunchRows
from luminal.base import config
from luminal.base.errors import CompileError, VerifyError
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand
from luminal.program.quantities import Quantities
from luminal.runtime import placements
from luminal.runtime.output_pool import block_bytes
from luminal.runtime.sites import Work
from luminal.shape.expression import const, symbol
from tests.backends.cpu.hand_programs import ProgramBuilder
from tests.backends.cpu.tile_builder import backwards

N, M = symbol("n", 0, 1 << 20), symbol("m", 0, 1 << 20)
CACHE_LINES = 128


def two_dims() -> CpuRunner:
    """t and u of sizes n and m live at one time."""
    p = ProgramBuilder(N, [N, M])
    x = p.buffer("input", "x")
    t, y = p.buffer("arena"), p.buffer("output", "y")
    made = p.launch("Add", x, x, t)
    q = ProgramBuilder(M, [N, M])
    q.buffers, q.kernels = p.buffers, p.kernels
    q.outputs = p.outputs
    u, z = q.buffer("arena"), q.buffer("output", "z")
    v = q.buffer("input", "v")
    launches = [made, q.launch("Add", v, v, u), p.launch("Add", t, t, y), q.launch("Add", u, u, z)]
    return CpuRunner(q.program(launches), target.current())


def values(runner: CpuRunner, **dims: int) -> tuple[int, ...]:
    return runner.quantities.evaluate(dims)


# --- placements -----------------------------------------------------------------------------------


def test_a_placement_holds_every_buffer() -> None:
    runner = two_dims()
    for n, m in ((1000, 10), (10, 1000), (1000, 1000), (0, 0), (1, 900)):
        placement = runner.placements.at(values(runner, n=n, m=m))
        assert all(have >= need for have, need in zip(placement.sizes, (4 * n, 4 * m), strict=True))
        first, second = placement.offsets
        assert first + 4 * n <= second or second + 4 * m <= first
        assert placement.arena_bytes >= max(first + 4 * n, second + 4 * m)


def test_a_placement_is_taken_again_unless_it_is_twice_too_big() -> None:
    runner = two_dims()
    large = runner.placements.at(values(runner, n=1000, m=1000))
    assert runner.placements.at(values(runner, n=1000, m=1000)) is large
    assert runner.placements.at(values(runner, n=900, m=700)) is large
    half = block_bytes(4 * 1000) // 8  # sizes that are exactly half of its
    assert block_bytes(4 * half) == 4 * half == large.sizes[0] // 2
    assert runner.placements.at(values(runner, n=half, m=half)) is large
    smaller = runner.placements.at(values(runner, n=half - 40, m=half))
    assert smaller is not large
    assert sum(smaller.sizes) < sum(large.sizes) / 2
    assert runner.placements.at(values(runner, n=1001 * 4, m=1)) is not large


def test_the_oldest_of_many_placements_is_forgotten() -> None:
    runner = two_dims()
    first = runner.placements.at(values(runner, n=1, m=1))
    for k in range(placements.MAX_PLACEMENTS - 1):
        runner.placements.at(values(runner, n=1000 << k % 8, m=3000 << k // 8))
    assert len(runner.placements._known) <= placements.MAX_PLACEMENTS
    assert runner.placements.at(values(runner, n=1, m=1)) is first
    for k in range(placements.MAX_PLACEMENTS + 1):
        runner.placements.at(values(runner, n=(1 << 19) - (k << 15), m=1 << 18))
    assert len(runner.placements._known) == placements.MAX_PLACEMENTS


def test_placements_are_verified_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(placements.verify, "verify_placement", lambda *given: asked.append(given))
    for flag in (False, True):
        with config.override(LUMINAL_VERIFY=flag):
            runner = two_dims()
            runner.placements.at(values(runner, n=5, m=5))
        assert len(asked) == flag


# --- memory ---------------------------------------------------------------------------------------


def test_memory_grows_and_every_change_is_seen() -> None:
    runner = two_dims()
    stamps = [runner.memory_stamp]
    for arena, scratch in ((64, 64), (128, 64), (128, 128), (256, 256), (512, 600)):
        runner.reserve(arena, scratch)
        assert runner.arena.nbytes == arena
        assert runner.scratch.nbytes == scratch
        stamps.append(runner.memory_stamp)
    assert len(set(stamps)) == len(stamps)
    kept = runner.arena, runner.scratch
    for arena, scratch in ((512, 600), (1, 1), (0, 0)):
        runner.reserve(arena, scratch)
        assert (runner.arena, runner.scratch) == kept
        assert runner.memory_stamp == stamps[-1]


def with_scratch(n: int = 64) -> CpuRunner:
    """y is x backwards, by way of an arena buffer and of scratch."""
    p = ProgramBuilder(n)
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    doubled = p.launch("Add", x, x, t)
    p.kernels.append(backwards("x", "y", n))
    turn = KernelLaunch(1, (Operand(t), Operand(y)), (), const(1), "turn")
    return CpuRunner(p.program([doubled, turn]), target.current())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_record_points_into_what_was_reserved(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uneven(shape: tuple[int, ...], dtype: lm.DType) -> np.ndarray:
        """Half-way between two pairs of cache lines."""
        raw = np.empty(shape[0] + 192, np.uint8)
        start = (64 - raw.ctypes.data) % 128
        return raw[start : start + shape[0]]

    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    monkeypatch.setattr(device, "aligned_empty", uneven)
    runner = with_scratch()
    bound = runner.bind({}, ["x"], ["y"])
    x, y = np.arange(64, dtype=np.float32), np.empty(64, np.float32)
    with config.override(LUMINAL_THREADS=threads):
        bound.run([x], [y])
    np.testing.assert_array_equal(y, 2 * x[::-1])
    (record,) = bound._frame._record
    assert record["max_threads"] == threads
    stride = int(record["scratch_stride"])
    assert stride % CACHE_LINES == int(record["scratch"]) % CACHE_LINES == 0
    assert stride >= 4 * 65
    inside(int(record["scratch"]), threads * stride, runner.scratch)
    (arena,) = [b.id for b in runner.program.buffers if b.kind.value == "arena"]
    inside(bound._frame.slots[arena], 4 * 64, runner.arena)


def inside(address: int, size: int, array: np.ndarray) -> None:
    first = array.ctypes.data
    assert first <= address
    assert address + size <= first + array.nbytes


def test_all_bindings_follow_memory_that_has_grown() -> None:
    """Runs in turns: the larger one gives both other memory."""
    runner = chain()
    (t,) = [b.id for b in runner.program.buffers if b.kind.value == "arena"]
    for order in (["y"], []):
        small = runner.bind({"n": 8}, ["x"], order)
        large = runner.bind({"n": 5000}, ["x"], order)
        for bound, n in ((small, 8), (large, 5000), (small, 8)):
            given = np.arange(n, dtype=np.float32)
            found = np.empty(n, np.float32)
            bound.run([given], [found][: len(order)])
            slots, start = bound._frame.slots, runner.arena.ctypes.data
            assert start <= slots[t] < start + max(1, runner.arena.nbytes)
            if order:
                np.testing.assert_array_equal(found, 2 * given * given)


def chain() -> CpuRunner:
    """y is 2 x squared, by way of the arena."""
    p = ProgramBuilder(N, [N])
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    program = p.program([p.launch("Add", x, x, t), p.launch("Mul", t, x, y)])
    return CpuRunner(program, target.current())


def test_a_run_that_is_ready_sees_memory_that_another_frame_made_grow() -> None:
    runner = chain()
    ready, larger = runner.bind({"n": 8}, ["x"], ["y"]), runner.bind({"n": 5000}, ["x"], [])
    given, found = np.arange(8, dtype=np.float32), np.empty(8, np.float32)
    ready.run([given], [found])
    before = runner.arena
    larger.run([np.ones(5000, np.float32)], [])
    assert runner.arena is not before
    before[:] = 255  # NaN, should it be read
    ready.run([given], [found])
    assert before.min() == 255
    np.testing.assert_array_equal(found, 2 * given * given)


def test_a_run_that_gets_no_memory_leaves_no_numbers_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = chain()
    small, large = (runner.bind({"n": n}, ["x"], ["y"]) for n in (8, 5000))
    given, found = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    small.run([given[:8]], [found[:8]])

    def refused(self: CpuRunner, arena_bytes: int, scratch_bytes: int) -> None:
        raise MemoryError("none")

    with monkeypatch.context() as patch:
        patch.setattr(CpuRunner, "reserve", refused)
        with pytest.raises(MemoryError, match="none"):
            large.run([np.ones(5000, np.float32)], [np.ones(5000, np.float32)])
    small.run([given[:8]], [found[:8]])
    np.testing.assert_array_equal(found[:8], 2 * given[:8] * given[:8])
    assert not found[8:].any()


# --- alone or with a team -------------------------------------------------------------------------


def work(flops: float, size: float, chunks: int = 64, trips: int = 1) -> Work:
    return Work(*(np.array([each], np.float64) for each in (flops, size, chunks, trips)))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CpuRunner:
    """On a machine of round numbers: 16 lanes, 32 MiB of cache, four threads."""
    made = two_dims()
    machine = made.target.__class__
    monkeypatch.setattr(machine, "vector_lanes", lambda self, size: 64 // size)
    monkeypatch.setattr(machine, "l3_bytes", 32 << 20, raising=False)
    monkeypatch.setattr(team, "team_size_default", lambda: 4)
    return made


LAUNCH = 1.024e-6  # seconds on that machine
# Seconds that three of four threads save: 3/4 of the time alone, less a launch.
ALONE = (50e-6 + LAUNCH) / 0.75


def test_a_team_is_worth_it_from_some_work_on(runner: CpuRunner) -> None:
    small, large = 0.98 * ALONE, 1.02 * ALONE
    for seconds, alone in ((small, True), (large, False)):
        for given in (
            work(seconds * 16e9, seconds * 16e9),  # elementwise
            work(seconds * 64e9, 1e3),  # 4 times as fast
            work(0, seconds * 40e9),  # in the cache
        ):
            assert (runner._saving(given) < device.TEAM_GAIN) == alone


def test_memory_is_slower_than_half_the_cache(runner: CpuRunner) -> None:
    size = 16 << 20
    cached, moved = (runner._saving(work(0, n, 2)) for n in (size - 1, size))
    assert cached == pytest.approx(size / 40e9 / 2 - LAUNCH)
    assert moved == pytest.approx(size / 10e9 / 2 - LAUNCH)


def test_what_a_team_saves(runner: CpuRunner) -> None:
    second = work(16e9, 2e9)  # 8 flops a byte: no contraction; 50 ms to move
    assert runner._saving(second) == pytest.approx(0.75 - LAUNCH)
    tile = work(16e9, 2e9 - 1)  # more than 8
    assert runner._saving(tile) == pytest.approx(0.25 * 0.75 - LAUNCH)
    for chunks, share in ((0, 0), (1, 0), (2, 1 / 2), (3, 2 / 3), (4, 3 / 4), (9, 3 / 4)):
        found = runner._saving(work(16e9, 2e9, chunks, trips=1000))
        assert found == pytest.approx(share - 1000 * LAUNCH)


def test_many_launches_save_together(runner: CpuRunner) -> None:
    each = work(0.5 * ALONE * 16e9, 0.5 * ALONE * 16e9)
    three = Work(*(np.concatenate([a, a, a]) for a in each))
    assert runner._saving(three) == pytest.approx(3 * runner._saving(each))


def test_dims_of_one_magnitude_are_estimated_once(
    runner: CpuRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def estimate(self: CpuRunner, given: Work) -> float:
        asked.append(given)
        return 7.0

    monkeypatch.setattr(CpuRunner, "_saving", estimate)
    for n in (64, 65, 127, 128, 100):
        assert runner.saving(values(runner, n=n, m=7), {"n": n, "m": 7}) == 7.0
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("saving", "threads", "wakes"), [(4e-6, 1, 0), (6e-6, 3, 0), (49e-6, 3, 0), (51e-6, 3, 1)]
)
def test_who_joins_follows_from_what_that_saves(
    saving: float, threads: int, wakes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuRunner, "_saving", lambda self, given: saving)
    bound = with_scratch().bind({}, ["x"], ["y"])
    with config.override(LUMINAL_THREADS=3):
        bound.run([np.ones(64, np.float32)], [np.empty(64, np.float32)])
    (record,) = bound._frame._record
    assert (record["max_threads"], record["wakes"]) == (threads, wakes)


# --- rows -----------------------------------------------------------------------------------------


def nested(depth: int) -> Launch:
    p = ProgramBuilder(64)
    launch: Launch = p.launch("Add", 0, 0, 1)
    for _ in range(depth):
        launch = LoopLaunch(const(1), (launch,))
    return launch


def rows(*launches: Launch) -> LaunchRows:
    p = ProgramBuilder(64)
    p.buffer("input", "x"), p.buffer("output", "y")
    p.launch("Add", 0, 0, 1)
    return LaunchRows(p.program(launches), launches, [0], Quantities(()))  # type: ignore[arg-type]


def test_loops_nest_as_deep_as_the_driver_counts() -> None:
    deepest = launch_ir.MAX_LOOP_DEPTH
    assert len(rows(nested(deepest))) == 2 * deepest + 1
    side_by_side = rows(nested(deepest), nested(deepest))
    assert len(side_by_side) == 2 * (2 * deepest + 1)
    with pytest.raises(CompileError, match=f"nest deeper than {deepest}"):
        rows(nested(deepest + 1))


def test_rows_are_verified_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise VerifyError("asked")

    monkeypatch.setattr(frame.team, "verify", refuse)
    x, y = np.ones(64, np.float32), np.ones(64, np.float32)
    with config.override(LUMINAL_VERIFY=True), pytest.raises(VerifyError, match="asked"):
        with_scratch().bind({}, ["x"], ["y"]).run([x], [y])
    with config.override(LUMINAL_VERIFY=False):
        with_scratch().bind({}, ["x"], ["y"]).run([x], [y])
