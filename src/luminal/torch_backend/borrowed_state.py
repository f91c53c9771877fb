"""States that are tensors of the caller's: a program reads and writes their own memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from luminal.base.dtypes import DType
from luminal.memory.arrays import Array, Buffer, HostBuffer
from luminal.memory.state import State
from luminal.runtime.device import Device, LentBuffer
from luminal.torch_backend.types import dtype_of


# Caches and moments that a graph writes follow the rules for States, in place where these allow it:
# so nothing of the compiler knows of PyTorch's mutation.
class BorrowedState(State):
    """A State whose buffer is a tensor's memory, another one in each run if need be.

    Programs that cannot update it where it lies write a second buffer, which `settle` copies back.
    `device`: where its program runs and its tensors lie, if that is not the host.
    """

    device: Device | None = None

    def __init__(self, shape: Sequence[int], dtype: DType, name: str) -> None:
        super().__init__(tuple(0 for _ in shape), dtype, 0, name)  # no memory of its own
        self.shape = tuple(shape)
        self._lent: Buffer = HostBuffer(self.numpy())
        self._address = -1  # of no tensor: empty ones have 0

    def borrow(self, x: torch.Tensor) -> None:
        """The next run works on `x`, whose memory is row-major, of the State's sizes in order."""
        # Making an array over foreign memory takes longer than a small step, and a cache mostly
        # stays where it is.
        if x.data_ptr() != self._address:
            self._address = x.data_ptr()
            if self.device is None:
                self._lent = HostBuffer(array_of(x).reshape(self.shape))
            else:
                self._lent = LentBuffer(self.device, self.shape, self.dtype, self._address)
        self.buffer = self._lent

    def settle(self) -> None:
        """After a run: the value lies in the tensor."""
        if self.buffer is self._lent:
            return
        if self.device is None:
            self._lent.write(self.buffer.array)
        else:
            source, target = cast(LentBuffer, self.buffer), cast(LentBuffer, self._lent)
            with self.device.entered() as driver:
                driver.copy(source.place, target.place, source.nbytes)
        self.spare, self.buffer = self.buffer, self._lent


def array_of(x: torch.Tensor) -> Array:
    """An array over a row-major tensor's memory, which the caller keeps alive."""
    dtype, shape = dtype_of(x.dtype).numpy, tuple(x.shape)
    if x.numel() == 0:
        # Empty tensors have the address 0, over which no array can be made.
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * x.nbytes).from_address(x.data_ptr())
    return np.ndarray(shape, dtype, memory)
