"""state_dicts as GGUF files, version 3; `gguf` names the format and reads it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.ggml.types import NUMBERS, PLAIN
from luminal.loaders.gguf import StoredTensor, decimal
from luminal.loaders.write_atomic import arrays_of, check_mapping, replacing

VERSION = 3
ALIGNMENT = 32  # the format's default for the data and for each tensor
MAX_NAME_BYTES = 64  # the format's own limits
MAX_DIMS = 4

NAMES = {dtype: name for name, dtype in PLAIN.items()}

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT64, _FLOAT64 = 4, 5, 6, 7, 8, 9, 11, 12
_INTEGERS = {_UINT32: "<u4", _INT32: "<i4"}


def save_gguf(
    path: str | Path, state: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
) -> None:
    """Writes arrays of floats or signed integers, or StoredTensors, and metadata, atomically.

    Metadata: bools, ints, floats, strings, and lists of one of them. Raises InputError for other
    dtypes, names above 64 bytes, and more than 4 dims.
    """
    check_mapping(state, "save_gguf")
    packed = {name: x for name, x in state.items() if isinstance(x, StoredTensor)}
    plain = {name: x for name, x in state.items() if name not in packed}
    stored = packed | {
        name: StoredTensor(NAMES[array.dtype], array.shape, array)
        for name, array in arrays_of(plain, NAMES, "GGUF").items()
    }
    tensors = {name: stored[name] for name in state}
    values = dict(metadata or {})
    values.pop("general.alignment", None)  # it is the writer's
    header = bytearray(b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(values)))
    for key, value in values.items():
        header += _text(key) + _tagged(key, value)
    offset = 0
    for name, tensor in tensors.items():
        rank = len(tensor.shape)
        _check(name, rank)
        header += _text(name) + struct.pack("<I", rank)
        header += struct.pack(f"<{rank}Q", *reversed(tensor.shape))
        header += struct.pack("<IQ", NUMBERS[tensor.kind], offset)
        offset += _padded(tensor.data.nbytes)
    with replacing(path) as file:
        file.write(header.ljust(_padded(len(header)), b"\0"))
        for tensor in tensors.values():
            file.write(tensor.data.tobytes())
            file.write(bytes(_padded(tensor.data.nbytes) - tensor.data.nbytes))


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _check(name: str, rank: int) -> None:
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise InputError(f"{name}: {size} bytes; GGUF names have at most {MAX_NAME_BYTES}")
    if rank > MAX_DIMS:
        raise InputError(
            f"{name}: {rank} dims; GGUF tensors have at most {MAX_DIMS}; reshape it, or save "
            "a safetensors file"
        )


def _text(text: str) -> bytes:
    # The reader keeps bytes that are no UTF-8 in this way.
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _tagged(key: str, value: Any) -> bytes:
    """A metadata value after the number of its type."""
    if isinstance(value, list | tuple | np.ndarray):
        items = list(value)
        kinds = {_family(key, item) for item in items} or {int}
        if len(kinds) > 1:
            raise InputError(f"metadata {key!r}: a list of several types; make them one type")
        kind, data = _packed(kinds.pop(), items, _INT32)
        return struct.pack("<IIQ", _ARRAY, kind, len(items)) + data
    kind, data = _packed(_family(key, value), [value], _UINT32)
    return struct.pack("<I", kind) + data


def _family(key: str, value: Any) -> type:
    """bool, int, float or str."""
    if isinstance(value, bool | np.bool_):
        return bool
    if isinstance(value, int | np.integer) and -(2**63) <= value < 2**63:
        return int
    if isinstance(value, float | np.floating):
        return float
    if isinstance(value, str):
        return str
    raise InputError(f"metadata {key!r}: {value!r} is no bool, int of 64 bits, float or string")


def _packed(family: type, items: list[Any], short: int) -> tuple[int, bytes]:
    """The number of the type of all items, and their bytes: of 32 bits where that says the same,
    as readers of the format expect; `short` integers are these.
    """
    if family is str:
        return _STRING, b"".join(map(_text, items))
    if family is bool:
        return _BOOL, np.array(items, np.bool_).tobytes()
    if family is float:
        exact = all(value in (np.float32(value), decimal(value)) for value in items)
        kind, dtype = (_FLOAT32, "<f4") if exact else (_FLOAT64, "<f8")
        return kind, np.array(items, dtype).tobytes()
    kind, dtype = (short, _INTEGERS[short])
    limits = np.iinfo(dtype)
    if not all(limits.min <= value <= limits.max for value in items):
        kind, dtype = _INT64, "<i8"
    return kind, np.array(items, dtype).tobytes()
