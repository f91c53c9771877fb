"""Arrays on a device, which runs give and take without a copy through the host."""

from __future__ import annotations

import weakref
from typing import Any, NoReturn

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import InputError, LuminalError
from luminal.memory import dlpack_device
from luminal.memory.alignment import ACCESS
from luminal.memory.arrays import Array
from luminal.runtime.device import Device, DeviceBuffer
from luminal.runtime.driver import DevicePointer, Driver


class DeviceArray:
    """An array that an executable left on its device (`out="device"`), or of another library.

    `numpy()` copies it to the host, after the runs that write it. Consumers of DLPack on the same
    device read it without a copy, as do executables there.
    """

    __slots__ = (
        "__weakref__", "_held", "dtype", "error", "nbytes", "place", "serial", "shape", "space",
    )  # fmt: skip

    def __init__(
        self, space: Device, shape: tuple[int, ...], dtype: DType, place: DevicePointer, held: Any
    ) -> None:
        self.space, self.shape, self.dtype, self.place = space, shape, dtype, place
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.size
        self.serial = next(DeviceBuffer.serials)
        self._held = held  # lives as long as this
        self.error: LuminalError | None = None  # of the run that was to write it

    @classmethod
    def empty(cls, space: Device, shape: tuple[int, ...], dtype: DType) -> DeviceArray:
        """A new one, which nothing has written."""
        buffer = space.empty(shape, dtype)
        return cls(space, shape, dtype, buffer.place, buffer)

    @classmethod
    def taken(cls, name: str, value: Any, space: Device) -> DeviceArray | None:
        """What another library offers by DLPack, where it lies on this device; else None. A copy of
        it where it does not start at a multiple of what kernels access at once.
        """
        driver, where = space.driver, getattr(value, "__dlpack_device__", None)
        if driver.dlpack_device is None or where is None:
            return None
        kind, number = where()
        if (int(kind), int(number)) != driver.dlpack_device:
            return None
        if getattr(value, "requires_grad", False):
            value = value.detach()
        # The producer's queue is made to wait for by ours, which it knows by this number.
        capsule = value.__dlpack__(stream=driver.stream_number)
        foreign = dlpack_device.taken(name, capsule, driver.dlpack_device)
        place = DevicePointer(driver.block_at(foreign.address, max(1, _size(foreign))))
        array = cls(space, foreign.shape, foreign.dtype, place, value)
        if foreign.address % ACCESS and array.nbytes:
            array = cls.empty(space, foreign.shape, foreign.dtype)
            with space.entered():
                driver.copy(place, array.place, array.nbytes)
        weakref.finalize(array, space.call_later, foreign.release).atexit = False
        return array

    @property
    def key(self) -> int:
        """What tells its place from others, for as long as it lives."""
        driver = self.space.driver
        return driver.address(self.place) if driver.goes_by_address else self.serial

    @property
    def device(self) -> str:
        """The name of its device."""
        return self.space.name

    @property
    def ndim(self) -> int:
        """The number of its dims."""
        return len(self.shape)

    def numpy(self) -> Array:
        """A copy on the host. Raises what went wrong with the run that was to write it."""
        array = np.empty(self.shape, self.dtype.numpy)
        with self.space.entered() as driver:
            self._settle(driver)
            driver.read(self.place, array)
        return array

    def check(self) -> None:
        """Raises what went wrong with the run that was to write it."""
        if self.error is not None:
            raise self.error

    def _settle(self, driver: Driver) -> None:
        self.space.flight.settle(driver)
        self.check()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.numpy(), dtype)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        device = self.__dlpack_device__()
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError("an array on a device is handed out as it lies; x.numpy() copies it")
        with self.space.entered() as driver:
            self._settle(driver)
            driver.wait()  # consumers know nothing of our queue
            address = driver.address(self.place)
        return dlpack_device.exported(address, self.shape, self.dtype, device, self, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.space.driver.dlpack_device
        if device is None:
            raise BufferError(f"{self.space.name}: memory without addresses; x.numpy() copies it")
        return device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's protocol, version 3; AttributeError on other devices."""
        kind, _ = self.space.driver.dlpack_device or (None, None)
        if kind != dlpack_device.CUDA or self.dtype.numpy.kind not in "biuf":
            raise AttributeError("__cuda_array_interface__")
        with self.space.entered() as driver:
            self._settle(driver)
            driver.wait()
            address = driver.address(self.place)
        return {
            "shape": self.shape, "typestr": np.dtype(self.dtype.numpy).str,
            "data": (address, False), "version": 3,
        }  # fmt: skip

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled or copied; x.numpy() can")

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype.short}{list(self.shape)} on {self.space.name})"


def accepted(name: str, array: DeviceArray, dtype: DType, space: Device) -> DeviceArray:
    """The array, where an input of a program on this device takes it as it is."""
    array.check()
    # A copy by way of the host would be as slow as all that an array on a device is there to save.
    if array.space is not space:
        raise InputError(
            f"{name}: {array!r}, the program runs on {space.name}; pass x.numpy(), or compute it "
            "there"
        )
    if array.dtype is not dtype:
        raise InputError(
            f"{name}: {array!r}, the input is {dtype.short}; arrays on a device are not converted: "
            "pass x.numpy(), or cast it where it was made"
        )
    return array


def _size(foreign: dlpack_device.Foreign) -> int:
    return int(np.prod(foreign.shape, dtype=np.int64)) * foreign.dtype.size
