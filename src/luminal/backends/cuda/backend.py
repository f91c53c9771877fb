"""CUDA as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import chips, cublaslt, nvrtc, presence, sass
from luminal.base.errors import CompileError
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver


class Cuda(CBackend):
    """The backend of CUDA C++ through NVRTC and cuda-core."""

    base = "cuda"
    walkers = 32  # the driver asks how many fit, which a unit never exceeds
    dialect = CUDA
    dispatches = ("graph", "list", "one")
    chips = chips.CHIPS

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.cuda.driver import CudaDriver

        return CudaDriver(spell, number)

    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]:
        """Expanded IR, the text, then the chip's machine code."""
        return {**super().renderers, "sass": self.machine_code}

    def machine_code(self, kernel: Kernel) -> str:
        """The machine code that NVRTC makes of the kernel for the chip, as nvdisasm shows it.

        Raises CompileError where one of the two is not installed.
        """
        assert self.chip is not None
        return sass.of(nvrtc.compile(self.text(kernel), self.chip.name).code)


def current(number: int = 0) -> Cuda:
    """The backend of a CUDA device. Raises CompileError where there is none."""
    reason = presence.absence()
    if reason is not None:
        raise CompileError(reason)
    backend = Cuda.of(chips.present(number), number)
    target = replace(backend.target, libraries=cublaslt.installed())
    return replace(backend, target=target)


def named(chip: str) -> Cuda:
    """The backend of a chip that need not be here. Raises CompileError for an unknown one."""
    return Cuda.named(chip)


def count() -> int:
    """The number of CUDA devices."""
    return presence.device_count()
