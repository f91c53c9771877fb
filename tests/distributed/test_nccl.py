"""Ranks on devices, over stand-ins for a driver and its library of collectives (tests/simt)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends import registry
from tests.distributed.cards import VENDOR, libraries
from tests.long_share import mostly_long
from tests.simt import stand_in

CASES = Path(__file__).with_name("nccl_cases.py")


@pytest.mark.parametrize("vendor", mostly_long([registry.CUDA, registry.ROCM], 1))
def test_ranks_on_devices(vendor: str) -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    stand_in.run(CASES, libraries(vendor), STAND_IN_DEVICES="4", **{VENDOR: vendor})
