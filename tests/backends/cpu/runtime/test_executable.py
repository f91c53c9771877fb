"""Executables over the CPU runner: hand-written Programs run, share, recycle."""

from __future__ import annotations

import gc
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device
from luminal.base import config
from luminal.program import memory_plan, verify
from luminal.program.launch_list import LoopLaunch, Operand
from luminal.program.launch_text import to_text
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder, executable, three_ops

ROWS = 5


def vectors(n: int, count: int = 3) -> list[np.ndarray]:
    return list(np.random.default_rng(3).standard_normal((count, n), np.float32))


def abc(n: int) -> dict[str, np.ndarray]:
    return dict(zip("abc", vectors(n), strict=True))


def wanted(x: dict[str, np.ndarray]) -> np.ndarray:
    return (x["a"] * x["b"] + x["c"]) * x["a"]


@pytest.mark.parametrize("n", [1, 16, 63, 64, 1000])
def test_static_and_dynamic_lengths_agree_with_numpy(n: int) -> None:
    for length in (n, None):
        exe, _ = three_ops(length)
        x = abc(n)
        np.testing.assert_array_equal(exe(x)["y"], wanted(x))


def test_one_executable_serves_many_lengths() -> None:
    exe, _ = three_ops(None)
    for n in (10, 3000, 7, 100_000, 10, 64):
        x = abc(n)
        np.testing.assert_array_equal(exe(x)["y"], wanted(x))
    report = exe.report()
    assert report.dims == {"n": 64}
    assert [row.label for row in report.kernels] == ["mul", "add", "mul"]
    assert report.flops == 3 * 64
    assert [row.chunks for row in report.kernels] == [1, 1, 1]
    assert exe.report({"n": 640}).bytes == 3 * 12 * 640


def test_a_report_for_the_upper_ends_takes_no_memory() -> None:
    exe, _ = three_ops(None)
    assert exe.report().dims == {"n": 1 << 20}
    assert exe.report({"n": 1 << 20}).flops == 3 << 20
    assert exe.memory_report().total_bytes == 0


def test_the_arena_grows_before_the_run_and_is_reported() -> None:
    exe, _ = three_ops(None)
    exe(abc(16))
    small = exe.memory_report()
    exe(abc(50_000))
    grown = exe.memory_report()
    assert small.arena_bytes == 2 * 64
    assert grown.arena_bytes >= 2 * 50_000 * 4
    assert grown.input_bytes == 3 * 50_000 * 4
    exe(abc(16))
    assert exe.memory_report().arena_bytes == grown.arena_bytes


def test_bits_do_not_depend_on_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    x = abc(10_000)
    exe, _ = three_ops(None)
    results = []
    for threads in (1, 2, 4):
        with config.override(LUMINAL_THREADS=threads):
            results += [exe(x)["y"] for _ in range(50)]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_ten_thousand_runs_keep_memory() -> None:
    exe, _ = three_ops(1000)
    x = abc(1000)
    exe(x)
    gc.collect()
    before = _resident()
    for _ in range(10_000):
        result = exe(x)
    assert np.array_equal(result["y"], wanted(x))
    assert _resident() - before < 4 << 20


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- weights and States ---------------------------------------------------------------------------


def doubled_weight(parameter: lm.Parameter, op: str = "Mul") -> lm.Executable:
    """y = x op (w + w), where w + w is derived by the prologue."""
    cx = lm.Graph()
    x, w = cx.tensor((64,), name="x"), cx.weight_of(parameter)
    (x * (w + w) if op == "Mul" else x + (w + w)).output("y")
    p = ProgramBuilder(64)
    ins, weight = p.buffer("input", "x"), p.weight(parameter)
    derived, y = p.buffer("derived"), p.buffer("output", "y")
    program = p.program([p.launch(op, ins, derived, y)], [p.launch("Add", weight, weight, derived)])
    return executable(cx, program)


def test_the_prologue_runs_again_when_a_weight_is_set() -> None:
    parameter = lm.Parameter((64,), name="w")
    exe = doubled_weight(parameter)
    x, w = vectors(64, 2)
    with pytest.raises(lm.InputError, match="1 weights have no value: w"):
        exe(x=x)
    exe.set(w=w)
    np.testing.assert_array_equal(exe(x=x)["y"], x * (w + w))
    np.testing.assert_array_equal(exe({"w": 3 * w})["y"], x * (3 * w + 3 * w))
    parameter.set(w)
    np.testing.assert_array_equal(exe()["y"], x * (w + w))
    assert [row.label for row in exe.report().prologue] == ["add"]


def test_programs_share_what_they_derive_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    derive = device.derive
    monkeypatch.setattr(device, "derive", lambda *given: (runs.append(1), derive(*given)))
    parameter = lm.Parameter((64,), name="w")
    first, second = doubled_weight(parameter), doubled_weight(parameter, "Add")
    x, w = vectors(64, 2)
    parameter.set(w)
    np.testing.assert_array_equal(first(x=x)["y"], x * (w + w))
    np.testing.assert_array_equal(second(x=x)["y"], x + (w + w))
    assert len(runs) == 1
    parameter.set(2 * w)
    np.testing.assert_array_equal(second()["y"], x + (2 * w + 2 * w))
    np.testing.assert_array_equal(first()["y"], x * (2 * w + 2 * w))
    assert len(runs) == 2


def running_sum(state: lm.State) -> lm.Executable:
    """state += x, through a second buffer; y = state before."""
    cx = lm.Graph()
    x = cx.tensor((64,), name="x")
    (cx.read(state) * 1).output("y")
    cx.assign(state, cx.read(state) + x)
    p = ProgramBuilder(64)
    ins, one = p.buffer("input", "x"), p.buffer("state", state)
    after, y = p.buffer("next", state), p.buffer("output", "y")
    launches = [p.launch("Maximum", one, one, y), p.launch("Add", one, ins, after)]
    return executable(cx, p.program(launches, swaps=[state]))


def test_a_state_swaps_its_buffers_and_is_shared() -> None:
    state = lm.State((64,), name="sum")
    first, second = running_sum(state), running_sum(state)
    x = vectors(64, 1)[0]
    for run in range(6):
        before = (first if run % 2 else second)(x=x)["y"]
        np.testing.assert_allclose(before, run * x, rtol=1e-6)
    np.testing.assert_allclose(state.numpy(), 6 * x, rtol=1e-6)
    state.reset()
    np.testing.assert_array_equal(first(x=x)["y"], 0 * x)
    assert first.memory_report().state_bytes == 2 * 64 * 4


def test_a_call_that_raises_changes_neither_inputs_nor_states() -> None:
    state = lm.State((64,), name="sum")
    exe = running_sum(state)
    x = vectors(64, 1)[0]
    exe(x=x)
    for wrong in (x[:5], x.astype(np.complex64)):
        with pytest.raises((lm.ShapeError, lm.DTypeError)):
            exe(x=wrong)
    with pytest.raises(lm.InputError, match="shares memory"):
        exe(x=x, out=x)
    np.testing.assert_array_equal(state.numpy(), x)
    np.testing.assert_array_equal(exe()["y"], x)


# --- Loops ----------------------------------------------------------------------------------------


def accumulating_loop(trips: int) -> lm.Executable:
    """ys[i] = carry * x[i] + carry; carry += x[i] (two buffers that take turns)."""
    cx = lm.Graph()
    xs = cx.tensor((trips, 64), name="xs")
    start = cx.tensor((64,), name="start")
    (xs.sum(0) + start).output("last")
    (xs * 1).output("ys")
    p = ProgramBuilder(64)
    stream, init = p.buffer("input", "xs", trips), p.buffer("input", "start")
    even, _odd = p.buffer("arena"), p.buffer("arena")
    temporary = p.buffer("arena")
    last, ys = p.buffer("output", "last"), p.buffer("output", "ys", trips)
    x = Operand(stream, 1, stride=const(256))
    now, after = Operand(even, 1, const(0), 2), Operand(even, 1, const(1), 2)
    body = (
        p.launch("Mul", now, x, temporary),
        p.launch("Add", now, x, after),
        p.launch("Add", temporary, now, Operand(ys, 1, stride=const(256))),
    )
    launches = [
        p.launch("Maximum", init, init, even),
        LoopLaunch(const(trips), body),
        p.launch("Maximum", even + trips % 2, even + trips % 2, last),
    ]
    return executable(cx, p.program(launches))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_carries_streams_and_stacks(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    rng = np.random.default_rng(1)
    xs, carry = rng.standard_normal((ROWS, 64), np.float32), rng.standard_normal(64, np.float32)
    exe = accumulating_loop(ROWS)
    with config.override(LUMINAL_THREADS=threads):
        result = exe(xs=xs, start=carry)
    ys = []
    for x in xs:
        ys.append(carry * x + carry)
        carry = carry + x
    np.testing.assert_array_equal(result["last"], carry)
    np.testing.assert_array_equal(result["ys"], np.stack(ys))
    assert [row.trips for row in exe.report().kernels] == [1, ROWS, ROWS, ROWS, 1]


# --- threads and processes ------------------------------------------------------------------------


def test_four_threads_with_four_executables() -> None:
    n = 50_000
    inputs = [abc(n + k) for k in range(4)]
    exes = [three_ops(None)[0] for _ in inputs]

    def work(k: int) -> bool:
        return all(np.array_equal(exes[k](inputs[k])["y"], wanted(inputs[k])) for _ in range(30))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_threads_that_share_an_executable_take_turns() -> None:
    exe, _ = three_ops(None)
    inputs = [abc(n) for n in (10, 3000)]
    wrong = []

    def work(x: dict[str, np.ndarray]) -> None:
        wrong.extend(1 for _ in range(300) if not np.array_equal(exe(x)["y"], wanted(x)))

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    exe, _ = three_ops(None)
    x = abc(20_000)
    with config.override(LUMINAL_THREADS=2):
        exe(x)
        child = os.fork()
        if child == 0:
            ok = np.array_equal(exe(x)["y"], wanted(x))
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(exe(x)["y"], wanted(x))


# --- texts ----------------------------------------------------------------------------------------


def test_a_program_prints() -> None:
    _, program = three_ops(16)
    assert to_text(program) == GOLDEN
    verify.verify(program)


GOLDEN = """\
program {
  b0: input a f32[16] row
  b1: input b f32[16] row
  b2: input c f32[16] row
  b3: arena f32[16] row
  b4: arena f32[16] row
  b5: output y f32[16] row
  run:
    k0[1](in b0, in b1, out b3)  # mul
    barrier
    k1[1](in b3, in b2, out b4)  # add
    barrier
    k0[1](in b4, in b0, out b5)  # mul
  output y = b5
}"""


def test_the_verifier_names_a_read_before_the_write() -> None:
    p = ProgramBuilder(16)
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    program = p.program([p.launch("Add", x, t, y)])
    with pytest.raises(lm.VerifyError, match=r"add: reads b1: arena .* before it is written"):
        verify.verify(program)


def test_the_placement_verifier_finds_an_overlap() -> None:
    _, program = three_ops(16)
    plan = memory_plan.plan(program, program.launches)
    good = memory_plan.place(plan, [64, 64])
    verify.verify_placement(program, program.launches, plan, good)
    bad = memory_plan.Placement((64, 64), (0, 0), 64)
    with pytest.raises(lm.VerifyError, match="share memory"):
        verify.verify_placement(program, program.launches, plan, bad)
