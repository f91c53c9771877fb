"""The dialects, and where their kernels run here: on a device, else on the CPU and checked."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.opencl import OPENCL
from luminal.expand.ir import Kernel
from luminal.runtime.driver import Driver, Place
from tests.backends.c_family.kernels import tile_kernel
from tests.simt import compiling
from tests.simt.driver import CheckedDriver

Array = np.ndarray[Any, Any]
DIALECTS = {"opencl": OPENCL, "cuda": CUDA, "hip": HIP}


@cache
def driver(name: str) -> Driver:
    """For kernels that are expanded already; skips the test where there is none."""
    if name == "opencl":
        from tests.backends.opencl import devices

        return devices.driver()
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    dialect = DIALECTS[name]
    return CheckedDriver(name, dialect, lambda kernel: spell(kernel.expanded, dialect))


def run(
    device: Driver, kernel: Kernel, arrays: list[Array], n: int, *, chunks: int | None = None,
    workers: int = 3,
) -> Array:  # fmt: skip
    """Runs `chunks` (n) of a kernel over arrays, which are overwritten by what it leaves in them.

    Returns the workers' scratch memory, a row each.
    """
    code = device.compile(tile_kernel(kernel), kernel.text)
    blocks = [device.allocate(max(1, x.nbytes) + 64) for x in arrays]
    for block, array in zip(blocks, arrays, strict=True):
        device.write(Place(block, 64), array)
    stride = code.scratch_bytes((n,))
    scratch = Place(device.allocate(workers * stride + 64), 64) if stride else None
    places = [Place(block, 64) for block in blocks]
    device.enqueue(code, n if chunks is None else chunks, workers, places, (n,), scratch)
    for block, array in zip(blocks, arrays, strict=True):
        device.read(Place(block, 64), array)
        device.free(block)
    work = np.zeros((workers, stride), np.uint8)
    if scratch is not None:
        device.read(scratch, work)
        device.free(scratch.block)
    return work
