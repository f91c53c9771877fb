"""CUDA as a backend."""

from __future__ import annotations

from collections.abc import Callable

from luminal.backends.c_backend import CBackend, machine
from luminal.backends.cuda import presence
from luminal.base.errors import CompileError
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver

MACHINE = machine("cuda", 132, 228 << 10, 50 << 20)
"""An H100: programs differ by chip once their schedules do."""


class Cuda(CBackend):
    """The backend of CUDA C++ through NVRTC and cuda-core."""

    base = "cuda"
    dialect = CUDA

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.cuda.driver import CudaDriver

        return CudaDriver(spell, number)


def current(number: int = 0) -> Cuda:
    """The backend of a CUDA device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    return Cuda(MACHINE, number)


def count() -> int:
    """The number of CUDA devices."""
    return presence.device_count()
