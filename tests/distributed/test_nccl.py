"""Ranks on devices, over stand-ins for a driver and its library of collectives (tests/simt)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from luminal.backends import registry
from luminal.backends.cuda import presence
from tests.distributed.cards import VENDOR
from tests.simt import compiling, stand_in

CASES = Path(__file__).with_name("nccl_cases.py")


def _libraries(vendor: str) -> Sequence[Path]:
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    if stand_in.headers() is None:
        pytest.skip("cuda.h, which the stand-ins take their records from, needs the extra cuda")
    if vendor == registry.CUDA:
        packages = (*presence.PACKAGES, "nccl.bindings")
    else:
        packages = ("hip", "rocm.bindings.rccl")
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed (an extra for devices)")
    if vendor == registry.CUDA:
        return stand_in.library(stand_in.CUDA), stand_in.nccl_library(stand_in.CUDA)
    flags = stand_in.hip_flags(import_module("hip").hip)
    return stand_in.library(stand_in.HIP, *flags), stand_in.nccl_library(stand_in.HIP)


@pytest.mark.parametrize("vendor", [registry.CUDA, registry.ROCM])
def test_ranks_on_devices(vendor: str) -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    libraries = _libraries(vendor)
    stand_in.run(CASES, libraries, STAND_IN_DEVICES="4", **{VENDOR: vendor})
