"""What LLVM IR the walk writes of kernels of expanded IR that no expansion makes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from luminal.backends.cpu import compiler, machine_code
from luminal.backends.cpu.target import detect
from luminal.codegen import llvm_walk
from luminal.dtypes import int64
from luminal.expand import interpreter
from luminal.expand.builder import Builder, integer
from luminal.expand.ir import INDEX, Kernel
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Buffer, Role, Space
from luminal.shape.expression import ONE, ZERO, const

ABI = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)


def counting(start: int, stop: int, step: int) -> Kernel:
    """y[0] is how often a loop ran, y[1] its last index, or -1; y[2 + i] is 1 where it was at i."""
    b = Builder()
    chunk = b.open(INDEX)
    with b.loop(integer(start), integer(stop), step, (integer(0), integer(-1))) as loop:
        b.store("y", loop.index, integer(1), None, 2)
        loop.next = (b.op("add", loop.inner[0], 1), loop.index)
    for at, result in enumerate(loop.results):
        b.store("y", integer(0), result, None, at)
    body = b.close()
    y = Buffer("y", int64, const(12), Space.GLOBAL, Role.OUT)
    return Kernel((), (y,), (), ZERO, ONE, b.close(), chunk, body)


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(0, 0, 1), (3, 3, 1), (5, 2, 1), (0, 1, 1), (0, 1, 4), (2, 10, 1), (1, 8, 3)],
)
def test_loops_with_known_bounds_run_as_often_as_they_should(
    start: int, stop: int, step: int
) -> None:
    kernel = counting(start, stop, step)
    verify(kernel)
    expected, found = np.zeros(12, np.int64), np.zeros(12, np.int64)
    interpreter.run(kernel, {"y": expected}, {})
    here = detect()
    code = compiler.load(machine_code.compile_object(llvm_walk.render(kernel, here), here))
    slots = np.array([found.ctypes.data], np.int64)
    ABI(code.address)(slots.ctypes.data, slots.ctypes.data, 0, 1, None)
    np.testing.assert_array_equal(found, expected)
    assert found[0] == len(range(start, stop, step))
