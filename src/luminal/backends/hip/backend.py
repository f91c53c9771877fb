"""HIP as a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from luminal.backends.c_backend import CBackend
from luminal.backends.hip import chips, hipblaslt, presence, rocblas
from luminal.base.errors import CompileError
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver


class Hip(CBackend):
    """The backend of HIP through hiprtc and hip-python."""

    base = "hip"
    dialect = HIP
    dispatches = ("graph", "list", "one")
    chips = chips.CHIPS
    walkers = 4

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.hip.driver import HipDriver

        return HipDriver(spell, number)


def current(number: int = 0) -> Hip:
    """The backend of a HIP device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    backend = Hip.of(chips.present(presence.properties(number)), number)
    target = replace(backend.target, libraries=hipblaslt.installed() or rocblas.installed())
    return replace(backend, target=target)


def named(chip: str) -> Hip:
    """The backend of a chip that need not be here. Raises CompileError for an unknown one."""
    return Hip.named(chip)


def count() -> int:
    """The number of HIP devices."""
    return presence.device_count()
