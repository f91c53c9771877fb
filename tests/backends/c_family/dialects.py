"""The dialects, and where their kernels run here: on a device, else on the CPU and checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from luminal.backends.c_backend import CBackend, machine
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.codegen.c_family.dialect import Dialect
from luminal.codegen.c_family.kernel import Spelled, spell
from luminal.expand.ir import Kernel
from luminal.expand.text import to_text
from luminal.kernel import tile_ir
from luminal.runtime.driver import DevicePointer, Driver
from luminal.schedule.groups.facts import Groups
from tests.backends.c_family import present
from tests.backends.c_family.kernels import tile_kernel
from tests.backends.c_family.launches import enqueue, scratch_bytes
from tests.backends.c_family.present import ABSENT, KINDS, PRESENT
from tests.simt import compiling
from tests.simt.driver import CheckedDriver

Array = np.ndarray[Any, Any]


DIALECTS: dict[str, Dialect] = {name: kind.dialect for name, kind in KINDS.items()}
CHECKED = tuple(name for name in DIALECTS if name in compiling.LANGUAGES)
"""Those whose texts the shims run."""


def among(name: str) -> list[DType]:
    """The dtypes that a dialect has: f16 and bf16 are words everywhere."""
    return [each for each in dtypes.ALL if each.is_storage or each.short in DIALECTS[name].types]


@cache
def checked(name: str) -> CBackend:
    """Whole programs, on the shims; skips the test where they cannot be built."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    own, language = DIALECTS[name], name

    class Checked(CBackend):
        dialect = own

        @staticmethod
        def driver(spell: Callable[[tile_ir.Kernel], Spelled], number: int) -> Driver:
            return CheckedDriver(language, own, spell, ("ascending",))

    Checked.base = name
    groups = Groups(8, 16, 20 << 10, is_rule=True, subgroup=4, begins_early=bool(own.depend))
    return Checked(machine(name, 2, 32 << 10, 1 << 20), groups=groups)


@cache
def checked_driver(name: str) -> Driver:
    """The shims, for expanded kernels; skips the test where they cannot be built."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    dialect = DIALECTS[name]
    return CheckedDriver(name, dialect, lambda kernel: spell(kernel.expanded, dialect))


def driver(name: str) -> Driver:
    """The device, or the shims, for expanded kernels; skips the test where there is neither."""
    if name in PRESENT:
        return present.driver(name)
    if name not in CHECKED:
        pytest.skip(f"{ABSENT[name]}; and tests/simt/compiling.py knows no {name}")
    return checked_driver(name)


def run(
    device: Driver, kernel: Kernel, arrays: list[Array], n: int, *, chunks: int | None = None,
    workers: int = 3,
) -> Array:  # fmt: skip
    """Runs `chunks` (n) of a kernel over arrays, which are overwritten by what it leaves in them.

    Returns the workers' scratch memory, a row each.
    """
    code = device.compile(tile_kernel(kernel), to_text(kernel))
    blocks = [device.allocate(max(1, x.nbytes) + 64) for x in arrays]
    for block, array in zip(blocks, arrays, strict=True):
        device.write(DevicePointer(block, 64), array)
    stride = scratch_bytes(code, (n,))
    scratch = DevicePointer(device.allocate(workers * stride + 64), 64) if stride else None
    places = [DevicePointer(block, 64) for block in blocks]
    enqueue(device, code, n if chunks is None else chunks, workers, places, (n,), scratch)
    for block, array in zip(blocks, arrays, strict=True):
        device.read(DevicePointer(block, 64), array)
        device.free(block)
    work = np.zeros((workers, stride), np.uint8)
    if scratch is not None:
        device.read(scratch, work)
        device.free(scratch.block)
    return work
