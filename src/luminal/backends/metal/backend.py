"""Metal as a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from luminal.backends.c_backend import CBackend
from luminal.backends.metal import chips, presence, shaders
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.metal import METAL
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver


class Metal(CBackend):
    """The backend of the Metal Shading Language through pyobjc."""

    base = "metal"
    dialect = METAL
    dispatches = ("graph", "list")
    chips = chips.CHIPS
    walkers = 3  # of 128 lanes, on chips of 40 units

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.metal.driver import MetalDriver

        return MetalDriver(spell, number)


def current(number: int = 0) -> Metal:
    """The backend of a Metal device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    backend = Metal.of(chips.present(presence.devices()[number]), number)
    target = replace(backend.target, libraries=shaders.installed())
    return replace(backend, target=target)


def named(chip: str) -> Metal:
    """The backend of a chip that need not be here. Raises CompileError for an unknown one."""
    return Metal.named(chip)


def count() -> int:
    """The number of Metal devices."""
    return len(presence.devices())
