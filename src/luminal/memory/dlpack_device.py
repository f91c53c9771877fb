"""DLPack for memory that is not the host's: capsules made and read here, since NumPy reads none.

The layout is that of dlpack.h 1.0 (dmlc/dlpack).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from luminal.base.dtypes import ALL, DType
from luminal.base.errors import DTypeError, InputError

CUDA, ROCM, EXTENSION = 2, 10, 12
"""DLDeviceType's numbers: EXTENSION is for devices that it does not know."""
CODES = {"i": 0, "u": 1, "f": 2, "bf": 4, "bool": 6}
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
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_raw_pointer = ctypes.PyDLL(None).PyCapsule_GetPointer
_raw_pointer.restype, _raw_pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]

_exported: dict[int, tuple[Any, ...]] = {}
"""What consumers hold, by the address of its record: the capsule, the record, its shape, and the
memory's owner.
"""


def _delete(record: int) -> None:
    _exported.pop(record, None)


def drop_unread() -> None:
    """Forgets the capsules that nobody has read or will read, as nobody else holds them."""
    # A capsule has no destructor. One in Python would run where a consumer refuses the array, amid
    # the exception that says so, and Python loses an exception that a callback begins with.
    for at, held in list(_exported.items()):
        if _name(held[0]) in _LAYOUTS and sys.getrefcount(held[0]) == _HELD_HERE:
            _delete(at)


_CALLBACK = _Deleter(_delete)
DELETE = ctypes.cast(_CALLBACK, ctypes.c_void_p).value
_HELD_HERE = 2  # references to a capsule that only _exported holds, with the one that asks


class Foreign(NamedTuple):
    """An array that another library keeps on a device, until `release` is called."""

    address: int
    shape: tuple[int, ...]
    dtype: DType
    release: Callable[[], None]


def exported(
    address: int,
    shape: Sequence[int],
    dtype: DType,
    device: tuple[int, int],
    owner: Any,
    max_version: tuple[int, int] | None,
) -> Any:
    """The capsule of row-major memory, which lives while a consumer holds it; of a capsule that
    nobody reads until the next one is made.
    """
    drop_unread()
    is_new = max_version is not None and max_version >= (1, 0)
    record = _Versioned(version=(1, 0)) if is_new else _Managed()
    extents = (ctypes.c_int64 * len(shape))(*shape)
    record.tensor = _Tensor(
        address, (ctypes.c_int32 * 2)(*device), len(shape), _code(dtype), 8 * dtype.size, 1,
        ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)), None, 0,
    )  # fmt: skip
    record.deleter = DELETE
    at = ctypes.addressof(record)
    capsule = _new(at, VERSIONED if is_new else PLAIN, None)
    _exported[at] = capsule, record, extents, owner
    return capsule


def taken(name: str, capsule: Any, device: tuple[int, int]) -> Foreign:
    """The array of a capsule, which is read by this. Raises InputError for one that is not
    row-major or lies elsewhere, DTypeError for elements that Luminal has no dtype for.
    """
    kind = _name(capsule)
    if kind not in _LAYOUTS:
        raise InputError(f"{name}: a capsule of DLPack is read once; make a new one")
    at = _raw_pointer(id(capsule), kind)
    record = _LAYOUTS[kind].from_address(at)
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
            _Deleter(record.deleter)(at)

    return Foreign(int(tensor.data or 0) + tensor.offset, shape, dtype, release)


def _code(dtype: DType) -> int:
    return CODES[dtype.short.rstrip("0123456789")]


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
