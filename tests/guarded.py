"""`pytest -p tests.guarded`: accesses beside what a program of the CPU was given end the process.

All arrays of Luminal, and copies of a run's inputs, end at a page that nobody may touch, or begin
behind one (GUARD=before). An access where only neighbours lie otherwise, also one that reads, is a
segmentation fault at once. What lies within an arena has no pages of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.backends.cpu.device import BoundCpu
from luminal.base.dtypes import DType
from luminal.memory import arrays
from luminal.runtime import output_pool

Array = np.ndarray[Any, Any]
PAGE = mmap.PAGESIZE
NO_ACCESS = 0


def guarded(size: int, before: bool = False) -> Array:
    """Bytes with no byte behind them that may be touched; `before`: with none before them."""
    inner = max(1, -(-size // PAGE)) * PAGE
    whole = np.frombuffer(mmap.mmap(-1, inner + 2 * PAGE), np.uint8)
    for page in (0, PAGE + inner):
        start = ctypes.c_void_p(whole.ctypes.data + page)
        assert ctypes.CDLL(None).mprotect(start, ctypes.c_size_t(PAGE), NO_ACCESS) == 0
    start = PAGE if before else PAGE + inner - size
    return whole[start : start + size]


def install(before: bool = False) -> None:
    """For the rest of the process."""

    def aligned(make: Callable[..., Array], shape: Sequence[int], dtype: DType) -> Array:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.size
        return guarded(size, before).view(dtype.numpy).reshape(tuple(shape))

    def on_copies(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(
            bound: BoundCpu, inputs: Sequence[Array], outputs: Sequence[Array], *more: Any
        ) -> Any:
            copies = [guarded(array.nbytes, before) for array in inputs]
            for copy, array in zip(copies, inputs, strict=True):
                copy[...] = array.reshape(-1).view(np.uint8)
            return method(bound, copies, outputs, *more)

        return called

    arrays._aligned = aligned
    output_pool.block_bytes = lambda size: max(1, size)
    BoundCpu.run = on_copies(BoundCpu.run)  # type: ignore[method-assign]
    BoundCpu.profile = on_copies(BoundCpu.profile)  # type: ignore[method-assign]


def pytest_configure() -> None:
    """As a plugin."""
    install(os.environ.get("GUARD") == "before")
