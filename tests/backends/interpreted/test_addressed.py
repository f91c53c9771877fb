"""Runs on memory by address where one value is several outputs, some of them the host's."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.memory.arrays import aligned_empty
from luminal.runtime import workspace
from tests.backends.interpreted.recording_driver import compiled


def thrice() -> lm.Graph:
    """One value as three outputs."""
    cx = lm.Graph()
    x = cx.tensor((30, 5), name="x")
    twice = x * 2
    for name in ("a", "b", "c"):
        twice.output(name)
    return cx


@pytest.mark.parametrize("host", ["", "a", "bc", "abc"])
@pytest.mark.parametrize("size", [100, 1 << 20])  # staged with others, or a copy of its own
def test_one_value_is_outputs_there_and_here(
    host: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "STAGED", size)
    exe, recorded = compiled(thrice())
    program = exe.at([(30, 5)], host=tuple(host))
    device = exe.device
    assert device is not None
    x = aligned_empty((30, 5), lm.float32)
    results = {name: aligned_empty((30, 5), lm.float32) for name in ("a", "b", "c")}
    for run in range(4):
        x[:] = np.random.default_rng(run).standard_normal((30, 5))
        for array in results.values():
            array[:] = np.nan
        outputs = [
            results[plan.name] if plan.name in host else results[plan.name].ctypes.data
            for plan in program.outputs
        ]
        program.run([x.ctypes.data], outputs)
        with device.entered() as driver:
            driver.wait()
        for name, array in results.items():
            np.testing.assert_array_equal(array, x * 2, name)
    assert recorded.again == 3
