"""What LLVM IR the walk writes of kernels of expanded IR that no expansion makes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from luminal.backends.cpu import compiler, machine_code
from luminal.backends.cpu.target import detect
from luminal.base.dtypes import int64
from luminal.codegen import llvm_walk
from luminal.expand import interpreter
from luminal.expand.builder import Builder, integer
from luminal.expand.ir import INDEX, Kernel, Operand, Type
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
    (found,) = checked(counting(start, stop, step), {"y": np.zeros(12, np.int64)})
    assert found[0] == len(range(start, stop, step))


MASKED = 1 << 40  # elements from everything
LOADS = [(lanes, distance) for lanes in (1, 4) for distance in (0, -7, 9, 4000, -4000)]


def masked(level: int, asked: int) -> Kernel:
    """Loads where a chunk, or a position in one of two loops, is 0; elsewhere there is nothing that
    could be loaded. The address changes with what the bits of `asked` name.
    """
    b, size = Builder(), 6 * len(LOADS) * 4
    chunk = b.open(INDEX)
    with b.loop(integer(0), integer(2), 1) as outer, b.loop(integer(0), integer(3), 1) as inner:
        places = (chunk, outer.index, inner.index)
        where = b.op("eq", places[level], 0, hoisted=True)
        address: Operand = integer(4500)
        for k, place in enumerate(places):
            if k == level or asked >> k & 1:
                step = MASKED if k == level else 10 ** (k + 1)
                part = b.op("mul", place, step, hoisted=True)
                address = b.op("add", address, part, hoisted=True)
        at = b.op("mul", chunk, size)
        at = b.op("add", at, b.op("mul", outer.index, size // 2))
        at = b.op("add", at, b.op("mul", inner.index, size // 6))
        for n, (count, distance) in enumerate(LOADS):
            value = b.load(Type(int64, count), "x", address, b.spread(where, count), distance)
            b.store("y", at, value, None, 4 * n)
    body = b.close()
    x = Buffer("x", int64, const(12000), Space.GLOBAL, Role.IN)
    y = Buffer("y", int64, const(2 * size), Space.GLOBAL, Role.OUT)
    return Kernel((), (x, y), (), ZERO, const(2), b.close(), chunk, body)


@pytest.mark.parametrize("asked", range(8))
@pytest.mark.parametrize("level", range(3))
def test_a_mask_chooses_pointers_wherever_it_is_known(level: int, asked: int) -> None:
    kernel = masked(level, asked)
    x = np.arange(1, 12001)
    found = checked(kernel, {"x": x, "y": np.full(12 * len(LOADS) * 4, -1)})[1]
    assert (found > 0).any()
    assert (found == 0).any()


def checked(kernel: Kernel, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The arrays after the kernel has run; they are as the interpreter leaves them."""
    verify(kernel)
    expected = {name: array.copy() for name, array in arrays.items()}
    interpreter.run(kernel, expected, {})
    here = detect()
    code = compiler.load(machine_code.compile_object(llvm_walk.render(kernel, here), here))
    found = [array.copy() for array in arrays.values()]
    slots = np.array([array.ctypes.data for array in found], np.int64)
    chunks = kernel.chunks.value
    ABI(code.address)(slots.ctypes.data, slots.ctypes.data, 0, chunks, None)
    for array, other in zip(found, expected.values(), strict=True):
        np.testing.assert_array_equal(array, other)
    return found
