"""state_dicts as GGUF files, version 3; `gguf` names the format and reads it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from luminal.errors import InputError
from luminal.loaders.ggml.types import NUMBERS, PLAIN
from luminal.loaders.mapped import Array
from luminal.loaders.write_atomic import arrays_of, replacing

VERSION = 3
ALIGNMENT = 32  # the format's default for the data and for each tensor
MAX_NAME_BYTES = 64  # the format's own limits
MAX_DIMS = 4

NAMES = {dtype: name for name, dtype in PLAIN.items()}

_BOOL, _STRING, _ARRAY, _INT64, _FLOAT64 = 7, 8, 9, 11, 12


def save_gguf(
    path: str | Path, state: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
) -> None:
    """Writes arrays of floats or signed integers by name, and metadata, atomically.

    Metadata: bools, ints, floats, strings, and lists of one of them. Raises InputError for other
    dtypes, names above 64 bytes, and more than 4 dims.
    """
    arrays = arrays_of(state, NAMES, "GGUF")
    values = dict(metadata or {})
    values.pop("general.alignment", None)  # it is the writer's
    header = bytearray(b"GGUF" + struct.pack("<IQQ", VERSION, len(arrays), len(values)))
    for key, value in values.items():
        header += _text(key) + _tagged(key, value)
    offset = 0
    for name, array in arrays.items():
        _check(name, array)
        header += _text(name) + struct.pack("<I", array.ndim)
        header += struct.pack(f"<{array.ndim}Q", *reversed(array.shape))
        header += struct.pack("<IQ", NUMBERS[NAMES[array.dtype]], offset)
        offset += _padded(array.nbytes)
    with replacing(path) as file:
        file.write(header.ljust(_padded(len(header)), b"\0"))
        for array in arrays.values():
            file.write(array.tobytes().ljust(_padded(array.nbytes), b"\0"))


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _check(name: str, array: Array) -> None:
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise InputError(f"{name}: {size} bytes; GGUF names have at most {MAX_NAME_BYTES}")
    if array.ndim > MAX_DIMS:
        raise InputError(
            f"{name}: {array.ndim} dims; GGUF tensors have at most {MAX_DIMS}; reshape it, or save "
            "a safetensors file"
        )


def _text(text: str) -> bytes:
    # The reader keeps bytes that are no UTF-8 in this way.
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _tagged(key: str, value: Any) -> bytes:
    """A metadata value after the number of its type."""
    if isinstance(value, list | tuple | np.ndarray):
        items = [_typed(key, item) for item in value]
        kinds = {kind for kind, _ in items} or {_INT64}
        if len(kinds) > 1:
            raise InputError(f"metadata {key!r}: a list of several types; make them one type")
        data = b"".join(item for _, item in items)
        return struct.pack("<IIQ", _ARRAY, kinds.pop(), len(items)) + data
    kind, data = _typed(key, value)
    return struct.pack("<I", kind) + data


def _typed(key: str, value: Any) -> tuple[int, bytes]:
    """A scalar's or string's type and bytes."""
    if isinstance(value, bool | np.bool_):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int | np.integer) and -(2**63) <= value < 2**63:
        return _INT64, struct.pack("<q", value)
    if isinstance(value, float | np.floating):
        return _FLOAT64, struct.pack("<d", value)
    if isinstance(value, str):
        return _STRING, _text(value)
    raise InputError(f"metadata {key!r}: {value!r} is no bool, int of 64 bits, float or string")
