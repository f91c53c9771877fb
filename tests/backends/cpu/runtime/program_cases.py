"""Tests of Programs written by hand, which hold on every device."""

from __future__ import annotations

import math

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device
from luminal.base import config
from luminal.program.launch_list import LoopLaunch, Operand
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder, executable, three_ops
from tests.close import close_each

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


def test_a_report_for_the_upper_ends_takes_no_memory() -> None:
    exe, _ = three_ops(None)
    assert exe.report().dims == {"n": 1 << 20}
    assert exe.report({"n": 1 << 20}).flops == 3 << 20
    assert exe.memory_report().total_bytes == 0


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
        close_each(before, run * x)
    close_each(state.numpy(), 6 * x)
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
