"""The launch-list driver: chunks, barriers, loops, slots, against a slow interpreter."""

from __future__ import annotations

import ctypes
import platform
import time

import numpy as np
import pytest

from luminal.backends.cpu import compiler, launch_ir, target, team
from luminal.base import config
from luminal.base.errors import VerifyError
from tests.backends.cpu.small_programs import (
    ADD,
    MIX,
    TAG,
    Prepared,
    Program,
    buffers,
    random_program,
)
from tests.backends.cpu.team_check import check

TEAMS = (1, 2, 4)


@pytest.mark.parametrize("threads", TEAMS)
@pytest.mark.parametrize("grid", [0, 1, 2, 3, 7, 1000])
def test_members_cover_the_grid_once(threads: int, grid: int) -> None:
    check(Program(1000, buffers(2, 1000)).launch(ADD, (0, 1, 0), grid), threads)


@pytest.mark.parametrize("threads", TEAMS)
def test_barrier_orders_dependent_kernels(threads: int) -> None:
    program = Program(64, buffers(3, 64))
    for _ in range(20):  # every MIX reads what all members have just written
        program.launch(ADD, (0, 1, 2), 64).launch(MIX, (2, 2, 0), 64)
    check(program, threads, runs=20)


@pytest.mark.parametrize("threads", TEAMS)
def test_serial_launch_runs_on_the_caller(threads: int) -> None:
    program = Program(100, buffers(3, 100)).launch(
        TAG, (0, 0, 2), 100, launch_ir.BARRIER | launch_ir.SERIAL
    )
    prepared = program.prepare(threads)
    prepared.run()
    np.testing.assert_array_equal(prepared.scratch[:, 0], [100] + [0] * (threads - 1))


def test_members_have_scratch_of_their_own() -> None:
    prepared = Program(101, buffers(3, 101)).launch(TAG, (0, 0, 2), 101).prepare(2)
    assert prepared.run() == 2
    tags = [tag for ran in prepared.scratch[:, 0] for tag in range(1, ran + 1)]
    assert sorted(prepared.program.buffers[2]) == sorted(tags)


@pytest.mark.parametrize("threads", TEAMS)
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_loop_with_carried_stream_and_list(threads: int, trips: int) -> None:
    n = 32
    xs = np.random.default_rng(1).integers(0, 9, 7 * n)
    carried, leaves = buffers(2, n, 2), buffers(7, n, 3)
    program = Program(n, [*carried, xs, *leaves])
    now, then = (0, 1, 0, 2, 0), (0, 1, 1, 2, 0)  # two buffers that change places
    program.loop(trips)
    program.launch(ADD, (now, (2, 1, 0, 1, 8 * n), then), n)
    program.launch(MIX, (then, then, (3, 1, 0, 7, 0)), n)
    program.end().launch(MIX, (trips % 2, 0, 3 + 6), n)
    check(program, threads)


@pytest.mark.parametrize("threads", TEAMS)
def test_loop_end_is_a_barrier(threads: int) -> None:
    program = Program(64, buffers(3, 64))
    program.loop(30).launch(MIX, (0, 0, 2), 64, flags=0).launch(ADD, (2, 1, 0), 64).end()
    program.launch(MIX, (0, 0, 2), 64, flags=0)  # after the loop's last iteration
    program.launch(MIX, (2, 2, 0), 64, launch_ir.BARRIER | launch_ir.SERIAL)
    program.loop(0).launch(ADD, (0, 0, 0), 64).end()
    program.launch(MIX, (0, 0, 1), 64, flags=0)  # after a loop of no trips
    check(program, threads, runs=10)


@pytest.mark.parametrize("threads", TEAMS)
def test_nested_loops(threads: int) -> None:
    n = 16
    program = Program(n, [*buffers(4, n), np.arange(6 * n)])
    program.loop(3).launch(ADD, (0, (4, 1, 0, 1, 16 * n), 1), n)
    program.loop(4).launch(MIX, ((0, 2, 1, 4, 0), (4, 1, 0, 1, 8 * n), (0, 2, 2, 4, 0)), n)
    program.loop(0).launch(ADD, (0, 0, 0), n).end()
    program.end().launch(MIX, ((0, 1, 2, 4, 0), 0, 3), n).end()
    program.launch(MIX, (3, 3, 0), n)
    check(program, threads, runs=3)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    program = random_program(seed)
    for threads in TEAMS:
        check(program, threads)


def test_deepest_loops() -> None:
    program = Program(4, buffers(3, 4))
    for _ in range(launch_ir.MAX_LOOP_DEPTH):
        program.loop(1)
    program.launch(ADD, ((0, launch_ir.MAX_LOOP_DEPTH, 0, 2, 0), 1, 2), 4)
    for _ in range(launch_ir.MAX_LOOP_DEPTH):
        program.end()
    check(program, 2)


def test_ten_thousand_runs() -> None:
    program = Program(8, [np.ones(8, np.int64), np.ones(8, np.int64), np.zeros(8, np.int64)])
    program.launch(ADD, (2, 0, 1), 8).launch(ADD, (0, 1, 2), 8)
    prepared = program.prepare(2)
    for _ in range(10_000):
        program.buffers[2][:] = 0
        assert prepared.run() == 2
        assert program.buffers[2][7] == 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the mode is set as x86 has it")
def test_subnormals_survive_a_callers_odd_mode() -> None:
    halve = """
    define void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
    entry:
      %p = load ptr, ptr %slots
      br label %head
    head:
      %i = phi i64 [%begin, %entry], [%i.next, %body]
      %more = icmp slt i64 %i, %end
      br i1 %more, label %body, label %exit
    body:
      %at = getelementptr float, ptr %p, i64 %i
      %x = load float, ptr %at
      %y = fmul float %x, 0.5
      store float %y, ptr %at
      %i.next = add i64 %i, 1
      br label %head
    exit:
      ret void
    }"""
    set_mode = """
    declare void @llvm.x86.sse.ldmxcsr(ptr)
    declare void @llvm.x86.sse.stmxcsr(ptr)
    define i32 @kernel(i32 %new) {
      %cell = alloca i32
      call void @llvm.x86.sse.stmxcsr(ptr %cell)
      %old = load i32, ptr %cell
      store i32 %new, ptr %cell
      call void @llvm.x86.sse.ldmxcsr(ptr %cell)
      ret i32 %old
    }"""
    native = target.current()
    kernel, mode_code = compiler.build(halve, native), compiler.build(set_mode, native)
    mode = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(mode_code.address)
    x = np.full(8, 2.0**-126, np.float32)
    table = np.array([x.ctypes.data], np.uint64)
    launches = np.array([(0, 0, kernel.address, 8, 1, 0, 0, 0)], launch_ir.LAUNCH)
    refs = np.array([(0, 0, 0, 1, 0, 0)], launch_ir.SLOT_REF)
    record = team.run_record(launches, refs, table, 2)
    flushing = 0x1F80 | 0x8040
    before = mode(flushing)
    team.execute(record.ctypes.data)
    after = mode(before)
    assert after & ~0x3F == flushing
    assert (x == np.float32(2.0**-127)).all()


def test_a_run_that_wakes_nobody_is_joined_in_a_loop_of_such_runs() -> None:
    prepared = Prepared(Program(64, buffers(3, 64)).launch(ADD, (0, 1, 2), 64), 2)

    def size_within(tries: int, pause: float, wanted: int) -> bool:
        for _ in range(tries):
            if pause:
                time.sleep(pause)
            if prepared.run() == wanted:
                return True
        return False

    assert prepared.run() == 2
    prepared.record["wakes"] = 0
    assert size_within(100, 0.01, 1)  # the worker sleeps, and nobody rouses it
    assert prepared.run() == 1
    assert size_within(1_000_000, 0, 2)  # it is roused for a later run
    assert size_within(100, 0.01, 1)


def test_team_size_default() -> None:
    with config.override(LUMINAL_THREADS=3):
        assert team.team_size_default() == 3
    with config.override(LUMINAL_THREADS=100_000):
        assert team.team_size_default() == 256
    with config.override(LUMINAL_THREADS=None):
        assert team.team_size_default() == target.detect().cores


@pytest.mark.parametrize(
    ("row", "field", "value", "message"),
    [
        (0, "kind", 7, "launch 0: no kind 7"),
        (2, "jump", 1, "launch 2: loop end and begin do not point at each other"),
        (1, "slot_start", 1, "launch 1: slots 1..4 of 3"),
    ],
)
def test_verify_rejects_launches(row: int, field: str, value: int, message: str) -> None:
    program = Program(4, buffers(3, 4)).loop(2).launch(ADD, (0, 1, 2), 4).end()
    launches = np.array(program.rows, launch_ir.LAUNCH)
    refs = np.array(program.refs, launch_ir.SLOT_REF)
    team.verify(launches, refs, 3)
    launches[row][field] = value
    with pytest.raises(VerifyError, match=message):
        team.verify(launches, refs, 3)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ((0, 2, 0, 1, 0), "slot of loop depth 2, 1 are open"),
        ((0, 1, 0, 0, 0), "needs a modulus >= 1"),
        ((2, 1, 0, 2, 0), "outside the table of 3"),
    ],
)
def test_verify_rejects_slots(ref: tuple[int, ...], message: str) -> None:
    program = Program(4, buffers(3, 4)).loop(2).launch(ADD, (0, ref, 2), 4).end()
    launches = np.array(program.rows, launch_ir.LAUNCH)
    with pytest.raises(VerifyError, match=message):
        team.verify(launches, np.array(program.refs, launch_ir.SLOT_REF), 3)


def test_verify_rejects_open_loop() -> None:
    program = Program(4, buffers(3, 4)).loop(2)
    with pytest.raises(VerifyError, match="launch 0: loop without an end"):
        team.verify(np.array(program.rows, launch_ir.LAUNCH), np.empty(0, launch_ir.SLOT_REF), 3)
