"""Programs on a device: memory of its own, States that stay there, failures that leave no half."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.base.errors import CompileError, LuminalError
from luminal.memory.arrays import HOST
from luminal.memory.state import State
from luminal.runtime.device import Device
from luminal.runtime.driver import DeviceError
from luminal.runtime.trace import read
from tests.backends.interpreted.devices import (
    CountingDriver,
    accumulating,
    compiled_on,
    drawn,
    made,
    row_written,
    turning,
)
from tests.close import close, close_each

ROWS, WIDTH = 6, 8
X = drawn(WIDTH)


def matrix_state() -> State:
    return State((ROWS, WIDTH), init=drawn(ROWS, WIDTH), name="rows")


# --- where values lie -----------------------------------------------------------------------------


def test_states_stay_on_the_device_between_runs() -> None:
    device, driver = made()
    state = State((1000,), name="sum")
    exe = compiled_on(device, turning(state))
    x = drawn(1000)
    exe(x=x)
    buffers = {state.buffer, state.spare}
    driver.read_bytes = driver.written_bytes = 0
    for _ in range(4):
        exe(x=x)
        assert {state.buffer, state.spare} == buffers
    for copied in (driver.read_bytes, driver.written_bytes):
        assert 4 * 4000 <= copied < 5 * 4000  # x in, y out, as large as their classes
    driver.read_bytes = 0
    # Five terms of either sign in float32, in another order.
    np.testing.assert_allclose(state.numpy(), 3 * x + 2 * x[::-1], rtol=1e-4, atol=1e-6)
    assert driver.read_bytes == 4000
    state.on(HOST)
    assert state.spare is None  # none is left behind


def test_programs_of_two_devices_and_the_host_share_a_state() -> None:
    state = State((WIDTH,), name="sum")
    graph = accumulating(state, (WIDTH,))
    programs = [compiled_on(made()[0], graph), lm.compile(graph), compiled_on(made()[0], graph)]
    for run, exe in enumerate((*programs, *reversed(programs))):
        close_each(exe(x=X)["y"], 2 * run * X)
    close_each(state.numpy(), 6 * X)


def test_a_state_on_a_device_is_set_and_reset_there() -> None:
    device, _ = made()
    state = State((WIDTH,), init=1, name="sum")
    exe = compiled_on(device, accumulating(state, (WIDTH,)))
    exe(x=X)
    for value in (X, 0):
        state.set(X) if value is X else state.reset()
        assert state.buffer.space is device
        before = X if value is X else np.ones(WIDTH)
        np.testing.assert_array_equal(exe(x=X)["y"], (2 * before).astype(np.float32))


def test_an_assigned_parameter_moves_and_is_read_everywhere() -> None:
    device, _ = made()
    parameter = lm.Parameter(X, name="p")
    exe = compiled_on(device, accumulating(parameter, (WIDTH,)))
    cx = lm.Graph()
    (cx.weight_of(parameter) + 0).output("y")
    reader = lm.compile(cx)
    for run in range(1, 4):
        exe(x=X)
        close_each(reader()["y"], (run + 1) * X)
        close_each(parameter.numpy(), (run + 1) * X)
    assert parameter.buffer.space is device


def test_weights_are_copied_once_for_all_programs_of_a_device() -> None:
    device, driver = made()
    parameter = lm.Parameter(drawn(40, 40), name="w")
    size = parameter.numpy().nbytes
    programs = []
    for scale in (1, 2):
        cx = lm.Graph()
        (cx.tensor((3, 40), name="x") @ cx.weight_of(parameter) * scale).output("y")
        programs.append(compiled_on(device, cx))
    x = drawn(3, 40)
    for _ in range(2):
        for scale, exe in enumerate(programs, 1):
            expected = scale * x @ parameter.numpy()
            close(exe(x=x)["y"], expected)
    assert size <= driver.written_bytes < 2 * size
    assert parameter.buffer.space is HOST
    parameter.set(-parameter.numpy())
    expected = x @ parameter.numpy()
    close(programs[0](x=x)["y"], expected)


def test_all_memory_is_given_back() -> None:
    device, driver = made()
    state = matrix_state()
    exe = compiled_on(device, row_written(state))
    exe(x=X, at=2)
    assert driver.used > 2 * state.numpy().nbytes
    del exe, state
    gc.collect()
    assert driver.used == 0


def test_a_buffer_that_goes_while_the_driver_is_used_goes_afterwards() -> None:
    device, driver = made()
    buffer = device.empty((100,), lm.float32)
    with device.entered():
        del buffer
        assert driver.used == 400
    assert driver.used == 0


# --- failures -------------------------------------------------------------------------------------


def test_a_run_that_fails_changes_no_state_with_a_second_buffer() -> None:
    device, driver = made()
    state = State((WIDTH,), init=1, name="sum")
    exe = compiled_on(device, turning(state))
    exe(x=X)
    launches = driver.launches
    for late in range(launches):
        driver.fails_at = driver.launches + 1 + late
        with pytest.raises(LuminalError, match="this launch fails"):
            exe(x=X)
        np.testing.assert_array_equal(state.numpy(), 1 + X)
    exe(x=X)
    np.testing.assert_array_equal(state.numpy(), (1 + X)[::-1] + X)


def test_without_outputs_a_run_waits_before_states_change() -> None:
    device, driver = made()
    state = State((WIDTH,), init=drawn(WIDTH), name="sum")
    cx = lm.Graph()
    cx.assign(state, cx.read(state).flip(0))
    exe = compiled_on(device, cx)
    driver.breaks_at = 1
    with pytest.raises(LuminalError, match="this launch breaks"):
        exe()
    np.testing.assert_array_equal(state.numpy(), drawn(WIDTH))
    exe()
    np.testing.assert_array_equal(state.numpy(), drawn(WIDTH)[::-1])


def test_a_state_that_was_overwritten_by_half_is_never_read() -> None:
    device, driver = made()
    state = matrix_state()
    exe = compiled_on(device, row_written(state))
    assert exe(x=X, at=1)["y"].shape == (WIDTH,)
    assert state.spare is None  # it is written where it lies
    driver.fails_at = driver.launches + 2
    with pytest.raises(LuminalError, match="this launch fails"):
        exe(x=X, at=2)
    host = lm.compile(row_written(state))
    for reading in (state.numpy, lambda: exe(x=X, at=2), lambda: host(x=X, at=2)):
        with pytest.raises(DeviceError, match=r"counting: a run .* state\.reset\(\)"):
            reading()
    state.reset()
    exe(x=X, at=2)
    expected = drawn(ROWS, WIDTH)
    expected[2] = X
    np.testing.assert_array_equal(state.numpy(), expected)


def test_without_memory_nothing_moves() -> None:
    driver = CountingDriver(total=2000)
    device = Device(driver)
    state = State((ROWS, 100), init=1, name="large")
    exe = compiled_on(device, row_written(state))
    with pytest.raises(MemoryError, match="counting: cannot allocate 2400 bytes"):
        exe(x=drawn(100), at=0)
    assert state.buffer.space is HOST
    assert (state.numpy() == 1).all()
    assert driver.used == 0


def test_memory_in_cycles_is_found_when_it_is_needed() -> None:
    driver = CountingDriver(total=1000)
    device = Device(driver)
    gc.disable()
    try:
        cycle: list[object] = [device.empty((200,), lm.float32)]
        cycle.append(cycle)
        del cycle
        assert device.empty((200,), lm.float32).nbytes == 800
    finally:
        gc.enable()


def test_kernels_of_the_host_are_refused_by_name() -> None:
    plus_one = lm.custom_kernel("plus_one", lambda x, y: None, results=lambda x: x)
    cx = lm.Graph()
    plus_one(cx.tensor((3,), name="x")).output("y")
    with pytest.raises(CompileError, match=r"counting: custom kernel 'plus_one' is a Python .*cpu"):
        compiled_on(made()[0], cx)


# --- threads and reports --------------------------------------------------------------------------


def test_threads_with_executables_of_one_device() -> None:
    device, _ = made()

    def work(k: int) -> bool:
        state = State((WIDTH,), name=f"s{k}")
        exe = compiled_on(device, accumulating(state, (WIDTH,)))
        for run in range(5):
            # a product and a sum, rounded as floats: 80 ulp is none of another run's X
            if not np.allclose(exe(x=X + k)["y"], 2 * run * (X + k), rtol=1e-5):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_profile_has_the_devices_seconds_and_leaves_states() -> None:
    device, _ = made()
    state = matrix_state()
    exe = compiled_on(device, row_written(state))
    before = state.numpy()
    report = exe.profile(x=X, at=1, runs=3)
    assert all(row.seconds is not None and row.seconds > 0 for row in report.kernels)
    assert report.peaks is None
    np.testing.assert_array_equal(state.numpy(), before)
    memory = exe.memory_report()
    assert memory.state_bytes == before.nbytes
    assert memory.arena_bytes > 0


def test_a_trace_has_the_streams_launches_and_changes_nothing(tmp_path: Path) -> None:
    outputs = []
    for flag in ({}, {"LUMINAL_TRACE": tmp_path / "device.trace"}):
        state = State((WIDTH,), name="sum")
        with config.override(**flag):
            exe = compiled_on(made()[0], accumulating(state, (WIDTH,)))
            outputs.append([np.array(exe(x=X)["y"]) for _ in range(6)])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    (program,) = read(tmp_path / "device.trace").programs
    assert (program.count, len(program.clocked)) == (6, 3)
    for run in program.clocked:
        assert [bar.site for bar in run.bars] == [*range(len(program.kernels))]
        assert {bar.track for bar in run.bars} == {"stream"}
        assert run.bars[-1].end == pytest.approx(run.returned)
        assert sum(run.seconds(len(program.kernels))) == pytest.approx(run.parts.launches)


def test_a_kernel_reads_what_the_last_binding_told_it() -> None:
    """Two dims take turns; the device checks what lies in its memory against the grid."""
    cx = lm.Graph()
    (cx.tensor((cx.dim("s", 0, 100), 5), name="x") * 2).output("y")
    exe = compiled_on(made()[0], cx)
    for length in (3, 9, 9, 3):
        np.testing.assert_array_equal(exe(x=drawn(length, 5))["y"], drawn(length, 5) * 2)
    launches: Any = exe._variants[0].runner.launches  # type: ignore[attr-defined]
    told = launches.integers
    launches.integers = lambda values: told(values) + 1
    with pytest.raises(DeviceError, match=r"counting: integers \[\d+.* a grid of "):
        exe(x=drawn(4, 5))


def test_shapes_change_from_run_to_run() -> None:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 0, 100), 5), name="x")
    x.softmax(-1).cumsum(0).output("y")
    exe = compiled_on(made()[0], cx)
    for length in (3, 0, 9, 1):
        rows = np.exp(drawn(length, 5))
        expected = (rows / rows.sum(-1, keepdims=True)).cumsum(0)
        close_each(exe(x=np.log(rows))["y"], expected, ulp=8)
