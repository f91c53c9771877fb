"""One State and one weight between programs of the host and of devices, in any order of events."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LuminalError
from tests.backends.interpreted.devices import compiled_on, made

SHAPE = (3, 4)


def graph(state: lm.State, counted: lm.Parameter, weight: lm.Parameter, turned: bool) -> lm.Graph:
    """y = state * weight + counted; state += x (turned: through a second buffer); counted += 1."""
    cx = lm.Graph()
    x, held, count = cx.tensor(SHAPE, name="x"), cx.read(state), cx.weight_of(counted)
    (held * (cx.weight_of(weight) + 1) + count).output("y")
    cx.assign(state, (held.flip(0) if turned else held) + x)
    cx.assign(counted, count + 1)
    return cx


@pytest.mark.parametrize("seed", range(4))
def test_every_program_sees_what_the_others_left(seed: int) -> None:
    rng, drawn = random.Random(seed), np.random.default_rng(seed)
    state, counted = lm.State(SHAPE, name="s"), lm.Parameter(np.zeros(SHAPE, np.float32), name="c")
    weight = lm.Parameter(np.ones(SHAPE, np.float32), name="w")
    s, c, w = (held.numpy().copy() for held in (state, counted, weight))
    devices = [made() for _ in range(2)]
    programs = []
    for turned in (False, True):
        recorded = graph(state, counted, weight, turned)
        programs.append((lm.compile(recorded, "cpu"), None, turned))
        programs += [(compiled_on(d, recorded), driver, turned) for d, driver in devices]
    for _ in range(40):
        event = rng.choice(["run"] * 6 + ["set", "reset", "weight", "count", "move", "fail"])
        exe, driver, turned = rng.choice(programs)
        value = drawn.integers(-9, 9, SHAPE).astype(np.float32)
        if event == "set":
            state.set(value)
            s = value
        elif event == "reset":
            state.reset()
            s = np.zeros(SHAPE, np.float32)
        elif event == "weight":
            weight.set(value)
            w = value
        elif event == "count":
            counted.set(value)
            c = value
        elif event == "move":
            rng.choice([state, counted, weight]).to(rng.choice(["cpu", "interpreted"]))
        elif event == "fail" and driver is not None:
            driver.fails_at = driver.launches + 1
            with pytest.raises(LuminalError):
                exe(x=value)
            driver.fails_at = -1
            state.set(value)  # both may have been written where they lie
            counted.set(value)
            s = c = value
        elif event == "run":
            np.testing.assert_array_equal(exe(x=value)["y"], s * (w + 1) + c)
            s, c = (s[::-1] if turned else s) + value, c + 1
        if event != "run" or rng.random() < 0.3:  # reading may hide what a move forgot
            for held, expected in ((state, s), (counted, c), (weight, w)):
                np.testing.assert_array_equal(held.numpy(), expected)


def test_threads_of_two_devices_count_together() -> None:
    state = lm.State(SHAPE, name="s")
    cx = lm.Graph()
    cx.assign(state, cx.read(state) + 1)
    programs = [lm.compile(cx, "cpu"), *(compiled_on(made()[0], cx) for _ in range(2))]

    def repeat(exe: lm.Executable) -> None:
        for _ in range(20):
            exe()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(repeat, programs))
    np.testing.assert_array_equal(state.numpy(), np.full(SHAPE, 60))
