"""A part of a mapped file that does not lie there in one piece, in memory only while it is used.

What lies in one piece is a view of the file, whose pages come and go. A copy of columns would stay
for as long as the Parameter, though programs read it once, to lay it out otherwise.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from luminal.base.dtypes import DType
from luminal.memory.arrays import HOST, Array, HostBuffer


class ReadAnew(HostBuffer):
    """What `read` writes into an array of this shape and dtype, which lives as long as somebody has
    it: who asks for the value, or a buffer that `held` gave.
    """

    __slots__ = ("_now", "_read", "_type")

    def __init__(self, read: Callable[[Array], None], shape: Sequence[int], dtype: DType) -> None:
        self.space = HOST
        self.nbytes = math.prod(shape) * dtype.size
        self._read, self._type = read, (tuple(shape), dtype.numpy)
        self._now: Callable[[], Array | None] = lambda: None

    @property
    def array(self) -> Array:
        """The value, read-only: the array that others have where there is one."""
        if (array := self._now()) is None:
            # Pages of its own, which go with the array: allocators keep what is given back.
            pages = mmap.mmap(-1, max(1, self.nbytes))
            shape, dtype = self._type
            array = np.frombuffer(pages, np.uint8)[: self.nbytes].view(dtype).reshape(shape)
            self._read(array)
            array.flags.writeable = False
            self._now = weakref.ref(array)
        return array

    def copy(self) -> Array:
        return self.array.copy()

    def held(self) -> HostBuffer:
        """A buffer that has the value."""
        return HostBuffer(self.array)
