"""The Metal driver over a module that stands in for pyobjc's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from luminal.backends.metal import presence
from luminal.backends.metal.driver import MetalDriver
from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.metal import METAL
from luminal.runtime.driver import DeviceError, DevicePointer
from tests.backends.c_family.driver_cases import KERNEL, DriverCases, placed
from tests.backends.c_family.launches import enqueue
from tests.backends.metal import stand_in
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
