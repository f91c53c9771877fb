"""Memory of outputs: the caller's while any array over it lives, then used again.

A fresh 64 MB output costs 15-20 ms of page faults, a recycled one none. Nothing is told when an
array is dropped: all views of a block refer to the array that owns its memory, so who counts the
references to that one knows whether any is left, and is the only one who could make another.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from sys import getrefcount
from typing import Protocol

import numpy as np

from luminal.base.dtypes import DType, uint8
from luminal.memory.alignment import ALIGNMENT
from luminal.memory.arrays import Array, aligned_empty

SLACK = 16 << 20  # bytes a pool may keep free beyond what its runs hand out
STEPS_PER_DOUBLING = 8  # size classes: at most 12.5% of a block is unused
GROWTH = 64  # by a part of this size a pool grows before it looks at every block again
LOOKS = 8  # at blocks that may be free, for one array


@functools.lru_cache(maxsize=4096)
def block_bytes(size: int) -> int:
    """The size class of an array of `size` bytes: what its block really holds."""
    step = max(ALIGNMENT, (1 << max(size - 1, 0).bit_length()) // (2 * STEPS_PER_DOUBLING))
    return max(ALIGNMENT, -(-size // step) * step)


class Lent(Protocol):
    """What `take` is told of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def block(self) -> int: ...


class _PooledMemory:
    """Memory of one size class, and an array of it, of which views are handed out."""

    __slots__ = ("array", "dtype", "idle", "memory", "owner", "shape")

    def __init__(self, kept: int) -> None:
        self.memory = self.array = aligned_empty((kept,), uint8)
        self.shape, self.dtype = self.array.shape, uint8
        assert self.memory.base is not None
        self.owner: Array = self.memory.base
        self.idle = getrefcount(self.owner)

    def is_free(self) -> bool:
        """Does nothing but this object refer to the memory?"""
        return getrefcount(self.owner) == self.idle

    def view(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array over the memory, as the only one."""
        if self.shape != shape or self.dtype is not dtype:
            self.array = np.ndarray(shape, dtype.numpy, self.memory)
            self.shape, self.dtype = shape, dtype
            self.idle = getrefcount(self.owner)
        return self.array[...]  # the quickest way to a view


# A finalizer for each output would cost 1.2 us a call, and tell of it at once; counting references
# when memory is wanted costs nothing a call.
class OutputPool:
    """Aligned blocks by size class. One thread at a time takes; any thread may drop an array."""

    def __init__(self) -> None:
        self._blocks: dict[int, deque[_PooledMemory]] = {}  # the one handed out last stands last
        self._largest_run = 0
        self._bytes = 0  # of all blocks
        self._grown = 0  # bytes more since all were looked at

    def take_all(self, plans: Sequence[Lent]) -> list[Array]:
        """An array for each of the plans, as `take` gives it."""
        taken, blocks_of = [], self._blocks.get
        for plan in plans:
            blocks = blocks_of(plan.block)
            if (
                blocks
                and (block := blocks[-1]).shape is plan.shape
                and block.dtype is plan.dtype
                and getrefcount(block.owner) == block.idle
            ):  # as `take` would, whose calls take longer than all else here
                taken.append(block.array[...])
            else:
                taken.append(self.take(plan.shape, plan.dtype, plan.block))
        return taken

    def take(self, shape: tuple[int, ...], dtype: DType, kept: int) -> Array:
        """An uninitialised row-major array in a block of `kept` bytes, its own until dropped."""
        # The block dropped last is warm in the caches, so it is looked at first; the others are
        # taken in turn, a few of them a call, which keeps a call's time constant however many
        # arrays are alive.
        blocks = self._blocks.get(kept)
        if blocks is None:
            blocks = self._blocks[kept] = deque()
        if blocks and blocks[-1].is_free():  # the warmest
            return blocks[-1].view(shape, dtype)
        for _ in range(min(LOOKS, len(blocks))):  # then those that were handed out long ago
            blocks.rotate(-1)
            if blocks[-1].is_free():
                return blocks[-1].view(shape, dtype)
        self._grow(kept)
        blocks.append(_PooledMemory(kept))
        return blocks[-1].view(shape, dtype)

    def expect(self, blocks: Sequence[int]) -> None:
        """Runs with blocks of these bytes are coming: memory for two of them is worth keeping."""
        self._largest_run = max(self._largest_run, sum(blocks))

    def _grow(self, kept: int) -> None:
        """Notes a block more; looks at all others where they are few beside what is new."""
        self._bytes += kept
        self._grown += kept
        needed = 2 * self._largest_run + SLACK
        if self._bytes > needed and GROWTH * self._grown > self._bytes:
            self._grown = 0
            self._trim(self.free_bytes - needed)

    def _trim(self, excess: int) -> None:
        """Frees so many bytes that wait to be used again, the biggest blocks first."""
        for kept in sorted(self._blocks, reverse=True):
            if excess <= 0:
                break
            blocks, stay = self._blocks[kept], deque[_PooledMemory]()
            for block in blocks:
                if excess > 0 and block.is_free():
                    excess -= kept
                    self._bytes -= kept
                else:
                    stay.append(block)
            blocks.clear()
            blocks.extend(stay)

    @property
    def free_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(kept * block.is_free() for kept, all_ in self._blocks.items() for block in all_)
