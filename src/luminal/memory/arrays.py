"""Buffers: where the values of States and Parameters lie, each in the memory of one device.

The host's memory is one like any other, whose Buffers are arrays of NumPy. That of other devices is
in `runtime/device.py`.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from luminal.base import config, host
from luminal.base.dtypes import DType
from luminal.memory.alignment import ALIGNMENT
from luminal.memory.poison import poison

Array: TypeAlias = np.ndarray[Any, Any]


def aligned_empty(shape: Sequence[int], dtype: DType) -> Array:
    """An uninitialised row-major array that starts where a line of memory does."""
    return _aligned(np.empty, shape, dtype)


def aligned_zeros(shape: Sequence[int], dtype: DType) -> Array:
    """A row-major array of zeros that starts where a line of memory does, whose pages are not there
    until they are touched.
    """
    return _aligned(np.zeros, shape, dtype)


def _aligned(make: Callable[..., Array], shape: Sequence[int], dtype: DType) -> Array:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.size
    # NumPy promises less: so much more is taken as the start may have to move.
    raw = make(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype.numpy).reshape(tuple(shape))


def address(array: Array) -> int:
    """The address at which a row-major array starts."""
    try:  # four times as fast as `array.ctypes`, for writable arrays only
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return array.ctypes.data


class DeviceMemory(NamedTuple):
    """Bytes of a device's memory; None where it does not say."""

    total: int | None
    free: int | None


class Buffer(ABC):
    """Memory of one tensor in `space`. Who reads or writes it holds its owner's lock."""

    __slots__ = ("nbytes", "space")
    space: MemorySpace[Any]
    nbytes: int

    def settle(self) -> None:
        """Waits for runs under way, after which its owner may have another buffer: one that failed
        gives back what was there before.
        """
        return

    def held(self) -> Any:
        """A Buffer that has the value for as long as it lives: this one, as a rule."""
        return self

    @property
    @abstractmethod
    def array(self) -> Array:
        """The value on the host: the array itself where it lies there, else a copy."""

    @abstractmethod
    def copy(self) -> Array:
        """A copy of the value on the host."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Replaces the value by an array of the host, which is broadcast to the shape."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, it is one of the host where it is read: neither devices nor addresses travel."""
        return HostBuffer, (self.array,)


B = TypeVar("B", bound=Buffer)


class MemorySpace(ABC, Generic[B]):
    """The memory of a device, whose Buffers are of class B. `name`: "cpu", "opencl:0"."""

    name: str
    by_name: ClassVar[Callable[[Any], MemorySpace[Any]]]  # set where backends are registered
    names: ClassVar[Sequence[str]]  # of backends, likewise

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DType) -> B:
        """An uninitialised Buffer, poisoned where that is asked for. Raises MemoryError."""

    @abstractmethod
    def memory(self) -> DeviceMemory:
        """The memory that the device has, and how much of it is free."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class HostBuffer(Buffer):
    """An array, and the address where it starts."""

    __slots__ = ("_array", "address")

    def __init__(self, array: Array) -> None:
        self.space = HOST
        self.nbytes = array.nbytes
        self.address = address(array)
        self._array = array

    @property
    def array(self) -> Array:
        return self._array

    def copy(self) -> Array:
        return self._array.copy()

    def write(self, value: Any) -> None:
        self._array[...] = value


class Host(MemorySpace[HostBuffer]):
    """The memory of this process."""

    name = "cpu"

    def empty(self, shape: tuple[int, ...], dtype: DType) -> HostBuffer:
        array = aligned_empty(shape, dtype)
        if config.get("LUMINAL_POISON"):
            poison([array])
        return HostBuffer(array)

    def memory(self) -> DeviceMemory:
        return DeviceMemory(*host.memory())


HOST = Host()
