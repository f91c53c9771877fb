"""Tensors from safetensors files, memory-mapped.

The format: a little-endian u64 header length, a JSON header (name -> dtype, shape, data_offsets),
then the data. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from luminal.errors import LoadError
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import Array, array_at, map_file

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
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}


def read_safetensors(path: Path) -> dict[str, Array]:
    """Every tensor of one file by name, as read-only views of the mapped file.

    Raises LoadError where the file is truncated or its header contradicts itself.
    """
    data = map_file(path)
    header, start = _read_header(data, path)
    size = len(data) - start
    header.pop("__metadata__", None)
    tensors: dict[str, Array] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _check_entry(name, entry, path)
        if end > size:
            raise LoadError(
                f"{path}: truncated: tensor {name!r} ends at byte {start + end}, "
                f"the file has {len(data)}; download it again"
            )
        spans.append((begin, end, name))
        tensors[name] = array_at(data, start + begin, dtype, shape)
    _check_spans(sorted(spans), size, path)
    return tensors


def read_sharded(index_path: Path) -> dict[str, Array]:
    """Every tensor of a checkpoint split over files, from its `*.safetensors.index.json`."""
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(type(f) is str for f in weight_map.values()):
        raise LoadError(f"{index_path}: no weight_map of tensor names to file names in it")
    files = {name: index_path.parent / file for name, file in weight_map.items()}
    shards = {file: read_safetensors(file) for file in sorted(set(files.values()))}
    for name, file in files.items():
        if name not in shards[file]:
            raise LoadError(f"{index_path}: tensor {name!r} is not in {file.name}, as it says")
    return {name: shards[file][name] for name, file in files.items()}


def _read_header(data: memoryview, path: Path) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        raise LoadError(f"{path}: truncated: {len(data)} bytes, a safetensors header has 8")
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        raise LoadError(
            f"{path}: truncated or not a safetensors file: its header ends at byte {start}, "
            f"the file has {len(data)}"
        )
    try:
        header = json.loads(bytes(data[8:start]))
    except ValueError as error:
        raise LoadError(f"{path}: not a safetensors file: header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise LoadError(f"{path}: not a safetensors file: the header is not a JSON object")
    return header, start


def _check_entry(
    name: str, entry: Any, path: Path
) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    try:
        dtype_name, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise LoadError(
            f"{path}: tensor {name!r}: the header entry needs dtype, shape and two data_offsets, "
            f"got {entry!r}"
        ) from None
    if dtype_name not in DTYPES:
        raise LoadError(
            f"{path}: tensor {name!r}: dtype {dtype_name!r} is not supported; "
            f"supported are {', '.join(DTYPES)}"
        )
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise LoadError(
            f"{path}: tensor {name!r}: shape {list(shape)} and offsets [{begin}, {end}] must be "
            f"integers >= 0"
        )
    dtype = DTYPES[dtype_name]
    needed = math.prod(shape) * dtype.itemsize
    if end - begin != needed:
        raise LoadError(
            f"{path}: tensor {name!r}: {dtype_name} {list(shape)} takes {needed} bytes, "
            f"the header gives {end - begin}"
        )
    return dtype, shape, begin, end


def _check_spans(spans: list[tuple[int, int, str]], size: int, path: Path) -> None:
    """The data must be the tensors one after another: no overlap, no hole, nothing behind."""
    previous_end, previous = 0, "the header"
    for begin, end, name in spans:
        if begin < previous_end:
            raise LoadError(f"{path}: tensor {name!r} overlaps {previous!r}")
        if begin > previous_end:
            raise LoadError(f"{path}: {begin - previous_end} unused bytes before tensor {name!r}")
        previous_end, previous = end, name
    if previous_end != size:
        raise LoadError(f"{path}: {size - previous_end} unused bytes after tensor {previous!r}")
