"""The driver over the shims: operands are checked by their own bytes, and may overlap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.codegen.c_family.kernel import Spelled
from luminal.expand.ir import INDEX, Fetch, Value
from luminal.kernel.tile_ir import Role
from luminal.runtime.driver import DevicePointer
from tests.backends.c_family.dialects import checked_driver
from tests.backends.c_family.kernels import Writer, index, tile_kernel
from tests.backends.c_family.launches import enqueue
from tests.simt import compiling
from tests.simt.launching import DeviceFault

pytestmark = pytest.mark.skipif(compiling.compiler() is None, reason="no C++ compiler is installed")


def enqueue_sum(x: DevicePointer, y: DevicePointer, *, ahead: int = 0, chunks: int = 4) -> None:
    """y[i] += x[i + ahead] for four i32."""
    w, device = Writer(), checked_driver("cuda")
    given = w.load("x", dtypes.int32, w.apply("add", w.chunk, index(ahead)))
    w.store("y", w.chunk, w.apply("add", w.load("y", dtypes.int32, w.chunk), given))
    kernel = w.kernel(("x", dtypes.int32, Role.IN), ("y", dtypes.int32, Role.INOUT))
    enqueue(device, device.compile(tile_kernel(kernel), ""), chunks, 2, [x, y], (4,))


def test_operands_that_overlap_lie_in_one_place() -> None:
    block = checked_driver("cuda").allocate(64)
    block.view(np.int32)[:] = np.arange(16)
    enqueue_sum(DevicePointer(block, 20), DevicePointer(block, 20))
    assert block.view(np.int32).tolist() == [0, 1, 2, 3, 4, 10, 12, 14, 16, *range(9, 16)]


def test_a_race_between_operands_is_caught() -> None:
    block = checked_driver("cuda").allocate(64)
    with pytest.raises(DeviceFault, match="with no barrier between them"):
        enqueue_sum(DevicePointer(block, 8), DevicePointer(block, 12))


@pytest.mark.parametrize("place", ["left out", "late", "in a branch"])
def test_a_wait_for_earlier_launches_that_is_not_first_is_caught(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel reads before it has waited may not be written yet."""
    device = checked_driver("cuda")
    spelled = device.spell  # type: ignore[attr-defined]

    def planted(kernel: Any) -> Spelled:
        made = spelled(kernel)
        assert made.text.count("DEPEND;") == 1
        bare = made.text.replace("    DEPEND;\n", "")
        if place == "late":
            end = bare.rindex("}")
            bare = f"{bare[:end]}    DEPEND;\n{bare[end:]}"
        elif place == "in a branch":
            bare = made.text.replace("DEPEND;", "if (worker == 0) DEPEND;")
        return replace(made, text=bare)

    monkeypatch.setattr(device, "spell", planted)
    first, second = (device.allocate(64) for _ in range(2))
    with pytest.raises(DeviceFault, match=r"reads .* before it has waited for earlier launches"):
        enqueue_sum(DevicePointer(first, 8), DevicePointer(second, 8))


def test_a_kernel_without_chunks_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch behind it goes by its end alone."""
    device = checked_driver("cuda")
    spelled = device.spell  # type: ignore[attr-defined]
    block = device.allocate(64)
    enqueue_sum(DevicePointer(block, 8), DevicePointer(block, 8), chunks=0)
    monkeypatch.setattr(
        device, "spell", lambda k: replace(spelled(k), text=spelled(k).text.replace("DEPEND;", ""))
    )
    with pytest.raises(DeviceFault, match="ends without having waited for earlier launches"):
        enqueue_sum(DevicePointer(block, 8), DevicePointer(block, 8), chunks=0)


def test_an_operand_ends_before_its_block() -> None:
    first, second = (checked_driver("cuda").allocate(64) for _ in range(2))
    with pytest.raises(DeviceFault, match="reads 4 bytes out of bounds"):
        enqueue_sum(DevicePointer(first, 8), DevicePointer(second, 8), ahead=1)


def test_a_fetch_ends_with_its_buffer() -> None:
    """What is asked for early need not be used, but it must be there."""
    w, device = Writer(), checked_driver("cuda")
    w.store("y", w.chunk, w.load("x", dtypes.int32, w.chunk))
    kernel = w.kernel(("x", dtypes.int32, Role.IN), ("y", dtypes.int32, Role.OUT))
    places = [DevicePointer(device.allocate(16)) for _ in range(2)]
    for further in (0, 1 << 16):
        first = Value(100, INDEX)
        early = replace(kernel, first=first, early=(Fetch("x", first, further),))
        code = device.compile(tile_kernel(early), "")
        assert "FETCH(&x[" in code.spelled.text
        if not further:
            enqueue(device, code, 4, 2, places, (4,))
            continue
        with pytest.raises(DeviceFault, match="out of bounds"):
            enqueue(device, code, 4, 2, places, (4,))
