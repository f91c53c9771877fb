"""Kernels by groups in every dialect: right as they are, caught without one of their barriers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luminal.backends.c_backend import CCode
from luminal.backends.opencl import platforms
from luminal.codegen.c_family.kernel import Spelled, spell, spell_tiles
from luminal.expand import ir
from luminal.expand.expand import expand
from luminal.kernel.barriers import exchanging, in_shared_memory, with_barriers
from luminal.kernel.tile_ir import Kernel
from luminal.kernel.tile_text import to_text
from luminal.runtime.driver import DevicePointer, Driver
from luminal.shape.expression import const
from tests.backends.c_family.dialects import CHECKED, DIALECTS, driver
from tests.backends.c_family.launches import enqueue, scratch_bytes
from tests.expand.group_kernels import reversal, row_sums
from tests.simt.driver import CheckedDriver
from tests.simt.launching import DeviceFault

KERNELS = {
    "row sums": row_sums(5, 37, 8, 4, 2),
    "row sums, exchanged": exchanging(row_sums(5, 37, 16, 4, 2), 16),
    "row sums, exchanged from row to row": exchanging(row_sums(5, 37, 16, 2, 2), 4),
    "row sums by wide loads": row_sums(5, 64, 4, 4, 1, run=4),
    "row sums by masked wide loads": row_sums(5, 44, 4, 4, 2, run=4),
    "reversal": with_barriers(in_shared_memory(reversal(), 1000)),
    "reversal in scratch": with_barriers(reversal()),
}


def launched(device: Driver, kernel: Kernel) -> None:
    """Runs it by two groups, a reversal, whose chunks write the same, by one; checks the result."""
    (n, rows) = (buffer.size.constant for buffer in kernel.buffers)
    x = np.random.default_rng(0).integers(-8, 8, n).astype(np.float32)
    expected = x[::-1] if rows == n else x.reshape(rows, -1).sum(1)
    code = device.compile(kernel, to_text(kernel))
    assert code.lanes == kernel.lanes
    source, target = (DevicePointer(device.allocate(4 * size)) for size in (n, rows))
    device.write(source, x)
    groups = 1 if rows == n else 2
    stride = scratch_bytes(code, ())
    scratch = DevicePointer(device.allocate(groups * stride)) if stride else None
    enqueue(device, code, kernel.grid[0].count.constant, groups, [source, target], (), scratch)
    found = np.zeros(rows, np.float32)
    device.read(target, found)
    np.testing.assert_array_equal(found, expected)


def tiles(name: str) -> Driver:
    """A device of the dialect that takes tile IR."""
    device, dialect = driver(name), DIALECTS[name]
    if name in CHECKED:
        return CheckedDriver(name, dialect, lambda kernel: spell_tiles(kernel, dialect))
    return type(device)(lambda kernel: spell_tiles(kernel, dialect))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_groups_share_their_work(name: str, kernel: str) -> None:
    device = tiles(name)  # skips where no text can be run
    by_exchange = KERNELS[kernel].subgroup > 1
    if by_exchange and name == "opencl" and not platforms.can_exchange(platforms.devices()[0]):
        pytest.skip("lanes exchange no values on this device of OpenCL")
    launched(device, KERNELS[kernel])


def without(body: tuple[ir.Statement, ...], number: list[int]) -> tuple[ir.Statement, ...]:
    """A body without its barrier of that number, counted down."""
    kept: list[ir.Statement] = []
    for statement in body:
        number[0] -= isinstance(statement, ir.Barrier)
        if not (isinstance(statement, ir.Barrier) and number[0] == 0):
            kept.append(statement)
    return tuple(kept)


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_barrier_is_caught(name: str, missing: int) -> None:
    dialect = DIALECTS[name]
    driver(name)  # skips where no text can be run

    def spelled(kernel: Kernel) -> Spelled:
        whole = expand(kernel)
        body = without(whole.body, [missing])
        assert len(body) == len(whole.body) - 1
        return spell(replace(whole, body=body), dialect)

    device = CheckedDriver(name, dialect, spelled)
    with pytest.raises(DeviceFault, match=r"with no barrier between them|nothing has written"):
        launched(device, KERNELS["reversal"])


@pytest.mark.parametrize("name", CHECKED)
def test_a_barrier_that_some_lanes_miss_is_caught(name: str) -> None:
    dialect = DIALECTS[name]
    driver(name)

    def spelled(kernel: Kernel) -> Spelled:
        made = spell_tiles(kernel, dialect)
        lane = f"v{made.expanded.lane.id}" if made.expanded.lane is not None else ""
        text = made.text.replace(dialect.barrier, f"if ({lane} < 2) {{ {dialect.barrier} }}", 1)
        return replace(made, text=text)

    device = CheckedDriver(name, dialect, spelled)
    with pytest.raises(DeviceFault, match=r"waits at a barrier while"):
        launched(device, KERNELS["reversal"])


def much() -> Kernel:
    """A reversal beside 52,000 bytes of shared memory."""
    kernel = in_shared_memory(reversal(), 1000)
    (row,) = kernel.scratch
    more = replace(row, name="more", size=const(13_000))
    return with_barriers(replace(kernel, scratch=(more, row)))


def test_memory_beyond_what_a_text_may_declare_is_given_by_the_launch() -> None:
    device, kernel = tiles("cuda"), much()
    made = spell_tiles(kernel, DIALECTS["cuda"])
    assert made.dynamic_bytes == 52_096 + 128
    assert "extern __shared__" in made.text
    launched(device, kernel)
    assert spell_tiles(kernel, DIALECTS["hip"]).dynamic_bytes == 0


def test_a_launch_that_gives_too_little_memory_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    device, kernel = tiles("cuda"), much()
    monkeypatch.setattr(CCode, "dynamic_bytes", 52_096)
    with pytest.raises(DeviceFault, match="out of bounds"):
        launched(device, kernel)
