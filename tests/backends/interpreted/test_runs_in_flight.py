"""Runs that are waited for later: their order, what they take, what a failure leaves."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.base.errors import DeviceError, LuminalError
from luminal.runtime import flight
from tests.backends.interpreted.devices import (
    accumulating,
    compiled_on,
    drawn,
    made,
    turning,
)

WIDTH = 8
X = drawn(WIDTH)


def doubled() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((WIDTH,), name="x") * 2).output("y")
    return cx


def test_a_run_takes_its_inputs_when_it_starts() -> None:
    device, driver = made()
    exe = compiled_on(device, doubled())
    for _ in range(3):  # listed, then recorded
        x = X.copy()
        runs = []
        for k in range(3):
            x[:] = X + k
            runs.append(exe.start(x=x))
        x[:] = np.nan
        for k in (2, 0, 1):
            np.testing.assert_array_equal(runs[k].result()["y"], (X + k) * 2)
    assert driver.launches == 9


def test_nothing_runs_before_somebody_waits_and_only_as_far_as_asked() -> None:
    device, driver = made()
    exe = compiled_on(device, doubled())
    first, second = exe.start(x=X), exe.start(x=-X)
    assert len(device.flight) == 2
    first.result()
    assert len(device.flight) == 1
    assert driver._queue  # the second still waits
    np.testing.assert_array_equal(second.result()["y"], -2 * X)


def test_states_go_from_run_to_run_without_a_wait() -> None:
    device, _ = made()
    turned, counted = lm.State((WIDTH,), init=1, name="t"), lm.State((WIDTH,), init=0, name="c")
    programs = [compiled_on(device, turning(turned))]
    programs += [compiled_on(device, accumulating(counted, (WIDTH,)))]
    values = [np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)]
    for _ in range(4):
        runs: list[tuple[lm.Run, Any]] = []
        for _ in range(flight.MOST):  # the oldest are waited for when there are too many
            runs.append((programs[0].start(x=X), values[0] * 1))
            runs.append((programs[1].start(x=X), values[1] * 2))
            values = [values[0][::-1] + X, values[1] + X]
            assert len(device.flight) <= flight.MOST
        for run, expected in runs:
            np.testing.assert_array_equal(run.result()["y"], expected)
    for state, value in zip((turned, counted), values, strict=True):
        np.testing.assert_array_equal(state.numpy(), value)


def test_reading_and_setting_a_state_wait_for_its_runs() -> None:
    device, _ = made()
    state = lm.State((WIDTH,), init=1, name="t")
    exe, host = compiled_on(device, turning(state)), lm.compile(turning(state))
    runs = [exe.start(x=X), exe.start(x=X)]
    after = (1 + X)[::-1] + X
    np.testing.assert_array_equal(state.numpy(), after)
    runs.append(exe.start(x=X))
    np.testing.assert_array_equal(host(x=X)["y"], after[::-1] + X)
    runs.append(exe.start(x=X))
    state.set(X)
    np.testing.assert_array_equal(exe(x=X)["y"], X)
    for run in runs:
        run.result()


def test_a_failed_run_raises_at_every_result_and_so_do_those_behind_it() -> None:
    device, driver = made()
    exe = compiled_on(device, doubled())
    exe(x=X)
    runs = [exe.start(x=X)]
    driver.breaks_at = driver.launches + 1
    runs += [exe.start(x=X), exe.start(x=X)]
    np.testing.assert_array_equal(runs[0].result()["y"], 2 * X)
    for _ in range(2):
        for run in runs[1:]:
            with pytest.raises(LuminalError, match="this launch breaks"):
                run.result()
    np.testing.assert_array_equal(exe(x=X)["y"], 2 * X)


@pytest.mark.parametrize("seed", range(20))
def test_a_queue_that_fails_leaves_states_old_or_new_and_never_half(seed: int) -> None:
    """Programs in any order on two States, of which one takes turns; a launch breaks, or is
    refused.
    """
    rng = random.Random(seed)
    device, driver = made()
    states = [lm.State((WIDTH,), init=1, name="t"), lm.State((WIDTH,), init=2, name="c")]
    graphs = [turning(states[0]), accumulating(states[1], (WIDTH,))]
    programs = [compiled_on(device, graph) for graph in graphs]
    steps: list[Any] = [lambda v, x: v[::-1] + x, lambda v, x: v + x]
    values = [state.numpy() for state in states]
    for _ in range(6):
        histories = [[value] for value in values]
        fault = rng.choice(["none", "breaks_at", "fails_at"])
        if fault != "none":
            setattr(driver, fault, driver.launches + rng.randint(1, 6))
        runs: list[lm.Run] = []
        try:
            for _ in range(rng.randint(1, flight.MOST)):
                k, x = rng.randrange(2), X + rng.randrange(99)
                runs.append(programs[k].start(x=x))
                histories[k].append(steps[k](histories[k][-1], x))
            for run in rng.sample(runs, rng.randint(0, len(runs))):
                run.result()
            with device.entered() as driver_:
                error = device.flight.settle(driver_)
            if error is not None:
                raise error
            failed = False
        except LuminalError:
            failed = True
        driver.fails_at = driver.breaks_at = -1
        for k, state in enumerate(states):
            if not failed:
                np.testing.assert_array_equal(state.numpy(), histories[k][-1])
                values[k] = histories[k][-1]
                continue
            try:
                found = state.numpy()
                assert any(np.array_equal(found, value) for value in histories[k])
            except DeviceError:
                state.reset()
                found = state.numpy()
            values[k] = found


def test_a_value_that_is_set_outlives_the_failure_of_a_run_before_it() -> None:
    device, driver = made()
    state = lm.State((WIDTH,), init=1, name="t")
    exe = compiled_on(device, turning(state))
    exe(x=X)
    driver.breaks_at = driver.launches + 1
    run = exe.start(x=X)
    state.set(X)
    np.testing.assert_array_equal(state.numpy(), X)
    with pytest.raises(LuminalError, match="this launch breaks"):
        run.result()
    np.testing.assert_array_equal(exe(x=X)["y"], X)


def test_a_failure_that_another_call_meets_is_the_runs() -> None:
    device, driver = made()
    exe = compiled_on(device, doubled())
    exe(x=X)
    driver.breaks_at = driver.launches + 1
    run = exe.start(x=X)
    with pytest.raises(LuminalError, match="this launch breaks"):
        device.empty((4,), lm.float32)  # this device does what is queued first
    with pytest.raises(LuminalError, match="this launch breaks"):
        run.result()


def test_threads_start_and_others_wait() -> None:
    device, _ = made()
    state = lm.State((WIDTH,), name="c")
    exe = compiled_on(device, accumulating(state, (WIDTH,)))
    with ThreadPoolExecutor(3) as pool:
        runs = [*pool.map(lambda _: exe.start(x=X), range(12))]
        found = [*pool.map(lambda run: run.result()["y"], runs)]
    expected = [2 * k * X for k in range(12)]
    order = sorted(found, key=lambda y: float(np.abs(y).sum()))
    # Eleven sums in float32, and the order is found by their sizes.
    np.testing.assert_allclose(order, expected, rtol=1e-4)


def test_a_start_on_the_host_is_over_when_it_returns() -> None:
    exe = lm.compile(doubled())
    run = exe.start({"x": X})
    np.testing.assert_array_equal(run.result()["y"], 2 * X)
    assert repr(run) == "Run(y)"
    np.testing.assert_array_equal(exe.execute_with_capture(x=X)["y"], 2 * X)


def test_the_launch_that_fails_is_named() -> None:
    with config.override(LUMINAL_SYNC=1):
        device, driver = made()
        cx = lm.Graph()
        x = cx.tensor((WIDTH, WIDTH), name="x")
        (x - x.sum(1, keepdim=True)).softmax(0).output("y")
        exe = compiled_on(device, cx)
        exe(x=drawn(WIDTH, WIDTH))
        count = len(exe.report().kernels)
        for late in range(count):
            driver.breaks_at = driver.launches + 1 + late
            row = exe.report().kernels[late]
            words = rf"breaks; in launch {late + 1} of {count}, '{row.label}' \(kernel {row.kernel}"
            with pytest.raises(DeviceError, match=words.replace("+", r"\+")):
                exe(x=drawn(WIDTH, WIDTH))
