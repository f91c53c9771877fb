"""Forks: a child uses a device where that survives it, and is told where it does not."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.memory.state import State
from luminal.runtime.device import Device
from luminal.runtime.driver import DeviceError
from tests.backends.cpu.forked import in_child, threads
from tests.backends.interpreted.devices import CountingDriver, compiled_on, drawn, made, turning

# Forking a process that has threads is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

X = drawn(8)


class Mortal(CountingDriver):
    """A driver whose device is lost in a child."""

    survives_fork = False
    freed = 0  # blocks

    def free(self, block: object) -> None:
        self.freed += 1
        super().free(block)  # type: ignore[arg-type]


def test_a_child_goes_on_with_a_device_that_survives() -> None:
    device, _ = made()
    state = State((8,), name="sum")
    exe = compiled_on(device, turning(state))
    exe(x=X)

    def check() -> None:
        np.testing.assert_array_equal(exe(x=X)["y"], X)

    with threads(lambda: compiled_on(device, turning(State((8,), name="other")))(x=X)):
        for _ in range(3):
            in_child(check)
    np.testing.assert_array_equal(state.numpy(), X)


def test_a_child_is_told_that_its_device_is_the_parents() -> None:
    driver = Mortal()
    device, state = Device(driver), State((8,), name="sum")
    exe = compiled_on(device, turning(state))
    exe(x=X)
    buffers = [device.empty((8,), lm.float32)]

    def check() -> None:
        driver.freed = 0
        for using in (lambda: exe(x=X), state.numpy, state.reset):
            with pytest.raises(DeviceError, match=r"counting: this process was forked.*'spawn'"):
                using()
        buffers.clear()
        assert not driver.freed
        cx = lm.Graph()
        (cx.tensor((8,), name="x") * 2).output("y")
        np.testing.assert_array_equal(lm.compile(cx, "cpu")(x=X)["y"], 2 * X)

    in_child(check)
    np.testing.assert_array_equal(state.numpy(), X)
    buffers.clear()
    assert driver.freed
