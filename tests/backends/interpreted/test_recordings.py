"""Runs that come again are recorded: by their addresses, for all dims, and only a few at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.interpreted.driver import InterpretedRecording
from luminal.base.errors import LuminalError
from luminal.runtime import device_table, output_pool, recordings, workspace
from luminal.runtime.driver import Call
from tests.backends.interpreted.devices import compiled_on, drawn, made, row_written, turning
from tests.backends.interpreted.recording_driver import compiled


def runner_of(exe: Any) -> Any:
    """What an executable runs by."""
    return exe._variants[0].runner


def growing() -> lm.Graph:
    """y = softmax(x) summed along rows, of s rows."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 0, 100), 5), name="x")
    x.softmax(-1).cumsum(0).output("y")
    return cx


NEAR = 1e-5  # exponentials of float32, and running sums of their shares


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows = np.exp(x)
    return np.asarray((rows / rows.sum(-1, keepdims=True)).cumsum(0))


def test_the_first_run_is_listed_the_second_recorded_and_others_are_one_call() -> None:
    exe, driver = compiled(growing())
    for run in range(6):
        x = drawn(7, 5) + run
        np.testing.assert_allclose(exe(x=x)["y"], expected(x), rtol=NEAR)
        assert driver.again == max(0, run)
    assert driver.recorded == 1
    assert driver.listed == len(exe.report().kernels)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_one_recording_serves_all_dims_of_a_layout(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one of all dims, unless their ends take more than a limit."""
    monkeypatch.setattr(device_table, "STAGED", limit)
    exe, driver = compiled(growing())
    for length in (9, 8, 7, 8, 5, 6, 9, 8, 7, 6, 5) * 2:
        x = drawn(length, 5)
        np.testing.assert_allclose(exe(x=x)["y"], expected(x), rtol=NEAR)
    lengths = {output_pool.block_bytes(20 * length) for length in range(5, 10)}
    assert len(lengths) == 2
    assert driver.recorded == (1 if limit else 2)
    assert driver.again == 22 - driver.recorded


def test_states_that_take_turns_have_a_recording_each() -> None:
    state = lm.State((8,), init=1, name="sum")
    exe, driver = compiled(turning(state))
    value = np.ones(8, np.float32)
    for _ in range(9):
        np.testing.assert_array_equal(exe(x=drawn(8))["y"], value)
        value = value[::-1] + drawn(8)
    np.testing.assert_array_equal(state.numpy(), value)
    assert driver.recorded == 2


def test_a_weight_that_changes_and_a_state_that_moves_are_recorded_anew() -> None:
    weight, state = lm.Parameter(drawn(8), name="w"), lm.State((8,), name="s")
    cx = lm.Graph()
    held = cx.read(state)
    (held * cx.weight_of(weight)).output("y")
    cx.assign(state, held + 1)
    exe, driver = compiled(cx)
    value = np.zeros(8, np.float32)
    for run in range(12):
        if run == 4:
            weight.set(weight.numpy() * 2)
        if run == 8:
            state.to("cpu")
        np.testing.assert_array_equal(exe()["y"], value * weight.numpy())
        value += 1
    assert driver.recorded == 3
    np.testing.assert_array_equal(state.numpy(), value)


def test_loops_are_written_out_in_recordings() -> None:
    cx = lm.Graph()
    x = cx.tensor((6, 5), name="x")
    last, ys = lm.scan(lambda c, row: ((c * 0.5 + row).softmax(0), c.sum()), x[0] * 0, x)
    last.output("last")
    ys.output("ys")
    exe, driver = compiled(cx)
    reference = lm.compile(cx, "reference")
    for factor in (1, 2, 3):
        found, wanted = exe(x=drawn(6, 5) * factor), reference(x=drawn(6, 5) * factor)
        for name in ("last", "ys"):
            np.testing.assert_allclose(found[name], wanted[name], rtol=NEAR)
    assert driver.again == 2


def test_arrays_beyond_staging_go_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "STAGED", 100)
    cx = lm.Graph()
    x, small = cx.tensor((50,), name="x"), cx.tensor((5,), name="small")
    (x * 2).output("y")
    (small + 1).output("z")
    exe, driver = compiled(cx)
    for run in range(4):
        found = exe(x=drawn(50) + run, small=drawn(5) - run)
        np.testing.assert_array_equal(found["y"], (drawn(50) + run) * 2)
        np.testing.assert_array_equal(found["z"], drawn(5) - run + 1)
    assert driver.again == 3


def test_recordings_and_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT", 4)
    monkeypatch.setattr(device_table, "STAGED", 0)
    cx = lm.Graph()
    (cx.tensor((cx.dim("s", 0, 1000),), name="x") * 2).output("y")
    exe, driver = compiled(cx)
    for length in range(1, 1000, 100):
        exe(x=drawn(length))
        exe(x=drawn(length))
    runner = runner_of(exe)
    assert driver.recorded > recordings.KEPT
    assert len(runner.listings) <= recordings.KEPT
    assert len(runner.slots) == 1


def test_a_recorded_run_that_fails_leaves_what_a_listed_one_does() -> None:
    device, driver = made()
    state = lm.State((6, 8), init=drawn(6, 8), name="rows")
    exe = compiled_on(device, row_written(state))
    for at in range(3):
        exe(x=drawn(8), at=at)
    driver.breaks_at = driver.launches + 1
    with pytest.raises(LuminalError, match="this launch breaks"):
        exe(x=drawn(8), at=1)
    with pytest.raises(LuminalError, match=r"state\.reset\(\)"):
        state.numpy()
    state.reset()
    assert exe(x=drawn(8), at=2)["y"].shape == (8,)


def seen(state: lm.State, exe: lm.Executable, *, turns: bool) -> None:
    """Four runs, each checked."""
    value = np.ones(8, np.float32)
    for _ in range(4):
        if turns:
            np.testing.assert_array_equal(exe(x=drawn(8))["y"], value)
            value = value[::-1] + drawn(8)
        else:
            np.testing.assert_allclose(exe(x=drawn(7, 5))["y"], expected(drawn(7, 5)), rtol=NEAR)


@pytest.mark.parametrize("fault", ["no integers", "a stale State", "no inputs"])
def test_a_planted_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state, turns = lm.State((8,), init=1, name="sum"), fault == "a stale State"
    exe, _ = compiled(turning(state) if turns else growing())
    runner = runner_of(exe)
    if turns:
        known = runner.listings.get
        runner.listings.get = lambda key, make: known(key[:4], make)
    original, words = InterpretedRecording.run, runner.launches.integer_bytes

    def run(self: InterpretedRecording) -> None:
        given = self.sent[0]
        given[:words] = given[:words] if fault != "no integers" else 0
        given[words:] = given[words:] if fault != "no inputs" else 0
        original(self)

    monkeypatch.setattr(InterpretedRecording, "run", run)
    with pytest.raises((AssertionError, LuminalError)):
        seen(state, exe, turns=turns)


def test_calls_of_a_listing_have_all_their_places() -> None:
    exe, _ = compiled(growing())
    exe(x=drawn(3, 5))
    runner = runner_of(exe)
    (listing,) = runner.listings._known.values()
    assert all(isinstance(call, Call) and call.integers for _, call in listing.calls)
