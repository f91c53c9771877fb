"""The Metal driver over a module that stands in for pyobjc's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import GROUPS, CBackend, machine
from luminal.backends.metal import driver as metal_driver
from luminal.backends.metal import presence, recording
from luminal.backends.metal.driver import MetalDriver
from luminal.backends.metal.recording import MetalRecording
from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import spell, spell_tiles
from luminal.codegen.c_family.metal import METAL
from luminal.runtime.device import Device
from luminal.runtime.driver import Call, DeviceError, DevicePointer
from tests.backends.c_family.driver_cases import KERNEL, DriverCases, placed
from tests.backends.c_family.launches import enqueue
from tests.backends.metal import stand_in
from tests.backends.on_device import compiled_on
from tests.simt import compiling


def spelled(kernel: Any) -> Any:
    return spell(kernel.expanded, METAL)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> MetalDriver:
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    monkeypatch.setattr(presence, "bindings", lambda: stand_in)
    return MetalDriver(spelled)


class TestMetal(DriverCases):
    """A Mac itself counts memory, holds blocks in use and caches code."""


def test_absence_has_a_reason() -> None:
    assert (presence.absence() is None) == bool(presence.devices())
    assert presence.absence() in (
        None, "Metal is a part of macOS", "macOS finds no device",
        f"pyobjc-framework-Metal is not installed; {installation.hint('metal')}",
    )  # fmt: skip


def test_a_text_that_is_no_metal_is_shown_with_the_compilers_words(driver: MetalDriver) -> None:
    broken = dataclasses.replace(spelled(KERNEL), text="void luminal_kernel() { x; }")
    driver.spell = lambda kernel: broken
    with pytest.raises(CompileError, match=r"(?s)Metal refuses a kernel:\n.*x.*luminal_kernel"):
        driver.compile(KERNEL, "text")


def test_a_kernel_that_fails_is_reported_by_the_next_wait(driver: MetalDriver) -> None:
    source, target = placed(driver, np.zeros(2, np.float32)), DevicePointer(driver.allocate(4))
    enqueue(driver, driver.compile(KERNEL, "text"), 1, 1, [source, target], [4])
    with pytest.raises(DeviceError, match=r"metal:0: luminal_kernel: .* out of bounds"):
        driver.wait()
    driver.wait()


# --- recordings


class Metal(CBackend):
    """Metal over the stand-in."""

    base = "metal"
    dialect = METAL
    dispatches = ("graph", "list")

    @staticmethod
    def driver(spell: Any, number: int) -> Any:
        raise AssertionError("the test has its own")


def program(driver: MetalDriver, monkeypatch: pytest.MonkeyPatch) -> tuple[lm.Executable, Any]:
    """Launches each of which reads what the one before wrote, by groups."""
    driver.spell = lambda kernel: spell_tiles(kernel, METAL)
    device = Device(driver)
    monkeypatch.setattr(Metal, "memory", property(lambda self: device))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("rows", 1, 20), 40), name="x")
    (x.softmax(-1) - x.cumsum(0).amax(1, keepdim=True)).sort(1)[0].output("y")
    backend = Metal(machine("metal", 2, 32 << 10, 1 << 20), groups=GROUPS)
    return compiled_on(backend, cx.graph()), device


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.exp(x.astype(np.float64))
    parts = wide / wide.sum(1, keepdims=True)
    return np.sort(parts - x.cumsum(0, dtype=np.float64).max(1, keepdims=True), 1)


def check_runs(exe: lm.Executable, runs: int = 4) -> None:
    rng = np.random.default_rng(0)
    for rows in (17, 3, 17):
        for _ in range(runs):
            x = rng.standard_normal((rows, 40), np.float32)
            # the sums of some rows of floats
            np.testing.assert_allclose(exe(x=x)["y"], expected(x), rtol=1e-5, atol=1e-5)


def test_a_run_is_one_indirect_command_buffer(
    driver: MetalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ran, listed = [], [], []
    stated, run, enqueue_ = recording.recorded, MetalRecording.run, MetalDriver.enqueue
    monkeypatch.setattr(
        metal_driver, "recorded", lambda *given: made.append(given) or stated(*given)
    )
    monkeypatch.setattr(MetalRecording, "run", lambda self: ran.append(self.count) or run(self))
    monkeypatch.setattr(
        MetalDriver, "enqueue", lambda self, *call: listed.append(call) or enqueue_(self, *call)
    )
    exe, _ = program(driver, monkeypatch)
    check_runs(exe)
    launches = ran[0]
    assert launches > 2
    # The first of twelve runs is a list of calls, the second one is recorded. What it takes of
    # memory is little, so it lies alike for rows of either number, and one recording serves both.
    assert (len(listed), len(made), len(ran)) == (launches, 1, 11)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("setBarrier", "(Not equal to tolerance|no barrier|nothing has written)"),
        ("useResource_usage_", "not resident"),
    ],
)
def test_what_a_recording_leaves_out_is_found(
    fault: str, words: str, driver: MetalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, _ = program(driver, monkeypatch)
    target = stand_in.IndirectCommand if fault == "setBarrier" else stand_in.Encoder
    monkeypatch.setattr(target, fault, lambda *given: None)
    with pytest.raises((AssertionError, DeviceError), match=words):
        check_runs(exe)


def test_pipelines_and_counts_that_metal_refuses_are_refused(driver: MetalDriver) -> None:
    source = placed(driver, np.zeros(8, np.float32))
    call = Call(driver.compile(KERNEL, "text"), 1, [source, source], source, None)
    assert recording.recorded(driver, []) is None
    call.code.handle.is_for_indirect = False
    with pytest.raises(ValueError, match="does not support indirect"):
        recording.recorded(driver, [call])
