"""Programs on the CPU, every launch of a kernel once more by the interpreter of expanded IR.

The code that a runner gets for a kernel calls the native code and then the interpreter on the same
memory as it was before; both must have written the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from luminal.backends.cpu import kernels
from luminal.backends.cpu.linker import LoadedCode
from luminal.base import config
from luminal.base.target import Target
from luminal.codegen.llvm_operations import instructions
from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Buffer, Kernel, Role
from luminal.kernel.tile_text import to_text

Array = np.ndarray[Any, Any]
ABI = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)


@contextmanager
def compared(lanes: int = 1) -> Iterator[Launches]:
    """Kernels that are built inside are run twice, by one thread; the end raises what differed.

    The interpreter is given them expanded to so many lanes.
    """
    launches = Launches(lanes)
    with pytest.MonkeyPatch.context() as patch, config.override(LUMINAL_THREADS=1):
        patch.setattr(kernels, "build", launches.build)
        yield launches
    if launches.faults:
        raise launches.faults[0]


class Launches:
    """How many launches were compared, and what went wrong."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.count = 0
        self.faults: list[BaseException] = []
        self.native = kernels.build
        self.codes: dict[str, Code] = {}

    def build(self, kernel: Kernel, text: str, target: Target) -> Any:
        if kernel.call is not None:
            return self.native(kernel, text, target)
        if text not in self.codes:
            self.codes[text] = Code(self, kernel, self.native(kernel, text, target))
        return self.codes[text]


class Code:
    """In the place of a kernel's loaded code."""

    def __init__(self, launches: Launches, kernel: Kernel, native: LoadedCode) -> None:
        self.launches = launches
        self.kernel = kernel
        self.expanded = expand(kernel, launches.lanes, instructions(()))
        verify(self.expanded)
        self.native = native
        self.run_native = ABI(native.address)
        self.callback = ABI(self.run)

    @property
    def address(self) -> int:
        address = ctypes.cast(self.callback, ctypes.c_void_p).value
        assert address is not None
        return address

    def run(self, slots: int, dims: int, begin: int, end: int, scratch: int) -> None:
        try:
            self.compare(slots, dims, begin, end, scratch)
        except BaseException as error:  # an exception would end at the caller's C
            error.add_note(f"of this kernel:\n{to_text(self.kernel)}")
            self.launches.faults.append(error)

    def compare(self, slots: int, dims: int, begin: int, end: int, scratch: int) -> None:
        kernel = self.kernel
        values = (ctypes.c_int64 * len(kernel.params)).from_address(dims or slots)
        params = {p.name: int(n) for p, n in zip(kernel.params, values, strict=True)}
        pointers = (ctypes.c_void_p * len(kernel.buffers)).from_address(slots)
        memory = {
            b.name: bytes_of(b, at, params) for b, at in zip(kernel.buffers, pointers, strict=True)
        }
        before = {b.name: memory[b.name].copy() for b in kernel.buffers}
        self.run_native(slots, dims, begin, end, scratch)
        if not any(memory[b.name].size for b in kernel.buffers if b.role is not Role.IN):
            return  # with nothing to write, a kernel may read beside its empty operands
        found = {b.name: before[b.name].view(b.dtype.numpy) for b in kernel.buffers}
        interpreter.run(self.expanded, found, params, range(begin, end))
        for buffer in kernel.buffers:
            if buffer.role is not Role.IN:
                expected = memory[buffer.name].view(buffer.dtype.numpy)
                same_bits(buffer.name, found[buffer.name], expected)
        self.launches.count += 1


def bytes_of(buffer: Buffer, address: int | None, params: dict[str, int]) -> Array:
    """The memory of an operand."""
    size = int(buffer.size.evaluate(params)) * buffer.dtype.size
    if not size:
        return np.empty(0, np.uint8)
    assert address is not None
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def same_bits(name: str, found: Array, expected: Array) -> None:
    """Equal bytes, but that any NaN equals any."""
    if found.tobytes() == expected.tobytes():
        return
    bits = f"u{found.itemsize}"
    differ = found.view(bits) != expected.view(bits)
    if found.dtype.kind not in "iub":
        differ &= ~(np.isnan(found) & np.isnan(expected))
    places = np.flatnonzero(differ)
    shown = [(int(p), found[p], expected[p]) for p in places[:5]]
    assert not len(places), f"{name}: {len(places)} of {found.size} differ: {shown}"
