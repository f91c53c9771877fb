"""The CUDA driver over the stand-in: run by test_driver.py in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from luminal.backends.cuda import chips, presence
from luminal.backends.cuda.driver import CudaDriver
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.kernel import spell
from luminal.runtime.driver import DevicePointer
from tests.backends.c_family.driver_cases import StandInCases
from tests.simt import stand_in


def _spelled(kernel: Any) -> Any:
    return spell(kernel.expanded, CUDA)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    with stand_in.nvrtc_stands_in(monkeypatch, tmp_path) as architectures:
        yield architectures


@pytest.fixture
def driver(made: list[str]) -> CudaDriver:
    return CudaDriver(_spelled)


class TestCuda(StandInCases):
    architecture = "sm_90a"
    invalid = "INVALID_VALUE"
    failed = "LAUNCH_FAILED"

    def again(self, place: DevicePointer) -> DevicePointer:
        class Freed:
            handle = int(place.block.handle)

        return DevicePointer(Freed(), place.offset)


def test_it_is_present() -> None:
    assert presence.absence() is None
    assert presence.device_count() == 1


def test_facts_are_the_drivers() -> None:
    chip = chips.present(0)
    assert (chip.name, chip.units, chip.cache_bytes) == ("sm_90a", 2, 1 << 20)
    assert chip.memory == 128e9
    assert chip.resident == 2048  # it does not say
