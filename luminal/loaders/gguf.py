"""Metadata and tensors from GGUF files, versions 2 and 3, memory-mapped.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from luminal.errors import LoadError
from luminal.loaders.mapped import Array, array_at, map_file

TENSOR_TYPES: dict[int, str] = dict(
    enumerate(
        "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K "
        "IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M "
        "BF16".split()
    )
)
SUPPORTED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}

_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype(np.bool_),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """`metadata`: Python scalars, strings and lists by key; `tensors`: in NumPy's dim order."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Array]


def read_gguf(path: Path) -> GGUFFile:
    """Read a GGUF file. Raises LoadError where it is truncated or holds an unsupported type."""
    data = map_file(path)
    reader = _Reader(data, path)
    if bytes(data[:4]) != b"GGUF":
        raise LoadError(f"{path}: not a GGUF file: it begins with {bytes(data[:4])!r}")
    reader.position = 4
    version = reader.scalar("I")
    if version not in (2, 3):
        raise LoadError(f"{path}: GGUF version {version} is not supported; 2 and 3 are")
    n_tensors, n_keys = reader.scalar("Q"), reader.scalar("Q")
    metadata = {}
    for _ in range(n_keys):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar("I"))
    entries = [reader.tensor_entry() for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise LoadError(f"{path}: general.alignment is {alignment!r}, it must be an integer >= 1")
    start = -(-reader.position // alignment) * alignment
    tensors = {entry.name: _tensor(data, start, entry, path) for entry in entries}
    return GGUFFile(metadata, tensors)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


class _Reader:
    """A position in the header; every read checks that the bytes are there."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.data):
            raise LoadError(
                f"{self.path}: truncated: the header goes on to byte {end}, "
                f"the file has {len(self.data)}; download it again"
            )
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def scalar(self, code: str) -> int:
        return int(struct.unpack("<" + code, self.take(struct.calcsize(code)))[0])

    def text(self) -> str:
        # Tokenizers hold pieces that are not whole UTF-8 characters; keep their bytes.
        return bytes(self.take(self.scalar("Q"))).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            item_kind, count = self.scalar("I"), self.scalar("Q")
            if item_kind in _SCALARS:
                return self.numbers(item_kind, count)
            return [self.value(item_kind) for _ in range(count)]
        if kind not in _SCALARS:
            raise LoadError(f"{self.path}: unknown metadata type {kind}; the file is damaged")
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: int, count: int) -> list[Any]:
        dtype = _SCALARS[kind]
        numbers: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return numbers

    def tensor_entry(self) -> _Entry:
        name = self.text()
        rank = self.scalar("I")
        dims = struct.unpack(f"<{rank}Q", self.take(8 * rank))
        return _Entry(name, dims[::-1], self.scalar("I"), self.scalar("Q"))


def _tensor(data: memoryview, start: int, entry: _Entry, path: Path) -> Array:
    kind = TENSOR_TYPES.get(entry.type, f"number {entry.type}")
    if kind not in SUPPORTED:
        raise LoadError(
            f"{path}: tensor {entry.name!r} has type {kind}; supported are "
            f"{', '.join(SUPPORTED)}; take an unquantised file of the model"
        )
    dtype = SUPPORTED[kind]
    begin = start + entry.offset
    end = begin + math.prod(entry.shape) * dtype.itemsize
    if end > len(data):
        raise LoadError(
            f"{path}: truncated: tensor {entry.name!r} ends at byte {end}, "
            f"the file has {len(data)}; download it again"
        )
    return array_at(data, begin, dtype, entry.shape)
