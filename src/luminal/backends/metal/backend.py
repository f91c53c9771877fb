"""Metal as a backend."""

from __future__ import annotations

from collections.abc import Callable

from luminal.backends.c_backend import CBackend, machine
from luminal.backends.metal import presence
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.metal import METAL
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver

MACHINE = machine("metal", 40, 32 << 10, 48 << 20)
"""An M3 Max: programs differ by chip once their schedules do."""


class Metal(CBackend):
    """The backend of the Metal Shading Language through pyobjc."""

    base = "metal"
    dialect = METAL

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.metal.driver import MetalDriver

        return MetalDriver(spell, number)


def current(number: int = 0) -> Metal:
    """The backend of a Metal device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    return Metal(MACHINE, number)


def count() -> int:
    """The number of Metal devices."""
    return len(presence.devices())
