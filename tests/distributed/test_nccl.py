"""Ranks on devices, over stand-ins for a driver and its library of collectives (tests/simt)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from luminal.backends import registry
from tests.distributed.cards import VENDOR, libraries
from tests.long_share import long_rows
from tests.simt import stand_in

CASES = Path(__file__).with_name("nccl_cases.py")
SHORT = [(registry.CUDA, "not long")]


@pytest.mark.parametrize(
    ("vendor", "share"),
    long_rows(product([registry.CUDA, registry.ROCM], ["not long", "long"]), SHORT),
)
def test_ranks_on_devices(vendor: str, share: str) -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    stand_in.run(CASES, libraries(vendor), "-m", share, STAND_IN_DEVICES="4", **{VENDOR: vendor})
