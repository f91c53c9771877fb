"""DLPack for memory that is not the host's: NumPy makes capsules of it, and knows nothing of the
device; it reads none, so they are read here.

The layout is that of dlpack.h 1.0 (dmlc/dlpack).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import ALL, DType
from luminal.base.errors import DTypeError, InputError
from luminal.memory.dlpack import CODES as SHORT_FLOATS

CUDA, ROCM, EXTENSION = 2, 10, 12
"""DLDeviceType's numbers: EXTENSION is for devices that it does not know."""
CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
USED = {PLAIN: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_LAYOUTS: dict[bytes, type[_Managed] | type[_Versioned]] = {PLAIN: _Managed, VERSIONED: _Versioned}
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Foreign(NamedTuple):
    """An array that another library keeps on a device, until `release` is called."""

    address: int
    shape: tuple[int, ...]
    dtype: DType
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Memory:
    """Memory of a device as NumPy takes an array, which is never looked into; unsigned integers
    stand for elements of their size.
    """

    address: int
    shape: tuple[int, ...]
    size: int
    owner: Any

    @property
    def __array_interface__(self) -> dict[str, Any]:
        typestr = np.dtype(f"u{self.size}").str
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.address, False),
            "version": 3,
        }


def exported(
    address: int,
    shape: Sequence[int],
    dtype: DType,
    device: tuple[int, int],
    owner: Any,
    max_version: tuple[int, int] | None,
) -> Any:
    """The capsule of row-major memory, which lives while the capsule or a consumer holds it."""
    # Consumers free arrays amid exceptions (`int(torch.from_dlpack(x))`), and Python loses one that
    # a function of Python is called with. So what they call is C: it comes with NumPy's capsules.
    array = np.asarray(_Memory(address, tuple(shape), dtype.size, owner))
    capsule = array.__dlpack__(max_version=max_version)
    tensor = _record_of(capsule).tensor
    tensor.device, tensor.code = device, _code(dtype)
    return capsule


def taken(name: str, capsule: Any, device: tuple[int, int]) -> Foreign:
    """The array of a capsule, which is read by this. Raises InputError for one that is not
    row-major or lies elsewhere, DTypeError for elements that Luminal has no dtype for.
    """
    kind = _name(capsule)
    if kind not in _LAYOUTS:
        raise InputError(f"{name}: a capsule of DLPack is read once; make a new one")
    record = _record_of(capsule)
    tensor = record.tensor
    shape = tuple(tensor.shape[: tensor.rank])
    if tuple(tensor.device) != device:
        raise InputError(f"{name}: the array is on device {tuple(tensor.device)}, not {device}")
    if tensor.strides and not _is_row_major(shape, tensor.strides[: tensor.rank]):
        raise InputError(f"{name}: the array is not row-major; pass x.contiguous()")
    dtype = _dtype_of(name, tensor)
    _rename(capsule, USED[kind])

    def release() -> None:
        if record.deleter:
            _Deleter(record.deleter)(ctypes.addressof(record))

    return Foreign(int(tensor.data or 0) + tensor.offset, shape, dtype, release)


def _record_of(capsule: Any) -> _Managed | _Versioned:
    """What a capsule that nobody has read yet holds."""
    kind = _name(capsule)
    return _LAYOUTS[kind].from_address(_pointer(capsule, kind))


def _code(dtype: DType) -> int:
    return SHORT_FLOATS.get(dtype, CODES[dtype.kind])


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= max(1, extent)
    return True


def _dtype_of(name: str, tensor: _Tensor) -> DType:
    for dtype in ALL:
        if (_code(dtype), 8 * dtype.size, 1) == (tensor.code, tensor.bits, tensor.lanes):
            return dtype
    raise DTypeError(f"{name}: elements of {tensor.bits} bits of kind {tensor.code} are no dtype")
