"""Memory of outputs: the caller's while any array over it lives, then used again.

A fresh 64 MB output costs 15-20 ms of page faults, a recycled one none.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.dtypes import DType, uint8
from luminal.hlir.alignment import ALIGNMENT
from luminal.hlir.memory import Array, address, aligned_empty

SLACK = 16 << 20  # bytes a pool may keep free beyond what its runs hand out
STEPS_PER_DOUBLING = 8  # size classes: at most 12.5% of a block is unused


@functools.lru_cache(maxsize=4096)
def block_bytes(size: int) -> int:
    """The size class of an array of `size` bytes: what its block really holds."""
    step = max(ALIGNMENT, (1 << max(size - 1, 0).bit_length()) // (2 * STEPS_PER_DOUBLING))
    return max(ALIGNMENT, -(-size // step) * step)


class OutputPool:
    """Aligned blocks by size class. One thread at a time takes; any thread may drop an array."""

    def __init__(self) -> None:
        self._free: dict[int, deque[Array]] = {}
        self._makers: dict[int, Callable[[int], Any]] = {}
        self._largest_run = 0

    def take(self, shape: tuple[int, ...], dtype: DType, size: int) -> Array:
        """An uninitialised row-major array of `size` bytes that owns its memory until dropped."""
        kept = block_bytes(size)
        free = self._free.get(kept)
        if free is None:
            free = self._free[kept] = deque()
            self._makers[kept] = _block_maker(kept, free)
        try:
            memory = free.pop()  # the one dropped last is the warmest
        except IndexError:
            self._trim()
            memory = aligned_empty((kept,), uint8)
        block = self._makers[kept](address(memory))
        block.memory = memory
        return np.ndarray(shape, dtype.numpy, block)

    def expect(self, sizes: Sequence[int]) -> None:
        """Runs with outputs of these sizes are coming: memory for two of them is worth keeping."""
        self._largest_run = max(self._largest_run, sum(map(block_bytes, sizes)))

    def _trim(self) -> None:
        """Before the pool grows: frees what no run of the expected sizes needs, biggest first."""
        excess = self.free_bytes - 2 * self._largest_run - SLACK
        for kept in sorted(self._free, reverse=True):
            while excess > 0 and self._free[kept]:
                self._free[kept].popleft()
                excess -= kept

    @property
    def free_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(kept * len(free) for kept, free in self._free.items())


def _block_maker(kept: int, free: deque[Array]) -> Callable[[int], Any]:
    """Makes the objects that arrays rest on; with the last array their memory goes to `free`."""

    class Block(ctypes.c_char * kept):  # type: ignore[misc]
        memory: Array

        def __del__(self) -> None:
            free.append(self.memory)

    make: Callable[[int], Any] = Block.from_address
    return make
