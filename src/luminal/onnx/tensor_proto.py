"""TensorProto to arrays: data in the model's file, and in files beside it, which are mapped."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from luminal.base.errors import LoadError
from luminal.loaders.mapped import array_at, byte_count, map_file
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.values import BITS, BY_NUMBER, NARROW, OTHERS

Array = np.ndarray[Any, Any]


class ExternalFiles:
    """The files beside a model, each mapped once; nothing outside of its folder is read."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._maps: dict[str, memoryview] = {}

    def __call__(self, location: str) -> memoryview:
        if location not in self._maps:
            self._maps[location] = map_file(self._path(location))
        return self._maps[location]

    @property
    def size(self) -> int:
        """Bytes of the files that were mapped till now."""
        return sum(map(len, self._maps.values()))

    def _path(self, location: str) -> Path:
        if self._folder is None:
            raise LoadError(
                f"external data {location!r}: the model came without a path; load it by its path"
            )
        path = self._folder / location
        inside = path.resolve().is_relative_to(self._folder.resolve())
        if not location or Path(location).is_absolute() or not inside:
            raise LoadError(
                f"external data {location!r} lies outside of the model's folder; only files in "
                "the folder are read"
            )
        return path


def array_of_tensor(
    tensor: TensorProto, files: ExternalFiles, what: str, data: memoryview | None = None
) -> Array:
    """The elements, as a read-only array; strings as an array of str objects. `data` stands for
    what `raw_data` would hold.

    Narrow dtypes have the array dtypes of ml_dtypes. Raises LoadError for data that does not fit
    the dims, UnsupportedError for dtypes that have no array here.
    """
    kind, shape = tensor.data_type, tuple(tensor.dims)
    if any(extent < 0 for extent in shape):
        raise LoadError(f"{what}: dims {list(shape)} hold a negative extent; the file is damaged")
    if kind in (14, 15):
        raise UnsupportedError(f"{what}: {OTHERS[kind]} is not supported")
    if kind == 8:
        return _strings(tensor, shape, what)
    if kind not in BY_NUMBER and kind not in NARROW:
        raise OnnxError(f"{what}: element type {kind} is not one that ONNX has had till now")
    dtype = BY_NUMBER[kind].numpy if kind in BY_NUMBER else NARROW[kind]
    byte_count(dtype, shape, what)
    count = math.prod(shape)
    packed = -(-count * BITS.get(kind, 8 * dtype.itemsize) // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, files, dtype, shape, packed, what)
    if data is None and not tensor.HasField("raw_data"):
        return _from_fields(tensor, shape, count, what)
    raw = memoryview(tensor.raw_data) if data is None else data
    if len(raw) != packed:
        raise LoadError(
            f"{what}: dims {list(shape)} of {dtype} take {packed} bytes, the data has {len(raw)}; "
            "the file is damaged"
        )
    return _unpacked(raw, 0, kind, dtype, shape)


def _unpacked(
    data: memoryview, offset: int, kind: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    if kind not in BITS:
        return array_at(data, offset, dtype, shape)
    bits, count = BITS[kind], math.prod(shape)
    per_byte = 8 // bits
    raw = np.frombuffer(data, np.uint8, -(-count // per_byte), offset)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    codes = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(-1)[:count].reshape(shape).view(dtype)


def _external(
    tensor: TensorProto,
    files: ExternalFiles,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    size: int,
    what: str,
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise LoadError(f"{what}: offset and length of external data must be integers") from None
    data = files(entries.get("location", ""))
    if offset < 0 or length != size or offset + size > len(data):
        raise LoadError(
            f"{what}: {size} bytes at {offset} of {entries.get('location')!r}: the entry says "
            f"{length}, the file has {len(data)}; it is damaged or of another model"
        )
    return _unpacked(data, offset, tensor.data_type, dtype, shape)


def _strings(tensor: TensorProto, shape: tuple[int, ...], what: str) -> Array:
    if len(tensor.string_data) != math.prod(shape):
        raise LoadError(f"{what}: {len(tensor.string_data)} strings for the dims {list(shape)}")
    texts = [raw.decode("utf-8") for raw in tensor.string_data]
    return np.array(texts, object).reshape(shape)


def _from_fields(tensor: TensorProto, shape: tuple[int, ...], count: int, what: str) -> Array:
    """Data in the typed fields of the message: small tensors as a rule."""
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise LoadError(
            f"{what}: dims {list(shape)} do not fit the data ({error}); the file is damaged"
        ) from None
    array = np.ascontiguousarray(array).reshape(shape)
    array.flags.writeable = False
    return array
