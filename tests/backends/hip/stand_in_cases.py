"""The HIP driver over the stand-in: run by test_driver.py in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from luminal.backends.hip import chips, presence
from luminal.backends.hip.driver import HipDriver
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import spell
from tests.backends.c_family.driver_cases import StandInCases
from tests.simt import stand_in


def _spelled(kernel: Any) -> Any:
    return spell(kernel.expanded, HIP)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    with stand_in.hiprtc_stands_in(monkeypatch, tmp_path) as architectures:
        yield architectures


@pytest.fixture
def driver(made: list[str]) -> HipDriver:
    return HipDriver(_spelled)


class TestHip(StandInCases):
    architecture = "gfx942:sramecc+:xnack-"
    invalid = "hipErrorInvalidValue"
    failed = "hipErrorLaunchFailure"


def test_it_is_present() -> None:
    assert presence.absence() is None
    assert presence.device_count() == 1


def test_facts_are_rocms() -> None:
    chip = chips.present(presence.properties(0))
    assert (chip.name, chip.units, chip.like) == ("gfx942", 2, "")
