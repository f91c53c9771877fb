"""Tensors from safetensors files, memory-mapped.

The format: a little-endian u64 header length, a JSON header (name -> dtype, shape, data_offsets),
then the data. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.json_file import parse_object, read_json
from luminal.loaders.mapped import Array, array_at, byte_count, map_file
from luminal.loaders.shown import MAX_LENGTH, check_name, shown

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}

METADATA = "__metadata__"
MAX_NAME = 255  # of a file, on every file system that matters
MAX_HEADER = 16_000_000  # bytes; the format allows more, the largest known have 1/20 of it
MAX_SHARDS = 10_000


class _Entry(NamedTuple):
    """A tensor in the header; `begin` and `end` are bytes of the data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


# The `safetensors` library copies on its way to NumPy, and has no bfloat16 there. The format is a
# JSON header and raw data, so mapping it takes less code than going round that would.
def read_safetensors(path: Path) -> dict[str, Array]:
    """Every tensor of one file by name, as read-only views of the mapped file.

    Raises LoadError where the file is truncated or its header contradicts itself.
    """
    data = map_file(path)
    header, start = _read_header(data, path)
    size = len(data) - start
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise LoadError(f"{path}: {METADATA} is {shown(metadata)}, it must map names to texts")
    entries: dict[str, _Entry] = {}
    for name, raw in header.items():
        entry = entries[name] = _check_entry(name, raw, path)
        if entry.end > size:
            raise LoadError(
                f"{path}: truncated: tensor {shown(name)} ends at byte {shown(start + entry.end)}, "
                f"the file has {len(data)}; download it again"
            )
    _check_spans(entries, size, path)  # before any is copied, for the sake of its alignment
    return {
        name: array_at(data, start + entry.begin, entry.dtype, entry.shape)
        for name, entry in entries.items()
    }


def read_metadata(path: Path) -> dict[str, str]:
    """The texts by name that a file has beside its tensors."""
    header, _ = _read_header(map_file(path), path)
    metadata = header.get(METADATA, {})
    return metadata if isinstance(metadata, dict) else {}


def read_sharded(index_path: Path) -> dict[str, Array]:
    """Every tensor of a checkpoint split over files, from its `*.safetensors.index.json`."""
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(map(_is_name, weight_map.values())):
        raise LoadError(f"{index_path}: no weight_map of tensor names to names of files beside it")
    files = sorted(set(weight_map.values()))
    if len(files) > MAX_SHARDS:
        raise LoadError(
            f"{index_path}: names {len(files)} files, at most {MAX_SHARDS} are supported"
        )
    shards = {file: read_safetensors(index_path.parent / file) for file in files}
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise LoadError(f"{index_path}: tensor {shown(name)} is not in {file}, as it says")
    # The index decides: what a file has beside what it lists of it is no part of the model.
    return {name: shards[file][name] for name, file in weight_map.items()}


def _is_name(file: Any) -> bool:
    """Whether this is the name of a file in the same folder: an index reads nothing elsewhere."""
    return (
        type(file) is str
        and 0 < len(file) <= MAX_NAME
        and file.isprintable()
        and Path(file).name == file
    )


def _read_header(data: memoryview, path: Path) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        raise LoadError(f"{path}: truncated: {len(data)} bytes, a safetensors header has 8")
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        raise LoadError(
            f"{path}: truncated or not a safetensors file: its header ends at byte {start}, "
            f"the file has {len(data)}"
        )
    if start - 8 > MAX_HEADER or bytes(data[8:9]) != b"{":
        raise LoadError(
            f"{path}: not a safetensors file: the header must begin with {{ and have at most "
            f"{MAX_HEADER} bytes"
        )
    return parse_object(bytes(data[8:start]), f"{path}: the header", unique=True), start


def _check_entry(name: str, entry: Any, path: Path) -> _Entry:
    what = f"{path}: tensor {name[:MAX_LENGTH]!r}"
    check_name(name, path)
    match entry:
        case {"dtype": str(dtype_name), "shape": [*extents], "data_offsets": [begin, end]}:
            pass
        case _:
            raise LoadError(
                f"{what}: the header entry needs dtype, shape and two data_offsets, "
                f"got {shown(entry)}"
            )
    if dtype_name not in DTYPES:
        raise LoadError(
            f"{what}: dtype {shown(dtype_name)} is not supported; supported are {', '.join(DTYPES)}"
        )
    if not all(type(n) is int and n >= 0 for n in (*extents, begin, end)):
        raise LoadError(
            f"{what}: shape {shown(extents)} and offsets {shown([begin, end])} must be integers "
            ">= 0"
        )
    dtype, shape = DTYPES[dtype_name], tuple(extents)
    needed = byte_count(dtype, shape, what)
    if end - begin != needed:
        raise LoadError(
            f"{what}: {dtype_name} {shown(extents)} takes {needed} bytes, the header gives "
            f"{shown(end - begin)}"
        )
    return _Entry(dtype, shape, begin, end)


def _check_spans(entries: Mapping[str, _Entry], size: int, path: Path) -> None:
    """The data must be the tensors one after another: no overlap, no hole, nothing behind."""
    spans = sorted((entry.begin, entry.end, name) for name, entry in entries.items())
    previous_end, previous = 0, "the header"
    for begin, end, name in spans:
        if begin < previous_end:
            raise LoadError(f"{path}: tensor {shown(name)} overlaps {shown(previous)}")
        if begin > previous_end:
            raise LoadError(f"{path}: {begin - previous_end} unused bytes before {shown(name)}")
        previous_end, previous = end, name
    if previous_end != size:
        raise LoadError(f"{path}: {size - previous_end} unused bytes after {shown(previous)}")
