"""OpenCL as a backend."""

from __future__ import annotations

from collections.abc import Callable

from luminal.backends import device_costs
from luminal.backends.c_backend import CBackend, machine
from luminal.backends.opencl import platforms
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.opencl import OPENCL
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import Driver
from luminal.schedule.groups.facts import Groups

LANES = 128  # of a group of a GPU where nothing speaks for others
ROW = 16  # lanes of a GPU that exchange values, where a kernel may say how many do


class OpenCl(CBackend):
    """The backend of OpenCL C through pyopencl."""

    base = "opencl"
    dialect = OPENCL

    @property
    def hardware(self) -> str:
        """The device as its platform names it."""
        device = platforms.devices()[self.number or 0]
        return f"{device.name.strip()} ({device.platform.name.strip()}), {self.target.cores} units"

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        from luminal.backends.opencl.driver import OpenClDriver

        return OpenClDriver(spell, number)


def current(number: int = 0) -> OpenCl:
    """The backend of an OpenCL device. Raises CompileError where there is none."""
    device = platforms.devices()[number]
    units, shared = device.max_compute_units, device.local_mem_size
    # A CPU's compilers make a vector of the lanes of a group: more of them are a loop, and so is a
    # group from barrier to barrier.
    is_gpu = platforms.is_gpu(device)
    lanes = LANES if is_gpu else device.native_vector_width_float
    most = device.max_work_group_size
    subgroup = ROW if is_gpu and platforms.can_exchange(device) else 1  # CPUs take a call for that
    groups = Groups(lanes, most, shared, lanes > 1, subgroup, in_vectors=not is_gpu)
    target = machine("opencl", units, shared, device.global_mem_cache_size)
    costs_of = device_costs.gpu if is_gpu else device_costs.cores
    return OpenCl(target, number, groups, costs_of)


def count() -> int:
    """The devices of all platforms. Raises CompileError where there is none."""
    return len(platforms.devices())
