"""OpenCL's devices as the runtime has them, and the machine that programs are made for."""

from __future__ import annotations

import functools

from luminal.backends.opencl import platforms
from luminal.backends.opencl.driver import OpenClDriver
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.codegen.c_family.opencl import OPENCL
from luminal.runtime.device import Device
from luminal.target import Target

SCALARS = 8
"""Bits of a vector register: the widest that holds one element of any dtype, so none holds two."""
REGISTERS = 32  # of a work-item: half of what 64 leave on a GPU's unit that is full


@functools.cache
def device(number: int = 0) -> Device:
    """The device `opencl:number`. Raises CompileError where there is none."""
    return Device(OpenClDriver(lambda kernel: spell_tiles(kernel, OPENCL), number))


@functools.cache
def target(number: int = 0) -> Target:
    """The device as a machine of scalars."""
    found = platforms.devices()[number]
    return Target(
        name="opencl",
        vector_bits=SCALARS,
        registers=REGISTERS,
        dots=(),
        cores=found.max_compute_units,
        l1_bytes=found.local_mem_size,
        l2_bytes=found.global_mem_cache_size,
        l3_bytes=found.global_mem_cache_size,
    )
