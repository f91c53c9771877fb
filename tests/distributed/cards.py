"""The devices of the vendor whose stand-ins this process finds: what cases say of NVIDIA's and of
AMD's alike.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from luminal.backends import registry
from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in

VENDOR = "STAND_IN_VENDOR"
"""The environment variable that says which one: a name of the backends."""


@dataclass(frozen=True)
class Cards:
    """A vendor's: the backend of its devices, its driver's library and how texts are compiled."""

    vendor: str
    soname: str
    compiler_stands_in: Callable[..., AbstractContextManager[list[str]]]

    def name(self, rank: int) -> str:
        """The device of a rank."""
        return f"{self.vendor}:{rank}"

    def backend(self, rank: int) -> Any:
        """What compiles for it."""
        return registry.find(self.name(rank))

    @cached_property
    def driver(self) -> Any:
        """The driver's functions that are for tests."""
        return ctypes.CDLL(self.soname)

    @cached_property
    def library(self) -> Any:
        """Those of the library of collectives, which looks for the driver where it is loaded."""
        assert self.driver
        return ctypes.CDLL(stand_in.NCCL[self.soname])

    @property
    def bindings(self) -> Any:
        """The class that asks the library of collectives."""
        return type(self.backend(0).memory.driver.library())

    @property
    def queues(self) -> Any:
        """The class of the queues beside the main one."""
        return type(self.backend(0).memory.driver.queues())

    @property
    def title(self) -> str:
        """What errors call the library of collectives."""
        row = registry.BACKENDS[self.vendor]
        return str(import_module(row.library).NAME)

    @property
    def of_ranks(self) -> str:
        """The class that gives each rank one of these devices."""
        return {registry.CUDA: "NcclBackend", registry.ROCM: "RcclBackend"}[self.vendor]


KINDS = {
    cards.vendor: cards
    for cards in (
        Cards(registry.CUDA, stand_in.CUDA, stand_in.nvrtc_stands_in),
        Cards(registry.ROCM, stand_in.HIP, stand_in.hiprtc_stands_in),
    )
}


def libraries(vendor: str) -> Sequence[Path]:
    """The stand-ins of a vendor's driver and library of collectives; skips where none is made."""
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


CARDS = KINDS[os.environ.get(VENDOR, registry.CUDA)]
