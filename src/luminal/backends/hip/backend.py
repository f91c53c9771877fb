"""HIP as a backend."""

from __future__ import annotations

from collections.abc import Callable

from luminal.backends.c_backend import CBackend, machine
from luminal.backends.hip import presence
from luminal.base.errors import CompileError
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver

MACHINE = machine("hip", 304, 64 << 10, 256 << 20)
"""An MI300X: programs differ by chip once their schedules do."""


class Hip(CBackend):
    """The backend of HIP through hiprtc and hip-python."""

    base = "hip"
    dialect = HIP

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.hip.driver import HipDriver

        return HipDriver(spell, number)


def current(number: int = 0) -> Hip:
    """The backend of a HIP device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    return Hip(MACHINE, number)


def count() -> int:
    """The number of HIP devices."""
    return presence.device_count()
