"""A search's times on a device are the device's: its own clock, not the host's around a queue."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.interpreted import backend
from luminal.backends.interpreted.driver import InterpretedDriver, Moment
from luminal.compiler.compile import lower_to_program
from luminal.program.launch_list import walk
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.search.worker import Loaded, Worker
from tests.backends.interpreted.devices import drawn

SHAPE = (6, 8)
LAUNCH = 250.0  # seconds of any launch, by the device's clock


class SlowClock(InterpretedDriver):
    """Time passes when a launch is done, and only then."""

    def __init__(self) -> None:
        super().__init__("slow clock")
        self.now = 0.0

    def enqueue(self, *arguments: Any) -> None:
        super().enqueue(*arguments)
        self._queue.append(lambda: self._pass(LAUNCH))

    def mark(self) -> Moment:
        moment = Moment()

        def reached() -> None:
            moment.seconds = self.now

        self._queue.append(reached)
        return moment

    def _pass(self, seconds: float) -> None:
        self.now += seconds


def loaded(reductions: int) -> tuple[Loaded, int]:
    """A program, and how many launches it has."""
    cx = lm.Graph()
    x = cx.tensor(SHAPE, name="x")
    for k in range(reductions):
        x = x - x.sum(k % 2, keepdim=True).exp()
    x.output("y")
    program = lower_to_program(cx.graph(), backend.current())
    bound = DeviceRunner(program, Device(SlowClock())).bind({}, ["x"], ["y"])
    launches = sum(1 for _ in walk(program.launches))
    return Loaded(program, bound, [np.empty(SHAPE, np.float32)]), launches


def test_times_are_the_devices() -> None:
    worker = Worker("interpreted", None)
    worker.inputs = [drawn(*SHAPE)]
    (worker.programs[1], few), (worker.programs[2], many) = loaded(1), loaded(3)
    assert few < many
    first, second = worker.time([1, 2], rounds=3, seconds=60.0)
    assert first == [few * LAUNCH] * 3
    assert second == [many * LAUNCH] * 3
    assert worker.profile(2, runs=2, slow=1e6) == [[LAUNCH] * many] * 2
    assert len(worker.profile(2, runs=2, slow=LAUNCH)) == 1  # slow by its own clock


def test_one_slow_run_is_enough_of_a_program_without_a_rival() -> None:
    worker = Worker("interpreted", None)
    worker.inputs = [drawn(*SHAPE)]
    (worker.programs[1], launches), (worker.programs[2], _) = loaded(1), loaded(1)
    assert worker.time([1], rounds=3, seconds=LAUNCH / 2) == [[launches * LAUNCH]]
    assert list(map(len, worker.time([1, 2], rounds=3, seconds=LAUNCH / 2))) == [3, 3]
