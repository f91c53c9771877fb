"""DLPack, the protocol by which libraries hand each other arrays without a copy.

NumPy speaks it, but for bfloat16 and floats of 8 bits: there the bits travel as unsigned integers,
and the type's code in the capsule is changed on the way. The layout is that of dlpack.h 1.1
(dmlc/dlpack).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from luminal.base.dtypes import bfloat16, float8_e4m3fn, float8_e5m2
from luminal.base.errors import DTypeError, InputError, LuminalError

Array = np.ndarray[Any, Any]

CPU = 1  # kDLCPU
UNSIGNED = 1  # kDLUInt
CODES = {bfloat16: 4, float8_e4m3fn: 10, float8_e5m2: 12}
"""The codes of what NumPy refuses: kDLBfloat, kDLFloat8_e4m3fn, kDLFloat8_e5m2."""
_CODES = {dtype.numpy: code for dtype, code in CODES.items()}
_NUMPY = {code: dtype.numpy for dtype, code in CODES.items()}
NEWEST = (1, 0)  # the version asked for; older producers give what they have
# In a DLTensor a pointer, the device and the rank lie before it: 8, 8 and 4 bytes. Before that of
# the versioned struct there are 32 more: version, context, deleter and flags.
DTYPE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}  # where a managed tensor has its dtype

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Exported:
    """Something that consumers of DLPack take: `torch.from_dlpack(exported)`."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        # The options are those that the capsule was asked for with; it is made by now.
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class Holder:
    """An array that consumers of DLPack take, in any dtype of Luminal."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return capsule_of(self.array, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def capsule_of(array: Array, *, copy: bool | None = None, **options: Any) -> Any:
    """The capsule of an array; `options` are the protocol's (stream, max_version, dl_device).

    What is read-only is copied, since consumers may write and many do not look at the flag that
    forbids it; with `copy=False` it is handed out under that flag. What lies backwards is copied
    too: it ends PyTorch's process. Raises BufferError for what this consumer cannot be given.
    """
    backwards = any(step < 0 for step in array.strides)
    if backwards and copy is False:
        raise BufferError("the array lies backwards in memory, which few consumers take; copy it")
    if copy is None and (backwards or not array.flags.writeable):
        copy = True
    if copy:
        array = array.copy("C")
    code = _CODES.get(array.dtype)
    if code is None:
        return array.__dlpack__(copy=False, **options)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(copy=False, **options)
    _set_code(capsule, code)
    return capsule


def snapshot_of(array: Array, *, copy: bool | None = None, **options: Any) -> Any:
    """The capsule of a copy of `array`, which what holds it goes on changing.

    Raises BufferError for `copy=False`.
    """
    if copy is False:
        raise BufferError("a State or Parameter hands out copies; leave copy=False out")
    return capsule_of(array, copy=True, **options)


def imported(name: str, producer: Any) -> Array:
    """A view of the array that `producer` offers through `__dlpack__`.

    Gradients are left behind (`detach`). Raises InputError for arrays that are not in the CPU's
    memory, DTypeError for element types that NumPy lacks.
    """
    # PyTorch exports no tensor that asks for gradients.
    if getattr(producer, "requires_grad", False):
        producer = producer.detach()
    try:
        device, number = producer.__dlpack_device__()
        array = _view(producer) if device == CPU else None
    except LuminalError:  # of a Tensor that cannot be computed
        raise
    except (BufferError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        kind = f"{type(producer).__name__} of {getattr(producer, 'dtype', 'unknown dtype')}"
        raise DTypeError(f"{name}: a {kind} cannot be read as an array: {error}") from None
    if array is None:
        where = getattr(producer, "device", (int(device), number))
        how = "cpu" if hasattr(producer, "cpu") or not hasattr(producer, "numpy") else "numpy"
        raise InputError(
            f"{name}: the array is on device {where}, not in the CPU's memory; move it there "
            f"first, as x.{how}()"
        )
    return array


def _view(producer: Any) -> Array:
    capsule = _capsule(producer)
    dtype = _NUMPY.get(_code(capsule))
    if dtype is None:
        return np.from_dlpack(Exported(capsule))
    # NumPy refuses the code, and needs only the bits.
    _set_code(capsule, UNSIGNED)
    return np.from_dlpack(Exported(capsule)).view(dtype)


def _capsule(producer: Any) -> Any:
    try:
        return producer.__dlpack__(max_version=NEWEST)
    except TypeError:  # from before versions were asked for
        return producer.__dlpack__()


def _code(capsule: Any) -> int:
    return int(_dtype_of(capsule)[0])


def _set_code(capsule: Any, code: int) -> None:
    """The capsule is ours alone: each call of `__dlpack__` makes one."""
    _dtype_of(capsule)[0] = code


def _dtype_of(capsule: Any) -> Any:
    """The four bytes of the dtype: code, bits and two of lanes."""
    name = _name_of(capsule)
    if name not in DTYPE_AT:
        raise BufferError(f"a capsule is read once, this one is named {name!r}; make a new one")
    start = _pointer_of(capsule, name)
    return (ctypes.c_uint8 * 4).from_address(start + DTYPE_AT[name])
