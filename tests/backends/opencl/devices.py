"""The device that the tests run on, or the reason to skip them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.opencl import OPENCL
from luminal.errors import CompileError
from luminal.expand.ir import Kernel
from luminal.runtime.driver import Place
from tests.backends.c_family.kernels import tile_kernel

Array = np.ndarray[Any, Any]

platforms = pytest.importorskip("luminal.backends.opencl.platforms")
try:
    platforms.devices()
except CompileError as error:
    pytest.skip(str(error), allow_module_level=True)

OpenClDriver = pytest.importorskip("luminal.backends.opencl.driver").OpenClDriver


def driver() -> Any:
    """A new one, for kernels that are expanded already."""
    return OpenClDriver(lambda kernel: spell(kernel.expanded, OPENCL))


def run(
    device: OpenClDriver, kernel: Kernel, arrays: list[Array], n: int, workers: int = 3
) -> None:
    """Runs a kernel over arrays, which are overwritten by what it leaves in them."""
    code = device.compile(tile_kernel(kernel), kernel.text)
    blocks = [device.allocate(max(1, x.nbytes) + 64) for x in arrays]
    for block, array in zip(blocks, arrays, strict=True):
        device.write(Place(block, 64), array)
    stride = code.scratch_bytes((n,))
    scratch = Place(device.allocate(workers * stride + 64), 64) if stride else None
    places = [Place(block, 64) for block in blocks]
    device.enqueue(code, n, workers, places, (n,), scratch)
    for block, array in zip(blocks, arrays, strict=True):
        device.read(Place(block, 64), array)
        device.free(block)
    if scratch is not None:
        device.free(scratch.block)
