"""A device of OpenCL as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from luminal.backends.cpu import costs
from luminal.backends.cpu.schedule.steps import VectorSchedules
from luminal.backends.opencl import device, platforms
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.codegen.c_family.opencl import OPENCL
from luminal.costs import Costs
from luminal.kernel.tile_ir import Kernel
from luminal.program.launch_list import Program
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.target import Target


@dataclass(frozen=True, slots=True)
class OpenCl:
    """OpenCL C, compiled by the device's driver; scheduled as for cores without vectors."""

    target: Target
    number: int = 0
    makers: tuple[str, ...] = (
        "luminal.codegen.c_family.kernel",
        "luminal.codegen.c_family.opencl",
    )

    @property
    def name(self) -> str:
        """As users name the device."""
        return f"opencl:{self.number}" if self.number else "opencl"

    @property
    def memory(self) -> Device:
        """The device's."""
        return device.device(self.number)

    @property
    def costs(self) -> Costs:
        """Those that a CPU of so many cores would have."""
        return costs.of(self.target)

    @property
    def schedules(self) -> VectorSchedules:
        """Those of vectors in registers, each of one element."""
        return VectorSchedules(self.target)

    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]:
        """OpenCL C."""
        return {"opencl": lambda kernel: spell_tiles(kernel, OPENCL).text}

    def begin(self, kernel: Kernel, text: str) -> None:
        """Nothing: the driver compiles in this process."""

    def compile(self, kernel: Kernel, text: str) -> object:
        """By the driver, which keeps what it compiled."""
        return self.memory.compile(kernel, text)

    def runner(self, program: Program) -> DeviceRunner:
        """The program on the device."""
        return DeviceRunner(program, self.memory)


def current(number: int = 0) -> OpenCl:
    """A device. Raises CompileError where there is none."""
    return OpenCl(device.target(number), number)


def count() -> int:
    """The devices of all platforms. Raises CompileError where there is none."""
    return len(platforms.devices())
