"""rocBLAS, for machines without hipBLASLt: one call of `rocblas_gemm_strided_batched_ex`, with its
numbers (rocblas-types.h of ROCm 5 to 7). It has no bias, and chooses its algorithm itself.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

from luminal.backends.lt import SCALES, WORKSPACE, Turn, loadable, starts, turns
from luminal.base.errors import CompileError, DeviceError
from luminal.hlir.library_product import Geometry, LibraryProduct

NAME = "rocBLAS"
LIBRARIES = ("rocblas",)
"""What target facts call it."""
FILES = ("librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so")
DTYPES = {"f16": 150, "f32": 151, "f64": 152, "bf16": 168}  # rocblas_datatype
OPERATIONS = (111, 112)  # rocblas_operation: as it lies, and turned
STANDARD = 0  # rocblas_gemm_algo


@functools.cache
def path() -> str | None:
    """The library's name, by which the loader finds it; None where it does not."""
    return loadable(FILES)


def installed() -> tuple[str, ...]:
    """The libraries that kernels may call here, as target facts name them."""
    return LIBRARIES if path() is not None else ()


class RocBlas:
    """The library, for the device that is current when this is made and whenever it is called.

    Raises CompileError where it is not there or does not start.
    """

    def __init__(self) -> None:
        name = path()
        if name is None:
            raise CompileError(f"{NAME} is not installed; it is a package of ROCm")
        self._library, self._handle = ctypes.CDLL(name), c_void_p()
        try:
            self._do("create_handle", byref(self._handle))
        except DeviceError as error:
            raise CompileError(str(error)) from None
        destroy = self._library.rocblas_destroy_handle
        weakref.finalize(self, destroy, c_void_p(self._handle.value)).atexit = False

    def queue(
        self,
        product: LibraryProduct,
        numbers: Sequence[int],
        addresses: Sequence[int],
        workspace: int,
        queue: int,
    ) -> None:
        """Queues the product, as `Lt.queue` does. Raises DeviceError with the library's status."""
        g = Geometry.of(numbers)
        if 0 in (g.batch, g.m, g.n):
            return
        a, b, c = starts(product, g, addresses)
        self._do("set_stream", self._handle, c_void_p(queue))
        self._do("set_workspace", self._handle, c_void_p(workspace), c_size_t(WORKSPACE))
        scale = SCALES[product.accumulator]
        first, second, result = turns(g)
        operations = (c_int(OPERATIONS[turn.is_turned]) for turn in (first, second))
        output = _matrix(c, str(product.c), result, g.c.batch)
        self._do(
            "gemm_strided_batched_ex", self._handle, *operations, c_int32(g.n), c_int32(g.m),
            c_int32(g.k), byref(scale(1)), *_matrix(b, str(product.b), first, g.b.batch),
            *_matrix(a, str(product.a), second, g.a.batch), byref(scale(0)), *output, *output,
            c_int32(g.batch), c_int(DTYPES[str(product.accumulator)]), c_int(STANDARD), c_int32(0),
            c_uint32(0),
        )  # fmt: skip

    def _do(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises DeviceError with its status."""
        status = getattr(self._library, f"rocblas_{name}")(*arguments)
        if status:
            raise DeviceError(f"{NAME}: rocblas_{name}: status {status}")


def _matrix(address: int, dtype: str, turn: Turn, step: int) -> tuple[Any, ...]:
    """What the library is told of a matrix: where, of what, and its steps."""
    return c_void_p(address), c_int(DTYPES[dtype]), c_int32(turn.leading), c_int64(step)
