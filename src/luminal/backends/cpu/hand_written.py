"""Hand-written kernels on the CPU: IR that is checked first, Python that native code calls back.

A Python function runs on the thread that runs the program, inside the one native entry: its launch
is serial, the other members of the team leave it to the caller.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from luminal.backends.cpu import linker, systems
from luminal.backends.cpu.launch_ir import KERNEL
from luminal.backends.cpu.team import Records
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError, GraphError
from luminal.codegen import llvm_custom
from luminal.codegen.llvm_product import SYMBOLS
from luminal.kernel.tile_ir import Call, Kernel
from luminal.runtime.arrays import Array


def check_ir(call: Call) -> None:
    """Raises CompileError, which names the kernel, unless its IR is valid and fits the call.

    A Python function has nothing to check.
    """
    if call.kernel.ir is None:
        return
    from luminal.backends.cpu import machine_code

    # Checked before anything runs: native code with another signature would read arguments from
    # registers that nobody has set.
    name, wanted = call.kernel.name, llvm_custom.signature(call)
    try:
        functions, foreign = machine_code.functions(call.kernel.ir)
    except CompileError as error:
        raise CompileError(f"{name}: {error}") from None
    signature = functions.get(name)
    rule = (
        f"it takes a pointer for each of {len(call.operands)} operands and {len(call.results)} "
        f"results, their {len(call.extents)} extents, the chunk and the number of chunks"
    )
    if signature is None:
        raise CompileError(f"{name}: the IR defines no function @{name}; add {wanted}: {rule}")
    if signature != wanted:
        raise CompileError(f"{name}: @{name} is {signature} and must be {wanted}: {rule}")
    # The kernel's own entry has this name in the same object, and would be defined twice.
    if linker.KERNEL in functions:
        raise CompileError(f"{name}: the IR defines @{linker.KERNEL}, a name of Luminal's own")
    # Asked now, as linking would find it only when the program is loaded, perhaps in another
    # process.
    for symbol in foreign:
        is_there = symbol.startswith("llvm.") or symbol in SYMBOLS
        if not is_there and systems.find(symbol) is None:
            raise CompileError(
                f"{name}: the IR calls @{symbol}, which is not in it, nor in libc or libm; "
                "define it"
            )


# The launch list is not cut at a Python kernel: its launch is a row whose function is a callback. A
# kernel that raises sets the grids of all launches to 0, so the team walks to the end without work
# and the error comes out there; Loops, the memory plan and profiles need nothing of their own.
class PythonCalls:
    """The Python kernels of one runner: where they leave an error, and what stops the run then."""

    def __init__(self) -> None:
        self._is_running = False
        self._rows: Records | None = None  # the launches of the run under way
        self.finished = 0  # kernels of that run
        self._failure: BaseException | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raises GraphError inside of a run: a kernel has asked for the program it is part of."""
        if self._is_running:
            raise GraphError(
                "a custom kernel runs the executable that it is part of; compile another one for it"
            )
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    def abandon(self) -> None:
        """Forgets the run under way."""
        self._is_running = False
        self._failure = None

    def enter(self, entry: Callable[[int], Any], record: int, rows: Records, count: int) -> None:
        """A run over these launches, `count` of them of Python; raises what a kernel has raised,
        after the team is home.

        What arrives before a kernel's first line, as only an interrupt does, never gets to it:
        ctypes drops it with the call. So kernels are counted as they finish.
        """
        # A kernel that raises empties the grids, and the next run needs them again.
        grids = rows["grid"].copy()
        self._rows, self.finished = rows, 0
        try:
            entry(record)
        finally:
            rows["grid"] = grids
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self.finished < count:
            # Python drops what is raised between a callback's begin and its first line. Only a
            # signal can raise there.
            raise KeyboardInterrupt

    def stop(self, failure: BaseException) -> None:
        """Leaves the launches to come without work; Loops still count."""
        assert self._rows is not None
        self._rows["grid"][self._rows["kind"] == KERNEL] = 0
        self._failure = failure


PROTOTYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


class PythonCode:
    """A Python kernel under a native address, for as long as this object is referenced."""

    def __init__(self, kernel: Kernel, call: Call, calls: PythonCalls) -> None:
        self._kernel = call.kernel
        self._calls = calls
        self._operands = len(call.operands)
        self._count = len(kernel.buffers)
        self._numbers = len(kernel.params)
        ranks = [len(shape) for _, shape in (*call.operands, *call.results)]
        self._tensors = [(b.dtype, r) for b, r in zip(kernel.buffers, ranks, strict=True)]
        # Kept: ctypes frees the machine code of a callback with this object, whoever still has the
        # address.
        self._function = PROTOTYPE(self._run)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _run(self, slots: int, dims: int, begin: int, end: int, scratch: int | None) -> None:
        """Runs the Python function. Nothing may leave a callback: native code knows no
        exceptions.
        """
        try:
            arrays = self._arrays(slots, dims)
            self._kernel.run(arrays[: self._operands], arrays[self._operands :])
            self._calls.finished += 1
        except BaseException as failure:
            failure.add_note(f"in the custom kernel {self._kernel.name}; no State has changed")
            self._calls.stop(failure)

    def _arrays(self, slots: int, dims: int) -> list[Array]:
        pointers = (ctypes.c_uint64 * self._count).from_address(slots)
        extents = iter((ctypes.c_int64 * self._numbers).from_address(dims))
        return [
            array_at(pointer, tuple([next(extents) for _ in range(rank)]), dtype)
            for pointer, (dtype, rank) in zip(pointers, self._tensors, strict=True)
        ]


def array_at(pointer: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """The row-major tensor at an address."""
    size = dtype.size
    for extent in shape:
        size *= extent
    if size == 0:
        # A pointer to no elements may be null, which no buffer can be made of.
        return np.empty(shape, dtype.numpy)
    return np.ndarray(shape, dtype.numpy, (ctypes.c_char * size).from_address(pointer))  # type: ignore[arg-type]
