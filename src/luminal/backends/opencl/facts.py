"""What a device of OpenCL can do, as far as kernels and launches depend on it."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from luminal.backends.opencl import platforms
from luminal.base.records import dataclass

GPU_GROUP = 64  # one or two of the rows of lanes that GPUs step together
GPU_GROUPS = 16  # for each unit of a GPU: others run while some wait for memory
CPU_GROUPS = 4  # for each core: where chunks are of unequal work, fewer leave cores idle
STANDARD = "-cl-std=CL1.2"
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Where a device does not offer it, quotients and roots are what it makes of them: CPUs round."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`name` and `version` (of the driver) tell where a binary runs; `options` go to the compiler.

    `groups` walk the chunks of a launch at most, of `group` work-items where each is a worker.
    """

    name: str
    version: str
    has_double: bool
    options: tuple[str, ...]
    group: int
    groups: int

    @classmethod
    def of(cls, device: Any) -> Facts:
        """The facts that the device itself says."""
        is_gpu = platforms.is_gpu(device)
        group = min(GPU_GROUP, device.max_work_group_size) if is_gpu else 1
        per_unit = GPU_GROUPS if is_gpu else CPU_GROUPS
        rounds = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        return cls(
            device.name.strip(),
            f"{device.platform.name} {device.driver_version}",
            bool(device.double_fp_config),
            (STANDARD, ROUNDED) if rounds else (STANDARD,),
            group,
            device.max_compute_units * per_unit,
        )
